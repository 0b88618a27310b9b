"""Every filter is listed, rejects a generated node, and answers for all nodes as for each one.

A new filter needs generated nodes and templates here that it rejects: see `_node` and
`_node_constraints`.
"""

import importlib
import pkgutil
import random
from collections import Counter, UserDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest

from core import placement
from core.model.constraints import (
    HOST_USERS,
    MOUNT_OPTIONS,
    RESTARTS_ALL,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
    VolumeTopology,
    without_volumes,
)
from core.model.node import Effect, Node, Taint
from core.placement.bits import set_bits
from core.placement.filters import (
    FILTERS,
    LABEL_FILTERS,
    ZONE_LABELS,
    Filter,
    VolumeFilter,
    first_failing_filter,
    value_of,
)
from core.placement.node_classes import NodeClasses
from core.placement.node_index import FEW_NODES, NodeIndex
from core.placement.reaches import Reaches
from tests.support import mixed
from tests.support.builders import node, pod
from tests.support.reference_fit import admits

SEEDS = 300
NODES = 3 * FEW_NODES
FEATURES = (RESTARTS_ALL, HOST_USERS, MOUNT_OPTIONS)
DEVICES = ("fpga", "gpu")
KEYS = ("zone", "rank", "metadata.name", "absent")
VALUES = ("a", "b", "7", "-1", "1_0", "", "n3", "n4")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")


def _node(rng: random.Random, number: int) -> Node:
    labels = {key: rng.choice(VALUES) for key in KEYS[:3] if rng.random() < 0.7}
    if rng.random() < 0.7:
        labels |= {key: rng.choice("ab") for key in ZONE_LABELS if rng.random() < 0.4}
    taints = [Taint("only", rng.choice("xy"), rng.choice(list(Effect)))]
    found = node(
        f"n{number}",
        labels=labels,
        taints=tuple(taints) if rng.random() < 0.4 else (),
        unschedulable=rng.random() < 0.2,
        extended=tuple((name, rng.randrange(3)) for name in DEVICES if rng.random() < 0.5),
    )
    return replace(found, features=FEATURES[: rng.randrange(3)])


def _requirement(rng: random.Random, keys: Sequence[str]) -> Requirement:
    operator = rng.choice(OPERATORS)
    values = tuple(rng.choices(VALUES, k=1 if operator in ("Gt", "Lt") else rng.randrange(3)))
    return Requirement(rng.choice(keys), operator, values)


def _term(rng: random.Random) -> SelectorTerm:
    return SelectorTerm(
        tuple(_requirement(rng, KEYS) for _ in range(rng.randrange(3))),
        tuple(_requirement(rng, ("metadata.name", "else")) for _ in range(rng.randrange(2))),
    )


def _terms(rng: random.Random) -> tuple[SelectorTerm, ...]:
    return tuple(_term(rng) for _ in range(rng.randrange(3)))


def _volume(rng: random.Random) -> VolumeTopology:
    zones = [(key, tuple(rng.sample("abc", 2))) for key in ZONE_LABELS if rng.random() < 0.3]
    return VolumeTopology(_terms(rng) if rng.random() < 0.5 else None, tuple(zones))


