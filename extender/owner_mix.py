"""Owner classes of the pods on each node, for the score `pack`.

Ebb influences the order in which scale-ins delete pods of ReplicaSets (core.writes.costs). It
cannot influence when other pods terminate.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from core.model.pod import REPLICA_SET, Pod

OWNER_CLASSES: Final = 2


class OwnerMixes:
    """Number of pods of each owner class that keep a node from being empty, by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, Counter[int]] = {}

    def replace_all(self, pods: Mapping[str, Pod]) -> None:
        """Replace all pods."""
        self._by_node = {}
        for pod in pods.values():
            self.add(pod, 1)

    def add(self, pod: Pod, sign: int) -> None:
        """Add a pod (*sign* 1) or remove it (*sign* -1)."""
        if pod.node is not None and pod.occupies:
            counts = self._by_node.setdefault(pod.node, Counter())
            counts[owner_class_of(pod)] += sign
            if not counts.total():
                del self._by_node[pod.node]

    def has_class(self, owner_class: int, name: str) -> bool | None:
        """Return whether the node has the owner class; None if no pod keeps it from being empty.

        A node has class 1 if all these pods belong to ReplicaSets. Else it has class 0, because
        scale-ins cannot empty it.
        """
        counts = self._by_node.get(name)
        return bool(counts[0]) is not bool(owner_class) if counts else None


def owner_class_of(pod: Pod) -> int:
    """Return the owner class of a pod: 1 for a pod of a ReplicaSet, else 0."""
    return int(pod.owner_kind == REPLICA_SET)
