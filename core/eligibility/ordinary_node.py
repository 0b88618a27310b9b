"""Find out once what rules read of an ordinary node, so that most nodes need no rule at all.

A rule is a pure function of a node. Run on an ordinary node, it reads some fields and gives no
reason. On every other node with the same values in these fields it takes the same path, so it
gives no reason either. The fields are recorded when the rule runs: nobody has to declare them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, cast

from core.model.node import Node
from core.model.resources import Resources

ORDINARY = Node(name="", allocatable=Resources(0, 0))
"""A Ready node without labels, annotations and taints."""


class OrdinaryNode:
    """Checks quickly that no rule can give a reason against a node; true for most nodes."""

    def __init__(self, rules: Iterable[Callable[[Node], object]]) -> None:
        """Run each rule on the ordinary node, and record the fields that it reads.

        *rules*: functions of a node that return a reason, or None. Raises: ValueError if a rule
        gives a reason against the ordinary node.
        """
        labels, annotations = _RecordedKeys(), _RecordedKeys()
        recorder = _RecordedNode({"labels": labels, "annotations": annotations})
        for rule in rules:
            if rule(cast("Node", recorder)) is not None:
                raise ValueError(f"{rule}: gives a reason against an ordinary node")
        fields = {*recorder.read}
        fields |= {"labels"} if labels.read_as_a_whole else set()
        fields |= {"annotations"} if annotations.read_as_a_whole else set()
        self.fields = tuple(sorted(fields))
        """Fields that must have the values of the ordinary node."""
        self.labels, self.annotations = frozenset(labels.read), frozenset(annotations.read)
        """Keys of labels and annotations that an ordinary node does not have."""
        self._values: Callable[[Node], object] = (
            attrgetter(*self.fields) if self.fields else lambda _: None
        )
        self._ordinary = self._values(ORDINARY)

    def matches(self, node: Node) -> bool:
        """Return True if surely no rule gives a reason against the node.

        False means unknown: the caller must run the rules.
        """
        return bool(
            self._values(node) == self._ordinary
            and self.labels.isdisjoint(node.labels)
            and self.annotations.isdisjoint(node.annotations)
        )


class _RecordedKeys(Mapping[str, str]):
    """An empty mapping that records the keys that are looked up."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.read_as_a_whole = False

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        self.read_as_a_whole = True
        return iter(())

    def __len__(self) -> int:
        self.read_as_a_whole = True
        return 0


class _RecordedNode:
    """The ordinary node, which records the names of the fields that are read."""

    def __init__(self, mappings: Mapping[str, _RecordedKeys]) -> None:
        self.read: set[str] = set()
        self._mappings = mappings

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 the type of the field
        if name in self._mappings:
            return self._mappings[name]
        member = getattr(Node, name)
        if isinstance(member, property):
            return member.__get__(self)
        self.read.add(name)
        return getattr(ORDINARY, name)
