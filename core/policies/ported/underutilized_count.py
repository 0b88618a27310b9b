"""estafette's rule: where enough nodes of a pool are little used, the least used of them goes.

A pool is what nodes share the value of a label with; each pool of the file has a limit, on CPU
requests over allocatable, and how many nodes must be under it. With so many nodes as full as the
limit, the pods of one have room on the others if `required >= 1 / (1 - limit)`.

Of what is read here, a kubelet may write its node's labels, the pool's too, and its allocatable:
at worst one node counts that should not, or does not, in one pool.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final

from core.capacity.sums import percent
from core.capacity.usable import Amount
from core.fields import value_types
from core.fields.structure import Named, Needs
from core.fields.value_types import LABEL_VALUE, QUALIFIED_KEY, SHARE, Flag, whole_number
from core.model.reason import Blocker, Reason
from core.policies.policy import Order, Policy, PolicyGauge, PolicyInput, PolicyMetric

POOLS_MAX: Final = 100
"""Pools of the file: there are figures of each."""
REQUIRED_MAX: Final = 100_000
SHARE_SCALE: Final = 2**128
"""Shares of whole numbers below 2^63 differ by more than one part of this, or not at all."""
GKE_POOL_LABEL: Final = "cloud.google.com/gke-nodepool"

POOL_NOT_CONFIGURED: Final = Reason(
    "pool-not-configured",
    "The node is of no pool that `underutilizedCount.pools` names, and such nodes never go.",
    "add the pool in the message to `underutilizedCount.pools`, with `enabled`, `limit` and "
    "`required`; or see whether `underutilizedCount.poolLabel` is the label of your pools",
    "`underutilizedCount.pools` has a pool by the name that the node's label has as its value",
)
POOL_DISABLED: Final = Reason(
    "pool-disabled",
    "The node's pool is not enabled: its figures are message, its nodes never go.",
    "set `enabled: true` for the pool in `underutilizedCount.pools`",
    "the pool is enabled",
)
OVER_LIMIT: Final = Reason(
    "over-limit",
    "The node's pods ask for too much of its CPU: an unmarked node is listed while it is under "
    "its pool's limit, and listed or marked ones stay so until they are over it.",
    "wait for requests to fall; or set the pool's `limit` higher, and `required` with it",
    "the node's CPU requests are under the `limit` of its pool",
)
TOO_FEW_UNDER_LIMIT: Final = Reason(
    "too-few-under-limit",
    "Too few nodes of the pool are under its limit for one to go: the others might have no room "
    "for its pods.",
    "wait for requests to fall; or set the pool's `required` lower, but not below "
    "1 / (1 - `limit`)",
    "as many unmarked nodes of the pool as `required` take pods and are under `limit`",
)
_REASONS: Final = (POOL_NOT_CONFIGURED, POOL_DISABLED, OVER_LIMIT, TOO_FEW_UNDER_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPool:
    """What is said of one pool."""

    enabled: Flag = False
    """Whether its nodes go, by default not; `limit` and `required` must then be there."""
    limit: Annotated[Fraction, SHARE] | None = None
    """CPU requests over allocatable under which a node counts; over it a mark is released."""
    required: Annotated[int, whole_number(1, REQUIRED_MAX)] | None = None
    """At least so many unmarked nodes must be under the limit for one of them to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPools:
    """What policy UnderutilizedCount reads."""

    pool_label: Annotated[str, QUALIFIED_KEY] = GKE_POOL_LABEL
    """The label of nodes whose value names their pool; nodes without it are of pool ""."""
    pools: Annotated[
        Mapping[str, Annotated[CountedPool, Needs("enabled", "limit", "required")]],
        Named(POOLS_MAX, LABEL_VALUE, "NAME", "{enabled, limit, required}"),
    ] = field(default_factory=dict, hash=False)
    """By name; nodes of other pools never go."""


@dataclass(slots=True, eq=False)
class _Pool:
    """A pool of the file with its machines, by their ids."""

    name: str
    asked: CountedPool
    nodes: list[int] = field(default_factory=list)
    under: set[int] = field(default_factory=set)
    """Those that count: unmarked, under the limit, and they take pods."""

    @property
    def limit(self) -> Fraction:
        """Return the limit; without one, nothing is under it."""
        return self.asked.limit or Fraction(0)


