"""Compare policy UnderutilizedCount with the plain one: single plans, and pass by pass."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from core.config.budgets import Budgets
from core.config.settings import Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState, RateLimits
from core.engine.plan import Plan
from core.engine.planner import PlanOptions
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.policies.ported.underutilized_count import SHARE_SCALE, CountedPool
from tests.support import mixed, mixed_config
from tests.support.builders import marked
from tests.support.compare import by_the_engine
from tests.support.counting import counting
from tests.support.examples import examples
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference_counted import Counted, Plain, Watch
from tests.support.restraints import BUDGETS
from tests.support.strategies import clusters, keys, unmarked

pytestmark = [pytest.mark.law, pytest.mark.mutate]

LIMITS = st.sampled_from([Fraction(1, 8), Fraction(1, 2), Fraction(5, 8), Fraction(3, 4)])
POOLS = st.dictionaries(
    st.sampled_from(["a", "b", "c", ""]),
    st.builds(
        CountedPool,
        enabled=st.sampled_from([True, True, True, False]),
        limit=LIMITS,
        required=st.integers(1, 4),
    ),
)
LABEL = "zone"


def by_engine(plan: Plan) -> Plain:
    found = by_the_engine(plan)
    return Plain(found.removals, found.pending)


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), POOLS, BUDGETS)
def test_plan_agrees_with_plain_plan(
    cluster: Cluster, pools: Mapping[str, CountedPool], budgets: Budgets
) -> None:
    config = counting(pools, label=LABEL, budgets=budgets)
    plan = reconcile.plan(cluster, config)
    assert by_engine(plan) == Counted(cluster, config).plan()
    assert all(one.blockers for one in plan.kept)


def mixed_case(seed: int) -> tuple[Cluster, Config, RateLimits | None]:
    chance = random.Random(seed)
    cluster = mixed.cluster(chance)
    pools = {
        name: CountedPool(
            enabled=chance.random() < 0.9,
            limit=chance.choice((Fraction(1, 4), Fraction(1, 2), Fraction(4, 5), Fraction(1))),
            required=chance.choice((1, 1, 2, 3)),
        )
        for name in ("batch", "general", "gpu", "")
    }
    config = counting(pools, budgets=mixed_config.budgets(chance))
    return cluster, config, mixed_config.rate_limits(chance)


def test_plan_agrees_with_plain_plan_on_mixed_clusters(seeds: range) -> None:
    """With tainted pools, and virtual, leaving, unschedulable and unreadable nodes."""
    removed = 0
    for seed in seeds:
        cluster, config, rate_limits = mixed_case(seed)
        plan = reconcile.plan(cluster, config, PlanOptions(limits=rate_limits))
        plain = Counted(cluster, config, "", rate_limits, key=keys(cluster, config)).plan()
        assert by_engine(plan) == plain, seed
        removed += len(plan.removals)
    assert removed > len(seeds) // 4


AMOUNTS = st.integers(1, 2**63 - 1)


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(-1, 1), st.integers(-1, 1))
def test_order_by_integer_parts_equals_order_by_shares(
    used: int, whole: int, times: int, more: int, longer: int
) -> None:
    """Also for shares that are very close to each other."""
    one, other = (used, whole), (used * times // whole + more, max(times + longer, 1))
    parts = [part * SHARE_SCALE // of for part, of in (one, other)]
    assert (parts[0] < parts[1]) == (Fraction(*one) < Fraction(*other))
    assert (parts[0] == parts[1]) == (Fraction(*one) == Fraction(*other))


ENOUGH = settings(max_examples=4000, deadline=None, phases=[Phase.generate])


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        "at the limit counts as below",
        "utilization is not updated",
        "marked nodes count",
        "unschedulable nodes count",
        "more than required",
        "fullest first",
    ],
)
def test_comparison_notices_mutant(mutant: str) -> None:
    pool = CountedPool(enabled=True, limit=Fraction(1, 2), required=2)
    config = counting({"a": pool, "b": pool}, label=LABEL)

    def differs(cluster: Cluster) -> bool:
        return (
            by_engine(reconcile.plan(cluster, config)) != Counted(cluster, config, mutant).plan()
        )

    find(clusters(), differs, settings=ENOUGH, random=random.Random(1))


State = tuple[Cluster, Config, int]


def history(chance: random.Random, cluster: Cluster) -> Iterable[State]:
    """Yield states of a cluster over time: loads and marks change, sometimes the settings too."""
    now, pools = 1000, _pools(chance)
    for _ in range(8):
        yield cluster, counting(pools, label=LABEL), now
        now += chance.choice((0, 100, 200, 299, 300, 301))
        if chance.random() < 0.15:
            pools = _pools(chance)
        nodes = [_node(chance, one, now) for one in cluster.nodes]
        pods = [moved for one in cluster.pods for moved in _pods(chance, one, nodes)]
        cluster = surrounded(Cluster.of(nodes, pods), cluster)


def _pools(chance: random.Random) -> Mapping[str, CountedPool]:
    return {
        name: CountedPool(
            enabled=chance.random() < 0.9,
            limit=chance.choice((Fraction(1, 8), Fraction(1, 2), Fraction(3, 4))),
            required=chance.choice((1, 1, 2, 3)),
        )
        for name in "ab"
        if chance.random() < 0.9
    }


def _node(chance: random.Random, one: Node, now: int) -> Node:
    match chance.randrange(12):
        case 0:
            return marked(unmarked(one), Mark.PREFER_NO_SCHEDULE, now)
        case 1 | 2:
            return unmarked(one)
        case 3:
            return replace(one, unschedulable=not one.unschedulable)
        case _:
            return one


def _pods(chance: random.Random, one: Pod, nodes: Sequence[Node]) -> Iterable[Pod]:
    match chance.randrange(20):
        case 0:
            return ()
        case 1:
            return (replace(one, requests=replace(one.requests, cpu_millis=500)),)
        case 2:
            return (replace(one, nominated_node="", node=chance.choice(nodes).name),)
        case 3:
            return one, replace(one, name=f"{one.name}x{chance.randrange(10**9)}")
        case _:
            return (one,)


def differing_pass(chance: random.Random, cluster: Cluster, mutant: str = "") -> int | None:
    """Return the number of the first pass that differs from the plain one, or None."""
    memory, last, watch = LeaderState(), None, Watch()
    for number, (seen, config, now) in enumerate(history(chance, cluster)):
        last = reconcile.reconcile(seen, config, memory, now, last=last)
        memory = last.state
        plain = watch.look(seen, config, now, mutant)
        if by_engine(last.plan) != plain or dict(memory.candidates) != watch.since:
            return number
    return None


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 10**6), clusters(6))
def test_each_pass_agrees_with_plain_pass(seed: int, cluster: Cluster) -> None:
    assert differing_pass(random.Random(seed), cluster) is None


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant", ["no hysteresis", "longer than the unneeded time", "utilization is not updated"]
)
def test_comparison_of_passes_notices_mutant(mutant: str) -> None:
    cases = st.tuples(st.integers(0, 10**6), clusters(6))

    def differs(case: tuple[int, Cluster]) -> bool:
        return differing_pass(random.Random(case[0]), case[1], mutant) is not None

    find(cases, differs, settings=ENOUGH, random=random.Random(1))
