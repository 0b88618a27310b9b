"""Define what a leader leaves to the next one: the figures of the day, their sources, arrivals.

The sources are what the figures continue from: which nodes are marked, which removed nodes still
count as saved, and how many nodes each pool has. So the next leader counts on from
`counted_until` and needs nothing that the previous one had in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from core.engine.stored_arrivals import StoredArrivals
from core.history.days import DAY_SECONDS, MONTH_DAYS, NO_COST, Day, PoolDay, total

EARLIER_MAX: Final = 3
"""Number of past days that are kept with the current one, until `ebb-history` has them."""
MARKED_MAX: Final = 1000
"""Maximum number of marked nodes that are stored; those marked last are."""
REMOVED_MAX: Final = 100
"""Maximum number of removed nodes; the last ones are kept."""
CREDITS_MAX: Final = 1000
"""Maximum number of removed nodes that count as saved and are stored; the last ones are."""
DECISIONS_MAX: Final = 200
"""Maximum number of decisions; the last ones are kept."""
SAMPLE_SECONDS: Final = 600
"""Time from one sample to the next."""
SAMPLES_MAX: Final = DAY_SECONDS // SAMPLE_SECONDS


class Rates(NamedTuple):
    """How fast the figures of a pool grow."""

    nodes: int = 0
    removable: int = 0
    """Nodes that the last plan can remove."""
    removable_price: Fraction = NO_COST
    """Price of these nodes for an hour, in the unit of `prices`."""


class MarkedNode(NamedTuple):
    """A marked node, with what the plan said when it was marked."""

    since: int
    """Time of the mark, Unix seconds."""
    deadline: int
    """Time by which the node is to be empty, Unix seconds."""
    pool: str
    price: Fraction
    """Price of the node for an hour, in the unit of `prices`."""
    pods: int
    """Number of pods that the plan placed on other nodes."""
    moved: int = 0
    """Number of pods that Ebb has moved from the node so far."""


class AllowedNode(NamedTuple):
    """A node whose scale-down Ebb has allowed (controller.figures.savings)."""

    since: int
    limit_pool: str
    """Pool of the configuration; empty for none."""
    pool: str
    price: Fraction


class Credit(NamedTuple):
    """A removed node that counts as saved (controller.figures.savings)."""

    node: str
    limit_pool: str
    pool: str
    nodes_before: int
    price: Fraction
    until: int


class RemovedNode(NamedTuple):
    """A removed node: what the plan said when the node was marked, and what happened."""

    node: str
    pool: str
    marked_at: int
    deadline: int
    price: Fraction
    pods: int
    """Number of pods that the plan placed on other nodes."""
    allowed_at: int
    """Time at which Ebb allowed the scale-down, Unix seconds."""
    removed_at: int
    moved: int
    """Number of pods that Ebb moved from the node."""
    saved_seconds: int = 0
    """Time for which the node has counted as saved so far."""
    saved_cost: Fraction = NO_COST


class Sample(NamedTuple):
    """The state of the cluster at one moment of the day, for a chart."""

    at: int
    nodes: int
    marked: int
    removed: int
    """Nodes removed on this day so far."""
    pending: int
    """Unschedulable pods."""


class Decision(NamedTuple):
    """A decision about an object, such as to mark a Node: when, what and why."""

    at: int
    """Unix second of the decision."""
    kind: str
    """Kind of the object, such as Node."""
    name: str
    """Name of the object, with its namespace if it has one."""
    action: str
    """The reason of the Event about the decision, such as NodeMarked."""
    reason: str
    written: bool
    """False in mode observe, where the decision is only reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """The content of the ConfigMap `ebb-today`."""

    counted_until: int
    """Unix second up to which the figures count."""
    writer: str = ""
    """Identity of the leader that has written this."""
    day: Day
    earlier: tuple[Day, ...] = ()
    """The last past days, oldest first, with their largest pools."""
    rates: Mapping[str, Rates] = field(default_factory=dict)
    waiting: int = 0
    """Pods that are Pending because of a mark."""
    marked: Mapping[str, MarkedNode] = field(default_factory=dict)
    all_marked: bool = True
    """False if nodes are missing in `marked`."""
    allowed: Mapping[str, AllowedNode] = field(default_factory=dict)
    credits: tuple[Credit, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes by pool of the configuration, as `credits` compare it."""
    removed: tuple[RemovedNode, ...] = ()
    """The last removed nodes, oldest first."""
    samples: tuple[Sample, ...] = ()
    """Samples of the last day, oldest first."""
    decisions: tuple[Decision, ...] = ()
    """The last decisions, oldest first."""
    arrivals: StoredArrivals | None = None
    """What the reserve needs. A leader decides from it, and from nothing else here."""

    def totals(self, past: Mapping[int, PoolDay]) -> Mapping[int, PoolDay]:
        """Return the sums of this day and the days before, by number of the day.

        *past*: sums of the days in `ebb-history`.
        """
        return {**past, **{day.number: day.total for day in (*self.earlier, self.day)}}

    def month(self, past: Mapping[int, PoolDay]) -> PoolDay:
        """Return the sums of the last MONTH_DAYS days; *past*: as for `totals`."""
        first = self.day.number - MONTH_DAYS + 1
        sums = self.totals(past)
        return total(sums[number] for number in sums if first <= number <= self.day.number)
