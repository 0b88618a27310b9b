"""Remove the least utilized node of a pool with enough underutilized nodes (estafette).

A pool is the set of nodes with the same value of a label. The settings of a pool contain a limit
on CPU requests over allocatable, and `required`, the number of nodes that must be under the limit.
If these nodes are all as full as the limit, the pods of one of them fit on the others if
`required` is at least 1 / (1 - `limit`).

A kubelet may write the labels of its Node, including the pool, and the allocatable resources. At
worst this one node counts in a pool although it should not, or does not count although it should.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final

from core.model.reason import Blocker, Reason
from core.placement.reach_utilization import RESOURCE_NAMES, percent
from core.placement.usable_capacity import Amount
from core.policies.policy import Order, Policy, PolicyGauge, PolicyInput, PolicyMetric
from core.setting_types import value_types
from core.setting_types.structure import Named, Needs
from core.setting_types.value_types import LABEL_VALUE, QUALIFIED_KEY, SHARE, Flag, whole_number

POOLS_MAX: Final = 100
"""Maximum number of pools in the settings, because each of them has metrics."""
REQUIRED_MAX: Final = 100_000
SHARE_SCALE: Final = 2**128
"""Denominator of shares. Shares of integers below 2^63 differ by more than 1 / SHARE_SCALE, or not
at all."""
GKE_POOL_LABEL: Final = "cloud.google.com/gke-nodepool"

POOL_NOT_CONFIGURED: Final = Reason(
    "pool-not-configured",
    "The node is in no pool of `underutilizedCount.pools`. Ebb never removes such nodes.",
    "add the pool in the message to `underutilizedCount.pools`, with `enabled`, `limit` and "
    "`required`; or check whether `underutilizedCount.poolLabel` is the label of your pools",
    "`underutilizedCount.pools` contains the value of the node's pool label",
)
POOL_DISABLED: Final = Reason(
    "pool-disabled",
    "The node's pool is not enabled: Ebb exposes metrics of the pool, but removes no node of it.",
    "set `enabled: true` for the pool in `underutilizedCount.pools`",
    "the pool is enabled",
)
OVER_LIMIT: Final = Reason(
    "over-limit",
    "The CPU requests on the node are not below the `limit` of its pool. If they are "
    "exactly at the limit, a candidate remains a candidate, and a marked node keeps its mark.",
    "wait for requests to fall; or raise the pool's `limit`, and `required` with it",
    "the node's CPU requests, as a share of its allocatable, are below the pool's `limit`",
)
TOO_FEW_UNDER_LIMIT: Final = Reason(
    "too-few-under-limit",
    "Fewer nodes of the pool than `required` have CPU requests below its `limit`. After the "
    "removal, the remaining nodes might have no room for the node's pods.",
    "wait for requests to fall; or lower the pool's `required`, but not below 1 / (1 - `limit`)",
    "at least `required` unmarked schedulable nodes of the pool are below `limit`",
)
_REASONS: Final = (POOL_NOT_CONFIGURED, POOL_DISABLED, OVER_LIMIT, TOO_FEW_UNDER_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPool:
    """Settings of one pool."""

    enabled: Flag = False
    """Whether nodes of the pool may be removed. If true, `limit` and `required` must be set. Set
    it to `true` once you agree with the nodes that Ebb reports."""
    limit: Annotated[Fraction, SHARE] | None = None
    """Ratio of CPU requests to allocatable CPU. Nodes below it count as underutilized; the marks
    of nodes above it are removed. Raise it if too few nodes are removed, lower it if too many pods
    must move."""
    required: Annotated[int, whole_number(1, REQUIRED_MAX)] | None = None
    """Minimum number of unmarked nodes below the limit. With fewer, no node is removed. Raise
    it if more of these nodes must remain for peaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPools:
    """Settings of policy UnderutilizedCount."""

    pool_label: Annotated[str, QUALIFIED_KEY] = GKE_POOL_LABEL
    """Node label whose value is the pool's name; nodes without it are in pool "". Set it
    where another label than that of GKE names the pool."""
    pools: Annotated[
        Mapping[str, Annotated[CountedPool, Needs("enabled", "limit", "required")]],
        Named(POOLS_MAX, LABEL_VALUE, "NAME", "{enabled, limit, required}"),
    ] = field(default_factory=dict, hash=False)
    """Pools by name; nodes of other pools are never removed. Set it to those that may
    shrink."""


