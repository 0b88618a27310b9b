"""What keeps the engine from going on although nodes could go: counted while a plan is made.

A brake is a function that returns why a node must not be removed next, or None, and an entry in a
list. A brake that ends with time returns Timed. It knows no time but the ends in Pace.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.config.budgets import Budget
from core.engine.leader_state import RateLimits
from core.engine.snapshot import ClusterSnapshot
from core.engine.zones import SCHEDULABLE_NODE, Zones
from core.marks.mark import backoff_of
from core.marks.wellknown import BACKOFF_ANNOTATION
from core.model.humanize import duration, plural, timestamp
from core.model.node import Node
from core.model.node_lifecycle import others_taint
from core.model.reason import Blocker, Reason, Timed

_CLUSTER: Final = "the cluster"


@dataclass(slots=True)
class _Count:
    """How many nodes there are of some kind, and how it stands while a plan is made."""

    nodes: int = 0
    """That there are now."""
    schedulable: int = 0
    """Of them, those that take pods, without those that go."""
    without_taint: int = 0
    """Of all, those that carry no taint of others, without those that go."""
    schedulable_without_taint: int = 0
    """Of these, those that take pods."""
    marked: int = 0
    """Now and, as far as it has been planned, from now on."""
    in_window: int = 0
    """Marked within the window, those that have left since among them, and from now on."""
    window_ends: tuple[int, ...] = ()
    """When the marks leave the window that were set before this plan, unix seconds, in order."""
    removed: int = 0
    """Nodes that the plan removes."""


@dataclass(slots=True)
class _Scope:
    """A pool or the cluster.

    What nobody reaches changes no verdict on other nodes, so nodes that some movable pod reaches
    are counted for themselves; the others are judged by the counts of all.
    """

    name: str
    budget: Budget
    all: _Count
    reached: _Count


class RemovalLimits:
    """Counts the steps of one plan and says which further step is one too many."""

    def __init__(self, snapshot: ClusterSnapshot, rate_limits: RateLimits | None) -> None:
        """Count what there is; without a *rate_limits* the lasting limits alone hold."""
        budgets = snapshot.config.budgets
        self._budgets, self._survey = budgets, snapshot
        self.rate_limits = rate_limits or RateLimits()
        self._for_new = (
            LASTING_UNMARKED_ONLY,
            *(() if rate_limits is None else (RATE_LIMITS, BUDGETS)),
        )
        self._cluster_scope = self._scope("", _CLUSTER, budgets.cluster)
        self._pools = {
            pool.name: self._scope(pool.name, f"pool {pool.name}", pool.budget)
            for pool in budgets.pools
        }
        nodes = snapshot.cluster.nodes
        self._scopes = {node.name: self._scopes_of(node) for node in nodes}
        self._judged_by = {
            node.name: [
                (scope, scope.reached if snapshot.reaches_node(node.name) else scope.all)
                for scope in self._scopes[node.name]
            ]
            for node in nodes
        }
        """By node: the scopes that it is in, each with the count that it is judged by."""
        standing = [
            node for node in nodes if node.name not in snapshot.leaving_nodes and not node.virtual
        ]
        self._without_foreign_taint = frozenset(
            n.name for n in snapshot.node_order.nodes if others_taint(n) is None
        )
        """By ground: without Ebb's own taint."""
        self._marks_one = False
        """Whether the plan lets a node go that has no mark yet."""
        for node in standing:
            marked = node.name in snapshot.marks
            for count in self._counts(node):
                count.nodes += 1
                count.schedulable += self._is_schedulable(node)
                count.without_taint += node.name in self._without_foreign_taint
                count.schedulable_without_taint += self._is_untainted(node)
                count.marked += marked
        self._zones = Zones(snapshot, standing) if budgets.balance_zones else None

    def _scope(self, pool: str, name: str, budget: Budget) -> _Scope:
        window, reached = (
            ends.get(pool, ())
            for ends in (self.rate_limits.window_ends, self.rate_limits.reached_ends)
        )
        return _Scope(
            name,
            budget,
            _Count(in_window=len(window), window_ends=window),
            _Count(in_window=len(reached), window_ends=reached),
        )

    def _scopes_of(self, node: Node) -> tuple[_Scope, ...]:
        pool = self._budgets.pool_of(node.labels)
        return (
            (self._cluster_scope,)
            if pool is None
            else (self._cluster_scope, self._pools[pool.name])
        )

    def _counts(self, node: Node) -> Iterable[_Count]:
        """Yield those in which the node counts."""
        for scope in self._scopes[node.name]:
            yield scope.all
            if self._survey.reaches_node(node.name):
                yield scope.reached

    def _is_schedulable(self, node: Node) -> bool:
        return node.name not in self._survey.unschedulable_nodes

    def _is_untainted(self, node: Node) -> bool:
        return self._is_schedulable(node) and node.name in self._without_foreign_taint

    def blockers(self, node: Node) -> list[Blocker]:
        """Return everything that holds the node back; a marked one is past most of it."""
        found: list[Blocker] = []
        marked = node.name in self._survey.marks
        lasting = LASTING if marked or not self._is_schedulable(node) else LASTING_FOR_NEW
        for rules in (lasting,) if marked else (lasting, *self._for_new):
            for reason, rule in rules.of_node:
                found += self._blocker(reason, rule(self, node))
            for scope, count in self._judged_by[node.name]:
                for reason, of_scope in rules.of_scope:
                    found += self._blocker(reason, of_scope(scope, count))
        return found

    def _blocker(self, reason: Reason, why: str | Timed | None) -> Iterable[Blocker]:
        """Yield the reason, unless there is none or its end has come; without a time none has."""
        if isinstance(why, Timed):
            now = self._survey.now
            if now is None or now.before(why.until):
                yield Blocker(reason, why.message, until=why.until)
        elif why:
            yield Blocker(reason, why)

    def no_pool(self, node: Node) -> str | None:
        """Say that pools are configured and none selects the node, or None."""
        left_out = self._budgets.pools and len(self._scopes[node.name]) == 1
        return "it is in none of the configured pools" if left_out else None

    def zone_balance(self, node: Node) -> str | None:
        """Say why the node's zone must not lose it, or None."""
        return self._zones.explain(node) if self._zones else None

    def min_untainted(self, node: Node) -> str | None:
        """Say that too few nodes without taints would be left without the node, or None."""
        marked = node.name in self._survey.marks
        counts = node.name in self._without_foreign_taint if marked else self._is_untainted(node)
        for scope, count in self._judged_by[node.name] if counts else ():
            left = (count.without_taint if marked else count.schedulable_without_taint) - 1
            least = scope.budget.min_untainted_nodes
            if left < least:
                bare = plural(left, "node without a taint", "nodes without a taint")
                return f"{scope.name} would have {bare}, fewer than minUntaintedNodes: {least}"
        return None

    def spacing(self, _: Node) -> str | Timed | None:
        """Return that a mark, or the release of a node, was too short a time ago, or None."""
        if until := self.rate_limits.spacing_until:
            return Timed(f"a node was marked, or did not empty: {_no_mark_until(until)}", until)
        if self._marks_one and (seconds := self._budgets.spacing_seconds):
            return f"another node is marked first, and nothing for {duration(seconds)} after it"
        return None

    def count_removal(self, node: Node) -> None:
        """Count the node as one that goes."""
        new = node.name not in self._survey.marks
        self._marks_one |= new
        for count in self._counts(node):
            count.removed += 1
            count.schedulable -= self._is_schedulable(node)
            count.without_taint -= node.name in self._without_foreign_taint
            count.schedulable_without_taint -= self._is_untainted(node)
            count.marked += new
            count.in_window += new
        if self._zones:
            self._zones.count_removal(node)


