"""Carry out a plan step by step, and recount everything independently of the engine."""

from collections.abc import Iterable

from core.config.budgets import Budget
from core.config.settings import Config
from core.engine.leader_state import RateLimits
from core.marks.mark import mark_of
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import is_terminating
from tests.support.reference_rules import limits
from tests.support.reference_state import State
from tests.support.reference_sums import NONE, asked, plus, within
from tests.support.restraints import in_window
from tests.support.strategies import keys


class Replay:
    """Carries out removals one by one, and checks counts and totals after each."""

    def __init__(self, cluster: Cluster, config: Config, held: RateLimits) -> None:
        self.config, self.held = config, held
        self.all = {one.name: one for one in cluster.nodes if not is_terminating(one)}
        self.staying = dict(self.all)
        self.new: list[Node] = []
        self.pods = {one.key: one for one in cluster.pods}
        self.where = {one.key: one.node for one in cluster.pods}
        self.plain = State(cluster, config, rate_limits=held, key=keys(cluster, config))

    def remove(self, name: str, moves: Iterable[tuple[str, str]]) -> Node:
        one = self.staying.pop(name)
        self.where |= dict(moves)
        if mark_of(one.labels) is None:
            self.new.append(one)
        return one

    def scopes(self, one: Node) -> list[tuple[str, Budget, list[Node]]]:
        """Return name, budget and initial nodes of the cluster and of the node's pool."""
        budgets = self.config.budgets
        reached = self.plain.reached
        judged = [o for o in self.all.values() if one.name not in reached or o.name in reached]
        found = [("", budgets.cluster, judged)]
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
            if one in self.new and budget.max_new_marks is not None:
                assert in_window(self.held).get(name, 0) + new <= budget.max_new_marks.of(
                    len(members)
                )

    def check_sums(self, one: Node, moves: Iterable[tuple[str, str]]) -> None:
        """Check the thresholds of the cluster and of every affected reach."""
        plain, marked = self.plain, one not in self.new
        touched = {one.name, *(name for pod, name in moves if asked([self.pods[pod]]) != NONE)}
        plain.gone.append(one.name)
        plain.at |= {key: name for key, name in self.where.items() if name in plain.nodes}
        if one.name not in plain.reached:
            return
        for members in (None, *(every for every in plain.all_reaches if len(every) > 1)):
            if members is not None and not members & touched:
                continue
            sums = plain.whole() if members is None else plain.sums(members, plain.useful[members])
            shares = (
                limits(self.config, marked=marked)
                if members is None
                else plain.thresholds(members, marked=marked)
            )
            held = plain.reserve(members, marked=marked)
            assert within(plus(sums.requests, held), shares, sums.usable)
