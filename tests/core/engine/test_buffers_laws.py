"""Compare the plan and the reserve with the plain ones, on clusters with CapacityBuffers."""

import random
from dataclasses import replace
from functools import cache

import pytest

from core.config.settings import Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.plan import Plan
from core.model.cluster import Cluster
from tests.core.engine.test_reserve_laws import history
from tests.support import mixed, mixed_config
from tests.support.compare import by_the_engine, plainly
from tests.support.mixed_buffers import drawn
from tests.support.reference import Reference
from tests.support.reference_reserve import protected
from tests.support.strategies import keys

pytestmark = [pytest.mark.law(seeds_max=3000), pytest.mark.mutate]

MUTANTS = (
    "buffers are ignored",
    "buffers have no limit",
    "the first buffer by name takes all",
    "the order ignores sizes",
    "the largest buffer takes all",
    "headroom is load",
)
SELDOM = {"the largest buffer takes all": 2170}
"""Mutants of rules that decide seldom, with the first seed at which to search for them."""


@cache
def case(seed: int) -> tuple[Cluster, Config]:
    chance = random.Random(seed)
    cluster, config = mixed.cluster(chance), mixed_config.config(chance)
    return drawn(chance, cluster), config


def plan_of(seed: int) -> Plan:
    return reconcile.plan(*case(seed))


def reference(seed: int, mutant: str = "") -> Reference:
    cluster, config = case(seed)
    return Reference(cluster, config, mutant, key=keys(cluster, config))


def test_plan_agrees_with_plain_plan(seeds: range) -> None:
    kept = 0
    for seed in seeds:
        found = plan_of(seed)
        assert by_the_engine(found) == plainly(case(seed)[0], reference(seed).run()), seed
        kept += any(one.code == "buffer" for node in found.kept for one in node.blockers)
    assert kept > len(seeds) // 20


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_comparison_notices_mutant(mutant: str) -> None:
    first = SELDOM.get(mutant, 0)
    assert any(
        by_the_engine(plan_of(seed)) != plainly(case(seed)[0], reference(seed, mutant).run())
        for seed in range(first, first + 1000)
    )


def test_buffers_do_not_count_as_load(seeds: range) -> None:
    for seed in seeds:
        cluster, config = case(seed)
        found, without = plan_of(seed), reconcile.plan(replace(cluster, buffers=()), config)
        assert found.before == without.before, seed


@pytest.mark.law(seeds_min=100)
def test_reserve_agrees_with_plain_reserve(seeds: range) -> None:
    kept = 0
    for seed in seeds[: len(seeds) // 3]:
        config, steps = history(seed)
        chance, last = random.Random(seed), None
        whole = [(second, drawn(chance, cluster)) for second, cluster in steps]
        for second, cluster in whole:
            last = reconcile.reconcile(
                cluster, config, last.state if last else LeaderState(), second, last=last
            )
        assert last is not None
        names = {one.node for one in last.plan.reserve}
        assert names == protected(whole, config), seed
        kept += "CapacityBuffer" in repr([one.why.message for one in last.plan.reserve])
    assert kept > len(seeds) // 100
