"""The engine's answer: which nodes go, in which order, and why the others stay; values only."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from core.capacity.usable import Share, Totals, Usability
from core.model.reason import Blocker
from core.policies.policy import PolicyMetric

REACHES_SHOWN: Final = 12
"""In tables and metrics; all are in JSON."""


class Placement(NamedTuple):
    """Where a pod would go."""

    pod: str
    """namespace/name."""
    node: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A node that can go, after those of lower order have gone."""

    node: str
    order: int
    """From 1."""
    placements: tuple[Placement, ...]
    """Every pod that must move, in packing order, those among them that earlier removals of the
    plan have put here too."""


@dataclass(frozen=True, slots=True)
class UnremovableNode:
    """A node that stays, with every reason."""

    node: str
    blockers: tuple[Blocker, ...]


class BufferRoom(NamedTuple):
    """A CapacityBuffer, and for how many of its pods there is room, which is kept."""

    buffer: str
    """namespace/name."""
    asked: int
    allowed: int
    """So many of them are within the share of the nodes that is kept for buffers."""
    placed: int
    """So many of these find room."""
    fault: str
    """Why it counts for nothing; empty: it counts."""


class ReservedNode(NamedTuple):
    """An empty node that no autoscaler is to take yet, and what for."""

    node: str
    why: Blocker


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachSums:
    """A reach before and after the plan."""

    name: str
    key: str
    usability: Usability | None
    enter: Share
    leave: Share
    before: Totals
    after: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer for a whole cluster."""

    policy: str
    usability: Usability | None
    """What was used; None: everything allocatable is usable."""
    usability_derived: bool
    before: Totals
    """Of all nodes that some movable pod reaches; pods that the plan places are in it."""
    after: Totals
    reaches: tuple[ReachSums, ...]
    """Most nodes first; those of one node are not among them."""
    removals: tuple[Removal, ...]
    kept: tuple[UnremovableNode, ...]
    """By name."""
    pending: tuple[Placement, ...]
    """Pending pods, packed first; their room is not spare."""
    marked_infeasible: tuple[str, ...]
    """Nodes that carry a mark and can not go any more, by name."""
    figures: tuple[PolicyMetric, ...] = ()
    """What the policy tells, of the state before any node goes."""
    reserve: tuple[ReservedNode, ...] = ()
    """Empty nodes that are kept for pods to be expected, marked ones among them, by name; nothing
    but what a running engine has seen makes it."""
    buffers: tuple[BufferRoom, ...] = ()
    """The CapacityBuffers of others, by name."""
    held: frozenset[str] = frozenset()
    """Nodes without a mark that no autoscaler is to take (core.engine.protection)."""
    complete: bool = True
    """Every node was tried: there was time."""


def tightest(reaches: Sequence[ReachSums], count: int = REACHES_SHOWN) -> list[ReachSums]:
    """Return the *count* reaches that come nearest to their limits, in the order of the plan."""
    nearest = sorted(reaches, key=lambda one: (_left(one), one.name))[:count]
    names = {one.name for one in nearest}
    return [one for one in reaches if one.name in names]


def _left(one: ReachSums) -> Fraction:
    """Return the share that is left below the nearer limit; of a reach without capacity: none."""
    return min(
        share - Fraction(used, whole) if whole else -Fraction(used > 0)
        for used, whole, share in zip(one.after.requests, one.after.usable, one.enter, strict=True)
    )
