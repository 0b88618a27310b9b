"""Limit removals and marks of nodes: budgets, minimums, zone balance and rate limits.

A limit is a function that returns a message if the node must not be removed next, or None. Each
limit is listed with its reason at the end of this module. A limit that ends at a known time
returns Timed, a message with this time. The times are computed in RateLimits; no limit reads the
clock.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final, NamedTuple

from core.config.budgets import Budget
from core.eligibility.scalability import NOT_SCALABLE
from core.engine.leader_state import RateLimits
from core.engine.maintenance_gate import ALWAYS, CLOSED, PAUSED
from core.engine.snapshot import ClusterSnapshot
from core.engine.zones import SCHEDULABLE_NODE, ZoneClass, Zones
from core.marks.mark import backoff_of
from core.marks.wellknown import BACKOFF_ANNOTATION
from core.model.humanize import duration, plural, timestamp
from core.model.node import Node
from core.model.node_groups import NodeGroup
from core.model.node_lifecycle import others_taint
from core.model.reason import Blocker, Reason, Timed

_CLUSTER: Final = "the cluster"


@dataclass(slots=True)
class _Count:
    """Numbers of nodes and marks in a pool or in the cluster, updated while a plan is made."""

    nodes: int = 0
    """Nodes that exist now."""
    schedulable: int = 0
    """Schedulable nodes, without the nodes that the plan removes."""
    without_taint: int = 0
    """Nodes without taints other than Ebb's, without the nodes that the plan removes."""
    schedulable_without_taint: int = 0
    """Nodes that count in both `schedulable` and `without_taint`."""
    marked: int = 0
    """Marked nodes, including the nodes that the plan marks."""
    in_window: int = 0
    """Marks set within the window, including the plan's and those of nodes that have left."""
    window_ends: tuple[int, ...] = ()
    """Times at which earlier marks leave the window, unix seconds, ascending."""
    removed: int = 0
    """Nodes that the plan removes."""
    which: str = ""
    """Text for messages that says which nodes are counted; empty if all nodes are."""

    def add_remaining(self, nodes: int, node_class: "_NodeClass") -> None:
        """Add *nodes* nodes of a class to the counts that exclude nodes removed by the plan.

        A negative number subtracts them, when the plan removes nodes.
        """
        schedulable, without_taint = node_class.schedulable, node_class.without_taint
        self.schedulable += nodes * schedulable
        self.without_taint += nodes * without_taint
        self.schedulable_without_taint += nodes * (schedulable and without_taint)


@dataclass(slots=True)
class _Scope:
    """A pool or the cluster, with its budget and two counts: of all nodes, and of reached nodes.

    A node is reached if a movable pod can use it. Limits on a reached node use the count of
    reached nodes only. So the removal of an unreached node, which affects no pod, uses up no
    budget of reached nodes. Limits on an unreached node use the count of all nodes.
    """

    name: str
    budget: Budget
    all: _Count
    reached: _Count
    """Count of the nodes that a movable pod can use."""


@dataclass(slots=True, eq=False)
class _Scopes:
    """The cluster and, if the node has one, its pool, with the counts that limits read."""

    checked: Sequence[tuple[_Scope, _Count]]
    """Scopes, each with the count that the limits are checked with."""
    counts: Sequence[_Count]
    """Counts that include the node."""


class _NodeClass(NamedTuple):
    """The properties of a node that limits read, such as its scopes, mark and node group.

    Nodes with equal properties form a class. The limits are evaluated once for each class.
    """

    scopes: _Scopes
    marked: bool
    schedulable: bool
    without_taint: bool
    """Whether the node has no taints other than Ebb's."""
    low_price: Fraction | None
    """Price of the node for an hour, if it is lower than `minSavings`; else None."""
    group: NodeGroup | None
    """Node group of Cluster Autoscaler, if the node counts as one of its nodes; else None."""
    zone: ZoneClass | None
    """Similar nodes of its zone, if the zone is compared with other zones; else None."""
    name: str
    """Name of the node if a limit applies to this node alone, else empty.

    The node is in backoff, a write of its mark has failed, or it runs an old Job."""


