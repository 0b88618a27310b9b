"""Laws for every mixed cluster: pools behind taints and labels, nodes in every state.

The clusters come from 1,000 seeds; more with pytest's option --seeds (`make laws`).
"""

import random
import re
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

from core.config.settings import Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState, RateLimits
from core.engine.mark_limits import MARK_REFUSED
from core.engine.plan import Plan, ReachSums
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from tests.support import mixed, mixed_config
from tests.support.compare import by_the_engine, plainly
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference import Reference
from tests.support.reference_rules import is_marked, is_shut
from tests.support.reference_sums import NONE, asked, plus, within
from tests.support.strategies import keys

pytestmark = [pytest.mark.law, pytest.mark.mutate]

SEEDS_MAX = 1000
"""Number of clusters whose plans are made once and used by all laws."""


class Case(NamedTuple):
    """The cluster, configuration and rate limits of a seed."""

    cluster: Cluster
    config: Config
    rate_limits: RateLimits | None


@cache
def case(seed: int) -> Case:
    chance = random.Random(seed)
    cluster, config = mixed.cluster(chance), mixed_config.config(chance)
    names = [reach.key for reach in ClusterSnapshot(cluster, config).reaches.all]
    return Case(cluster, config, mixed_config.rate_limits(chance, names))


def plan_of(made: Case) -> Plan:
    return reconcile.plan(
        made.cluster, made.config, PlanOptions(limits=made.rate_limits), now_seconds=mixed.NOW
    )


def reference(made: Case, mutant: str = "") -> Reference:
    key = keys(made.cluster, made.config)
    return Reference(made.cluster, made.config, mutant, made.rate_limits, key=key, clock=mixed.NOW)


def test_plan_agrees_with_plain_plan(seeds: range) -> None:
    removed = 0
    for seed in seeds:
        made = case(seed)
        found = by_the_engine(plan_of(made))
        assert found == plainly(made.cluster, reference(made).run()), seed
        removed += len(found.removals)
    assert removed > len(seeds) // 2


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        "all nodes count",
        "cheapest first",
        "VolumeAttachments are ignored",
        "unschedulable nodes have no requests",
        "unschedulable nodes have capacity",
        "unschedulable nodes count",
        "devices have no threshold",
        "everything is scalable",
        "fewest pods first",
        "equal nodes in first-fit order",
        "groups have no minimum",
        "old Jobs do not matter",
        "headroom is load",
        "lowest dominant share first",
        "headroom of one reach",
        "headroom on empty nodes",
        "headroom asks for devices",
        "headroom removes marks",
        "headroom is not placed again",
        "no anti-affinity of others",
        "no cpu",
        "no devices",
        "no features",
        "nodes without devices are in reach",
        "no hysteresis",
        "no memory",
        "no node affinity",
        "no peak",
        "the peak removes marks",
        "no pod count",
        "no second try",
        "no selectors",
        "no stickiness",
        "no storage",
        "no taints",
        "no thresholds of pools",
        "no volume affinity",
        "no volume zones",
        "rejected nodes are not retried",
        "one usability",
        "overdue pods move",
        "temporary taints count",
        "pods end with their node",
        "reaches of target nodes are not checked",
        "refusals are ignored",
        "savings are ignored",
        "shares of all nodes",
        "smallest first",
        "taints are ignored",
        "only the thresholds of the cluster",
        "the cluster total includes unreachable nodes",
        "virtual nodes count as nodes",
        "Pending pods with unknown constraints need no room",
    ],
)
def test_comparison_notices_mutant(mutant: str) -> None:
    """Some cluster has different plans under the wrong rule, so the law above can fail."""
    for seed in range(5 * SEEDS_MAX):  # a few rules decide seldom
        made = case(seed)
        if reference(made, mutant).run().removals != by_the_engine(plan_of(made)).removals:
            return
    pytest.fail("no cluster tells the difference")


