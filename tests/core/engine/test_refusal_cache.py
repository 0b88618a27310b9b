"""Cached refusals: when a removal of another node ends them, and that no node is tried before."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.prices import Price
from core.config.settings import Config
from core.engine import reconcile
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    Requirement,
    SelectorTerm,
)
from core.model.node import Node
from core.model.pod import Pod
from tests.support.builders import config, marked, node, pod, select
from tests.support.compare import by_the_engine, plainly
from tests.support.counting import POOL, counted, counting
from tests.support.reference import Reference

NODES = 20
DEAR = Price(node_selector=(("dear", ""),), price=Fraction(5))


def make_node(name: str, cpu: int = 4000, *, dear: bool = False, keep: bool = False) -> Node:
    return node(
        name,
        cpu,
        64_000,
        labels={HOST_LABEL: name, POOL: "p", **({"dear": ""} if dear else {})},
        annotations={KEEP_ANNOTATION: "true"} if keep else {},
    )


def on(*names: str) -> NodeConstraints:
    """Return constraints that require one of these nodes."""
    return NodeConstraints(affinity=(SelectorTerm((Requirement(HOST_LABEL, "In", names),)),))


def removed_nodes(nodes: Sequence[Node], pods: Sequence[Pod], settings: Config) -> list[str]:
    """Return the removed nodes; the plain plan must agree."""
    cluster = Cluster.of(nodes, pods)
    found = by_the_engine(reconcile.plan(cluster, settings))
    assert found == plainly(cluster, Reference(cluster, settings).run())
    return [name for name, _ in found.removals]


def test_refused_pod_fits_when_another_pod_is_displaced() -> None:
    """The large pod of X takes the room on R that the small one needs, until Y's pod is there."""
    nodes = [
        make_node("R", 2000, keep=True),
        make_node("S", 16_000, keep=True),
        make_node("X", dear=True),
        make_node("Y"),
    ]
    pods = [
        pod("here", "R", 1000, 100),
        pod("large", "X", 1000, 100, node_constraints=on("R", "S", "X")),
        pod("small", "X", 300, 100, node_constraints=on("R", "X")),
        pod("other", "Y", 500, 100, node_constraints=on("R", "Y")),
    ]
    assert removed_nodes(nodes, pods, config()) == ["Y", "X"]


def test_refused_pod_fits_when_another_pod_joins_its_node() -> None:
    """Y's pod moves to X and then takes the memory of R, so the small pod has CPU there."""
    nodes = [
        make_node("R", 2000, keep=True),
        make_node("S", 16_000, keep=True),
        make_node("X", dear=True),
        make_node("Y", 1300),
    ]
    pods = [
        pod("here", "R", 900, 2000),
        pod("there", "X", 2000, 100, node_constraints=on("S", "X")),
        pod("large", "X", 1000, 24_000, node_constraints=on("R", "S", "X")),
        pod("small", "X", 200, 100, node_constraints=on("R", "X")),
        pod("other", "Y", 100, 39_000, node_constraints=on("R", "X", "Y")),
    ]
    assert removed_nodes(nodes, pods, config()) == ["Y", "X"]


def removed_beside_wide_node(x: Node, load: int) -> list[str]:
    """Return the removed nodes among *x* and Y; Y has 2 cores and its pod requests 2.

    X's pod requests 1 core, Z's pod requests *load* of 8 cores; both can use X, Y and Z only.
    """
    reach = on("X", "Y", "Z")
    nodes = [
        x,
        make_node("Y", 2000),
        make_node("Z", 8000, keep=True),
        make_node("wide", 32_000, keep=True),
    ]
    pods = [
        pod("x", "X", 1000, 100, node_constraints=reach),
        pod("y", "Y", 2000, 100),
        pod("z", "Z", load, 100, node_constraints=reach),
        *(pod(f"w{n}", "wide", 1600, 100) for n in range(8)),
    ]
    return removed_nodes(nodes, pods, config("1/2"))


