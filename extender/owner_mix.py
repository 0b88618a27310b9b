"""Which nodes have pods of which sort, for the score `pack`.

Of a ReplicaSet's pods a scale-in takes those that it is told to take (core.writes.costs); all
others go by themselves alone.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from core.model.pod import Pod
from core.model.workload import REPLICA_SET

SORTS: Final = 2


class OwnerMixes:
    """How many pods of either sort keep each node from being empty."""

    def __init__(self) -> None:
        self._on: dict[str, Counter[int]] = {}

    def listed(self, pods: Mapping[str, Pod]) -> None:
        """Take a whole list."""
        self._on = {}
        for pod in pods.values():
            self.add(pod, 1)

    def add(self, pod: Pod, sign: int) -> None:
        """Count a pod, or take it away."""
        if pod.node is not None and pod.occupies:
            ours = self._on.setdefault(pod.node, Counter())
            ours[owner_class_of(pod)] += sign
            if not ours.total():
                del self._on[pod.node]

    def alike(self, sort: int, name: str) -> bool | None:
        """Say whether the pods of a node are of a sort; None: no pod keeps it from being empty.

        One pod that goes by itself alone keeps a node: it is of that sort.
        """
        ours = self._on.get(name)
        return bool(ours[0]) is not bool(sort) if ours else None


def owner_class_of(pod: Pod) -> int:
    """Return the sort of a pod: 1 for a pod of a ReplicaSet, else 0."""
    return int(pod.owner_kind == REPLICA_SET)
