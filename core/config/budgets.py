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

from core.config.thresholds import FileContext, PoolEnter
from core.model.constraints import Requirement
from core.placement.matching import matches_requirement
from core.setting_types.structure import (
    FLATTENED,
    ON_FIRST_PAGE,
    POLICY_PART,
    BoundedList,
    NeedsOne,
    NeedsWith,
    filled,
)
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


POOL_NAME: Final = "a name that no other pool has"
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

    max_marked: Annotated[Nodes, ON_FIRST_PAGE] = None
    """Maximum number of nodes that are marked at the same time. Nodes that no pod can use have a
    separate quota, so the total may reach twice this number. Lower it to try Ebb on a few nodes
    first."""
    max_new_marks: Annotated[Nodes, ON_FIRST_PAGE] = None
    """Maximum number of nodes that are marked within `budgets.period`, including nodes that have
    been removed since. Nodes that no pod can use have a separate quota, as for `maxMarked`. Raise
    it if nodes are marked too slowly after a peak, lower it if too many are marked at once."""
    min_nodes: Annotated[int, whole_number(0, NODES_MAX), ON_FIRST_PAGE] = 0
    """Minimum number of nodes that remain if all marked nodes are removed. A node is marked only
    if this many other nodes remain that are Ready and schedulable. If pods can use the node, only
    other nodes that pods can use count. Raise it if your workloads need more nodes to survive the
    failure of one."""