class UnderutilizedCount(Policy):
    """The least utilized node of a pool in which enough are under the limit.

    Nodes that take no pods do not count: they would have no room for those of the one that goes.
    What keeps a node itself from going (its pods, an annotation) does not keep it from counting.
    """

    name: ClassVar[str] = "UnderutilizedCount"
    Settings: ClassVar[type[Any] | None] = CountedPools
    section: ClassVar[str] = "underutilized_count"
    defaults: ClassVar[Mapping[str, Any]] = {"delay": "5m"}
    reorders: ClassVar[bool] = True
    reasons: ClassVar[Sequence[Reason]] = _REASONS
    gauges: ClassVar[Sequence[PolicyGauge]] = tuple(
        PolicyGauge(f"ebb_counted_pool_{name}", what, ("pool",))
        for name, what in (
            ("nodes", "Nodes of the pool."),
            ("under_limit_nodes", "Unmarked nodes of the pool under its limit that take pods."),
            ("listed_nodes", "Nodes of the pool that were under its limit and not over it since."),
            ("marked_nodes", "Nodes of the pool that carry a mark."),
            ("cpu_ratio", "CPU requests over allocatable of the pool's nodes."),
            ("memory_ratio", "Memory requests over allocatable of the pool's nodes."),
        )
    )

    @staticmethod
    def node_labels(settings: CountedPools) -> Iterable[str]:
        """Return the label that names pools; without any pool there is nothing to name."""
        return (settings.pool_label,) if settings.pools else ()

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger
        self._requests_at_start = [
            policy_input.ledger.requested(node) for node in range(len(policy_input.nodes))
        ]
        settings: CountedPools = policy_input.settings
        self._label = settings.pool_label
        self._pools = {name: _Pool(name, one) for name, one in sorted(settings.pools.items())}
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
        """Return the share of its CPU that is asked for, with pods moved, and the name."""
        used, whole = (
            self._ledger.requested(node).cpu_millis,
            self._ledger.capacity(node).cpu_millis,
        )
        return used * SHARE_SCALE // max(whole, 1), self._input.nodes[node].name

    def is_candidate(self, node: int, *, was: bool) -> bool:
        """Say whether it is under the limit; at exactly the limit it is as it was."""
        pool = self._pool_of[node]
        if pool is None or not pool.asked.enabled:
            return False
        against = self._compare(pool, node, self._requests_at_start[node])
        return against < 0 or (was and against == 0)

    @staticmethod
    def due_at(since: int, delay_seconds: int) -> int:
        """Return the unix second at which the delay ends."""
        return since + delay_seconds

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Ask of a marked node what stands on it; of others where they are with pods moved."""
        pool = self._pool_of[node]
        if pool is None or not pool.asked.enabled:
            return False
        if marked:
            return self._compare(pool, node, self._requests_at_start[node]) <= 0
        required = pool.asked.required
        enough = required is not None and self._count_under(pool) >= required
        return enough and self._stays_listed(pool, node)

    def _stays_listed(self, pool: _Pool, node: int) -> bool:
        against = self._compare(pool, node, self._ledger.requested(node))
        return against < 0 or (against == 0 and self._is_listed(node))

    def _is_listed(self, node: int) -> bool:
        known = self._input.candidates
        return self.is_candidate(node, was=False) if known is None else node in known

    def _compare(self, pool: _Pool, node: int, used: Amount) -> int:
        """Compare what is asked for with the limit: negative is under it; no CPU: over it."""
        whole, limit = self._ledger.capacity(node).cpu_millis, pool.limit
        if whole <= 0:
            return 1
        return used.cpu_millis * limit.denominator - limit.numerator * whole

    def _count_under(self, pool: _Pool) -> int:
        """Count the nodes under the limit, with pods moved: what has changed is looked at anew."""
        changed = self._ledger.changed
        for node in changed[self._changes_seen :]:
            self._update(node)
        self._changes_seen = len(changed)
        return len(pool.under)

    def _update(self, node: int) -> None:
        pool, account = self._pool_of[node], self._ledger
        if pool is None or node in self._input.marked:
            return
        if account.is_schedulable(node) and self._compare(pool, node, account.requested(node)) < 0:
            pool.under.add(node)
        else:
            pool.under.discard(node)

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Say what of the node, or of its pool, is not so."""
        pool, label = self._pool_of[node], f"label {self._label}"
        if pool is None:
            name = self._pool_name(node)
            return (
                Blocker(POOL_NOT_CONFIGURED, f"nothing is said of its pool {name!r} ({label})"),
            )
        if not pool.asked.enabled:
            return (Blocker(POOL_DISABLED, f"its pool {pool.name!r} ({label}) is not enabled"),)
        limit = value_types.percent(pool.limit)
        used = self._requests_at_start[node] if marked else self._ledger.requested(node)
        if self._compare(pool, node, used) > 0 or not (marked or self._stays_listed(pool, node)):
            return (
                Blocker(OVER_LIMIT, self._describe_use(node, used) + f"; the limit is {limit}"),
            )
        message = (
            f"{self._count_under(pool)} unmarked nodes of pool {pool.name!r} are under {limit}"
        )
        return (Blocker(TOO_FEW_UNDER_LIMIT, f"{message}, required are {pool.asked.required}"),)

    def _describe_use(self, node: int, used: Amount) -> str:
        whole = self._ledger.capacity(node).cpu_millis
        if whole <= 0:
            return "it has no CPU for pods, so it is under no limit"
        return f"its pods ask for {percent(used.cpu_millis, whole)} of its CPU"

    def metrics(self) -> Iterator[PolicyMetric]:
        """Tell of each pool in the file what stands on its nodes."""
        for pool in self._pools.values():
            for gauge, value in zip(self.gauges, self._values(pool), strict=True):
                yield PolicyMetric(gauge.name, (pool.name,), value)

    def _values(self, pool: _Pool) -> Iterator[int | Fraction]:
        """Return the values in the order of the gauges."""
        policy_input, account, nodes = self._input, self._ledger, pool.nodes
        unmarked = [node for node in nodes if node not in policy_input.marked]
        takes = filter(account.is_schedulable, unmarked)
        yield len(nodes)
        yield sum(self._compare(pool, node, self._requests_at_start[node]) < 0 for node in takes)
        yield sum(map(self._is_listed, unmarked))
        yield len(nodes) - len(unmarked)
        for resource in (0, 1):
            # Of each no more than there is: one pod that asks for too much says nothing of a pool.
            parts = [
                (account.capacity(n)[resource], self._requests_at_start[n][resource])
                for n in nodes
            ]
            whole, used = sum(have for have, _ in parts), sum(map(min, parts))
            yield Fraction(used, whole) if whole else 0
