"""What the configuration says about how much may go, and how fast.

Lasting limits (pools, minimum of nodes, zones, headroom) hold in every plan; the others are about
pace and hold where time passes (core.engine.limits).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from core.config.thresholds import Leave, PoolEnter, Told
from core.fields.structure import INLINE, Listed, filled, where
from core.fields.value_types import (
    SHARE,
    Flag,
    Form,
    Selector,
    duration,
    not_allowed,
    percent,
    read_share,
    text,
    whole_number,
)
from core.model.now import Now

POOLS_MAX: Final = 100
NODES_MAX: Final = 100_000
HEADROOM_MAX: Final = 100
POOL_NAME_MAX: Final = 1024 * 1024
CLOCKS_APART_SECONDS_MAX: Final = 86_400
"""What is in the future by so much more than it can be, no leader's clock has written."""


class Limit(NamedTuple):
    """So many nodes, or a share of those that there are."""

    number: int | None
    share: Fraction | None = None

    def of(self, nodes: int) -> int:
        """Return the limit among so many nodes: a share is rounded down, but to at least 1."""
        if self.share is None:
            return self.number or 0
        return max(1, nodes * self.share.numerator // self.share.denominator)

    def __str__(self) -> str:
        return str(self.number) if self.share is None else percent(self.share)


def _limit(value: object) -> Limit:
    if isinstance(value, Limit):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NODES_MAX:
        return Limit(value)
    return Limit(None, read_share(value))


def _named_once(name: str, info: ValidationInfo[Told]) -> str:
    if name in info.context.pools:
        raise not_allowed(POOL_NAME)
    info.context.pools.add(name)
    return name


POOL_NAME: Final = "a text that no other pool has"
LIMIT: Final = Form(
    _limit,
    lambda limit: limit.number if limit.share is None else percent(limit.share),
    {
        **SHARE.schema,
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": NODES_MAX,
        "title": f'a number of nodes up to {NODES_MAX:,}, or a percentage such as "20%"',
    },
)
Nodes = Annotated[Limit, LIMIT] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of a pool, or of the cluster; None: no limit."""

    max_marked: Nodes = None
    """Nodes that carry a mark at once; those that no pod reaches do not hold back the rest, so
    that in all there may be up to twice as many."""
    max_in_window: Nodes = None
    """Nodes that are marked within the window, those that have left since among them; those that
    no pod reaches as for `maxMarked`."""
    min_nodes: Annotated[int, whole_number(0, NODES_MAX)] = 0
    """Nodes that must be left when all marked ones have gone; a new mark leaves so many that take
    pods."""
    min_untainted_nodes: Annotated[int, whole_number(0, NODES_MAX)] = 0
    """The same of nodes that carry no taint but those that pass by themselves."""


CLUSTER: Final = Budget(
    max_marked=Limit(None, Fraction(1, 2)), max_in_window=Limit(None, Fraction(1, 10)), min_nodes=1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes with all these labels, and what may go of them."""

    name: Annotated[str, text(r"[\s\S]+", POOL_NAME, POOL_NAME_MAX), AfterValidator(_named_once)]
    """What messages and metrics call it."""
    node_selector: Selector
    """The labels of its nodes; a node is of the first pool that selects it."""
    budget: Annotated[Budget, INLINE]
    thresholds: PoolEnter = None
    """Of what pods reach with a node of the pool in it; what is not said is as
    for the cluster."""
    leave_thresholds: Leave = None
    """Up to these a marked node of the pool stays marked; what is not said is 5 points above
    `thresholds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """How long no node is marked."""

    after_node_add_seconds: Annotated[int, duration()] = 600
    """After a node has come: a scale-up."""
    after_pending_seconds: Annotated[int, duration()] = 600
    """After a pod has turned unschedulable that one of the nodes would admit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a node is left alone that did not empty before its deadline."""

    first_seconds: Annotated[int, duration(1)] = 3600
    """The first time; then twice as long each time."""
    max_seconds: Annotated[int, duration(1)] = 24 * 3600
    """The longest; no shorter than `first`."""

    def seconds(self, times: int) -> int:
        """Return how long after so many failures: twice as long each time, up to the maximum."""
        return int(min(self.first_seconds * 2 ** min(times - 1, 32), self.max_seconds))

    def holds(self, until: int, now: Now) -> bool:
        """Return whether a back-off that ends at *until* (unix seconds) is in force.

        An end that lies further ahead than any leader's clock can have written does not count.
        """
        return self.possible(until, now) and now.before(until)

    def possible(self, until: int, now: Now) -> bool:
        """Return whether a leader whose clock is about right can have written this end."""
        return now.reached(until - self.max_seconds - CLOCKS_APART_SECONDS_MAX)


class Publish(StrEnum):
    """How autoscalers are told of the pods that are to be expected."""

    NONE = "none"
    CAPACITY_BUFFER = "CapacityBuffer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Room that is kept for pods like those that have come."""

    length_seconds: Annotated[int, duration(1)] = 300
    """Room for so long a time of arrivals; for longer where pods were seen to wait longer for new
    nodes, up to 15m."""
    over_seconds: Annotated[int, duration()] = 3600
    """How far back the busiest such time is looked for; of 0s no room is kept but `headroom`."""
    buffers: Annotated[Fraction, SHARE] = Fraction(1, 2)
    """How much of the nodes that CapacityBuffers can use is kept for them, and how much of the
    nodes `publish` asks for, at most."""
    publish: Publish = Publish.NONE
    """CapacityBuffer: autoscalers are told of the pods that are to be expected, so that nodes come
    before pods wait; takes the component `capacity-buffers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """All of it; the defaults are those of an empty file."""

    cluster: Annotated[
        Budget, Field(alias="budgets"), BeforeValidator(lambda given: filled(given, CLUSTER))
    ] = CLUSTER
    """Of the whole cluster."""
    window_seconds: Annotated[int, duration(), Field(alias="budgets.window")] = 600
    """The window that `maxInWindow` speaks of."""
    pools: Annotated[tuple[Pool, ...], Listed(POOLS_MAX, "{name, nodeSelector} with limits")] = ()
    """Empty: every node may go; else those in a pool alone, each in the first that selects it."""
    balance_zones: Flag = True
    """No zone falls behind the largest by more than one node, of those that take pods."""
    headroom: Annotated[int, whole_number(0, HEADROOM_MAX)] = 1
    """Pods as large as the largest of each reach for which room must be left."""
    reserve: Reserve = Reserve()
    """Room that is kept for pods like those that have come."""
    peak_window_seconds: Annotated[int, duration()] = 600
    """For new marks the demand of the busiest moment in it counts, not that of now."""
    spacing_seconds: Annotated[int, duration()] = 0
    """How long after a mark, or after a node that did not empty was released, the next is set; of
    0s there may be several at once."""
    cooldown: Cooldown = Cooldown()
    """How long no node is marked."""
    backoff: Annotated[
        Backoff,
        where(lambda one: one.first_seconds <= one.max_seconds, "first no longer than max"),
    ] = Backoff()
    """How long a node is left alone that did not empty before its deadline."""

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Return the pool of a node with these labels."""
        for pool in self.pools:
            if all(labels.get(key) == value for key, value in pool.node_selector):
                return pool
        return None