class RemovalLimits:
    """Count the removals of one plan, and report the limits that the next removal would exceed."""

    def __init__(self, snapshot: ClusterSnapshot, rate_limits: RateLimits | None) -> None:
        """Count the existing nodes of the snapshot.

        *rate_limits*: None if only the lasting limits apply, such as minimum sizes and zone
        balance.
        """
        budgets = snapshot.config.budgets
        self._budgets, self._snapshot = budgets, snapshot
        self.rate_limits = rate_limits or RateLimits(beginning=ALWAYS)
        self._for_new = (
            LASTING_UNMARKED_ONLY,
            *(() if rate_limits is None else (RATE_LIMITS, BUDGETS)),
        )
        self._cluster_scope = self._scope("", _CLUSTER, budgets.cluster)
        self._pools = {
            pool.name: self._scope(pool.name, f"pool {pool.name}", pool.budget)
            for pool in budgets.pools
        }
        existing = frozenset(
            number
            for number, node in enumerate(snapshot.node_order.nodes)
            if node.name not in snapshot.leaving_nodes and not node.virtual
        )
        """Ids of the nodes that count as existing: they are neither leaving nor virtual."""
        self._zones = Zones(snapshot, existing) if budgets.balance_zones else None
        self._classes = self._class_nodes(existing)
        """Class of each node, by the id of the node."""
        self._blockers_by_class: dict[_NodeClass, Sequence[Blocker]] = {}
        """Results of `_evaluate`, valid until the next removal is counted."""
        self._marks_new_node = False
        """True if the plan already removes a node that has no mark yet."""
        self._group_sizes: Counter[NodeGroup] = Counter()
        """Nodes of each group, without the nodes that the plan removes."""
        classes = Counter(self._classes[number] for number in existing)
        for node_class, nodes in classes.items():
            for count in node_class.scopes.counts:
                count.nodes += nodes
                count.marked += nodes * node_class.marked
                count.add_remaining(nodes, node_class)
            if node_class.group is not None:
                self._group_sizes[node_class.group] += nodes

    def _scope(self, pool: str, name: str, budget: Budget) -> _Scope:
        window, reached = (
            ends.get(pool, ())
            for ends in (self.rate_limits.window_ends, self.rate_limits.reached_ends)
        )
        return _Scope(
            name,
            budget,
            _Count(in_window=len(window), window_ends=window),
            _Count(in_window=len(reached), window_ends=reached, which=" that pods can use"),
        )

    def _scopes_of(self, pool: str | None, *, reached: bool) -> _Scopes:
        scopes = (
            (self._cluster_scope,) if pool is None else (self._cluster_scope, self._pools[pool])
        )
        of_reached = [scope.reached for scope in scopes] if reached else []
        of_all = [scope.all for scope in scopes]
        return _Scopes(
            list(zip(scopes, of_reached or of_all, strict=True)), [*of_all, *of_reached]
        )

    def _class_nodes(self, existing: Container[int]) -> list[_NodeClass]:
        snapshot, limits = self._snapshot, self.rate_limits
        single_nodes = (
            limits.backing_off.keys() | limits.failed_writes.keys() | limits.old_jobs.keys()
        )
        zones = self._zones.of_node if self._zones else {}
        reached_nodes = snapshot.reaches.reached
        scopes = {
            (pool, reached): self._scopes_of(pool, reached=reached)
            for pool in (None, *self._pools)
            for reached in (False, True)
        }
        return [
            _NodeClass(
                scopes=scopes[snapshot.pool_names.get(node.name), number in reached_nodes],
                marked=node.name in snapshot.marks,
                schedulable=node.name not in snapshot.unschedulable_nodes,
                # The nodes of the node order do not have Ebb's taint.
                without_taint=not node.taints or others_taint(node) is None,
                low_price=self._low_prices.get(node.name),
                group=snapshot.scalability[node.name].group if number in existing else None,
                zone=zones.get(number),
                name=node.name if node.name in single_nodes else "",
            )
            for number, node in enumerate(snapshot.node_order.nodes)
        ]

    @cached_property
    def _low_prices(self) -> Mapping[str, Fraction]:
        config = self._snapshot.config
        least = config.min_savings.hourly
        if not least or not config.prices:
            return {}
        prices = {node.name: config.price_of(node.labels) for node in self._snapshot.cluster.nodes}
        return {name: price for name, price in prices.items() if price < least}

    def blockers(self, node: Node) -> Sequence[Blocker]:
        """Return the reasons of all limits that forbid to remove the node next; maybe none.

        Most limits, such as budgets and cooldowns, do not apply to marked nodes.
        """
        node_class = self._classes[self._snapshot.node_order.ids[node.name]]
        blockers = self._blockers_by_class.get(node_class)
        if blockers is None:
            blockers = self._blockers_by_class[node_class] = self._evaluate(node_class)
        return blockers

    def _evaluate(self, node_class: _NodeClass) -> Sequence[Blocker]:
        blockers: list[Blocker] = []
        marked = node_class.marked
        lasting = LASTING if marked or not node_class.schedulable else LASTING_FOR_NEW
        for rules in (lasting,) if marked else (lasting, *self._for_new):
            for reason, of_node in rules.of_node:
                if why := of_node(self, node_class):
                    blockers += self._blocker(reason, why)
            for scope, count in node_class.scopes.checked:
                for reason, of_scope in rules.of_scope:
                    if why := of_scope(scope, count):
                        blockers += self._blocker(reason, why)
        return blockers

    def _blocker(self, reason: Reason, why: str | Timed) -> Iterable[Blocker]:
        if isinstance(why, str):
            yield Blocker(reason, why)
        elif (now := self._snapshot.now) is None or now.before(why.until):
            yield Blocker(reason, why.message, until=why.until)

    def no_pool(self, node_class: _NodeClass) -> str | None:
        """Return a message if pools are configured and none selects the node, else None."""
        in_no_pool = self._pools and len(node_class.scopes.checked) == 1
        return "it is in none of the configured pools" if in_no_pool else None

    def min_savings(self, node_class: _NodeClass) -> str | None:
        """Return a message if the node costs less for an hour than `minSavings`, else None."""
        if (price := node_class.low_price) is None:
            return None
        least = self._snapshot.config.min_savings.hourly
        return f"its price for an hour is {float(price):g}, minSavings is {float(least):g}"

    def zone_balance(self, node_class: _NodeClass) -> str | None:
        """Return a message if too few nodes would remain in the node's zone, else None."""
        return node_class.zone.explain() if node_class.zone else None

    def min_untainted(self, node_class: _NodeClass) -> str | None:
        """Return a message if too few nodes without taints would remain, else None.

        Ebb's own taint is ignored. The cluster and the node's pool each have a minimum.
        """
        marked = node_class.marked
        counts = node_class.without_taint and (marked or node_class.schedulable)
        for scope, count in node_class.scopes.checked if counts else ():
            left = (count.without_taint if marked else count.schedulable_without_taint) - 1
            least = scope.budget.min_untainted_nodes
            if left < least:
                nodes = plural(left, "node without a taint", "nodes without a taint")
                return f"{scope.name} would have {nodes}, fewer than minUntaintedNodes: {least}"
        return None

    def group_minimum(self, node_class: _NodeClass) -> str | None:
        """Return a message if the node group would fall below its minimum size, else None.

        Cluster Autoscaler counts all nodes of the group, whether they are Ready or not.
        """
        group = node_class.group
        if group is None or self._group_sizes[group] > group.min_size:
            return None
        left = plural(self._group_sizes[group] - 1, "node")
        return (
            f"node group {group.name} would have {left}, fewer than its minimum: {group.min_size}"
        )

    def spacing(self, _: _NodeClass) -> str | Timed | None:
        """Return a message if `markInterval` has not passed since the last mark, else None.

        Timed says when the interval ends. A text alone means that this plan marks another node
        first. The removal of a mark whose node did not empty before its deadline counts like a
        mark.
        """
        if until := self.rate_limits.mark_interval_until:
            return Timed(
                f"a node was marked, or did not empty in time: {_no_mark_until(until)}", until
            )
        if self._marks_new_node and (seconds := self._budgets.mark_interval_seconds):
            return f"Ebb marks another node first; the next node follows after {duration(seconds)}"
        return None

    def backoff(self, node_class: _NodeClass) -> Timed | None:
        """Return a message with the end of the node's backoff, or None if the node is in none.

        A backoff begins when the node did not empty before its mark's deadline, or its eviction
        failed.
        """
        until = self.rate_limits.backing_off.get(node_class.name)
        if until is None:
            return None
        order = self._snapshot.node_order
        last = backoff_of(order.nodes[order.ids[node_class.name]].annotations)
        why = (
            f"its eviction failed ({last.why})"
            if last and last.why
            else "it did not empty in time"
        )
        return Timed(f"{why}: it is skipped until {timestamp(until)}", until)

    def count_removal(self, node: Node) -> None:
        """Count the node as removed by the plan, before limits are asked about further nodes."""
        number = self._snapshot.node_order.ids[node.name]
        node_class = self._classes[number]
        new = not node_class.marked
        self._marks_new_node |= new
        for count in node_class.scopes.counts:
            count.removed += 1
            count.marked += new
            count.in_window += new
            count.add_remaining(-1, node_class)
        if node_class.group is not None:
            self._group_sizes[node_class.group] -= 1
        if self._zones:
            self._zones.count_removal(number)
        self._blockers_by_class.clear()


