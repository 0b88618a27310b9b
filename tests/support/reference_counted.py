"""Reference implementation of the policy UnderutilizedCount, without any caching.

The reference plan provides the parts that all policies share. Only the values of the settings come
from the policy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from core.config.settings import Config
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from tests.support.reference import Reference
from tests.support.reference_packing import Moves
from tests.support.reference_rules import holds_pods, is_marked, leaving, mark_rank
from tests.support.reference_state import Members, is_spare, plain_key

if TYPE_CHECKING:
    from core.engine.leader_state import RateLimits
    from core.policies.ported.underutilized_count import CountedPool, CountedPools


class Plain(NamedTuple):
    """A plan: removed nodes with placements, and placements of Pending pods."""

    removals: list[tuple[str, Moves]]
    pending: Moves


def pools_of(config: Config) -> "CountedPools":
    """Return the settings of the policy."""
    found: CountedPools = config.policies.underutilized_count
    return found


def pool_of(config: Config, node: Node) -> "CountedPool | None":
    """Return the enabled pool of the node, or None."""
    asked = pools_of(config)
    pool = asked.pools.get(node.labels.get(asked.pool_label, ""))
    return pool if pool is not None and pool.enabled and not node.virtual else None


def share(cluster: Cluster, node: Node, at: dict[str, str | None]) -> Fraction | None:
    """Return the CPU utilization of the node with the placements in *at*, or None without CPU."""
    asked = sum(p.requests.cpu_millis for p in cluster.pods if at.get(p.key) == node.name)
    whole = node.allocatable.cpu_millis
    return Fraction(asked, whole) if whole else None


def is_listed(cluster: Cluster, config: Config, node: Node, *, was: bool) -> bool:
    """Return whether an unmarked node is listed in this reconciliation."""
    pool, full = pool_of(config, node), share(cluster, node, {p.key: p.node for p in cluster.pods})
    if pool is None or full is None or is_marked(node) or leaving(node):
        return False
    assert pool.limit is not None
    return full < pool.limit or (full == pool.limit and was)


class Counted(Reference):
    """A plan under the policy."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        mutant: str = "",
        rate_limits: "RateLimits | None" = None,
        *,
        listed: frozenset[str] | None = None,
        due: frozenset[str] | None = None,
        key: Callable[[Members], str] = plain_key,
        clock: int | None = None,
    ) -> None:
        """Prepare a plan; *listed* nodes were listed before, *due* nodes for long enough."""
        super().__init__(cluster, config, mutant, rate_limits, due=due, key=key, clock=clock)
        self.seen = {p.key: p.node for p in cluster.pods}
        if listed is None:
            nodes = cluster.nodes
            listed = frozenset(
                n.name
                for n in nodes
                if is_listed(cluster, config, n, was=mutant == "at the limit counts as below")
            )
        self.listed = listed

    def share_now(self, node: Node) -> Fraction | None:
        """Return the utilization of the node in the current plan, without placeholders."""
        real = {key: name for key, name in self.at.items() if not is_spare(self.pods[key])}
        at: dict[str, str | None] = {**real}
        if self.mutant == "utilization is not updated":
            at = {**self.seen}
        return share(self.cluster, node, at)

    def under(self, pool: "CountedPool") -> int:
        """Return the number of schedulable nodes of the pool below the limit."""
        there = self.standing()
        found = 0
        for node in self.cluster.nodes:
            full = self.share_now(node)
            marked = is_marked(node) and self.mutant != "marked nodes count"
            takes = self.open(node, there[node.name]) or self.mutant == "unschedulable nodes count"
            if (
                pool_of(self.config, node) is pool
                and not marked
                and node.name not in self.gone
                and takes
                and full is not None
                and pool.limit is not None
                and full < pool.limit
            ):
                found += 1
        return found

    def asks(self, node: Node) -> bool:
        """Return whether the policy allows the node to be removed or to remain marked."""
        pool = pool_of(self.config, node)
        if pool is None or pool.limit is None or pool.required is None:
            return False
        if is_marked(node):
            full = share(self.cluster, node, self.seen)
            return full is not None and full <= pool.limit
        full = self.share_now(node)
        if full is None or full > pool.limit:
            return False
        if full == pool.limit and node.name not in self.listed:
            return False
        more = 1 if self.mutant == "more than required" else 0
        return self.under(pool) >= pool.required + more

    def in_order(self) -> list[Node]:
        """Return marked nodes in the order of their marks, then others by utilization."""
        left = [n for n in self.cluster.nodes if not leaving(n) and n.name not in self.gone]
        marked = [n for n in left if is_marked(n)]
        others = [n for n in left if not is_marked(n)]
        sign = -1 if self.mutant == "fullest first" else 1
        return [
            *sorted(marked, key=lambda n: mark_rank(n, TAINT_KEY)),
            *sorted(others, key=lambda n: (sign * (self.share_now(n) or 0), n.name)),
        ]  # fmt: skip

    def try_remove(self, node: Node) -> Moves | None:
        """Remove the node if all rules allow it, and return the placements of its pods."""
        if not self.may_be_removed(node) or self.is_guessed(node) or not self.asks(node):
            return None
        moving = [pod for pod in self.standing()[node.name] if not pod.stays_with_node]
        placed, complete = self.pack(moving, frozenset({node.name}))
        if not complete:
            return None
        self.at |= {pod.key: to.name for pod, to in placed}
        self.gone.append(node.name)
        self.counts.gone.append(node)
        return [(pod.key, to.name) for pod, to in placed if not is_spare(pod)]

    def plan(self) -> Plain:
        """Remove one node after the other, and evaluate all nodes again after each."""
        pending = self.settle()
        removals: list[tuple[str, Moves]] = []
        while found := next(self.next_gone(), None):
            removals.append(found)
        return Plain(removals, pending)

    def next_gone(self) -> Iterator[tuple[str, Moves]]:
        """Yield the removed nodes with their placements."""
        for node in self.in_order():
            moves = self.remove(node)
            if moves is not None:
                yield node.name, moves


@dataclass
class Watch:
    """Successive reconciliations, which remember since when each node is listed."""

    since: dict[str, int] = field(default_factory=dict)

    def look(self, cluster: Cluster, config: Config, now: int, mutant: str = "") -> Plain:
        """Run one reconciliation, and return its plan."""
        kept = {
            node.name: self.since.get(node.name, now)
            for node in cluster.nodes
            if is_listed(cluster, config, node, was=node.name in self.since)
        }
        if mutant == "no hysteresis":
            kept = {n.name: self.since.get(n.name, now) for n in cluster.nodes
                    if is_listed(cluster, config, n, was=False)}  # fmt: skip
        self.since = kept
        wait = config.unneeded_time_seconds + (mutant == "longer than the unneeded time")
        empty = {node.name for node in cluster.nodes if not holds_pods(node, cluster, now)}
        due = frozenset(name for name, at in kept.items() if now - at >= wait or name in empty)
        plain = Counted(cluster, config, mutant, listed=frozenset(kept), due=due, clock=now)
        return plain.plan()
