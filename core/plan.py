"""The engine's answer: which nodes go, in which order, and why the others stay; values only."""

from dataclasses import dataclass
from typing import NamedTuple

from core.capacity import Share, Totals, Usability
from core.guards import Blocker


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
class Kept:
    """A node that stays, with every reason."""

    node: str
    blockers: tuple[Blocker, ...]


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
    kept: tuple[Kept, ...]
    """By name."""
    pending: tuple[Placement, ...]
    """Pending pods, packed first; their room is not spare."""
    marked_infeasible: tuple[str, ...]
    """Nodes that carry a mark and can not go any more, by name."""
