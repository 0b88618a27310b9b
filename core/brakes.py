"""What keeps the engine from going on although nodes could go: limits, pace, cool-down.

`Memory` is what has happened, as far as it matters; `Pace` is what follows from it now; `Brakes`
counts along while a plan is made. All pure: time comes in as an argument.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from core.budgets import Budget
from core.capacity import NOTHING, Amount
from core.config import Config
from core.guards import Blocker
from core.marks import backoff_of, going, mark_of, marked_since
from core.model import Cluster, Node, Pod
from core.waiting import hosted

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
ZONE_SKEW_MAX: Final = 1
"""By how many nodes a zone may fall behind the largest by a removal."""
_CLUSTER: Final = "the cluster"


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
    marked: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Marks within the window: since when, and the pool ("" for none)."""
    demand: tuple[tuple[int, Amount], ...] = ()
    """Requests within the peak window, one entry a look that no later one exceeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What holds back now."""

    frozen: tuple[Blocker, ...] = ()
    """Why no node is marked at all."""
    in_window: Mapping[str, int] = field(default_factory=dict)
    """Marks within the window by pool; "" is the whole cluster."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """Nodes that are left alone until then, unix seconds."""
    reserve: Amount = NOTHING
    """What the busiest moment of the window needed beyond what is asked for now."""


def remember(memory: Memory, cluster: Cluster, config: Config, now_seconds: int) -> Memory:
    """Return the memory after a look at the cluster."""
    budgets = config.budgets
    names = frozenset(node.name for node in cluster.nodes)
    new = memory.nodes and not names <= memory.nodes
    waiting = frozenset(pod.key for pod in hosted(cluster, config.taint_key))
    opened = now_seconds - budgets.window_seconds
    marked = {name: mark for name, mark in memory.marked.items() if mark[0] > opened}
    for node in cluster.nodes:
        if mark_of(node.labels) is not None:
            since = min(marked_since(node, config.taint_key), now_seconds)
            if since > opened:
                pool = budgets.pool_of(node.labels)
                marked[node.name] = since, pool.name if pool else ""
    return Memory(
        nodes=names,
        added=now_seconds if new else memory.added,
        waiting=waiting,
        waited=memory.waited if waiting <= memory.waiting else now_seconds,
        marked=marked,
        demand=_demand(memory, cluster, budgets.peak_window_seconds, now_seconds),
    )


def _demand(
    memory: Memory, cluster: Cluster, window_seconds: int, now_seconds: int
) -> tuple[tuple[int, Amount], ...]:
    """Keep the looks that may still be the peak: a later one that asks for more replaces them."""
    now = demand(cluster)
    kept = [
        (second, amount)
        for second, amount in memory.demand
        if second > now_seconds - window_seconds
        and (amount.cpu_millis > now.cpu_millis or amount.memory_bytes > now.memory_bytes)
    ]
    return (*kept, (now_seconds, now))


def demand(cluster: Cluster) -> Amount:
    """Sum up what pods ask for that would ask for it elsewhere too."""
    cpu = memory = 0
    for pod in cluster.pods:
        if not pod.stays_with_node:
            cpu += pod.requests.cpu_millis
            memory += pod.requests.memory_bytes
    return Amount(cpu, memory)


def pace(memory: Memory, cluster: Cluster, config: Config, now_seconds: int) -> Pace:
    """Return what follows now from what has happened; *memory* has seen the cluster last."""
    now = memory.demand[-1][1] if memory.demand else NOTHING
    peak_cpu = max((amount.cpu_millis for _, amount in memory.demand), default=0)
    peak_memory = max((amount.memory_bytes for _, amount in memory.demand), default=0)
    in_window: dict[str, int] = {"": len(memory.marked)}
    for _, pool in memory.marked.values():
        if pool:
            in_window[pool] = in_window.get(pool, 0) + 1
    possible = config.budgets.backoff.possible
    found = ((node.name, backoff_of(node.annotations)) for node in cluster.nodes)
    return Pace(
        frozen=tuple(_frozen(memory, config, now_seconds)),
        in_window=in_window,
        backing_off={
            name: one.until
            for name, one in found
            if one and now_seconds < one.until and possible(one.until, now_seconds)
        },
        reserve=Amount(max(0, peak_cpu - now.cpu_millis), max(0, peak_memory - now.memory_bytes)),
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
class _Scope:
    """A pool or the cluster, and how it stands while a plan is made."""

    name: str
    budget: Budget
    in_window: int
    nodes: int = 0
    """That there are now."""
    marked: int = 0
    """Now and, as far as it has been planned, from now on."""
    gone: int = 0
    """Nodes that the plan lets go."""
    zones: dict[str, int] = field(default_factory=dict)


class Brakes:
    """Counts the steps of one plan and says which further step is one too many."""

    def __init__(self, cluster: Cluster, config: Config, pace: Pace | None) -> None:
        """Count what there is; without a *pace* the lasting limits alone hold."""
        self._budgets, self._pace = config.budgets, pace
        in_window = pace.in_window if pace else {}
        self._whole = _Scope(_CLUSTER, config.budgets.cluster, in_window.get("", 0))
        self._pools = {
            pool.name: _Scope(f"pool {pool.name}", pool.budget, in_window.get(pool.name, 0))
            for pool in config.budgets.pools
        }
        self._scopes = {node.name: self._scopes_of(node) for node in cluster.nodes}
        for node in cluster.nodes:
            if not going(node):
                for scope in self._scopes[node.name]:
                    scope.nodes += 1
                    scope.marked += mark_of(node.labels) is not None
                    if zone := node.labels.get(ZONE_LABEL):
                        scope.zones[zone] = scope.zones.get(zone, 0) + 1

    def _scopes_of(self, node: Node) -> tuple[_Scope, ...]:
        pool = self._budgets.pool_of(node.labels) if self._budgets.pools else None
        return (self._whole,) if pool is None else (self._whole, self._pools[pool.name])

    def refusals(self, node: Node) -> list[Blocker]:
        """Return everything that holds the node back; a marked one is past most of it."""
        found = []
        scopes = self._scopes[node.name]
        if self._budgets.pools and len(scopes) == 1:
            found.append(Blocker("no-pool", "it is in none of the configured pools"))
        for scope in scopes:
            left = scope.nodes - scope.gone - 1
            if left < scope.budget.min_nodes:
                message = f"{scope.name} would have {left} nodes, fewer than minNodes"
                found.append(Blocker("min-nodes", f"{message}: {scope.budget.min_nodes}"))
        if mark_of(node.labels) is None:
            found += self._zone(node)
            if self._pace is not None:
                found += self._pace.frozen
                found += self._spent(node, self._pace)
        return found

    def _zone(self, node: Node) -> Iterable[Blocker]:
        zone = node.labels.get(ZONE_LABEL)
        if zone is None or not self._budgets.balance_zones:
            return
        scope = self._scopes[node.name][-1]
        left = scope.zones[zone] - 1
        most = max((n for other, n in scope.zones.items() if other != zone), default=left)
        if left < most - ZONE_SKEW_MAX:
            message = f"zone {zone} would have {left} nodes and another zone {most}"
            yield Blocker("zone-balance", message)

    def _spent(self, node: Node, pace: Pace) -> Iterable[Blocker]:
        if until := pace.backing_off.get(node.name):
            message = f"it did not empty in time: it is left alone until {until} (unix seconds)"
            yield Blocker("backoff", message)
        for scope in self._scopes[node.name]:
            marked, window = scope.budget.max_marked, scope.budget.max_in_window
            if marked is not None and scope.marked >= marked.of(scope.nodes):
                message = f"{scope.name} has {scope.marked} marked nodes, maxMarked is {marked}"
                yield Blocker("budget-marked", message)
            if window is not None and scope.in_window >= window.of(scope.nodes):
                message = f"{scope.name} had {scope.in_window} marks in the window"
                yield Blocker("budget-window", f"{message}, maxInWindow is {window}")

    def take(self, node: Node) -> None:
        """Count the node as one that goes."""
        new = mark_of(node.labels) is None
        for scope in self._scopes[node.name]:
            scope.gone += 1
            scope.marked += new
            scope.in_window += new
            if zone := node.labels.get(ZONE_LABEL):
                scope.zones[zone] -= 1


def headroom(cluster: Cluster, pods: int) -> list[Pod]:
    """Return pods that do not exist: as large as the largest, for whom room must be left.

    The largest asks for most CPU, then memory; its like ask for nothing else.
    """
    largest = max(
        (pod.requests for pod in cluster.pods if not pod.stays_with_node),
        key=lambda requests: (requests.cpu_millis, requests.memory_bytes),
        default=None,
    )
    if largest is None:
        return []
    requests = replace(largest, ephemeral_bytes=0, extended=())
    return [Pod(namespace="", name=f"headroom-{n}", requests=requests) for n in range(pods)]
