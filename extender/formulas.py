"""Formulas of node scores from 0 to 10; unmarked nodes score above marked nodes; pure."""

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
    """Score a marked node: NoSchedule 0; PreferNoSchedule 0 for the older half, 1 for the younger.

    *rank*: position of the node among the *marked* nodes; the oldest mark has position 0. Pods
    avoid the older half more, because these nodes are nearest to being empty. Two scores for
    marked nodes suffice, so nine remain for unmarked ones.
    """
    if mark is Mark.NO_SCHEDULE or rank * 2 < marked:
        return 0
    return SCORE_MARKED_PREFER_NO_SCHEDULE_MAX


class Requested(Protocol):
    """Requests on a node, as far as scores use them; Resources implements it."""

    @property
    def cpu_millis(self) -> int:
        """Return the requested CPU."""

    @property
    def memory_bytes(self) -> int:
        """Return the requested memory."""

    @property
    def devices(self) -> Mapping[str, int]:
        """Return the requested devices by name."""


def score_full(requests: Requested, allocatable: Resources) -> int:
    """Score an unmarked node by utilization: 2 if empty, 10 if full.

    Utilization is requests over allocatable of the scarcest of CPU, memory and each device. Steps
    have equal width and are compared in whole numbers. Overcommitted nodes count as full.
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
    """Score an unmarked node for one pod with `extender.score: pack`, from 2 to 10.

    *full* is the score of the node by utilization. *alike*: the node's pods have the owner class
    of the pod; None: the node has no pods. *dearer*: steps that the pod loses because its share of
    this node costs more than its share of another node (extender.node_shapes).

    The share comes first. A pod that takes the CPU beside GPUs blocks the GPUs, and keeps the
    expensive node while it runs. Then comes the owner class: scale-ins can empty a node only if
    all its pods belong to ReplicaSets.
    """
    low, steps = LOWEST_AND_STEPS[alike]
    score = low + (full - SCORE_UNMARKED_MIN) * steps // (
        SCORE_MAX - SCORE_MARKED_PREFER_NO_SCHEDULE_MAX
    )
    return max(score - dearer, SCORE_UNMARKED_MIN)


def steps_lost(share: int, least_share: int) -> int:
    """Return the steps that a node loses because the pod takes *share* of it, not *least_share*.

    It loses none if *least_share* is 0.
    """
    return bisect_right(STEP_PERCENT, 100 * share // least_share) if least_share else 0
