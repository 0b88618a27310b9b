"""Which nodes admit a template, asked of all at once: what the rules say of each."""

import random
from collections import UserDict
from collections.abc import Sequence
from dataclasses import replace

from core.capacity.reaches import Reaches
from core.fit.index import FEW_NODES
from core.fit.kinds import NodeKinds
from core.fit.rules import LABEL_RULES, RULES, refusal
from core.model.constraints import (
    HOST_USERS,
    RESTARTS_ALL,
    Placing,
    Requirement,
    SelectorTerm,
    Toleration,
)
from core.model.node import Effect, Node, Taint
from tests.support import mixed
from tests.support.builders import node, pod
from tests.support.reference_fit import admits

SEEDS = 300
NODES = 3 * FEW_NODES
FEATURES = (RESTARTS_ALL, HOST_USERS)
KEYS = ("zone", "rank", "metadata.name", "absent")
VALUES = ("a", "b", "7", "-1", "1_0", "", "n3", "n4")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")


def _nodes(rng: random.Random) -> list[Node]:
    def one(number: int) -> Node:
        labels = {key: rng.choice(VALUES) for key in KEYS[:3] if rng.random() < 0.7}
        taints = [Taint("only", rng.choice("xy"), rng.choice(list(Effect)))]
        found = node(
            f"n{number}",
            labels=labels,
            taints=tuple(taints) if rng.random() < 0.4 else (),
            unschedulable=rng.random() < 0.2,
        )
        return replace(found, features=FEATURES[: rng.randrange(3)])

    return [one(number) for number in range(NODES)]


def _requirement(rng: random.Random, keys: Sequence[str]) -> Requirement:
    operator = rng.choice(OPERATORS)
    values = tuple(rng.choices(VALUES, k=1 if operator in ("Gt", "Lt") else rng.randrange(3)))
    return Requirement(rng.choice(keys), operator, values)


def _term(rng: random.Random) -> SelectorTerm:
    return SelectorTerm(
        tuple(_requirement(rng, KEYS) for _ in range(rng.randrange(3))),
        tuple(_requirement(rng, ("metadata.name", "else")) for _ in range(rng.randrange(2))),
    )


def _placing(rng: random.Random) -> Placing:
    terms = tuple(_term(rng) for _ in range(rng.randrange(3)))
    selector = ((rng.choice(KEYS), rng.choice(VALUES)),)
    toleration = Toleration(
        rng.choice(("only", "", "node.kubernetes.io/unschedulable")),
        rng.choice(("Equal", "Exists", "Near")),
        rng.choice("xy"),
        rng.choice(("", "NoSchedule", "NoExecute")),
    )
    return Placing(
        node_selector=selector if rng.random() < 0.2 else (),
        affinity=terms if rng.random() < 0.8 else None,
        tolerations=(toleration,) if rng.random() < 0.7 else (),
        system=((rng.choice(KEYS), rng.choice(VALUES)),) if rng.random() < 0.1 else (),
        features=tuple(rng.sample(FEATURES, rng.randrange(3))) if rng.random() < 0.2 else (),
    )


def test_all_nodes_at_once_are_what_each_is_alone() -> None:
    yes = no = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        nodes, placings = _nodes(rng), [_placing(rng) for _ in range(8)]
        kinds = NodeKinds(nodes, placings)
        for placing in placings:
            for rules in (RULES, LABEL_RULES):
                alone = [n for n, one in enumerate(nodes) if refusal(one, placing, rules) is None]
                assert kinds.allowing(placing, rules) == alone, (seed, placing)
                for asked in (range(NODES), alone, alone[:1]):
                    within = set(asked) <= set(alone)
                    assert kinds.allows(placing, kinds.of(asked), rules) == within
                yes, no = yes + len(alone), no + NODES - len(alone)
    assert min(yes, no) > SEEDS


def test_the_nodes_of_a_cluster_are_those_of_the_plain_rules() -> None:
    for seed in range(SEEDS // 3):
        cluster = mixed.cluster(random.Random(seed))
        placings = {pod.placing for pod in cluster.pods if not pod.placing.volumes}
        nodes = [one for one in cluster.nodes if not one.unschedulable]
        kinds = NodeKinds(nodes, placings)
        for placing in placings:
            plain = [n for n, one in enumerate(nodes) if admits(one, placing, "")]
            assert kinds.allowing(placing) == plain, (seed, placing)


class _Read(UserDict[str, str]):
    """Labels that count how often they are asked for."""

    reads = 0

    def __getitem__(self, key: str) -> str:
        type(self).reads += 1
        return super().__getitem__(key)


def test_what_a_template_asks_is_not_asked_of_every_node() -> None:
    def reads(requirements: int) -> int:
        asked = tuple(Requirement("zone", "NotIn", (f"v{n}",)) for n in range(requirements))
        placing = Placing(affinity=(SelectorTerm(asked), SelectorTerm(asked[::-1])))
        nodes = [
            replace(node(f"n{n}"), labels=_Read(zone=f"z{n}", rank="7")) for n in range(NODES)
        ]
        _Read.reads = 0
        reaches = Reaches(nodes, {placing: [[pod("p", None, 1, 1)]]})
        assert reaches.admitting(placing) == list(range(NODES))
        assert reaches.also_for([placing]) == frozenset()
        return _Read.reads

    assert reads(500) == reads(1) > 0
