"""Formulas of node scores, 0 to 10; unmarked nodes score above marked ones; pure."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, Protocol

from core.marks.mark import Mark
from core.model.resources import Resources

SCORE_MAX: Final = 10

SCORE_MARKED_SOFT_MAX: Final = 1
"""Soft marks get 1 down to 0, hard marks 0; every unmarked node gets more."""
SCORE_UNMARKED_MIN: Final = SCORE_MARKED_SOFT_MAX + 1


def score_marked(mark: Mark, rank: int, marked: int) -> int:
    """Score a marked node: hard 0; soft 0 for the older half of the marks and 1 for the younger.

    *rank* counts the marked nodes from the first marked (0) to the last (*marked* - 1). Two steps
    suffice: pods avoid the node first that is nearest to being empty, and no unmarked node can
    come below.
    """
    if mark is Mark.HARD or rank * 2 < marked:
        return 0
    return SCORE_MARKED_SOFT_MAX


class Requested(Protocol):
    """What is requested on a node, as far as scores go by it; Resources are."""

    @property
    def cpu_millis(self) -> int:
        """Return that of CPU."""

    @property
    def memory_bytes(self) -> int:
        """Return that of memory."""

    @property
    def devices(self) -> Mapping[str, int]:
        """Return those of devices, by name."""


def score_full(requests: Requested, allocatable: Resources) -> int:
    """Score an unmarked node by how full it is: 2 when empty to 10 when full.

    The share is that of the scarcest of CPU, memory and each device, by requests; steps are equal
    in width and compared in whole numbers. Overcommitted nodes count as full.
    """
    steps = SCORE_MAX - SCORE_MARKED_SOFT_MAX
    best = 0
    asked = requests.devices if allocatable.extended else {}
    for used, whole in (
        (requests.cpu_millis, allocatable.cpu_millis),
        (requests.memory_bytes, allocatable.memory_bytes),
        *((asked.get(name, 0), many) for name, many in allocatable.devices.items()),
    ):
        if whole > 0:
            best = max(best, min(used * steps // whole, steps - 1))
    return SCORE_UNMARKED_MIN + best


BESIDE: Final[Mapping[bool | None, tuple[int, int]]] = {None: (4, 1), False: (6, 2), True: (8, 3)}
"""By whether pods are alike (None: there are none): the lowest score, and in how many steps it
rises as the node fills."""
DEARER_PERCENT: Final = (112, 141, 178, 224, 282, 356, 448, 565)
"""From how much on, of what the pod takes where it takes least, another step is lost: three steps
a doubling, each from its middle on."""


def score_beside(full: int, *, alike: bool | None, dearer: int) -> int:
    """Score an unmarked node for one pod, for `extender.score: pack`: 2 to 10.

    *full*: its score by how full it is; *alike*: whether its pods are of the pod's sort; None: no
    pods; *dearer*: how many steps more of what a node is worth the pod takes there than elsewhere.
    A pod that takes the CPU beside GPUs, or the half of a node that has little else to offer,
    keeps that from all who need it, and the node up while it runs. Then the sort: pods that a
    scale-in takes and those that go by themselves alone leave in different ways, and one
    long-lived pod keeps a node that scale-ins would empty.
    """
    low, steps = BESIDE[alike]
    found = low + (full - SCORE_UNMARKED_MIN) * steps // (SCORE_MAX - SCORE_MARKED_SOFT_MAX)
    return max(found - dearer, SCORE_UNMARKED_MIN)


def steps_dearer(takes: int, least: int) -> int:
    """Return by how many steps more is taken than where it is least; 0 where that is nothing."""
    return bisect_right(DEARER_PERCENT, 100 * takes // least) if least else 0
