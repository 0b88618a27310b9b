"""The controller unmarks a node as soon as a reach exceeds its threshold plus `hysteresis`."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from controller.metrics import Metrics
from controller.reconciler import Reconciler
from core.config.budgets import Limit
from core.config.settings import Config, Mode, UsabilityMode
from core.config.thresholds import Thresholds
from core.marks.mark import mark_of
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Taint
from core.model.pod import Pod
from tests.support import mixed, mixed_config
from tests.support.builders import EIGHTY_PERCENT, UNLIMITED, node, pod
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference import Reference
from tests.support.reference_rules import is_marked, leaving
from tests.support.standing import Standing

GPU = Taint("gpu", "true", "NoSchedule")
NOW = 100


def leader(config: Config, standing: Standing) -> Reconciler:
    return Reconciler(config, standing, owner="me", metrics=Metrics())


async def test_node_is_unmarked_in_same_reconciliation_when_load_of_reach_rises() -> None:
    """General pods request at most 85% of the unmarked general nodes, despite idle GPU nodes."""
    devices = NodeConstraints((("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),))
    general = [node(f"w{n}") for n in range(6)]
    keep = {KEEP_ANNOTATION: "true"}
    idle = [
        node(f"g{n}", 64_000, labels={"pool": "gpu"}, taints=(GPU,), annotations=keep)
        for n in range(4)
    ]
    pods = [pod("trainer", "g0", 1000, 100, node_constraints=devices)]
    pods += [pod(f"p{n:02}", f"w{n % 6}", 500, 100) for n in range(12)]
    config = Config(
        mode=Mode.ENFORCE,
        unneeded_time_seconds=60,
        thresholds=EIGHTY_PERCENT,
        usable_capacity=UsabilityMode.ALL,
        budgets=UNLIMITED,
    )
    standing = Standing(Cluster.of([*general, *idle], pods))
    controller = leader(config, standing)
    for seconds in (0, 61):
        await controller.reconcile(standing.cluster, NOW + seconds)
    assert share(standing, len(pods) - 1) == Fraction(6, 8)
    for count in range(12, 40):
        pods.append(pod(f"p{count:02}", emptiest(pods), 500, 100))
        standing.cluster = Cluster.of(standing.cluster.nodes, pods)
        report = await controller.reconcile(standing.cluster, NOW + 62 + count)
        assert report.failed == 0
        assert share(standing, len(pods) - 1) <= Fraction(85, 100)
    assert share(standing, len(pods) - 1) == Fraction(20, 24)


def share(standing: Standing, count: int) -> Fraction:
    """Return the share of the unmarked general nodes that so many general pods request."""
    unmarked = [one for one in standing.cluster.nodes if not mark_of(one.labels)]
    return Fraction(count * 500, 4000 * sum(one.name.startswith("w") for one in unmarked))


def emptiest(pods: list[Pod]) -> str:
    """Return the general node with the fewest pods."""
    return min((f"w{n}" for n in range(6)), key=lambda name: sum(p.node == name for p in pods))


@pytest.mark.law(seeds_max=3000)
async def test_marked_nodes_match_reference_plan_when_load_rises(seeds: range) -> None:
    """Compare the marked nodes after each reconciliation, on mixed clusters whose load rises."""
    unmarked_count = 0
    for seed in seeds:
        chance = random.Random(seed)
        made = mixed.cluster(chance)
        config = calm(mixed_config.config(chance))
        standing = Standing(made)
        controller = leader(config, standing)
        for step in range(3):
            before = standing.cluster
            await controller.reconcile(before, NOW + step)
            plain = Reference(before, config, due=frozenset(), clock=NOW + step).run().removals
            expected = {name for name, _ in plain}
            marked = {n.name for n in standing.cluster.nodes if is_marked(n) and not leaving(n)}
            assert marked == expected, (seed, step)
            was = {n.name for n in before.nodes if is_marked(n) and not leaving(n)}
            unmarked_count += len(was - marked)
            standing.cluster = risen(chance, standing.cluster, step)
    assert unmarked_count > len(seeds) // 4


def calm(config: Config) -> Config:
    """Return a configuration with which the engine adds no marks."""
    enter = Thresholds(cpu=min(config.thresholds.cpu, Fraction(9, 10)), memory=Fraction(9, 10))
    nothing_new = replace(config.budgets.cluster, max_new_marks=Limit(0))
    budgets = replace(config.budgets, stabilization_window_seconds=0, cluster=nothing_new)
    return replace(
        config, mode=Mode.ENFORCE, thresholds=enter, unneeded_time_seconds=3600, budgets=budgets
    )


def risen(chance: random.Random, cluster: Cluster, step: int) -> Cluster:
    """Return the cluster with copies of its pods on schedulable nodes."""
    nodes = [n for n in cluster.nodes if n.ready and not n.unschedulable and not n.virtual]
    movable = [p for p in cluster.pods if p.node and not p.stays_with_node]
    if not nodes or not movable:
        return cluster
    more = [
        replace(
            chance.choice(movable),
            nominated_node="",
            name=f"new{step}{number}",
            node=chance.choice(nodes).name,
        )
        for number in range(3)
    ]
    found = Cluster.of(cluster.nodes, [*cluster.pods, *more])
    return surrounded(found, cluster)