NO_POOL: Final = Reason(
    "no-pool",
    "Pools are configured and the node is in none of them; such nodes never go.",
    "add a pool whose nodeSelector matches the node's labels to `pools`",
    "a configured pool selects the node",
)
MIN_NODES: Final = Reason(
    "min-nodes",
    "The cluster, or the node's pool, would have fewer nodes than the configured minimum.",
    "set `minNodes` (of `budgets`, or of the pool) lower, if the minimum is not meant",
    "the cluster or pool has more nodes that take pods than `minNodes`, without those that go",
)
MIN_UNTAINTED: Final = Reason(
    "min-untainted-nodes",
    "The cluster, or the node's pool, would have fewer nodes without a taint than the configured "
    "minimum.",
    "set `minUntaintedNodes` (of `budgets`, or of the pool) lower, if the minimum is not meant",
    "the cluster or pool has more nodes than `minUntaintedNodes` that take pods and carry neither "
    "a mark nor a taint of others",
)
SPACING: Final = Reason(
    "spacing",
    "Another node was marked a short time ago, is marked first, or did not empty in time: marks "
    "are set apart from each other.",
    "wait; or set `spacing` shorter",
    "no node has been marked, and none released that did not empty, for `spacing`",
)
ZONE_BALANCE: Final = Reason(
    "zone-balance",
    "The node's zone would fall behind another zone by more than one node.",
    "wait for nodes of the larger zones to go; or set `balanceZones: false`",
    "no zone has more nodes that take pods than the node's own, not counting those that go",
)
COOLDOWN: Final = Reason(
    "cooldown",
    "A node was added a short time ago: while the cluster grows, nothing is marked.",
    "wait; or set `cooldown.afterNodeAdd` shorter",
    "no node has been added for `cooldown.afterNodeAdd`",
)
PODS_PENDING: Final = Reason(
    "pods-pending",
    "A pod turned unschedulable a short time ago that some node would admit: while room is "
    "short, nothing is marked.",
    "wait; or set `cooldown.afterPending` shorter",
    "no pod has turned unschedulable for `cooldown.afterPending`",
)
BACKOFF: Final = Reason(
    "backoff",
    "The node was marked before and did not empty before its deadline, or its drain failed, so it "
    "is left alone for a time that doubles with each such failure.",
    "see what kept pods on it: ebb explain node {node}; to try again at once: "
    f"kubectl annotate node {{node}} {BACKOFF_ANNOTATION}-",
    f"the time in its annotation {BACKOFF_ANNOTATION} has passed",
)
MARK_REFUSED: Final = Reason(
    "mark-refused",
    "The node's mark could not be written: something refuses what is written on it, or no answer "
    "came. It is left alone for a time that doubles with each such failure.",
    "see what refuses it: the log of ebb-controller tells it; often an admission policy, or "
    "annotations that are full",
    "the time has passed",
)
BUDGET_MARKED: Final = Reason(
    "budget-marked",
    "As many nodes of the cluster, or of the pool, carry a mark as may at once.",
    "wait for marked nodes to empty and go; or raise `maxMarked` (of `budgets`, or of the pool)",
    "fewer nodes are marked than `maxMarked`",
)
BUDGET_WINDOW: Final = Reason(
    "budget-window",
    "As many nodes of the cluster, or of the pool, were marked within the window as may be.",
    "wait; or raise `maxInWindow` (of `budgets`, or of the pool), or make `budgets.window` "
    "shorter",
    "fewer marks than `maxInWindow` are younger than `budgets.window`",
)


