"""What keeps the engine from going on although nodes could go: counted while a plan is made."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from core.config.budgets import Budget
from core.engine.memory import COOLDOWN, PODS_PENDING, Pace
from core.engine.survey import Survey
from core.engine.zones import Zones
from core.model.node import Node
from core.reason import Blocker, Reason

_CLUSTER: Final = "the cluster"

NO_POOL: Final = Reason(
    "no-pool",
    "Pools are configured and the node is in none of them; such nodes never go.",
    "add a pool whose nodeSelector matches the node's labels to `pools`",
    "a configured pool selects the node",
)
MIN_NODES: Final = Reason(
    "min-nodes",
    "The cluster, or the node's pool, would have fewer nodes than the configured minimum.",
    "set `minNodes` lower in the configuration, if the minimum is not meant",
    "the cluster or pool has more nodes than `minNodes`, not counting those that go",
)
ZONE_BALANCE: Final = Reason(
    "zone-balance",
    "The node's zone would fall behind another zone by more than one node.",
    "wait for nodes of the larger zones to go; or set `balanceZones: false`",
    "no zone has more nodes than the node's own, not counting those that go",
)
BUDGET_MARKED: Final = Reason(
    "budget-marked",
    "As many nodes of the cluster, or of the pool, carry a mark as may at once.",
    "wait for marked nodes to empty and go; or raise `maxMarked`",
    "fewer nodes are marked than `maxMarked`",
)
BUDGET_WINDOW: Final = Reason(
    "budget-window",
    "As many nodes of the cluster, or of the pool, were marked within the window as may be.",
    "wait; or raise `maxInWindow`, or make `budgets.window` shorter",
    "fewer marks than `maxInWindow` are younger than `budgets.window`",
)
BACKOFF: Final = Reason(
    "backoff",
    "The node was marked before and did not empty before its deadline, so it is left alone "
    "for a time that doubles with each such failure.",
    "see what kept pods on it: ebb explain node {node}; to try again at once: "
    "kubectl annotate node {node} kube-ebb.io/backoff-",
    "the time in its annotation kube-ebb.io/backoff has passed",
)
REASONS: Final = (
    NO_POOL,
    MIN_NODES,
    ZONE_BALANCE,
    BUDGET_MARKED,
    BUDGET_WINDOW,
    COOLDOWN,
    PODS_PENDING,
    BACKOFF,
)


@dataclass(slots=True)
class _Count:
    """How many nodes there are of some kind, and how it stands while a plan is made."""

    nodes: int = 0
    """That there are now."""
    marked: int = 0
    """Now and, as far as it has been planned, from now on."""
    in_window: int = 0
    """Marked within the window, those that have left since among them, and from now on."""
    gone: int = 0
    """Nodes that the plan lets go."""


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


class Brakes:
    """Counts the steps of one plan and says which further step is one too many."""

    def __init__(self, survey: Survey, pace: Pace | None) -> None:
        """Count what there is; without a *pace* the lasting limits alone hold."""
        budgets = survey.config.budgets
        self._budgets, self._pace, self._survey = budgets, pace, survey
        self._whole = self._scope("", _CLUSTER, budgets.cluster)
        self._pools = {
            pool.name: self._scope(pool.name, f"pool {pool.name}", pool.budget)
            for pool in budgets.pools
        }
        nodes = survey.cluster.nodes
        self._scopes = {node.name: self._scopes_of(node) for node in nodes}
        self._judging = {
            node.name: [
                (scope, scope.reached if survey.reaches_node(node.name) else scope.all)
                for scope in self._scopes[node.name]
            ]
            for node in nodes
        }
        """By node: the scopes that it is in, each with the count that it is judged by."""
        standing = [node for node in nodes if node.name not in survey.gone and not node.virtual]
        for node in standing:
            marked = node.name in survey.marks
            for count in self._counts(node):
                count.nodes += 1
                count.marked += marked
        self._zones = Zones(survey, standing) if budgets.balance_zones else None

    def _scope(self, pool: str, name: str, budget: Budget) -> _Scope:
        pace = self._pace or Pace()
        window = pace.in_window.get(pool, 0)
        reached = window - pace.on_unreached.get(pool, 0)
        return _Scope(name, budget, _Count(in_window=window), _Count(in_window=reached))

    def _scopes_of(self, node: Node) -> tuple[_Scope, ...]:
        pool = self._budgets.pool_of(node.labels) if self._budgets.pools else None
        return (self._whole,) if pool is None else (self._whole, self._pools[pool.name])

    def _counts(self, node: Node) -> Iterable[_Count]:
        """Yield those in which the node counts."""
        for scope in self._scopes[node.name]:
            yield scope.all
            if self._survey.reaches_node(node.name):
                yield scope.reached

    def refusals(self, node: Node) -> list[Blocker]:
        """Return everything that holds the node back; a marked one is past most of it."""
        found = []
        if self._budgets.pools and len(self._scopes[node.name]) == 1:
            found.append(Blocker(NO_POOL, "it is in none of the configured pools"))
        for scope, count in self._judging[node.name]:
            left = count.nodes - count.gone - 1
            if left < scope.budget.min_nodes:
                message = f"{scope.name} would have {left} nodes, fewer than minNodes"
                found.append(Blocker(MIN_NODES, f"{message}: {scope.budget.min_nodes}"))
        if node.name not in self._survey.marks:
            if self._zones and (why := self._zones.refusal(node)):
                found.append(Blocker(ZONE_BALANCE, why))
            if self._pace is not None:
                found += self._pace.frozen
                found += self._spent(node, self._pace)
        return found

    def _spent(self, node: Node, pace: Pace) -> Iterable[Blocker]:
        if until := pace.backing_off.get(node.name):
            message = f"it did not empty in time: it is left alone until {until} (unix seconds)"
            yield Blocker(BACKOFF, message)
        for scope, count in self._judging[node.name]:
            marked, window = scope.budget.max_marked, scope.budget.max_in_window
            if marked is not None and count.marked >= marked.of(count.nodes):
                message = f"{scope.name} has {count.marked} marked nodes, maxMarked is {marked}"
                yield Blocker(BUDGET_MARKED, message)
            if window is not None and count.in_window >= window.of(count.nodes):
                message = f"{scope.name} had {count.in_window} marks in the window"
                yield Blocker(BUDGET_WINDOW, f"{message}, maxInWindow is {window}")

    def take(self, node: Node) -> None:
        """Count the node as one that goes."""
        new = node.name not in self._survey.marks
        for count in self._counts(node):
            count.gone += 1
            count.marked += new
            count.in_window += new
        if self._zones:
            self._zones.take(node)
