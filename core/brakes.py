"""What keeps the engine from going on although nodes could go: limits, pace, cool-down.

`Memory` is what has happened, as far as it matters; `Pace` is what follows from it now; `Brakes`
counts along while a plan is made. All pure: time comes in as an argument.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.budgets import Budget
from core.capacity import Amount
from core.config import Config
from core.guards import Blocker
from core.marks import backoff_of, mark_of, marked_since
from core.model import Node
from core.survey import Survey
from core.waiting import hosted
from core.zones import Zones

_CLUSTER: Final = "the cluster"


class Marking(NamedTuple):
    """A mark that was set."""

    since: int
    pool: str
    """Empty: none."""
    reached: bool
    """Whether some movable pod reached the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What has happened; a program that starts anew knows nothing, and waits the delay anyway."""

    nodes: frozenset[str] = frozenset()
    added: int | None = None
    """Unix seconds of the last node that came; None: none since the first look."""
    waiting: frozenset[str] = frozenset()
    """Pods (namespace/name) that are unschedulable and that some node would admit."""
    waited: int | None = None
    """When the last of them began to wait."""
    marked: Mapping[str, Marking] = field(default_factory=dict)
    """Marks within the window."""
    demand: Mapping[str, tuple[tuple[int, Amount], ...]] = field(default_factory=dict)
    """By reach, requests within the peak window: one entry a look that no later one exceeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What holds back now."""

    frozen: tuple[Blocker, ...] = ()
    """Why no node is marked at all."""
    in_window: Mapping[str, int] = field(default_factory=dict)
    """Marks within the window by pool; "" is the whole cluster."""
    on_unreached: Mapping[str, int] = field(default_factory=dict)
    """Those among them on nodes that no movable pod reaches."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """Nodes that are left alone until then, unix seconds."""
    reserve: Mapping[str, Amount] = field(default_factory=dict)
    """By reach: what the busiest moment of the window needed beyond what is asked for now."""


def remember(memory: Memory, survey: Survey, now_seconds: int) -> Memory:
    """Return the memory after a look at the cluster."""
    cluster, config = survey.cluster, survey.config
    budgets = config.budgets
    names = frozenset(node.name for node in cluster.nodes)
    new = memory.nodes and not names <= memory.nodes
    waiting = frozenset(pod.key for pod in hosted(cluster, config.taint_key))
    opened = now_seconds - budgets.window_seconds
    marked = {name: mark for name, mark in memory.marked.items() if mark.since > opened}
    for node in cluster.nodes:
        if mark_of(node.labels) is not None:
            since = min(marked_since(node, config.taint_key), now_seconds)
            if since > opened:
                pool = budgets.pool_of(node.labels)
                reached = survey.reaches_node(node.name)
                marked[node.name] = Marking(since, pool.name if pool else "", reached)
    return Memory(
        nodes=names,
        added=now_seconds if new else memory.added,
        waiting=waiting,
        waited=memory.waited if waiting <= memory.waiting else now_seconds,
        marked=marked,
        demand={
            key: _demand(memory.demand.get(key, ()), now, budgets.peak_window_seconds, now_seconds)
            for key, now in survey.demand().items()
        },
    )


def _demand(
    before: Iterable[tuple[int, Amount]], now: Amount, window_seconds: int, now_seconds: int
) -> tuple[tuple[int, Amount], ...]:
    """Keep the looks that may still be the peak: a later one that asks for more replaces them."""
    kept = [
        (second, amount)
        for second, amount in before
        if second > now_seconds - window_seconds
        and (amount.cpu_millis > now.cpu_millis or amount.memory_bytes > now.memory_bytes)
    ]
    return (*kept, (now_seconds, now))


def pace(memory: Memory, survey: Survey, now_seconds: int) -> Pace:
    """Return what follows now from what has happened; *memory* has seen the cluster last."""
    marks = memory.marked.values()
    possible = survey.config.budgets.backoff.possible
    found = ((node.name, backoff_of(node.annotations)) for node in survey.cluster.nodes)
    return Pace(
        frozen=tuple(_frozen(memory, survey.config, now_seconds)),
        in_window=_by_pool(marks),
        on_unreached=_by_pool(mark for mark in marks if not mark.reached),
        backing_off={
            name: one.until
            for name, one in found
            if one and now_seconds < one.until and possible(one.until, now_seconds)
        },
        reserve={key: _beyond_now(looks) for key, looks in memory.demand.items()},
    )


def _by_pool(marks: Iterable[Marking]) -> Mapping[str, int]:
    pools = [mark.pool for mark in marks]
    return {"": len(pools), **Counter(pool for pool in pools if pool)}


def _beyond_now(looks: Sequence[tuple[int, Amount]]) -> Amount:
    now = looks[-1][1]
    return Amount(
        max(amount.cpu_millis for _, amount in looks) - now.cpu_millis,
        max(amount.memory_bytes for _, amount in looks) - now.memory_bytes,
    )


def _frozen(memory: Memory, config: Config, now_seconds: int) -> Iterable[Blocker]:
    cooldown = config.budgets.cooldown
    if memory.added is not None:
        left = memory.added + cooldown.after_node_add_seconds - now_seconds
        if left > 0:
            yield Blocker("cooldown", f"a node was added: nothing is marked for {left} s more")
    if memory.waited is not None:
        left = memory.waited + cooldown.after_pending_seconds - now_seconds
        if left > 0:
            message = f"a pod turned unschedulable: nothing is marked for {left} s more"
            yield Blocker("pods-pending", message)


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
            marked = mark_of(node.labels) is not None
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
            found.append(Blocker("no-pool", "it is in none of the configured pools"))
        for scope, count in self._judging[node.name]:
            left = count.nodes - count.gone - 1
            if left < scope.budget.min_nodes:
                message = f"{scope.name} would have {left} nodes, fewer than minNodes"
                found.append(Blocker("min-nodes", f"{message}: {scope.budget.min_nodes}"))
        if mark_of(node.labels) is None:
            if self._zones and (why := self._zones.refusal(node)):
                found.append(Blocker("zone-balance", why))
            if self._pace is not None:
                found += self._pace.frozen
                found += self._spent(node, self._pace)
        return found

    def _spent(self, node: Node, pace: Pace) -> Iterable[Blocker]:
        if until := pace.backing_off.get(node.name):
            message = f"it did not empty in time: it is left alone until {until} (unix seconds)"
            yield Blocker("backoff", message)
        for scope, count in self._judging[node.name]:
            marked, window = scope.budget.max_marked, scope.budget.max_in_window
            if marked is not None and count.marked >= marked.of(count.nodes):
                message = f"{scope.name} has {count.marked} marked nodes, maxMarked is {marked}"
                yield Blocker("budget-marked", message)
            if window is not None and count.in_window >= window.of(count.nodes):
                message = f"{scope.name} had {count.in_window} marks in the window"
                yield Blocker("budget-window", f"{message}, maxInWindow is {window}")

    def take(self, node: Node) -> None:
        """Count the node as one that goes."""
        new = mark_of(node.labels) is None
        for count in self._counts(node):
            count.gone += 1
            count.marked += new
            count.in_window += new
        if self._zones:
            self._zones.take(node)