def test_plan_keeps_every_reach_below_its_threshold(seeds: range) -> None:
    """Carry out the plan step by step; check each reach that a step changes."""
    steps = 0
    for seed in seeds:
        made = case(seed)
        plan = plan_of(made)
        state = reference(made)
        state.at |= {one.pod: one.node for one in plan.pending}
        for removal in plan.removals:
            state.gone.append(removal.node)
            loaded = [p for p in removal.placements if asked([state.pods[p.pod]]) != NONE]
            touched = {removal.node, *(one.node for one in loaded)}
            state.at |= {one.pod: one.node for one in removal.placements}
            marked = is_marked(state.nodes[removal.node])
            for members in state.all_reaches:
                if len(members) > 1 and members & touched:
                    found = state.sums(members, state.useful[members])
                    requests = plus(found.requests, state.reserve(members, marked=marked))
                    shares = state.thresholds(members, marked=marked)
                    assert within(requests, shares, found.usable), (seed, removal.node)
                    steps += 1
    assert steps > len(seeds) // 4


def test_sums_are_unchanged_when_plan_is_empty(seeds: range) -> None:
    for seed in seeds:
        plan = plan_of(case(seed))
        if not plan.removals:
            assert plan.after == plan.before, seed
            assert all(one.after == one.before for one in plan.reaches), seed


def test_plan_conserves_requests(seeds: range) -> None:
    """Only the pods bound to removed nodes make the difference between before and after.

    Clusters with overcommitted nodes are skipped: moved pods count with all their requests.
    """
    for seed in seeds:
        made = case(seed)
        used = made.cluster.used()
        if not all(used[one.name].fits_in(one.allocatable) for one in made.cluster.nodes):
            continue
        plan = plan_of(made)
        reached = reference(made).reached
        gone = {one.node for one in plan.removals} & reached
        gone -= {one.name for one in made.cluster.nodes if is_shut(one, made.rate_limits)}
        leaves = reference(made).leaves_with_node
        residents = asked(p for p in made.cluster.pods if p.node in gone and leaves(p))
        came = {
            one.pod: one.node
            for removal in plan.removals
            if removal.node not in reached
            for one in removal.placements
        }
        arrived = asked(pod for pod in made.cluster.pods if came.get(pod.key) in reached)
        assert plus(plan.after.requests, residents) == plus(plan.before.requests, arrived), seed


# Nodes that no movable pod reaches.


def unreached_nodes(chance: random.Random, cluster: Cluster) -> list[Node]:
    """Return nodes of every kind and state that no movable pod of the cluster can use."""
    made = [mixed.node(chance, f"{chance.choice('az')}{number}") for number in range(6)]
    lonely = [mixed.forsaken(chance, one) for one in made[:3]]
    more = [replace(one, labels={**one.labels, "alien": "true"}) for one in (*lonely, *made[3:])]
    nodes = [*cluster.nodes, *more]
    reached = Reference(replace(cluster, nodes=tuple(nodes)), Config()).reached
    return [one for one in more if one.name not in reached]


def with_more(cluster: Cluster, nodes: list[Node], pods: list[Pod]) -> Cluster:
    """Return the cluster with more nodes and pods."""
    whole = Cluster.of([*cluster.nodes, *nodes], [*cluster.pods, *pods], cluster.budgets)
    return surrounded(whole, cluster)


def without_minimums(cluster: Cluster) -> Cluster:
    """Return the cluster with node groups that may become empty."""
    statuses = tuple(
        replace(one, groups=tuple(replace(group, min_size=0) for group in one.groups))
        for one in cluster.autoscaler_statuses
    )
    return replace(cluster, autoscaler_statuses=statuses)


def test_unreached_node_changes_no_verdict(seeds: range) -> None:
    """Verdicts of reached nodes do not change; verdicts of unreached nodes may.

    Pods have no inter-pod constraints here: kube-scheduler counts domains on every node. Node
    groups have no minimum: the autoscaler counts every node of a group.
    """
    added = 0
    for seed in seeds:
        chance = random.Random(-1 - seed)
        cluster = without_minimums(mixed.cluster(chance, social=False))
        config, rate_limits = mixed_config.config(chance), mixed_config.rate_limits(chance)
        strangers = unreached_nodes(chance, cluster)
        pods = [mixed.daemon(chance, one) for one in strangers if chance.random() < 0.5]
        state = Reference(cluster, config)
        if any(pod.node and pod.node not in state.reached for pod in state.movable):
            continue  # a pod runs where it could not be scheduled any more, so its move adds load
        alone = reconcile.plan(cluster, config, PlanOptions(limits=rate_limits))
        together = reconcile.plan(
            with_more(cluster, strangers, pods), config, PlanOptions(limits=rate_limits)
        )
        assert verdicts(together, state.reached) == verdicts(alone, state.reached), seed
        assert (together.before, together.after) == (alone.before, alone.after), seed
        assert figures(together) == figures(alone), seed
        listed = candidates(with_more(cluster, strangers, pods), config) & state.reached
        assert listed == candidates(cluster, config) & state.reached, seed
        added += len(strangers)
    assert added > len(seeds) // 2


