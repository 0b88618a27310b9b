"""Which of some nodes admit a template, all of them asked at once.

An answer is a number with one bit a node, the first node's the lowest. What is asked of a label is
compared with the values that nodes have, each once: a pod may ask for a thousand things, and what
that costs must not be multiplied by the nodes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

from core.fit.bits import bits_of
from core.fit.rules import UNSCHEDULABLE_TAINT, meets, number_in, repels, tolerates
from core.model.constraints import Placing, Requirement, SelectorTerm, Toleration
from core.model.node import Node, Taint

FEW_NODES: Final = 8
"""A value that no more nodes have is kept as their places: most values are of one node."""
NAME_FIELD: Final = "metadata.name"


class _Column:
    """What nodes have in one place, a label or the name, and where they have it."""

    def __init__(self, size: int, values: Iterable[tuple[int, str]]) -> None:
        """Take the places of nodes that have something there, and what it is."""
        self._size = size
        self._places: dict[str, list[int]] = {}
        for place, value in values:
            self._places.setdefault(value, []).append(place)
        self._many: dict[str, int] = {}
        """By value: the nodes, where they are more than a few."""

    def met(self, asked: Requirement) -> int:
        """Return the nodes that meet the requirement, of those that have anything there."""
        match asked.operator:
            case "In":
                return self.one_of(asked.values)
            case "NotIn":
                return self.any ^ self.one_of(asked.values)
            case "Exists":
                return self.any
            case "Gt" | "Lt":
                return self._beyond(asked)
            case _:
                return 0

    def one_of(self, asked: Iterable[str]) -> int:
        """Return the nodes that have one of these values there."""
        found, few = 0, list[int]()
        for value in asked:
            places = self._places.get(value, ())
            if len(places) <= FEW_NODES:
                few += places
                continue
            if value not in self._many:
                self._many[value] = bits_of(self._size, places)
            found |= self._many[value]
        return found | bits_of(self._size, few) if few else found

    @cached_property
    def any(self) -> int:
        """The nodes that have something there."""
        return bits_of(self._size, chain.from_iterable(self._places.values()))

    def _beyond(self, asked: Requirement) -> int:
        limits = [number_in(text) for text in asked.values]
        if len(limits) != 1 or (limit := limits[0]) is None:
            return 0
        numbers, upward = self._ordered
        if asked.operator == "Gt":
            return upward[bisect_right(numbers, limit)]
        return upward[0] ^ upward[bisect_left(numbers, limit)]

    @cached_property
    def _ordered(self) -> tuple[list[int], list[int]]:
        """Return the values that are numbers, ascending, and the nodes from each one upward."""
        read = ((number_in(text), places) for text, places in self._places.items())
        found = sorted((number, places) for number, places in read if number is not None)
        upward = [0]
        for _, places in reversed(found):
            upward.append(upward[-1] | bits_of(self._size, places))
        return [number for number, _ in found], upward[::-1]


class Taints:
    """Different taints, by what tolerations name: thousands of tenants may have one each."""

    def __init__(self, taints: Iterable[Taint]) -> None:
        self._by_key: dict[str, dict[str, list[Taint]]] = {}
        for taint in taints:
            self._by_key.setdefault(taint.key, {}).setdefault(taint.value, []).append(taint)

    def covered(self, tolerations: Iterable[Toleration]) -> Iterator[Taint]:
        """Yield those that one of the tolerations covers, some of them several times."""
        for one in tolerations:
            values = [self._by_key[one.key]] if one.key in self._by_key else []
            values = values if one.key else list(self._by_key.values())
            for by_value in values:
                exact = one.operator != "Exists"
                near = [by_value.get(one.value, [])] if exact else by_value.values()
                for taint in chain.from_iterable(near):
                    if tolerates(one, taint):
                        yield taint


class NodeIndex:
    """Some nodes, by what templates ask of them.

    What is kept grows with the nodes, and with the different tolerations that are asked about.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.all: Final = (1 << len(nodes)) - 1
        self._keys = {key for node in nodes for key in node.labels}
        self._labels: dict[str, _Column] = {}
        taints: dict[tuple[Taint, ...], list[int]] = {}
        for place, node in enumerate(nodes):
            taints.setdefault(tuple(filter(repels, node.taints)), []).append(place)
        self._taints = {found: bits_of(len(nodes), places) for found, places in taints.items()}
        self._with_taint: dict[Taint, list[tuple[Taint, ...]]] = {}
        for found in self._taints:
            for taint in dict.fromkeys(found):
                self._with_taint.setdefault(taint, []).append(found)
        self._repelling = Taints(self._with_taint)
        self._tolerated: dict[tuple[Toleration, ...], int] = {}
        self._cordoned = bits_of(
            len(nodes), (n for n, node in enumerate(nodes) if node.unschedulable)
        )

    def open_to(self, placing: Placing) -> int:
        """Return the nodes that are not cordoned, or all (rule `cordoned`)."""
        found = (one for one in placing.tolerations if tolerates(one, UNSCHEDULABLE_TAINT))
        return self.all if any(found) else self.all ^ self._cordoned

    def tolerated(self, placing: Placing) -> int:
        """Return the nodes whose taints are tolerated (rule `taint`)."""
        found = self._tolerated.get(placing.tolerations)
        if found is None:
            covered = frozenset(self._repelling.covered(placing.tolerations))
            near = chain.from_iterable(self._with_taint[taint] for taint in covered)
            found = self._taints.get((), 0)
            for taints in dict.fromkeys(near):
                if covered.issuperset(taints):
                    found |= self._taints[taints]
            self._tolerated[placing.tolerations] = found
        return found

    def selected(self, placing: Placing) -> int:
        """Return the nodes with the labels that are asked for (rule `node-selector`)."""
        bits = self.all
        for key, value in placing.labels:
            if not bits:
                break
            column = self._column(key)
            bits &= column.one_of((value,)) if column else 0
        return bits

    def affine(self, placing: Placing) -> int:
        """Return the nodes that one of the terms matches (rule `node-affinity`)."""
        if placing.affinity is None:
            return self.all
        bits = 0
        for term in placing.affinity:
            bits |= self._matched(term)
        return bits

    def declaring(self, placing: Placing) -> int:
        """Return the nodes that declare the features (rule `declared-features`)."""
        bits = self.all
        for feature in placing.features:
            bits &= self._features.one_of((feature,))
        return bits

    def _matched(self, term: SelectorTerm) -> int:
        bits = self.all if term.labels or term.fields else 0
        for asked in term.labels:
            if not bits:
                return 0
            bits &= self._met(asked, self._column(asked.key))
        for asked in term.fields:
            bits &= self._met(asked, self._names if asked.key == NAME_FIELD else None)
        return bits

    def _met(self, asked: Requirement, column: _Column | None) -> int:
        found = column.met(asked) if column else 0
        if meets(asked, {}):
            found |= self.all ^ column.any if column else self.all
        return found

    def _column(self, key: str) -> _Column | None:
        """Return what nodes have under the label; None: none has it. Anybody may ask for any."""
        found = self._labels.get(key)
        if found is None and key in self._keys:
            having = (
                (n, one.labels[key]) for n, one in enumerate(self._nodes) if key in one.labels
            )
            found = self._labels[key] = _Column(len(self._nodes), having)
        return found

    @cached_property
    def _names(self) -> _Column:
        return _Column(len(self._nodes), ((n, one.name) for n, one in enumerate(self._nodes)))

    @cached_property
    def _features(self) -> _Column:
        declared = ((n, name) for n, one in enumerate(self._nodes) for name in one.features)
        return _Column(len(self._nodes), declared)


AT_ONCE: Final[Mapping[str, Callable[[NodeIndex, Placing], int]]] = {
    "cordoned": NodeIndex.open_to,
    "taint": NodeIndex.tolerated,
    "node-selector": NodeIndex.selected,
    "node-affinity": NodeIndex.affine,
    "declared-features": NodeIndex.declaring,
}
"""By name: the rules that ask nothing of volumes."""