CLUSTER: Final = Budget(
    max_marked=Limit(None, Fraction(1, 2)), max_new_marks=Limit(None, Fraction(1, 10)), min_nodes=1
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
    """Values of the label. Set it for `In` and `NotIn` only, which need at least one."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a node meet the requirement."""
        requirement = Requirement(self.key, self.operator.value, self.values)
        return matches_requirement(requirement, labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """Labels and requirements that all must match, as in a LabelSelector of Kubernetes.

    In a file it contains at least one of them; an empty one matches every node.
    """

    # `matchLabels` may be missing in the file, but must not be empty there.
    match_labels: Annotated[Selector, Field(exclude_if=lambda labels: not labels)] = ()
    """Labels that the nodes have. Set it to the label by which your node groups differ."""
    match_expressions: Annotated[
        tuple[
            Annotated[NodeRequirement, NeedsWith("values", "operator", "In", "NotIn")],
            ...,
        ],
        BoundedList(EXPRESSIONS_MAX, "{key, operator, values}"),
    ] = ()
    """Requirements on the labels of the nodes; all of them must match. Set it if a pool has nodes
    with several values of a label, or without the label."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels matches."""
        return all(labels.get(key) == value for key, value in self.match_labels) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )

    @property
    def label_keys(self) -> frozenset[str]:
        """Return the keys of the labels that the selector reads."""
        return frozenset(
            (
                *(key for key, _ in self.match_labels),
                *(requirement.key for requirement in self.match_expressions),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Limits for the nodes that match the selector."""

    name: Annotated[str, text(r"[\s\S]+", POOL_NAME, POOL_NAME_MAX), AfterValidator(_named_once)]
    """Name of the pool in messages and metrics."""
    selector: Annotated[LabelSelector, NeedsOne("matchLabels", "matchExpressions")]
    """Nodes of the pool, as in a LabelSelector of Kubernetes. A node belongs to the first pool
    that selects it."""
    budget: Annotated[Budget, FLATTENED]
    thresholds: PoolEnter = None
    """Thresholds for every set of nodes that a pod can use and that includes a node of this pool.
    By default each equals the threshold of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """Times without new marks after the cluster has grown, or a pod became unschedulable."""

    delay_after_add_seconds: Annotated[int, duration()] = 180
    """Time without new marks after a node was added, as in a scale-up. Lower it if nodes are added
    so often that Ebb marks hardly any."""
    delay_after_pending_seconds: Annotated[int, duration()] = 180
    """Time without new marks after a pod became unschedulable, if the constraints of the pod admit
    a node of the cluster. Lower it if pods are Pending so often that Ebb marks hardly any node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Room that is kept free for pods like those of the recent past."""

    window_seconds: Annotated[int | None, duration(1, never=True)] = 60
    """Ebb keeps room for as many pods as were created in a usual time span of this length in the
    last hour. If pods waited longer for new nodes, Ebb uses that time instead, up to 15m. With
    `never`, Ebb reserves no nodes for expected pods. Raise it if pods of long bursts must not wait
    for nodes, set it to `never` if they may."""
    percentile: Annotated[Fraction, SHARE] = Fraction(1, 2)
    """Share of the recent time spans with new pods in which no more pods were created than those
    for which Ebb keeps room. Up to 50%, Ebb keeps none for pods that came in only one time span.
    With `100%`, it keeps room for the busiest time span. Raise it if unusual bursts must find room
    too, at the price of more empty nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """All settings for limits; the defaults are those of an empty file."""

    cluster: Annotated[
        Budget, Field(alias="budgets"), BeforeValidator(lambda given: filled(given, CLUSTER))
    ] = CLUSTER
    """Limits for the whole cluster."""
    min_untainted_nodes: Annotated[
        int, whole_number(0, NODES_MAX), Field(alias="budgets.minUntaintedNodes")
    ] = 0
    """Like `budgets.minNodes`, but counts only nodes without taints, except for transient taints
    such as `node.kubernetes.io/not-ready`. Raise it if pods without tolerations must always have
    some nodes."""
    period_seconds: Annotated[int, duration(), Field(alias="budgets.period")] = 600
    """Time over which `maxNewMarks` counts. Raise it if one new mark in 10 minutes is too many, as
    in a small cluster."""
    pools: Annotated[tuple[Pool, ...], BoundedList(POOLS_MAX, "{name, selector} with limits")] = ()
    """Pools of nodes with their own limits. If there are pools, only nodes in a pool can be
    marked; without pools all nodes can. Set it to exclude nodes from removal, or if groups of
    nodes need different limits."""
    balance_zones: Flag = True
    """Whether to keep zones balanced: no removal may leave a zone with at least two fewer
    schedulable nodes than the largest zone. Ebb compares nodes of the same pool that have the
    same taints and devices, and that the same pods can use. Without `pools`, all nodes are one
    pool. Set it to `false` if your workloads do not need nodes in every zone."""
    headroom: Annotated[int, whole_number(0, HEADROOM_MAX)] = 1
    """Number of pods for which room must remain, each as large as the largest pod of its reach
    (the set of nodes that a pod can use). Raise it if several large pods must start at once
    without a new node."""
    reserve: Reserve = Reserve()
    """Room that is kept free for pods like those of the recent past."""
    stabilization_window_seconds: Annotated[int, duration()] = 120
    """Time window for peak demand. A node is marked only if its removal would have been possible
    at the busiest moment in the window. Raise it if peaks of demand return minutes after nodes
    were marked."""
    mark_interval_seconds: Annotated[int, duration(), POLICY_PART] = 0
    """Minimum time from a mark to the next one. The removal of a mark whose node missed its
    deadline counts like a mark. With `0s`, Ebb can mark several nodes in one reconciliation. Set
    it if nodes must be marked one at a time."""
    cooldown: Cooldown = Cooldown()
    """Times without new marks after the cluster has grown, or a pod became unschedulable."""

    def empty_pools(self, nodes: Iterable[Mapping[str, str]]) -> Sequence[str]:
        """Return the names of the pools that select no node.

        *nodes*: the labels of each node.
        """
        empty = [*self.pools]
        for labels in nodes if empty else ():
            empty = [pool for pool in empty if not pool.selector.matches(labels)]
        return [pool.name for pool in empty]

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Return the first pool that selects a node with these labels; None if none does."""
        return next((pool for pool in self.pools if pool.selector.matches(labels)), None)
