"""Which nodes have pods of which sort, and devices left over, for the score `pack`.

Of a ReplicaSet's pods a scale-in takes those that it is told to take (core.writes.costs); all
others go by themselves alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from core.model.pod import Pod
from core.model.workload import REPLICA_SET
from core.scores import SCORE_UNMARKED_MIN, Beside
from extender.wire import New


class Sorts:
    """How many pods of either sort keep each node from being empty."""

    def __init__(
        self, full: Callable[[str], int], idle: Callable[[str], bool], score: Beside
    ) -> None:
        """*full*: a node's score by how full it is; *idle*: whether it has devices left."""
        self._full, self._idle, self._score = full, idle, score
        self._on: dict[str, Counter[int]] = {}

    def listed(self, pods: Mapping[str, Pod]) -> None:
        """Take a whole list."""
        self._on = {}
        for pod in pods.values():
            self.became(None, pod)

    def became(self, before: Pod | None, after: Pod | None) -> None:
        """Take one change; None: not there."""
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None and pod.node is not None and pod.occupies:
                ours = self._on.setdefault(pod.node, Counter())
                ours[_sort(pod)] += sign
                if not ours.total():
                    del self._on[pod.node]

    def of_pod(self, new: New) -> int:
        """Return a new pod's kind: its sort, and whether it asks for devices."""
        return _sort(new.pod) + 2 * new.devices

    def score(self, kind: int, name: str | None) -> int:
        """Score a node for a pod of a kind; None: one that is not known.

        One pod that goes by itself alone keeps a node: it is of that sort. A pod that asks for a
        device takes no other pod's: it minds none.
        """
        if name is None:
            return self._score(SCORE_UNMARKED_MIN, alike=None, idle=False)
        devices, sort = divmod(kind, 2)
        ours = self._on.get(name)
        alike = bool(ours[0]) is not bool(sort) if ours else None
        return self._score(self._full(name), alike=alike, idle=not devices and self._idle(name))


def _sort(pod: Pod) -> int:
    return int(pod.owner_kind == REPLICA_SET)