def _min_nodes(scope: _Scope, count: _Count) -> str | None:
    left, least = count.nodes - count.removed - 1, scope.budget.min_nodes
    if left >= least:
        return None
    return f"{scope.name} would have {plural(left, 'node')}, fewer than minNodes: {least}"


def _min_working(scope: _Scope, count: _Count) -> str | None:
    left, least = count.schedulable - 1, scope.budget.min_nodes
    if left >= least:
        return None
    return (
        f"{scope.name} would have {plural(left, *SCHEDULABLE_NODE)}, fewer than minNodes: {least}"
    )


def _no_mark_until(until: int) -> str:
    return f"no node is marked until {timestamp(until)}"


def _cooldown(limits: RemovalLimits, _: Node) -> Timed | None:
    until = limits.rate_limits.cooling_until
    return Timed(f"a node was added: {_no_mark_until(until)}", until) if until else None


def _pods_pending(limits: RemovalLimits, _: Node) -> Timed | None:
    until = limits.rate_limits.pending_until
    why = "a pod became unschedulable"
    return Timed(f"{why}: {_no_mark_until(until)}", until) if until else None


def _backoff(limits: RemovalLimits, node: Node) -> Timed | None:
    until = limits.rate_limits.backing_off.get(node.name)
    if until is None:
        return None
    found = backoff_of(node.annotations)
    why = f"its drain failed ({found.why})" if found and found.why else "it did not empty in time"
    return Timed(f"{why}: it is skipped until {timestamp(until)}", until)


