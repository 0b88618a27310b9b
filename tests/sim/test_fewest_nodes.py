"""How few nodes a cluster needs, compared with examples, and with plans of random clusters."""

import random
from dataclasses import replace

import pytest

from core.config.settings import Config
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.errors import InvalidInputError
from core.model.now import Now
from core.model.pod import Pod
from sim.fewest_nodes import NODES_MAX, NodesNeeded, nodes_needed
from tests.support import mixed
from tests.support.builders import config, node, pod

NOW = 1_767_225_600
FREE = config()
"""Thresholds of 100 % and no budgets."""


def needed(cluster: Cluster, rules: Config = FREE) -> NodesNeeded:
    snapshot = ClusterSnapshot(cluster, rules, Now(NOW))
    return nodes_needed(snapshot, make_plan(snapshot))


def on(name: str, *sizes: int) -> list[Pod]:
    return [pod(f"{name}{n}", name, cpu, 100) for n, cpu in enumerate(sizes)]


SELECTS_B = NodeConstraints(node_selector=(("disk", "ssd"),))


@pytest.mark.parametrize(
    ("pods", "at_least"),
    [
        pytest.param([*on("a", 1000), *on("b", 1000), *on("c", 1000)], 1, id="room on one"),
        pytest.param([*on("a", 3000), *on("b", 3000), *on("c", 3000)], 3, id="one on each"),
        pytest.param([*on("a", 2000, 2000), *on("b", 2000), *on("c", 2000)], 2, id="pairs"),
        pytest.param([], 0, id="no pods"),
        pytest.param(
            [*on("a", 100), replace(on("b", 100)[0], node_constraints=SELECTS_B), *on("c", 3900)],
            2,
            id="a selector needs b",
        ),
        pytest.param(
            [*on("a", 100), replace(on("b", 100)[0], unsupported=("spec.x",)), *on("c", 100)],
            1,
            id="b holds a pod that cannot move",
        ),
    ],
)
def test_bound_is_sharp_in_small_clusters(pods: list[Pod], at_least: int) -> None:
    nodes = [node("a"), node("b", labels={"disk": "ssd"}), node("c")]
    found = needed(Cluster.of(nodes, pods))
    assert (found.at_least, found.found, found.nodes) == (at_least, at_least, 3)
    assert found.planned >= found.at_least


def test_found_placement_is_better_than_plan() -> None:
    """First-fit decreasing needs three nodes for pods that fill two."""
    nodes = [node(name, 10_000) for name in "abc"]
    pods = [*on("a", 6000, 2000), *on("b", 5000, 4000), *on("c", 3000)]
    found = needed(Cluster.of(nodes, pods))
    assert found.at_least == found.found == 2
    assert found.planned >= 2


def test_large_cluster_is_rejected() -> None:
    nodes = [node(f"n{number}") for number in range(NODES_MAX + 1)]
    with pytest.raises(InvalidInputError, match=r"^--bound: the cluster has 501 nodes; allowed: "):
        needed(Cluster.of(nodes, []))


@pytest.mark.law(seeds_max=100)
def test_no_plan_needs_fewer_nodes_than_bound(seeds: range) -> None:
    for seed in seeds:
        cluster = mixed.cluster(random.Random(seed))
        found = needed(cluster)
        assert 0 <= found.at_least <= found.found <= found.planned <= found.nodes, seed
