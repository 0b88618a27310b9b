"""Compare zone balance with the plain rule, with selectors on nodes and zones."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.limits import ZONE_BALANCE, RemovalLimits
from core.engine.snapshot import ClusterSnapshot
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
)
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support.builders import GREEN, UNLIMITED, node, pod
from tests.support.compare import by_the_engine, plainly
from tests.support.reference import Reference
from tests.support.reference_fit import REGION, ZONE
from tests.support.strategies import keys

pytestmark = [pytest.mark.law, pytest.mark.mutate]

CLUSTERS = range(500)
CONFIG = Config(
    thresholds=Thresholds(cpu=Fraction(1), memory=Fraction(1)),
    usable_capacity=UsabilityMode.ALL,
    budgets=replace(UNLIMITED, balance_zones=True),
)


def _in(key: str, *values: str) -> Requirement:
    return Requirement(key, "In", values)


def _named(name: str) -> SelectorTerm:
    return SelectorTerm((), (_in("metadata.name", name),))


PLACINGS = (
    NodeConstraints(),
    NodeConstraints(),
    NodeConstraints(tolerations=(Toleration("gpu", "Exists"),)),
    GREEN,
    NodeConstraints(affinity=(SelectorTerm((_in(ZONE, "a", "b"),)),)),
    NodeConstraints(affinity=(SelectorTerm((_in(ZONE, "b", "c"),)), SelectorTerm())),
    NodeConstraints(affinity=(SelectorTerm((Requirement(ZONE, "NotIn", ("a",)),)),)),
    NodeConstraints(affinity=(SelectorTerm((_in(ZONE, "a", "c"), _in("green", "true"))),)),
    NodeConstraints(
        affinity=(SelectorTerm((_in(ZONE, "a"),)), SelectorTerm((_in("green", "true"),)))
    ),
    NodeConstraints(node_selector=((REGION, "r"),)),
    NodeConstraints(affinity=(SelectorTerm((_in(HOST_LABEL, "n0", "n4"),)),)),
    NodeConstraints(affinity=(SelectorTerm((_in(HOST_LABEL, "n1", "n5", "n6"),)),)),
    replace(GREEN, affinity=(SelectorTerm((_in(HOST_LABEL, "n0", "n2", "n4"),)),)),
    NodeConstraints(affinity=(_named("n2"), _named("n3"), _named("n7"))),
)


def _node(chance: random.Random, number: int) -> Node:
    labels = {HOST_LABEL: f"n{number}", ZONE: chance.choice("aaabbc")}
    labels |= {"green": "true"} if chance.random() < 0.5 else {}
    labels |= {REGION: "r"} if chance.random() < 0.7 else {}
    keep = {KEEP_ANNOTATION: "true"} if chance.random() < 0.4 else {}
    taints = (Taint("gpu", "", "NoSchedule"),) if chance.random() < 0.2 else ()
    devices = (("gpu", 1),) if chance.random() < 0.1 else ()
    return node(f"n{number}", labels=labels, annotations=keep, taints=taints, extended=devices)


def _pod(chance: random.Random, number: int) -> Pod:
    return pod(f"p{number}", None, 0, 0, node_constraints=chance.choice(PLACINGS))


def _cluster(seed: int) -> Cluster:
    chance = random.Random(seed)
    nodes = [_node(chance, number) for number in range(chance.randint(5, 10))]
    return Cluster.of(nodes, [_pod(chance, number) for number in range(chance.randint(1, 4))])


def _reference(cluster: Cluster, mutant: str = "") -> Reference:
    return Reference(cluster, CONFIG, mutant, key=keys(cluster, CONFIG))


def test_plan_agrees_with_plain_plan(seeds: range) -> None:
    for seed in seeds:
        cluster = _cluster(seed)
        found = by_the_engine(reconcile.plan(cluster, CONFIG))
        assert found == plainly(cluster, _reference(cluster).run()), seed


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        "named nodes decide",
        "named zones decide",
        "zones outside of reaches count",
        "GPU nodes are similar to others",
    ],
)
def test_comparison_notices_mutant(mutant: str) -> None:
    """Some cluster has different plans under the wrong rule, so the law above can fail."""
    for seed in CLUSTERS:
        cluster = _cluster(seed)
        removals = by_the_engine(reconcile.plan(cluster, CONFIG)).removals
        if _reference(cluster, mutant).run().removals != removals:
            return
    pytest.fail("no cluster tells the difference")


def _refusals(nodes: Sequence[Node], *pods: Pod) -> list[str | None]:
    limits = RemovalLimits(ClusterSnapshot(Cluster.of(nodes, pods), CONFIG), None)
    found = ((why for why in limits.blockers(one) if why.reason is ZONE_BALANCE) for one in nodes)
    return [next((why.message for why in whys), None) for whys in found]


@pytest.mark.parametrize(
    "node_constraints", [one for one in PLACINGS[3:] if "green" not in str(one)]
)
def test_selectors_by_node_or_zone_change_no_verdict_of_others(
    node_constraints: NodeConstraints, seeds: range
) -> None:
    whole, beside = (
        pod("whole", None, 0, 0),
        pod("beside", None, 0, 0, node_constraints=node_constraints),
    )
    for seed in seeds:
        nodes = _cluster(seed).nodes
        assert _refusals(nodes, whole, beside) == _refusals(nodes, whole), seed


def test_zone_of_gpu_nodes_does_not_keep_general_nodes_of_another_zone() -> None:
    """A pod that tolerates the taint can use both, but the nodes are not similar."""
    tolerant = NodeConstraints(tolerations=(Toleration("gpu", "Exists"),))
    nodes = [node(f"w{n}", labels={ZONE: "a"}) for n in range(6)]
    taint = Taint("gpu", "", "NoSchedule")
    nodes += [node(f"g{n}", labels={ZONE: "b"}, taints=(taint,)) for n in range(5)]
    pods = [pod("web", None, 100, 100), pod("agent", None, 0, 0, node_constraints=tolerant)]
    assert _refusals(nodes, *pods) == [None] * 11
