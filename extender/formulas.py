"""Compute node scores from 0 to 10; unmarked nodes score above marked nodes; pure."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, Protocol

from core.marks.mark import Mark
from core.model.resources import Resources

SCORE_MAX: Final = 10

SCORE_MARKED_PREFER_NO_SCHEDULE_MAX: Final = 1
"""PreferNoSchedule marks score 1 or 0, NoSchedule marks 0; every unmarked node scores higher."""
SCORE_UNMARKED_MIN: Final = SCORE_MARKED_PREFER_NO_SCHEDULE_MAX + 1


def score_marked(mark: Mark, rank: int, marked: int) -> int:
    """Return the score of a marked node: 0, or 1 for a younger PreferNoSchedule mark.

    *rank*: position of the node among all marked nodes; the oldest mark has position 0. *marked*:
    number of marked nodes. A mark in the older half scores 0, because its node is nearer to being
    empty. Two scores for marked nodes suffice, so nine remain for unmarked ones.
    """
    if mark is Mark.NO_SCHEDULE or rank * 2 < marked:
        return 0
    return SCORE_MARKED_PREFER_NO_SCHEDULE_MAX


class Requested(Protocol):
    """The sum of the requests of a node's pods, as far as scores use them."""

    @property
    def cpu_millis(self) -> int:
        """Return the requested CPU, in millicores."""

    @property
    def memory_bytes(self) -> int:
        """Return the requested memory, in bytes."""

    @property
    def devices(self) -> Mapping[str, int]:
        """Return the requested units of each device (such as a GPU), by resource name."""


def score_full(requests: Requested, allocatable: Resources) -> int:
    """Return the score of an unmarked node by utilization: from 2 if empty to 10 if full.

    Utilization is requests over allocatable, of the resource with the highest ratio among CPU,
    memory and each device. Steps have equal width. Overcommitted nodes count as full.
    """
    steps = SCORE_MAX - SCORE_MARKED_PREFER_NO_SCHEDULE_MAX
    best = 0
    requested_devices = requests.devices if allocatable.extended else {}
    for used, allocatable_amount in (
        (requests.cpu_millis, allocatable.cpu_millis),
        (requests.memory_bytes, allocatable.memory_bytes),
        *(
            (requested_devices.get(name, 0), amount)
            for name, amount in allocatable.devices.items()
        ),
    ):
        if allocatable_amount > 0:
            best = max(best, min(used * steps // allocatable_amount, steps - 1))
    return SCORE_UNMARKED_MIN + best


LOWEST_AND_STEPS: Final[Mapping[bool | None, tuple[int, int]]] = {
    None: (4, 1),
    False: (6, 2),
    True: (8, 3),
}
"""Lowest score and number of steps above it by utilization, by whether the node's pods have the
pod's owner class; None: the node has no pods."""
STEP_PERCENT: Final = (112, 141, 178, 224, 282, 356, 448, 565)
"""Ratios, in percent, at each of which the score of a node falls by one step.

The ratio compares the part of the node's value that the pod would take with the smallest such part
among the nodes of the call. A doubling costs three steps: their number is three times the binary
logarithm of the ratio, rounded, and at most 8."""


def score_pack(full: int, *, alike: bool | None, dearer: int) -> int:
    """Return the score, from 2 to 10, of an unmarked node for one pod (`extender.score: pack`).

    *full*: score of the node by utilization. *alike*: whether the node's pods have the owner class
    of the pod (pods of ReplicaSets, or others); None: the node has no pods. *dearer*: points to
    subtract because the pod takes a costlier part of this node than of the cheapest node.

    The cost comes first. A pod that takes the CPU beside GPUs blocks the GPUs, and keeps the
    expensive node while it runs. Then comes the owner class: scale-ins can empty a node only if
    all its pods belong to ReplicaSets.
    """
    low, steps = LOWEST_AND_STEPS[alike]
    score = low + (full - SCORE_UNMARKED_MIN) * steps // (
        SCORE_MAX - SCORE_MARKED_PREFER_NO_SCHEDULE_MAX
    )
    return max(score - dearer, SCORE_UNMARKED_MIN)


def steps_lost(share: int, least_share: int) -> int:
    """Return the points, from 0 to 8, that a node loses because a pod takes much of its cost.

    *share*: part of the node's cost that the pod takes. *least_share*: smallest such part among
    the nodes of the call, in the same unit. If *least_share* is 0, the node loses none.
    """
    return bisect_right(STEP_PERCENT, 100 * share // least_share) if least_share else 0