def test_refused_node_is_tried_again_when_load_leaves_its_reach() -> None:
    """Without X the reach uses 6 of 10 cores, and 4 of 8 after the removal of Y."""
    assert removed_beside_wide_node(make_node("X", 8000, dear=True), 3000) == ["Y", "X"]


def test_refused_marked_node_is_tried_again_with_hysteresis() -> None:
    """Without X the reach is at 61 %, and at 51 % without Y too: below 55 %, not below 50 %."""
    x = marked(make_node("X", 8000), Mark.PREFER_NO_SCHEDULE, 1)
    assert removed_beside_wide_node(x, 3100) == ["Y", "X"]


def test_refused_pod_avoids_full_reach_when_another_has_room() -> None:
    """X's pod first fits only P of a full reach, then Z of another after the removal of Y."""
    others, way = on("P", "Q"), on("Y", "Z")
    no_room = make_node("V", 16_000, keep=True)
    nodes = [
        make_node("P", 8000, keep=True),
        make_node("Q", 8000, keep=True),
        make_node("X", dear=True),
        make_node("Y", 2000),
        make_node("Z", 8000, keep=True),
        replace(no_room, allocatable=replace(no_room.allocatable, pods=0)),
        make_node("wide", 32_000, keep=True),
    ]
    pods = [
        pod("p", "P", 5000, 100, node_constraints=others),
        pod("q", "Q", 2600, 100, node_constraints=others),
        pod("x", "X", 1000, 100, node_constraints=on("P", "V", "X", "Z")),
        pod("y", "Y", 2000, 100, node_constraints=on("Y", "wide")),
        pod("z", "Z", 3000, 100, node_constraints=way),
        *(pod(f"w{n}", "wide", 1600, 100) for n in range(8)),
    ]
    assert removed_nodes(nodes, pods, config("1/2"))[:2] == ["Y", "X"]


def above_thresholds(size: int) -> tuple[Cluster, Config]:
    """Return a cluster whose expensive half is just below its threshold."""
    nodes = [make_node(f"x{n}", dear=True) for n in range(size)]
    nodes += [make_node(f"y{n}") for n in range(size)]
    dear, cheap = (on(*(one.name for one in half)) for half in (nodes[:size], nodes[size:]))
    pods = [
        pod(f"x{n}-{k}", f"x{n}", 790, 100, node_constraints=dear)
        for n in range(size)
        for k in "abcd"
    ]
    pods += [pod(f"y{n}", f"y{n}", 500, 100, node_constraints=cheap) for n in range(size)]
    return Cluster.of(nodes, pods), config("4/5")


def with_anti_affinity(size: int) -> tuple[Cluster, Config]:
    """Return a cluster in which half of the nodes have a pod with anti-affinity to its like."""
    nodes = [make_node(f"{kind}{n}") for kind in "xy" for n in range(size)]
    pod_constraints = PodConstraints(apart=(PodAffinityTerm(select("own"), HOST_LABEL),))
    own = on(*(one.name for one in nodes[:size]))
    pods = [
        pod(
            f"x{n}",
            f"x{n}",
            200,
            100,
            node_constraints=own,
            pod_constraints=pod_constraints,
            labels={"app": "own"},
        )
        for n in range(size)
    ]
    pods += [pod(f"y{n}", f"y{n}", 400, 100) for n in range(size)]
    return Cluster.of(nodes, pods), counting({"p": counted()})


@pytest.mark.parametrize("make", [above_thresholds, with_anti_affinity])
def test_refused_node_is_not_tried_again_for_unrelated_removals(
    make: Callable[[int], tuple[Cluster, Config]],
) -> None:
    """The time is checked before each try: twice the nodes need about twice as many tries."""

    def tries(size: int) -> int:
        calls: list[None] = []

        def in_time() -> bool:
            calls.append(None)
            return True

        plan = reconcile.make_plan(ClusterSnapshot(*make(size)), PlanOptions(in_time=in_time))
        assert len(plan.removals) > size // 2
        return len(calls)

    assert tries(2 * NODES) < 3 * tries(NODES)
