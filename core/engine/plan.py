"""Define the plan: the nodes to remove, in order, and why the other nodes cannot be removed.

The plan also lists placements of pods, and nodes to keep empty for expected pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, NamedTuple

from core.model.reason import Blocker
from core.placement.reach_utilization import DeviceTotals
from core.placement.usable_capacity import Share, Totals, Usability
from core.policies.policy import PolicyMetric

REACHES_SHOWN: Final = 12
"""Maximum number of reaches in tables and metrics; JSON contains all."""


class Placement(NamedTuple):
    """A pod, and the node on which a plan would place it."""

    pod: str
    """Pod as namespace/name."""
    node: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A node to remove after the nodes before it in the plan, and the new places of its pods."""

    node: str
    order: int
    """Position of the removal in the plan, from 1."""
    placements: tuple[Placement, ...]
    """Placements of all pods that must move, in packing order. This includes pods that earlier
    removals of the plan place on the node."""


@dataclass(frozen=True, slots=True)
class UnremovableNode:
    """A node that the plan does not remove, with every reason against its removal."""

    node: str
    blockers: tuple[Blocker, ...]


class BufferRoom(NamedTuple):
    """How many pods a CapacityBuffer requests, how many are allowed, and how many have room."""

    buffer: str
    """CapacityBuffer as namespace/name."""
    asked: int
    """Pods that the buffer requests."""
    allowed: int
    """Requested pods that are within the share of capacity that buffers may use."""
    placed: int
    """Allowed pods that have room now."""
    fault: str
    """Error in the buffer, because of which it is ignored; empty if there is none."""


class ReserveCause(StrEnum):
    """Why Ebb keeps an empty node; a value of a metric label and in JSON."""

    PENDING = "pending"
    """Pending pods, or pods of leaving nodes, need the node."""
    EXPECTED = "expected"
    """Expected pods need it: as many as are usually created in a time span."""
    BUFFER = "buffer"
    """A CapacityBuffer that Ebb did not create needs it."""
    REPEATED = "repeated"
    """It was needed again soon after Ebb had allowed its scale-down."""
    NEW_LEADER = "new-leader"
    """The previous leader protected it, and the new one has not observed arrivals for long."""
    SCOPE = "scope"
    """Nothing needs it, but `scaleDownProtection.scope` protects all empty nodes."""


class ReservedNode(NamedTuple):
    """An empty node whose scale-down Ebb does not allow yet, with the reason."""

    node: str
    cause: ReserveCause
    """The most urgent cause, in the order of ReserveCause."""
    why: Blocker


class DeviceSums(NamedTuple):
    """Units of a device, such as a GPU, that pods of a reach request and its nodes offer.

    They are given before and after the plan, with the thresholds. A reach is a set of nodes that
    some pods can use.
    """

    resource: str
    """Name of the extended resource."""
    enter: Fraction
    unmark: Fraction
    before: DeviceTotals
    after: DeviceTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachSums:
    """Requests and capacity of a reach before and after the plan, with the reach's thresholds.

    A reach is a set of nodes that some pods can use.
    """

    name: str
    key: str
    usability: Usability | None
    enter: Share
    unmark: Share
    before: Totals
    after: Totals
    devices: tuple[DeviceSums, ...] = ()
    """Devices that pods of the reach request, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan for a whole cluster: nodes to remove, placements of pods, reasons to keep nodes."""

    policy: str
    usability: Usability | None
    """Usability settings of the plan; None means that all allocatable capacity is usable."""
    usability_derived: bool
    before: Totals
    """Totals of all nodes that a movable pod reaches, including the placements of pending pods."""
    after: Totals
    reaches: tuple[ReachSums, ...]
    """Reaches with at least two nodes, largest first."""
    removals: tuple[Removal, ...]
    kept: tuple[UnremovableNode, ...]
    """Nodes that cannot be removed, by name."""
    pending: tuple[Placement, ...]
    """Placements of pending pods, which are placed before any removal."""
    marked_infeasible: tuple[str, ...]
    """Marked nodes that cannot be removed any more, by name."""
    figures: tuple[PolicyMetric, ...] = ()
    """Metrics of the policy before any removal."""
    reserve: tuple[ReservedNode, ...] = ()
    """Empty nodes that are kept for expected pods, by name, including marked ones. Only a running
    controller computes them."""
    buffers: tuple[BufferRoom, ...] = ()
    """CapacityBuffers that Ebb did not create, by name."""
    protected: frozenset[str] = frozenset()
    """Unmarked nodes to protect from scale-down (core.engine.protection)."""
    crowded: frozenset[str] = frozenset()
    """Pods on removed nodes, as namespace/name, for which no node that stays has a place while
    they still run. Empty if surge moves are disabled."""
    complete: bool = True
    """True if the reconciliation had time to try every node."""


def tightest(reaches: Sequence[ReachSums], count: int = REACHES_SHOWN) -> list[ReachSums]:
    """Return the *count* reaches that are closest to their thresholds, in the given order."""
    nearest = sorted(reaches, key=lambda reach: (_distance(reach), reach.name))[:count]
    names = {reach.name for reach in nearest}
    return [reach for reach in reaches if reach.name in names]


def _distance(reach: ReachSums) -> Fraction:
    """Return the smallest difference between a threshold of the reach and the requested share.

    It is negative if a threshold is exceeded. Without capacity it is 0, or -1 if pods request any.
    """
    sums = [*zip(reach.after.requests, reach.after.usable, reach.enter, strict=True)]
    sums += ((*device.after, device.enter) for device in reach.devices if device.after.requested)
    return min(
        share - Fraction(used, whole) if whole else -Fraction(used > 0)
        for used, whole, share in sums
    )