def _mark_refused(limits: RemovalLimits, node: Node) -> Timed | None:
    until = limits.rate_limits.failed_writes.get(node.name)
    if until is None:
        return None
    return Timed(f"its mark could not be written: it is skipped until {timestamp(until)}", until)


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
    # So many marks must leave the window first. Marks of this very plan have no end yet.
    leaving = count.in_window - limit.of(count.nodes) + 1
    ends = count.window_ends
    return Timed(message, ends[leaving - 1]) if leaving <= len(ends) else message


class _Rules(NamedTuple):
    """Brakes that hold at the same time."""

    of_node: tuple[tuple[Reason, Callable[[RemovalLimits, Node], str | Timed | None]], ...] = ()
    of_scope: tuple[tuple[Reason, Callable[[_Scope, _Count], str | Timed | None]], ...] = ()
    """Asked of the cluster, then of the node's pool."""


LASTING: Final = _Rules(
    ((NO_POOL, RemovalLimits.no_pool), (MIN_UNTAINTED, RemovalLimits.min_untainted)),
    ((MIN_NODES, _min_nodes),),
)
"""At all times, and for marked nodes too."""
LASTING_FOR_NEW: Final = LASTING._replace(of_scope=((MIN_NODES, _min_working),))
"""The same of nodes without a mark: what takes no pods is none of those that must be left. Marked
ones go by all that stand, so that none is released because another is not ready for a minute; nor
by `min_untainted`."""
LASTING_UNMARKED_ONLY: Final = _Rules(((ZONE_BALANCE, RemovalLimits.zone_balance),))
"""At all times, for nodes without a mark."""
RATE_LIMITS: Final = _Rules(
    (
        (COOLDOWN, _cooldown),
        (PODS_PENDING, _pods_pending),
        (SPACING, RemovalLimits.spacing),
        (BACKOFF, _backoff),
        (MARK_REFUSED, _mark_refused),
    )
)
"""In the running engine, for nodes without a mark."""
BUDGETS: Final = _Rules(
    of_scope=((BUDGET_MARKED, _budget_marked), (BUDGET_WINDOW, _budget_window))
)
"""As RATE_LIMITS, and asked after it."""
LASTING_REASONS: Final = frozenset(
    reason
    for rules in (LASTING, LASTING_UNMARKED_ONLY)
    for reason, _ in (*rules.of_node, *rules.of_scope)
)
"""What falling requests do not lift."""
REASONS: Final = tuple(
    reason
    for rules in (LASTING, LASTING_UNMARKED_ONLY, BUDGETS, RATE_LIMITS)
    for reason, _ in (*rules.of_node, *rules.of_scope)
)
