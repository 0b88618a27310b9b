"""Settings that limit how many nodes are removed, and how fast.

Permanent limits (pools, minimum of nodes, zones, headroom) hold in every plan. Limits on the rate
of marks hold only in plans for a point in time (core.engine.limits).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from core.config.thresholds import FileContext, PoolEnter, ReleaseThresholds
from core.model.constraints import Requirement
from core.model.now import Now
from core.placement.matching import matches_requirement
from core.setting_types.structure import FLATTENED, BoundedList, NeedsOne, NeedsWith, filled, where
from core.setting_types.value_types import (
    LABEL_VALUE,
    QUALIFIED_KEY,
    SHARE,
    Flag,
    Selector,
    ValueFormat,
    duration,
    not_allowed,
    percent,
    read_share,
    text,
    whole_number,
)

POOLS_MAX: Final = 100
EXPRESSIONS_MAX: Final = 20
VALUES_MAX: Final = 1000
NODES_MAX: Final = 100_000
HEADROOM_MAX: Final = 100
POOL_NAME_MAX: Final = 1024 * 1024
CLOCKS_APART_SECONDS_MAX: Final = 86_400
"""Maximum clock skew between leaders; a time further in the future was not written by a leader."""


class Limit(NamedTuple):
    """A number of nodes, or a share of the existing nodes."""

    number: int | None
    share: Fraction | None = None

    def of(self, nodes: int) -> int:
        """Return the limit as a number of nodes if *nodes* exist.

        A share is rounded down, but to at least 1.
        """
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


def _named_once(name: str, info: ValidationInfo[FileContext]) -> str:
    if name in info.context.pools:
        raise not_allowed(POOL_NAME)
    info.context.pools.add(name)
    return name


POOL_NAME: Final = "a text that no other pool has"
LIMIT: Final = ValueFormat(
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
    """Limits of a pool or of the cluster; None means no limit."""

    max_marked: Nodes = None
    """Maximum number of nodes that are marked at the same time. Nodes that no pod can use have a
    separate quota, so the total may reach twice this number."""
    max_in_window: Nodes = None
    """Maximum number of nodes that are marked within `budgets.window`, including nodes that have
    been removed since. Nodes that no pod can use have a separate quota, as for `maxMarked`."""
    min_nodes: Annotated[int, whole_number(0, NODES_MAX)] = 0
    """Minimum number of nodes that remain if all marked nodes are removed. A node is marked only
    if this many other nodes remain that are Ready and schedulable. If pods can use the node, only
    other nodes that pods can use count."""
    min_untainted_nodes: Annotated[int, whole_number(0, NODES_MAX)] = 0
    """Like `minNodes`, but counts only nodes without taints, except for transient taints such as
    `node.kubernetes.io/not-ready`."""


CLUSTER: Final = Budget(
    max_marked=Limit(None, Fraction(1, 2)), max_in_window=Limit(None, Fraction(1, 10)), min_nodes=1
)


class Operator(StrEnum):
    """Operators of `matchExpressions`, as in label selectors of Kubernetes."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequirement:
    """A requirement on the labels of a node."""

    key: Annotated[str, QUALIFIED_KEY]
    """Key of the label."""
    operator: Operator
    """`In` and `NotIn` compare with `values`; `NotIn` and `DoesNotExist` also match nodes without
    the label."""
    values: Annotated[
        tuple[Annotated[str, LABEL_VALUE], ...], BoundedList(VALUES_MAX, "of text")
    ] = ()
    """Values of the label; only for `In` and `NotIn`, which need at least one."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a node meet the requirement."""
        requirement = Requirement(self.key, self.operator.value, self.values)
        return matches_requirement(requirement, labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Limits for the nodes that match both selectors; at least one of them is required."""

    name: Annotated[str, text(r"[\s\S]+", POOL_NAME, POOL_NAME_MAX), AfterValidator(_named_once)]
    """Name of the pool in messages and metrics."""
    # A selector may be missing in the file, but must not be empty there.
    node_selector: Annotated[Selector, Field(exclude_if=lambda selector: not selector)] = ()
    """Labels of the pool's nodes. A node belongs to the first pool that selects it."""
    match_expressions: Annotated[
        tuple[
            Annotated[NodeRequirement, NeedsWith("values", "operator", "In", "NotIn")],
            ...,
        ],
        BoundedList(EXPRESSIONS_MAX, "{key, operator, values}"),
    ] = ()
    """Requirements on the labels of the pool's nodes, as in Kubernetes; all of them must match."""
    budget: Annotated[Budget, FLATTENED]
    thresholds: PoolEnter = None
    """Thresholds for every set of nodes that a pod can use and that includes a node of this pool.
    By default each equals the threshold of the cluster."""
    release_thresholds: ReleaseThresholds = None
    """The mark of a node of the pool is removed above these thresholds. By default each of them is
    5 percentage points above the same threshold in `thresholds`."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether `nodeSelector` and `matchExpressions` match the labels of a node.

        An empty selector matches every node.
        """
        return all(labels.get(key) == value for key, value in self.node_selector) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )

    @property
    def label_keys(self) -> frozenset[str]:
        """Return the keys of the labels that the selectors read."""
        return frozenset(
            (
                *(key for key, _ in self.node_selector),
                *(requirement.key for requirement in self.match_expressions),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """Times without new marks after the cluster has grown, or a pod became unschedulable."""

    delay_after_add_seconds: Annotated[int, duration()] = 600
    """Time without new marks after a node was added, as in a scale-up."""
    delay_after_pending_seconds: Annotated[int, duration()] = 600
    """Time without new marks after a pod became unschedulable, if the constraints of the pod admit
    a node of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffConfig:
    """Time for which a node is not marked again after it missed its deadline."""

    first_seconds: Annotated[int, duration(1)] = 3600
    """Backoff after the first missed deadline. It doubles with each further one."""
    max_seconds: Annotated[int, duration(1)] = 24 * 3600
    """Maximum backoff, at least `first`."""

    def seconds(self, times: int) -> int:
        """Return the backoff in seconds after *times* failures in a row.

        It doubles with each failure, up to the maximum.
        """
        return int(min(self.first_seconds * 2 ** min(times - 1, 32), self.max_seconds))

    def holds(self, until: int, now: Now) -> bool:
        """Return whether a backoff until *until* (Unix seconds) still prevents a new mark.

        An end that is too far in the future is ignored, because no leader can have written it.
        """
        return self.possible(until, now) and now.before(until)

    def possible(self, until: int, now: Now) -> bool:
        """Return whether a leader with a roughly correct clock can have written *until*.

        *until*: end of a backoff, in Unix seconds. It cannot be further in the future than the
        maximum backoff plus the maximum clock skew.
        """
        return now.reached(until - self.max_seconds - CLOCKS_APART_SECONDS_MAX)


class CapacityBuffers(StrEnum):
    """Whether Ebb announces the pods that it expects to the autoscaler, in CapacityBuffers."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Room that is kept free for pods like those of the recent past."""

    window_seconds: Annotated[int, duration(1)] = 300
    """Ebb keeps room for as many pods as were created in the busiest time span of this length. If
    pods waited longer for new nodes, Ebb uses that time instead, up to 15m."""
    lookback_seconds: Annotated[int, duration()] = 3600
    """Length of the recent past in which Ebb looks for the busiest time span. With `0s`, Ebb
    reserves no nodes for expected pods."""
    max_buffers: Annotated[Fraction, SHARE] = Fraction(1, 2)
    """Maximum share of capacity that Ebb keeps free for CapacityBuffers, on the nodes that their
    pods can use. It also limits the nodes that `capacityBuffers` may request."""
    capacity_buffers: CapacityBuffers = CapacityBuffers.DISABLED
    """With `enabled`, Ebb announces the expected pods to the autoscaler in CapacityBuffers,
    so that nodes are added before pods are Pending. Requires the component `capacity-buffers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """All settings for limits; the defaults are those of an empty file."""

    cluster: Annotated[
        Budget, Field(alias="budgets"), BeforeValidator(lambda given: filled(given, CLUSTER))
    ] = CLUSTER
    """Limits for the whole cluster."""
    window_seconds: Annotated[int, duration(), Field(alias="budgets.window")] = 600
    """Time window of `maxInWindow`."""
    pools: Annotated[
        tuple[
            Annotated[Pool, NeedsOne("nodeSelector", "matchExpressions")],
            ...,
        ],
        BoundedList(POOLS_MAX, "{name, nodeSelector, matchExpressions} with limits"),
    ] = ()
    """Pools of nodes with their own limits. If there are pools, only nodes in a pool can be
    marked; without pools all nodes can."""
    balance_zones: Flag = True
    """Whether to keep zones balanced: no removal may leave a zone with at least two fewer
    schedulable nodes than the largest zone. Ebb compares nodes of the same pool that have the
    same taints and devices, and that the same pods can use. Without `pools`, all nodes are one
    pool."""
    headroom: Annotated[int, whole_number(0, HEADROOM_MAX)] = 1
    """Number of pods for which room must remain, each as large as the largest pod of its reach
    (the set of nodes that a pod can use)."""
    reserve: Reserve = Reserve()
    """Room that is kept free for pods like those of the recent past."""
    stabilization_window_seconds: Annotated[int, duration()] = 600
    """Time window for peak demand. A node is marked only if its removal would have been possible
    at the busiest moment in the window."""
    mark_interval_seconds: Annotated[int, duration()] = 0
    """Minimum time from a mark to the next one. The removal of a mark whose node missed its
    deadline counts like a mark. With `0s`, Ebb can mark several nodes in one reconciliation."""
    cooldown: Cooldown = Cooldown()
    """Times without new marks after the cluster has grown, or a pod became unschedulable."""
    backoff: Annotated[
        BackoffConfig,
        where(lambda backoff: backoff.first_seconds <= backoff.max_seconds, "first at most max"),
    ] = BackoffConfig()
    """Time for which a node is not marked again after it missed its deadline."""

    def empty_pools(self, nodes: Iterable[Mapping[str, str]]) -> Sequence[str]:
        """Return the names of the pools that select no node.

        *nodes*: the labels of each node.
        """
        empty = [*self.pools]
        for labels in nodes if empty else ():
            empty = [pool for pool in empty if not pool.selects(labels)]
        return [pool.name for pool in empty]

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Return the first pool that selects a node with these labels; None if none does."""
        return next((pool for pool in self.pools if pool.selects(labels)), None)