@dataclass(slots=True, eq=False)
class _Pool:
    """A pool in the settings, with the ids of its nodes, except nodes of virtual kubelets."""

    name: str
    settings: CountedPool
    nodes: list[int] = field(default_factory=list)
    under: set[int] = field(default_factory=set)
    """Unmarked schedulable nodes under the limit."""

    @property
    def limit(self) -> Fraction:
        """Return the limit on CPU requests over allocatable; 0 if the settings have none."""
        return self.settings.limit or Fraction(0)


class UnderutilizedCount(Policy):
    """Remove the least utilized node of a pool in which enough nodes are under the limit.

    Unschedulable nodes do not count, because they have no room for pods of a removed node. Nodes
    that Ebb may not remove, because of their pods or an annotation, do count.
    """

    name: ClassVar[str] = "UnderutilizedCount"
    Settings: ClassVar[type[Any] | None] = CountedPools
    section: ClassVar[str] = "underutilized_count"
    defaults: ClassVar[Mapping[str, Any]] = {"unneededTime": "5m", "maxJobAge": "never"}
    reorders: ClassVar[bool] = True
    reasons: ClassVar[Sequence[Reason]] = _REASONS
    gauges: ClassVar[Sequence[PolicyGauge]] = tuple(
        PolicyGauge(f"ebb_underutilized_count_{name}", meaning, ("pool", *labels))
        for name, meaning, *labels in (
            ("nodes", "Nodes of the pool."),
            ("marked_nodes", "Marked nodes of the pool."),
            (
                "underutilized_nodes",
                (
                    "Unmarked schedulable nodes of the pool under its `limit`. The policy removes "
                    "nodes only if there are at least `required` of them."
                ),
            ),
            (
                "candidate_nodes",
                (
                    "Unmarked nodes of the pool that may be marked next: their requests were "
                    "below its `limit` once, and have not been above it since."
                ),
            ),
            (
                "requests_ratio",
                "Ratio of requests to allocatable of the pool's nodes.",
                "resource",
            ),
        )
    )

    @staticmethod
    def node_labels(settings: CountedPools) -> Iterable[str]:
        """Return the key of the pool label, or nothing if the settings contain no pools."""
        return (settings.pool_label,) if settings.pools else ()

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger
        self._requests_at_start = [
            policy_input.ledger.requested(node) for node in range(len(policy_input.nodes))
        ]
        settings: CountedPools = policy_input.settings
        self._label = settings.pool_label
        self._pools = {
            name: _Pool(name, of_pool) for name, of_pool in sorted(settings.pools.items())
        }
        self._pool_of: list[_Pool | None] = []
        self._changes_seen = len(policy_input.ledger.changed)
        for number, node in enumerate(policy_input.nodes):
            pool = None if node.virtual else self._pools.get(self._pool_name(number))
            self._pool_of.append(pool)
            if pool is not None:
                pool.nodes.append(number)
            self._update(number)

    def _pool_name(self, node: int) -> str:
        return self._input.nodes[node].labels.get(self._label, "")

    def rank(self, node: int) -> Order:
        """Return a sort key: nodes with a small requested share of CPU come first, then by name.

        The share is in units of 1 / SHARE_SCALE.
        """
        used, whole = (
            self._ledger.requested(node).cpu_millis,
            self._ledger.capacity(node).cpu_millis,
        )
        return used * SHARE_SCALE // max(whole, 1), self._input.nodes[node].name

    def is_candidate(self, node: int, *, was: bool) -> bool:
        """Report whether the CPU requests on the node are below the limit of its enabled pool.

        Exactly at the limit, return *was*. Without an enabled pool, return False.
        """
        pool = self._pool_of[node]
        if pool is None or not pool.settings.enabled:
            return False
        comparison = self._compare(pool, node, self._requests_at_start[node])
        return comparison < 0 or (was and comparison == 0)

    @staticmethod
    def due_at(since: int, unneeded_time_seconds: int) -> int:
        """Return the time (unix seconds) at which the node may be removed.

        *since*: the time (unix seconds) since which it has been a candidate. It must have been a
        candidate for *unneeded_time_seconds*.
        """
        return since + unneeded_time_seconds

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Report whether the unmarked node may be removed, or the marked node may keep its mark.

        A marked node keeps its mark while its current CPU requests are at most the limit of its
        pool. An unmarked node may be removed if it and enough nodes of the pool are under the
        limit, after the moves that the plan has decided. Without an enabled pool, return False.
        """
        pool = self._pool_of[node]
        if pool is None or not pool.settings.enabled:
            return False
        if marked:
            return self._compare(pool, node, self._requests_at_start[node]) <= 0
        required = pool.settings.required
        enough = required is not None and self._count_under(pool) >= required
        return enough and self._stays_listed(pool, node)

    def _stays_listed(self, pool: _Pool, node: int) -> bool:
        comparison = self._compare(pool, node, self._ledger.requested(node))
        return comparison < 0 or (comparison == 0 and self._is_listed(node))

    def _is_listed(self, node: int) -> bool:
        known = self._input.candidates
        return self.is_candidate(node, was=False) if known is None else node in known

    def _compare(self, pool: _Pool, node: int, used: Amount) -> int:
        """Compare the requests *used* on the node with the limit of the pool, in CPU.

        Return a number below 0 if they are under the limit, 0 if they are exactly at the limit,
        and above 0 if they are over it or the node has no CPU.
        """
        whole, limit = self._ledger.capacity(node).cpu_millis, pool.limit
        if whole <= 0:
            return 1
        return used.cpu_millis * limit.denominator - limit.numerator * whole

    def _count_under(self, pool: _Pool) -> int:
        """Return the number of unmarked schedulable nodes of the pool that are under the limit.

        Pods that the plan has moved count on their new nodes.
        """
        changed = self._ledger.changed
        for node in changed[self._changes_seen :]:
            self._update(node)
        self._changes_seen = len(changed)
        return len(pool.under)

    def _update(self, node: int) -> None:
        pool, ledger = self._pool_of[node], self._ledger
        if pool is None or node in self._input.marked:
            return
        if ledger.is_schedulable(node) and self._compare(pool, node, ledger.requested(node)) < 0:
            pool.under.add(node)
        else:
            pool.under.discard(node)

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Return the reason why `nominates` is False, as a single Blocker.

        It is about the node's pool, its CPU requests, or the number of nodes under the limit.
        """
        pool, label = self._pool_of[node], f"label {self._label}"
        if pool is None:
            name = self._pool_name(node)
            return (
                Blocker(
                    POOL_NOT_CONFIGURED, f"pool {name!r} of the node ({label}) is not configured"
                ),
            )
        if not pool.settings.enabled:
            return (
                Blocker(POOL_DISABLED, f"pool {pool.name!r} of the node ({label}) is not enabled"),
            )
        limit = value_types.percent(pool.limit)
        used = self._requests_at_start[node] if marked else self._ledger.requested(node)
        if self._compare(pool, node, used) > 0 or not (marked or self._stays_listed(pool, node)):
            return (
                Blocker(
                    OVER_LIMIT,
                    self._describe_use(node, used) + f"; the `limit` of its pool is {limit}",
                ),
            )
        message = (
            f"{self._count_under(pool)} unmarked nodes of pool {pool.name!r} are under its "
            f"`limit` of {limit}"
        )
        return (
            Blocker(TOO_FEW_UNDER_LIMIT, f"{message}; `required` is {pool.settings.required}"),
        )

    def _describe_use(self, node: int, used: Amount) -> str:
        whole = self._ledger.capacity(node).cpu_millis
        if whole <= 0:
            return "the node has no allocatable CPU"
        return f"the pods of the node request {percent(used.cpu_millis, whole)} of its CPU"

    def metrics(self) -> Iterator[PolicyMetric]:
        """Yield the values of the metrics in `gauges`, for each pool in the settings."""
        nodes, marked, underutilized, candidates, ratio = (gauge.name for gauge in self.gauges)
        for pool in self._pools.values():
            unmarked = [node for node in pool.nodes if node not in self._input.marked]
            schedulable = filter(self._ledger.is_schedulable, unmarked)
            under = (
                self._compare(pool, node, self._requests_at_start[node]) < 0
                for node in schedulable
            )
            of_pool = (pool.name,)
            yield PolicyMetric(nodes, of_pool, len(pool.nodes))
            yield PolicyMetric(marked, of_pool, len(pool.nodes) - len(unmarked))
            yield PolicyMetric(underutilized, of_pool, sum(under))
            yield PolicyMetric(candidates, of_pool, sum(map(self._is_listed, unmarked)))
            for number, resource in enumerate(RESOURCE_NAMES):
                value = self._requests_ratio(pool, number)
                yield PolicyMetric(ratio, (*of_pool, resource), value)

    def _requests_ratio(self, pool: _Pool, resource: int) -> Fraction | int:
        # Requests are limited to the node's resources, so that one excessive pod does not distort
        # the ratio of the pool.
        parts = [
            (self._ledger.capacity(n)[resource], self._requests_at_start[n][resource])
            for n in pool.nodes
        ]
        whole, used = sum(have for have, _ in parts), sum(map(min, parts))
        return Fraction(used, whole) if whole else 0