NO_POOL: Final = Reason(
    "no-pool",
    "Pools are configured and the node is in none of them. Ebb never removes such nodes.",
    "add a pool that selects the node by its labels to `pools`",
    "a configured pool selects the node",
)
MIN_NODES: Final = Reason(
    "min-nodes",
    "The cluster, or the node's pool, would have fewer nodes than the configured minimum.",
    "lower `minNodes` (of `budgets`, or of the pool) if the minimum is not intended",
    "the cluster or pool keeps more than `minNodes` schedulable nodes after the planned removals",
)
MIN_UNTAINTED: Final = Reason(
    "min-untainted-nodes",
    "The cluster, or the node's pool, would have fewer nodes without a taint than the configured "
    "minimum.",
    "lower `minUntaintedNodes` (of `budgets`, or of the pool) if the minimum is not intended",
    "the cluster or pool has more than `minUntaintedNodes` schedulable nodes without a mark and "
    "without other taints",
)
SPACING: Final = Reason(
    "mark-interval",
    "Another node was marked recently, is marked first in this plan, or did not empty before its "
    "deadline. Ebb waits for a minimum interval between marks.",
    "wait; or shorten `markInterval`",
    "no node was marked for `markInterval`, and no mark was removed because its deadline passed",
)
ZONE_BALANCE: Final = Reason(
    "zone-balance",
    "The node's zone would have at least two fewer schedulable nodes than another zone.",
    "wait until nodes of the larger zones are removed; or set `balanceZones: false`",
    "no zone has more schedulable nodes than the node's zone after the planned removals",
)
MIN_SAVINGS: Final = Reason(
    "min-savings",
    "The price of the node is lower than `minSavings`, so its removal is not worth the effort.",
    "lower `minSavings` (`perHour` or `perMonth`); or add an entry for the node to `prices`",
    "the node costs at least `minSavings`",
)
COOLDOWN: Final = Reason(
    "cooldown",
    "A node was added recently. Ebb marks no node while the cluster grows.",
    "wait; or shorten `cooldown.delayAfterAdd`",
    "no node has been added for `cooldown.delayAfterAdd`",
)
PODS_PENDING: Final = Reason(
    "pods-pending",
    "A pod that some node would admit became unschedulable recently. Ebb marks no node while "
    "capacity is short.",
    "wait; or shorten `cooldown.delayAfterPending`",
    "no pod has become unschedulable for `cooldown.delayAfterPending`",
)
BACKOFF: Final = Reason(
    "backoff",
    "The node did not empty before the deadline of its last mark, or its eviction failed. Ebb "
    "skips it for a time that doubles with each failure.",
    "see which pods remained: ebb explain node {node}; to retry at once: "
    f"kubectl annotate node {{node}} {BACKOFF_ANNOTATION}-",
    f"the time in the annotation {BACKOFF_ANNOTATION} of the node has passed",
)
OLD_JOB: Final = Reason(
    "old-job",
    "A pod on the node runs to completion and is older than `maxJobAge`. Such pods mostly still "
    "run for long, so the node would not be empty soon.",
    "wait until the pod completes; or raise `maxJobAge`",
    "no pod on the node that runs to completion is older than `maxJobAge`",
)
MARK_REFUSED: Final = Reason(
    "mark-refused",
    "The mark could not be written: the API server rejected the write or did not answer. Ebb "
    "skips the node for a time that doubles with each failure.",
    "see the error in the log of ebb-controller; common causes are an admission policy and the "
    "size limit of annotations",
    "the backoff has ended",
)
BUDGET_MARKED: Final = Reason(
    "budget-marked",
    "The cluster, or the pool, has as many marked nodes as `maxMarked` allows.",
    "wait until marked nodes are removed; or raise `maxMarked` (of `budgets`, or of the pool)",
    "fewer nodes are marked than `maxMarked`",
)
BUDGET_WINDOW: Final = Reason(
    "budget-window",
    "As many nodes of the cluster, or of the pool, were marked within `budgets.window` as "
    "`maxInWindow` allows.",
    "wait; or raise `maxInWindow` (of `budgets`, or of the pool), or shorten `budgets.window`",
    "fewer than `maxInWindow` nodes were marked within `budgets.window`",
)


