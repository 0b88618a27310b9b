"""Laws for every cluster, and a comparison of the engine with the plain plan."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState, RateLimits
from core.engine.planner import Planner, PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import mark_of
from core.marks.taints import without_our_taint
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NO_NODE_CONSTRAINTS, PodConstraints
from core.model.resources import Resources
from core.placement.filters import first_failing_filter
from core.placement.usable_capacity import Usability
from tests.support import builders
from tests.support.builders import THESIS_USABILITY, UNLIMITED, pod, thesis_cluster
from tests.support.compare import by_the_engine, plainly
from tests.support.examples import examples
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference import Reference
from tests.support.restraints import BUDGETS, PACES
from tests.support.strategies import (
    APART,
    COMPANIES,
    DISKS,
    NEAR,
    PORTS,
    SOLE,
    SPREAD,
    clusters,
    keys,
)

pytestmark = pytest.mark.law

SHARES = st.sampled_from([Fraction(1, 2), Fraction(4, 5), Fraction(1)])
USABILITY: st.SearchStrategy[Usability | UsabilityMode] = st.sampled_from(
    [UsabilityMode.AUTO, UsabilityMode.ALL, THESIS_USABILITY]
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    share = draw(SHARES)
    return Config(
        thresholds=Thresholds(cpu=share, memory=share),
        usable_capacity=draw(USABILITY),
        budgets=draw(BUDGETS),
    )


@pytest.mark.mutate
@settings(max_examples=examples(400), deadline=None)
@given(clusters(), configs(), PACES)
@example(thesis_cluster(), Config(), None)
def test_plan_agrees_with_plain_plan(
    cluster: Cluster, config: Config, rate_limits: RateLimits | None
) -> None:
    plain = Reference(cluster, config, rate_limits=rate_limits, key=keys(cluster, config)).run()
    plan = reconcile.plan(cluster, config, PlanOptions(limits=rate_limits))
    assert by_the_engine(plan) == plainly(cluster, plain)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("mutant", "companies"),
    [
        ("smallest first", COMPANIES),
        ("no pod count", COMPANIES),
        ("no stickiness", COMPANIES),
        ("no ports", PORTS),
        ("no sole claims", SOLE),
        ("no attach limits", DISKS),
        ("no shared disks", DISKS),
        ("no own anti-affinity", APART),
        ("no anti-affinity of others", APART),
        ("no affinity", NEAR),
        ("no first pod", NEAR[:1]),
        ("pods are tried once", NEAR),
        ("no spread", SPREAD),
        ("minDomains is ignored", SPREAD[2:4]),
    ],
)
def test_comparison_notices_mutant(mutant: str, companies: tuple[PodConstraints, ...]) -> None:
    """Some cluster has different plans under the wrong rule, so the law above can fail."""

    def differs(cluster: Cluster) -> bool:
        shares = Thresholds(cpu=Fraction(1), memory=Fraction(1))
        config = Config(thresholds=shares, budgets=UNLIMITED)
        removals = by_the_engine(reconcile.plan(cluster, config)).removals
        return Reference(cluster, config, mutant).run().removals != removals

    enough = settings(max_examples=6000, deadline=None, phases=[Phase.generate])
    find(clusters(4, companies), differs, settings=enough, random=random.Random(1))


@pytest.mark.mutate
@settings(max_examples=examples(200), deadline=None)
@given(clusters(), configs(), st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_order_of_objects(
    cluster: Cluster, config: Config, chance: random.Random
) -> None:
    nodes, pods = list(cluster.nodes), list(cluster.pods)
    chance.shuffle(nodes)
    chance.shuffle(pods)
    again = surrounded(Cluster.of(nodes, pods), cluster)
    assert reconcile.plan(again, config) == reconcile.plan(cluster, config)


# No `mutate`: this law is slow, and the plain plan notices the same mutants.
@settings(max_examples=examples(300), deadline=None)
@given(clusters(), configs())
def test_plan_moves_every_pod_to_admitting_node_with_room(
    cluster: Cluster, config: Config
) -> None:
    plan = reconcile.plan(cluster, config)
    removed = [removal.node for removal in plan.removals]
    assert sorted([*removed, *(kept.node for kept in plan.kept)]) == [
        node.name for node in cluster.nodes
    ]
    assert all(kept.blockers for kept in plan.kept)
    where = {pod.key: pod.node for pod in cluster.pods}
    where |= {one.pod: one.node for one in plan.pending}
    nodes = {node.name: node for node in cluster.nodes}
    pods = {pod.key: pod for pod in cluster.pods}
    gone: set[str] = set()
    for removal in plan.removals:
        on_node = {k for k, n in where.items() if n == removal.node and not pods[k].daemon}
        assert {one.pod for one in removal.placements} == on_node
        assert len(removal.placements) == len(on_node)
        gone.add(removal.node)
        for one in removal.placements:
            target = nodes[one.node]
            assert one.node not in gone
            assert target.ready
            assert not target.unschedulable
            unmarked_target = without_our_taint(target, TAINT_KEY)
            assert first_failing_filter(unmarked_target, pods[one.pod].node_constraints) is None
            where[one.pod] = one.node
    for name, node in nodes.items():
        if name in gone:
            continue
        used = Resources()
        for key, place in where.items():
            used = used + pods[key].requests if place == name else used
        assert used.cpu_millis <= node.allocatable.cpu_millis
        assert used.memory_bytes <= node.allocatable.memory_bytes
        assert used.pods <= node.allocatable.pods
    snapshot = ClusterSnapshot(cluster, config)
    removed = [one.node for one in plan.removals if snapshot.reaches_node(one.node)]
    if removed:
        last = nodes[removed[-1]]
        share = config.thresholds.cpu
        if mark_of(last.labels):
            share = min(share + config.hysteresis, Fraction(1))
        for asked, whole in zip(plan.after.requests, plan.after.usable, strict=True):
            assert asked * share.denominator <= share.numerator * whole


# No `mutate`: this law is slow, and the plain plan notices the same mutants.
@settings(max_examples=examples(200), deadline=None)
@given(clusters(), configs())
def test_requests_fit_usable_capacity_and_that_fits_capacity(
    cluster: Cluster, config: Config
) -> None:
    """All nodes are schedulable here; others would add requests but no capacity."""
    nodes = (replace(one, unschedulable=False, ready=True) for one in cluster.nodes)
    cluster = replace(cluster, nodes=tuple(nodes))
    for totals in (reconcile.plan(cluster, config).before, reconcile.plan(cluster, config).after):
        for used, usable, whole in zip(
            totals.requests, totals.usable, totals.capacity, strict=True
        ):
            assert used <= usable <= whole


@pytest.mark.mutate
@settings(max_examples=examples(200), deadline=None)
@given(clusters(), configs(), st.integers(0, 3))
def test_removal_limit_truncates_plan(cluster: Cluster, config: Config, limit: int) -> None:
    every, some = (
        reconcile.plan(cluster, config),
        reconcile.plan(cluster, config, PlanOptions(removals_max=limit)),
    )
    assert some.removals == every.removals[:limit]
    assert all(kept.blockers for kept in some.kept)


@pytest.mark.mutate
@settings(max_examples=examples(200), deadline=None)
@given(clusters(), configs())
def test_removable_node_is_always_candidate(cluster: Cluster, config: Config) -> None:
    """Thesis, invariant 1: the candidate check is necessary."""
    cluster = replace(cluster, nodes=tuple(replace(one, labels={}) for one in cluster.nodes))
    nominees = set(reconcile.reconcile(cluster, config, LeaderState(), 0).state.candidates)
    for node in cluster.nodes:
        plan = reconcile.plan(cluster, config, PlanOptions(due=frozenset({node.name})))
        assert {removal.node for removal in plan.removals} <= nominees & {node.name}


@pytest.mark.mutate
@settings(max_examples=examples(100), deadline=None)
@given(clusters(), configs(), st.data())
def test_candidates_are_all_or_none_when_nodes_are_equal(
    cluster: Cluster, config: Config, data: st.DataObject
) -> None:
    """Thesis, invariant 2: nodes have equal shapes and equal daemons."""
    shape = data.draw(st.sampled_from([node.allocatable for node in cluster.nodes]))
    pods = [
        replace(pod, node_constraints=NO_NODE_CONSTRAINTS)
        for pod in cluster.pods
        if not pod.daemon
    ]
    nodes = [
        replace(node, labels={}, taints=(), allocatable=shape, unschedulable=False, ready=True)
        for node in cluster.nodes
    ]
    alike = Cluster.of(nodes, pods)
    listed = reconcile.reconcile(alike, config, LeaderState(), 0).state.candidates
    assert len(listed) in (0, len(alike.nodes))


def test_no_removal_exceeds_a_threshold_when_all_are_surely_within(seeds: range) -> None:
    sure = 0
    for seed in seeds:
        chance = random.Random(seed)
        share = Fraction(chance.randrange(50, 101), 100)
        config = Config(thresholds=Thresholds(cpu=share, memory=share), budgets=UNLIMITED)
        names = [f"n{number:02}" for number in range(chance.randrange(8, 30))]
        pods = (
            pod(f"{name}-{number}", name, chance.randrange(1, 2000), chance.randrange(1, 2000))
            for name in names
            for number in range(chance.randrange(3))
        )
        cluster = Cluster.of(map(builders.node, names), pods)
        planner = Planner(ClusterSnapshot(cluster, config))
        packer, ledger = planner.packer, planner.ledger
        if not packer.nodes or not ledger.surely_within(max(map(len, packer.on))):
            continue
        for leaving, moved in enumerate(packer.on):
            attempt = packer.try_place(moved, leaving)
            sure += bool(attempt.assignments)
            effect = ledger.removal_effect(leaving, packer.load_added(attempt))
            assert attempt.unassigned or not [*ledger.exceeded(effect, marked=False)], seed
    assert sure > 0, "no cluster was sure"