def verdicts(plan: Plan, names: frozenset[str]) -> list[object]:
    """Return the verdicts of the plan on these nodes, in order.

    Headroom counts as a reason only if it is the only one. The reasons of a node that stays are
    completed after all removals, and added nodes are among them.
    """
    goes = [(one.node, one.placements) for one in plan.removals if one.node in names]
    stays = []
    for one in plan.kept:
        if one.node in names:
            reasons = {(why.code, why.pod or "") for why in one.blockers}
            decisive = {reason for reason in reasons if reason[0] != "headroom"}
            stays.append((one.node, sorted(decisive or reasons)))
    return [goes, stays, plan.pending]


def figures(plan: Plan) -> list[ReachSums]:
    """Return the reaches without their names, which depend on the labels of all nodes."""
    return sorted((replace(one, name="", key="") for one in plan.reaches), key=repr)


def candidates(cluster: Cluster, config: Config) -> frozenset[str]:
    return frozenset(reconcile.reconcile(cluster, config, LeaderState(), 0).state.candidates)


# Order.


def test_plan_does_not_depend_on_order_of_objects(seeds: range) -> None:
    for seed in seeds[::4]:
        made = case(seed)
        chance = random.Random(seed)
        nodes, pods = list(made.cluster.nodes), list(made.cluster.pods)
        chance.shuffle(nodes)
        chance.shuffle(pods)
        again = surrounded(Cluster.of(nodes, pods), made.cluster)
        assert plan_of(made._replace(cluster=again)) == plan_of(made), seed


def test_plan_does_not_depend_on_mark_value(seeds: range) -> None:
    """An infeasible mark is removed anyway, so both kinds of marks are read alike.

    Failed writes are left out: such a mark cannot be removed.
    """
    compared = 0
    for seed in seeds:
        made = case(seed)
        if made.rate_limits:
            ends = {**made.rate_limits.ends, MARK_REFUSED.code: {}}
            made = made._replace(rate_limits=replace(made.rate_limits, ends=ends))
        marks = [one for one in made.cluster.nodes if is_marked(one)]
        if not marks:
            continue
        other = with_other_value(random.Random(seed).choice(marks))
        nodes = tuple(other if one.name == other.name else one for one in made.cluster.nodes)
        again = made._replace(cluster=replace(made.cluster, nodes=nodes))
        assert plan_of(again) == plan_of(made), seed
        compared += 1
    assert compared > len(seeds) // 6


def with_other_value(node: Node) -> Node:
    """Return the node with a PreferNoSchedule mark instead of NoSchedule, or the reverse."""
    was_no_schedule = node.labels[MARK_LABEL] == "NoSchedule"
    mark, effect = (
        ("PreferNoSchedule", "PreferNoSchedule")
        if was_no_schedule
        else ("NoSchedule", "NoSchedule")
    )
    taints = tuple(
        replace(one, effect=effect) if one.key == TAINT_KEY else one for one in node.taints
    )
    return replace(node, labels={**node.labels, MARK_LABEL: mark}, taints=taints)


# Messages.

OVER = re.compile(r"at ([0-9.]+)%, over ([0-9.]+)%")


def test_message_prints_value_and_limit_differently(seeds: range) -> None:
    seen = 0
    for seed in seeds:
        for kept in plan_of(case(seed)).kept:
            assert kept.blockers, seed
            for value, limit in OVER.findall(" ".join(one.message for one in kept.blockers)):
                assert float(value) > float(limit), (seed, kept)
                seen += 1
    assert seen > len(seeds) // 2
