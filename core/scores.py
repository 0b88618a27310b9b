"""Scores of the scheduler's extender, 0 to 10; unmarked nodes come above marked ones."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from core.marks.mark import Mark
from core.model.resources import Resources
from core.survival.spans import EMPTY

SCORE_MAX: Final = 10

SCORE_MARKED_SOFT_MAX: Final = 1
"""Soft marks get 1 down to 0, hard marks 0; every unmarked node gets more."""


def score_marked(mark: Mark, rank: int, marked: int) -> int:
    """Score a marked node: hard 0; soft 0 for the older half of the marks and 1 for the younger.

    *rank* counts the marked nodes from the first marked (0) to the last (*marked* - 1). Two steps
    suffice: pods avoid the node first that is nearest to being empty, and no unmarked node can
    come below.
    """
    if mark is Mark.HARD or rank * 2 < marked:
        return 0
    return SCORE_MARKED_SOFT_MAX


def score_pack(requests: Resources, allocatable: Resources) -> int:
    """Score an unmarked node for `extender.score: pack`: 2 when empty to 10 when full.

    The share is that of the scarcer of CPU and memory, by requests; steps are equal in width
    and compared in whole numbers. Overcommitted nodes count as full.
    """
    low, steps = SCORE_MARKED_SOFT_MAX + 1, SCORE_MAX - SCORE_MARKED_SOFT_MAX
    best = 0
    for used, whole in (
        (requests.cpu_millis, allocatable.cpu_millis),
        (requests.memory_bytes, allocatable.memory_bytes),
    ):
        if whole > 0:
            best = max(best, min(used * steps // whole, steps - 1))
    return low + best


LASTING: Final = 4
"""Steps of nodes that are there as long as the pod anyway; so many others are for those that it
keeps longer, and the last one is for empty nodes."""


def score_lifetime(pod: int, node: int) -> int:
    """Score an unmarked node for `extender.score: lifetime`: 2 when empty to 10.

    *pod* and *node*: the doubling (core.survival.spans) in which the pod is expected to end, and
    the last pod of the node without it. Nodes that are there as long as the pod anyway come first,
    of these the one that is empty soonest; of the others the one that the pod keeps the least
    longer. Among equal ones the scheduler's MostAllocated takes the fullest.
    """
    if node == EMPTY:
        return SCORE_MARKED_SOFT_MAX + 1
    if node >= pod:
        return SCORE_MAX - min(node - pod, LASTING - 1)
    return SCORE_MAX - LASTING - min(pod - node - 1, LASTING - 1)


ALIKE: Final = 4
"""Steps of nodes with pods of the same sort; so many others are for those of the other sort."""


def score_apart(full: int, *, alike: bool | None) -> int:
    """Score an unmarked node for `extender.score: apart`: 2 when empty to 10.

    *full*: its score by `pack`; *alike*: whether its pods are of the pod's sort; None: no pods.
    Pods that a scale-in takes and those that go by themselves alone are two sorts: a node with
    none but the first is emptied by scale-ins, and one long-lived pod of the other keeps it.
    """
    low = SCORE_MARKED_SOFT_MAX + 1
    if alike is None:
        return low
    step = (full - low) * ALIKE // (SCORE_MAX - low + 1)
    return low + 1 + step + (ALIKE if alike else 0)


InTime = Callable[[int, int], int]


class OfSort(Protocol):
    """A score that depends on the pod's sort."""

    def __call__(self, full: int, *, alike: bool | None) -> int:
        """Score as `score_apart` does."""


class Score(NamedTuple):
    """How unmarked nodes are scored."""

    name: str
    """In the configuration."""
    of: Callable[[Resources, Resources], int] | None = None
    """Of what is requested on a node and what is allocatable there, above every marked one; None:
    all nodes get the best, and marked nodes alone need to be known."""

    in_time: InTime | None = None
    """Of when a pod is expected to end, and the node's last one; where nothing is expected of the
    pod, and where this is None, the other counts."""
    of_sort: OfSort | None = None
    """Of how full a node is and whether its pods are of the pod's sort; None: sorts are one."""

    def unmarked(self, requests: Resources, allocatable: Resources) -> int:
        """Score an unmarked node."""
        return SCORE_MAX if self.of is None else self.of(requests, allocatable)


SCORES: Final[Mapping[str, Score]] = {
    score.name: score
    for score in (
        Score("pack", score_pack),
        Score("marks"),
        Score("lifetime", score_pack, score_lifetime),
        Score("apart", score_pack, of_sort=score_apart),
    )
}
"""The first is the default."""
