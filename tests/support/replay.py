"""A plan carried out step by step, everything counted anew, by other means than the engine's."""

from collections.abc import Iterable

from core.brakes import ZONE_LABEL, Pace
from core.budgets import Budget
from core.capacity import Amount, Share, capacity, derive_usability, usable_capacity
from core.config import Config, UsabilityMode
from core.marks import going, mark_of
from core.model import Cluster, Node


class Replay:
    """A plan's removals carried out one by one, everything counted anew at each."""

    def __init__(self, cluster: Cluster, config: Config, held: Pace) -> None:
        self.config, self.held = config, held
        self.all = {one.name: one for one in cluster.nodes if not going(one)}
        self.staying = dict(self.all)
        self.new: list[Node] = []
        self.pods = {one.key: one for one in cluster.pods}
        self.where = {one.key: one.node for one in cluster.pods}
        usability = config.usability
        self.usability = (
            None if usability is UsabilityMode.NONE else derive_usability(cluster.pods)
        )

    def remove(self, name: str, moves: Iterable[tuple[str, str]]) -> Node:
        one = self.staying.pop(name)
        self.where |= dict(moves)
        if mark_of(one.labels) is None:
            self.new.append(one)
        return one

    def scopes(self, one: Node) -> list[tuple[str, Budget, list[Node]]]:
        """The cluster and the node's pool: name, limits, and the nodes before any went."""
        budgets = self.config.budgets
        found = [("", budgets.cluster, list(self.all.values()))]
        pool = budgets.pool_of(one.labels)
        if pool is not None:
            mine = [other for other in found[0][2] if budgets.pool_of(other.labels) == pool]
            found.append((pool.name, pool.budget, mine))
        return found

    def check_counts(self, one: Node) -> None:
        assert not self.config.budgets.pools or self.config.budgets.pool_of(one.labels)
        for name, budget, members in self.scopes(one):
            left = [other for other in members if other.name in self.staying]
            assert len(left) >= budget.min_nodes
            new = sum(other in self.new for other in members)
            marked = sum(mark_of(other.labels) is not None for other in members)
            if one in self.new and budget.max_marked is not None:
                assert marked + new <= budget.max_marked.of(len(members))
            if one in self.new and budget.max_in_window is not None:
                assert self.held.in_window.get(name, 0) + new <= budget.max_in_window.of(
                    len(members)
                )

    def check_zones(self, one: Node) -> None:
        zone = one.labels.get(ZONE_LABEL)
        if zone is None or not self.config.budgets.balance_zones:
            return
        *_, (_, _, members) = self.scopes(one)
        zones = [other.labels.get(ZONE_LABEL) for other in members if other.name in self.staying]
        most = max((zones.count(other) for other in zones if other not in (None, zone)), default=0)
        assert zones.count(zone) >= most - 1

    def check_sums(self, one: Node) -> None:
        shares = self.config.thresholds if one in self.new else self.config.leave()
        asked, usable = self.held.reserve, Amount(0, 0)
        for other in self.staying.values():
            pods = [
                self.pods[key].requests for key, name in self.where.items() if name == other.name
            ]
            used = Amount(sum(r.cpu_millis for r in pods), sum(r.memory_bytes for r in pods))
            asked = asked.plus(used)
            closed = other.unschedulable or not other.ready
            room = used if closed else usable_capacity(capacity(other), used, self.usability)
            usable = usable.plus(room)
        assert asked.within(Share(shares.cpu, shares.memory), usable)
