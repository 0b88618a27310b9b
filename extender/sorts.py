"""Which nodes have pods of which sort, for the score `apart`.

Of a ReplicaSet's pods a scale-in takes those that it is told to take (core.writes.costs); all
others go by themselves alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from core.model.pod import Pod
from core.scores import OfSort
from core.writes.costs import OWNER_KIND


class Sorts:
    """How many pods of either sort keep each node from being empty."""

    def __init__(self, full: Callable[[str], int], score: OfSort) -> None:
        """*full*: a node's score by how full it is."""
        self._full, self._score = full, score
        self._on: dict[str, Counter[int]] = {}

    def listed(self, pods: Mapping[str, Pod]) -> None:
        """Take a whole list."""
        self._on = {}
        for key, pod in pods.items():
            self.became(key, None, pod)

    def became(self, key: str, before: Pod | None, after: Pod | None) -> None:  # noqa: ARG002 as Times has it
        """Take one change; None: not there."""
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None and pod.node is not None and pod.occupies:
                ours = self._on.setdefault(pod.node, Counter())
                ours[self.of_pod(pod)] += sign
                if not ours.total():
                    del self._on[pod.node]

    def of_pod(self, pod: Pod) -> int:
        """Return a pod's sort."""
        return int(pod.owner_kind == OWNER_KIND)

    def score(self, sort: int, name: str | None) -> int:
        """Score a node for a pod of a sort; None: one that is not known.

        One pod that goes by itself alone keeps a node: it is of that sort.
        """
        ours = self._on.get(name) if name is not None else None
        if name is None or not ours:
            return self._score(0, alike=None)
        return self._score(self._full(name), alike=bool(ours[0]) is not bool(sort))

    def learn(self, pods: Sequence[Pod]) -> Iterator[None]:  # noqa: ARG002 as Times has it
        """Time teaches nothing."""
        return iter(())

    def again(self, name: str) -> None:
        """Time changes nothing."""