_NodeRule = Callable[[RemovalLimits, _NodeClass], str | Timed | None]
_ScopeRule = Callable[[_Scope, _Count], str | Timed | None]


def _min_nodes(scope: _Scope, count: _Count) -> str | None:
    left, least = count.nodes - count.removed - 1, scope.budget.min_nodes
    if left >= least:
        return None
    nodes = plural(left, f"node{count.which}", f"nodes{count.which}")
    return f"{scope.name} would have {nodes}, fewer than minNodes: {least}"


def _min_schedulable(scope: _Scope, count: _Count) -> str | None:
    left, least = count.schedulable - 1, scope.budget.min_nodes
    if left >= least:
        return None
    nodes = plural(left, *(f"{noun}{count.which}" for noun in SCHEDULABLE_NODE))
    return f"{scope.name} would have {nodes}, fewer than minNodes: {least}"


def _no_mark_until(until: int) -> str:
    return f"no node is marked until {timestamp(until)}"


def _maintenance_limit(reason: Reason) -> _NodeRule:
    """Return a limit that forbids new marks while *reason* applies.

    *reason*: PAUSED (`pauseUntil` is in the future) or CLOSED (no window of `schedule` is open).
    """

    def rule(limits: RemovalLimits, _: _NodeClass) -> str | Timed | None:
        blockers = limits.rate_limits.beginning.blockers
        if (why := next((why for why in blockers if why.reason is reason), None)) is None:
            return None
        return why.message if why.until is None else Timed(why.message, why.until)

    return rule