def _node_constraints(rng: random.Random) -> NodeConstraints:
    selector = ((rng.choice(KEYS), rng.choice(VALUES)),)
    toleration = Toleration(
        rng.choice(("only", "", "node.kubernetes.io/unschedulable")),
        rng.choice(("Equal", "Exists", "Near")),
        rng.choice("xy"),
        rng.choice(("", "NoSchedule", "NoExecute")),
    )
    return NodeConstraints(
        node_selector=selector if rng.random() < 0.2 else (),
        affinity=_terms(rng) if rng.random() < 0.6 else None,
        tolerations=(toleration,) if rng.random() < 0.7 else (),
        volumes=tuple(_volume(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
        system=((rng.choice(KEYS), rng.choice(VALUES)),) if rng.random() < 0.1 else (),
        features=tuple(rng.sample(FEATURES, rng.randrange(3))) if rng.random() < 0.2 else (),
        extended=tuple(sorted(rng.sample(DEVICES, 1))) if rng.random() < 0.2 else (),
    )


@cache
def _generated(seed: int) -> tuple[list[Node], list[NodeConstraints]]:
    rng = random.Random(seed)
    return [_node(rng, number) for number in range(NODES)], [
        _node_constraints(rng) for _ in range(8)
    ]


def _subclasses_of(base: type[object]) -> Iterator[type[object]]:
    for one in base.__subclasses__():
        yield one
        yield from _subclasses_of(one)


def _admitting(
    nodes: Iterable[Node], node_constraints: NodeConstraints, *filters: Filter
) -> list[int]:
    return [
        n
        for n, one in enumerate(nodes)
        if first_failing_filter(one, node_constraints, filters) is None
    ]


def test_filter_classes_are_listed_once() -> None:
    for module in pkgutil.iter_modules(placement.__path__, "core.placement."):
        importlib.import_module(module.name)
    written = {
        one.__name__ for one in _subclasses_of(Filter) if one.__module__.startswith("core.")
    }
    listed = sorted(type(one).__name__ for one in FILTERS)
    assert listed == sorted(written - {VolumeFilter.__name__}), "see FILTERS"
    assert len({one.name for one in FILTERS}) == len(FILTERS)


def test_every_filter_rejects_generated_node_first() -> None:
    failing = Counter(
        first_failing_filter(one, node_constraints)
        for nodes, all_constraints in map(_generated, range(SEEDS))
        for node_constraints in all_constraints
        for one in nodes
    )
    never = [one.name for one in FILTERS if not failing[one.name]]
    assert never == [], "extend _node and _node_constraints until these filters reject a node"


@pytest.mark.parametrize("one", FILTERS, ids=lambda one: one.name)
def test_filter_gives_same_answer_for_all_nodes_as_for_each(one: Filter) -> None:
    for seed in range(SEEDS):
        nodes, all_constraints = _generated(seed)
        index, kinds = NodeIndex(nodes), NodeClasses(nodes, all_constraints)
        for node_constraints in all_constraints:
            alone = _admitting(nodes, node_constraints, one)
            assert list(set_bits(one.feasible_nodes(index, node_constraints))) == alone, (
                seed,
                node_constraints,
            )
            if not node_constraints.volumes:
                assert kinds.allowing_by(node_constraints, (one,)) == alone, (
                    seed,
                    node_constraints,
                )


@pytest.mark.parametrize("one", FILTERS, ids=lambda one: one.name)
def test_filter_answer_depends_only_on_fields_it_reads(one: Filter) -> None:
    for seed in range(SEEDS):
        nodes, all_constraints = _generated(seed)
        for node_constraints in all_constraints:
            fields = sorted(set(one.reads(node_constraints)))
            answers: dict[tuple[object, ...], bool] = {}
            for found in nodes:
                values = tuple(value_of(found, field) for field in fields)
                admits = one.admits(found, node_constraints)
                assert answers.setdefault(values, admits) == admits, (
                    seed,
                    node_constraints,
                    found.name,
                )


def test_node_classes_give_same_answer_as_each_node() -> None:
    yes = no = 0
    for seed in range(SEEDS):
        nodes, all_constraints = _generated(seed)
        kinds = NodeClasses(nodes, all_constraints)
        for node_constraints in all_constraints:
            alone = _admitting(nodes, node_constraints, *FILTERS)
            assert kinds.allowing(node_constraints) == alone, (seed, node_constraints)
            yes, no = yes + len(alone), no + NODES - len(alone)
            if node_constraints.volumes:
                continue
            for filters in (FILTERS, LABEL_FILTERS):
                alone = _admitting(nodes, node_constraints, *filters)
                assert kinds.allowing_by(node_constraints, filters) == alone, (
                    seed,
                    node_constraints,
                )
                for requested in (range(NODES), alone, alone[:1]):
                    within = set(requested) <= set(alone)
                    assert (
                        kinds.allows(node_constraints, kinds.classes_of(requested), filters)
                        == within
                    )
    assert min(yes, no) > SEEDS


def test_admitted_nodes_agree_with_plain_rules() -> None:
    for seed in range(SEEDS // 3):
        cluster = mixed.cluster(random.Random(seed))
        all_constraints = {
            pod.node_constraints for pod in cluster.pods if not pod.node_constraints.volumes
        }
        nodes = [one for one in cluster.nodes if not one.unschedulable]
        kinds = NodeClasses(nodes, all_constraints)
        for node_constraints in all_constraints:
            plain = [n for n, one in enumerate(nodes) if admits(one, node_constraints, "")]
            assert kinds.allowing(node_constraints) == plain, (seed, node_constraints)


class _Read(UserDict[str, str]):
    """Labels that count how often they are read."""

    reads = 0

    def __getitem__(self, key: str) -> str:
        type(self).reads += 1
        return super().__getitem__(key)


def test_label_reads_do_not_grow_with_requirements() -> None:
    def reads(requirements: int) -> int:
        requested = tuple(Requirement("zone", "NotIn", (f"v{n}",)) for n in range(requirements))
        terms = (SelectorTerm(requested), SelectorTerm(requested[::-1]))
        node_constraints = NodeConstraints(affinity=terms, volumes=(VolumeTopology(terms),))
        nodes = [
            replace(node(f"n{n}"), labels=_Read(zone=f"z{n}", rank="7")) for n in range(NODES)
        ]
        _Read.reads = 0
        reaches = Reaches(nodes, {without_volumes(node_constraints): [[pod("p", None, 1, 1)]]})
        assert reaches.admitting(node_constraints) == list(range(NODES))
        assert reaches.unreached_nodes_for([node_constraints]) == frozenset()
        return _Read.reads

    assert reads(500) == reads(1) > 0
