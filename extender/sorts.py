"""Which nodes have pods of which sort, for the score `pack`.

Of a ReplicaSet's pods a scale-in takes those that it is told to take (core.writes.costs); all
others go by themselves alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from core.model.pod import Pod
from core.model.workload import REPLICA_SET
from core.scores import SCORE_UNMARKED_MIN, Beside
from extender.wire import New

SORTS: Final = 2


class Sorts:
    """How many pods of either sort keep each node from being empty."""

    def __init__(self, full: Callable[[str], int], score: Beside) -> None:
        """*full*: a node's score by how full it is."""
        self._full, self._score = full, score
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
        """Return a new pod's kind where it takes least of a node: its sort."""
        return _sort(new.pod)

    def dearer(self, kind: int, steps: int) -> int:
        """Return its kind where it takes more."""
        return kind + SORTS * steps

    def score(self, kind: int, name: str | None) -> int:
        """Score a node for a pod of a kind; None: one that is not known.

        One pod that goes by itself alone keeps a node: it is of that sort.
        """
        if name is None:
            return self._score(SCORE_UNMARKED_MIN, alike=None, dearer=0)
        steps, sort = divmod(kind, SORTS)
        ours = self._on.get(name)
        alike = bool(ours[0]) is not bool(sort) if ours else None
        return self._score(self._full(name), alike=alike, dearer=steps)


def _sort(pod: Pod) -> int:
    return int(pod.owner_kind == REPLICA_SET)