def _cooldown(limits: RemovalLimits, _: _NodeClass) -> Timed | None:
    until = limits.rate_limits.cooling_until
    return Timed(f"a node was added: {_no_mark_until(until)}", until) if until else None


def _pods_pending(limits: RemovalLimits, _: _NodeClass) -> Timed | None:
    until = limits.rate_limits.pending_until
    why = "a pod became unschedulable"
    return Timed(f"{why}: {_no_mark_until(until)}", until) if until else None


def _mark_refused(limits: RemovalLimits, node_class: _NodeClass) -> Timed | None:
    until = limits.rate_limits.failed_writes.get(node_class.name)
    if until is None:
        return None
    return Timed(f"its mark could not be written: it is skipped until {timestamp(until)}", until)


def _old_job(limits: RemovalLimits, node_class: _NodeClass) -> str | None:
    pod = limits.rate_limits.old_jobs.get(node_class.name)
    return f"pod {pod} runs to completion and is older than maxJobAge" if pod else None


def _budget_marked(scope: _Scope, count: _Count) -> str | None:
    limit = scope.budget.max_marked
    if limit is None or count.marked < limit.of(count.nodes):
        return None
    return f"{scope.name} has {plural(count.marked, 'marked node')}, maxMarked is {limit}"


def _budget_window(scope: _Scope, count: _Count) -> str | Timed | None:
    limit = scope.budget.max_in_window
    if limit is None or count.in_window < limit.of(count.nodes):
        return None
    marks = plural(count.in_window, "mark")
    message = f"{scope.name} had {marks} in the window, maxInWindow is {limit}"
    # This many marks must leave the window first. Marks of this plan have no end yet.
    leaving = count.in_window - limit.of(count.nodes) + 1
    ends = count.window_ends
    return Timed(message, ends[leaving - 1]) if leaving <= len(ends) else message


