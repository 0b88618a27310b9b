"""Refusals that go on while other nodes go: when they end, and that nobody asks before."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.settings import Config, Price
from core.engine import reconcile
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


def a_node(name: str, cpu: int = 4000, *, dear: bool = False, stays: bool = False) -> Node:
    return node(
        name,
        cpu,
        64_000,
        labels={HOST_LABEL: name, POOL: "p", **({"dear": ""} if dear else {})},
        annotations={KEEP_ANNOTATION: "true"} if stays else {},
    )


def on(*names: str) -> NodeConstraints:
    """Ask for one of these nodes."""
    return NodeConstraints(affinity=(SelectorTerm((Requirement(HOST_LABEL, "In", names),)),))


def gone(nodes: Sequence[Node], pods: Sequence[Pod], asked: Config) -> list[str]:
    """Return who goes, which the plain plan says too."""
    cluster = Cluster.of(nodes, pods)
    found = by_the_engine(reconcile.plan(cluster, asked))
    assert found == plainly(cluster, Reference(cluster, asked).run())
    return [name for name, _ in found.removals]


def test_a_pod_without_a_place_finds_one_when_another_is_crowded_out_of_it() -> None:
    """Of X the large pod takes R, where alone the small one may be; until Y's pod is there."""
    nodes = [
        a_node("R", 2000, stays=True),
        a_node("S", 16_000, stays=True),
        a_node("X", dear=True),
        a_node("Y"),
    ]
    pods = [
        pod("here", "R", 1000, 100),
        pod("large", "X", 1000, 100, placing=on("R", "S", "X")),
        pod("small", "X", 300, 100, placing=on("R", "X")),
        pod("other", "Y", 500, 100, placing=on("R", "Y")),
    ]
    assert gone(nodes, pods, config()) == ["Y", "X"]


def test_a_pod_without_a_place_finds_one_when_another_comes_beside_it() -> None:
    """Y's pod comes to X. Of X it takes the memory of R, so that the small one has CPU there."""
    nodes = [
        a_node("R", 2000, stays=True),
        a_node("S", 16_000, stays=True),
        a_node("X", dear=True),
        a_node("Y", 1300),
    ]
    pods = [
        pod("here", "R", 900, 2000),
        pod("there", "X", 2000, 100, placing=on("S", "X")),
        pod("large", "X", 1000, 24_000, placing=on("R", "S", "X")),
        pod("small", "X", 200, 100, placing=on("R", "X")),
        pod("other", "Y", 100, 39_000, placing=on("R", "X", "Y")),
    ]
    assert gone(nodes, pods, config()) == ["Y", "X"]


def gone_beside_a_wide_one(x: Node, load: int) -> list[str]:
    """Return who goes of *x* and Y, which has 2 cores and asks for as many.

    X's pod asks for a core. It and that of Z, which asks for *load* of 8 cores, reach these three.
    """
    reach = on("X", "Y", "Z")
    nodes = [
        x,
        a_node("Y", 2000),
        a_node("Z", 8000, stays=True),
        a_node("wide", 32_000, stays=True),
    ]
    pods = [
        pod("x", "X", 1000, 100, placing=reach),
        pod("y", "Y", 2000, 100),
        pod("z", "Z", load, 100, placing=reach),
        *(pod(f"w{n}", "wide", 1600, 100) for n in range(8)),
    ]
    return gone(nodes, pods, config("1/2"))


def test_a_reach_is_asked_again_when_load_has_left_it() -> None:
    """Without X its reach has 6 of 10 cores, and 4 of 8 once Y has gone with 2 of each."""
    assert gone_beside_a_wide_one(a_node("X", 8000, dear=True), 3000) == ["Y", "X"]


def test_a_marked_node_is_asked_again_by_the_thresholds_to_leave() -> None:
    """Without X its reach has 61 %, and 51 % once Y has gone: within 55 %, not 50 %."""
    x = marked(a_node("X", 8000), Mark.SOFT, 1)
    assert gone_beside_a_wide_one(x, 3100) == ["Y", "X"]


def test_a_reach_of_others_that_is_full_is_passed_by_once_there_is_another_way() -> None:
    """X's pod takes P of a full reach, then Z of another, that is not full once Y has gone."""
    others, way = on("P", "Q"), on("Y", "Z")
    no_room = a_node("V", 16_000, stays=True)
    nodes = [
        a_node("P", 8000, stays=True),
        a_node("Q", 8000, stays=True),
        a_node("X", dear=True),
        a_node("Y", 2000),
        a_node("Z", 8000, stays=True),
        replace(no_room, allocatable=replace(no_room.allocatable, pods=0)),
        a_node("wide", 32_000, stays=True),
    ]
    pods = [
        pod("p", "P", 5000, 100, placing=others),
        pod("q", "Q", 2600, 100, placing=others),
        pod("x", "X", 1000, 100, placing=on("P", "V", "X", "Z")),
        pod("y", "Y", 2000, 100, placing=on("Y", "wide")),
        pod("z", "Z", 3000, 100, placing=way),
        *(pod(f"w{n}", "wide", 1600, 100) for n in range(8)),
    ]
    assert gone(nodes, pods, config("1/2"))[:2] == ["Y", "X"]


def over_their_thresholds(size: int) -> tuple[Cluster, Config]:
    """Return a cluster of which the dear half is just within its threshold."""
    nodes = [a_node(f"x{n}", dear=True) for n in range(size)]
    nodes += [a_node(f"y{n}") for n in range(size)]
    dear, cheap = (on(*(one.name for one in half)) for half in (nodes[:size], nodes[size:]))
    pods = [pod(f"x{n}-{k}", f"x{n}", 790, 100, placing=dear) for n in range(size) for k in "abcd"]
    pods += [pod(f"y{n}", f"y{n}", 500, 100, placing=cheap) for n in range(size)]
    return Cluster.of(nodes, pods), config("4/5")


def kept_apart(size: int) -> tuple[Cluster, Config]:
    """Return a cluster of which half the nodes have a pod each that none other may be beside."""
    nodes = [a_node(f"{kind}{n}") for kind in "xy" for n in range(size)]
    company = PodConstraints(apart=(PodAffinityTerm(select("own"), HOST_LABEL),))
    own = on(*(one.name for one in nodes[:size]))
    pods = [
        pod(f"x{n}", f"x{n}", 200, 100, placing=own, company=company, labels={"app": "own"})
        for n in range(size)
    ]
    pods += [pod(f"y{n}", f"y{n}", 400, 100) for n in range(size)]
    return Cluster.of(nodes, pods), counting({"p": counted()})


@pytest.mark.parametrize("make", [over_their_thresholds, kept_apart])
def test_nodes_are_not_tried_again_for_what_goes_elsewhere(
    make: Callable[[int], tuple[Cluster, Config]],
) -> None:
    """The time is asked before each try: of twice the nodes there are about twice as many."""

    def tries(size: int) -> int:
        asked: list[None] = []

        def in_time() -> bool:
            asked.append(None)
            return True

        plan = reconcile.make_plan(ClusterSnapshot(*make(size)), in_time=in_time)
        assert len(plan.removals) > size // 2
        return len(asked)

    assert tries(2 * NODES) < 3 * tries(NODES)