class _Rules(NamedTuple):
    """Limits, each with its reason, that apply in the same cases, such as to unmarked nodes."""

    of_node: tuple[tuple[Reason, _NodeRule], ...] = ()
    of_scope: tuple[tuple[Reason, _ScopeRule], ...] = ()
    """Limits that are checked for the cluster, then for the node's pool."""


LASTING: Final = _Rules(
    (
        (NO_POOL, RemovalLimits.no_pool),
        (NOT_SCALABLE, RemovalLimits.group_minimum),
        (MIN_UNTAINTED, RemovalLimits.min_untainted),
    ),
    ((MIN_NODES, _min_nodes),),
)
"""Limits that always apply, in the form for marked and for unschedulable nodes.

Other nodes have LASTING_FOR_NEW."""
LASTING_FOR_NEW: Final = LASTING._replace(of_scope=((MIN_NODES, _min_schedulable),))
"""Limits that always apply, in the form for unmarked schedulable nodes: only schedulable nodes
count.

For marked nodes all nodes count, so that one NotReady node does not remove a mark."""
LASTING_UNMARKED_ONLY: Final = _Rules(
    ((MIN_SAVINGS, RemovalLimits.min_savings), (ZONE_BALANCE, RemovalLimits.zone_balance))
)
"""Further limits that always apply to unmarked nodes."""
RATE_LIMITS: Final = _Rules(
    (
        (PAUSED, _maintenance_limit(PAUSED)),
        (CLOSED, _maintenance_limit(CLOSED)),
        (COOLDOWN, _cooldown),
        (PODS_PENDING, _pods_pending),
        (SPACING, RemovalLimits.spacing),
        (BACKOFF, RemovalLimits.backoff),
        (MARK_REFUSED, _mark_refused),
        (OLD_JOB, _old_job),
    )
)
"""Limits that apply to unmarked nodes in the running controller."""
BUDGETS: Final = _Rules(
    of_scope=((BUDGET_MARKED, _budget_marked), (BUDGET_WINDOW, _budget_window))
)
"""Limits that apply to unmarked nodes in the running controller, checked after RATE_LIMITS."""
LASTING_REASONS: Final = frozenset(
    reason
    for rules in (LASTING, LASTING_UNMARKED_ONLY)
    for reason, _ in (*rules.of_node, *rules.of_scope)
)
"""Reasons that do not end when requests fall."""
REASONS: Final = tuple(
    reason
    for rules in (LASTING, LASTING_UNMARKED_ONLY, BUDGETS, RATE_LIMITS)
    for reason, _ in (*rules.of_node, *rules.of_scope)
)
