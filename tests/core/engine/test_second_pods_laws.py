"""Laws: which pods have no place for a second pod, compared with a plain search of all nodes.

The clusters come from 1,000 seeds; more with pytest's option --seeds (`make laws`).
"""

import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import pytest

from core.config.settings import Config, UsabilityMode
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.plan import Plan
from core.engine.planner_parts import new_packer
from core.engine.snapshot import ClusterSnapshot
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    NO_POD_CONSTRAINTS,
    HostPort,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SpreadConstraint,
)
from core.model.pod import REPLICA_SET, TEMPLATE_LABEL, Pod
from core.model.resources import Resources
from tests.support.builders import UNLIMITED, marked, node, pod, select
from tests.support.reference_beside import Beside
from tests.support.reference_fit import ZONE, admits, has_room, selects
from tests.support.reference_rules import is_marked

pytestmark = [pytest.mark.law, pytest.mark.mutate]

CONFIG: Final = Config(
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
    surge=SurgeConfig(mode=SurgeMode.ENABLED),
)
HASHES: Final = ("h1", "h2")
APPS: Final = ("a", "b")
KEYS: Final = (ZONE, ZONE, HOST_LABEL)


def selector(chance: random.Random, app: str, value: str) -> PodSelector:
    """Return a selector of an application, often with matchLabelKeys or mismatchLabelKeys."""
    made = select(app if chance.random() < 0.8 else chance.choice(APPS))
    operator = chance.choice(("", "", "In", "In", "NotIn"))
    if not operator:
        return made
    more = Requirement(TEMPLATE_LABEL, operator, (value,))
    return replace(made, requirements=(*made.requirements, more))


def constraints(chance: random.Random, app: str, value: str) -> PodConstraints:
    """Return one or two constraints of the pods of an application on other pods."""
    near, apart, spread = list[PodAffinityTerm](), list[PodAffinityTerm](), []
    for _ in range(chance.randint(1, 2)):
        kind, key = chance.choice(("near", "apart", "spread")), chance.choice(KEYS)
        counted = selector(chance, app, value)
        if kind == "spread":
            skew, domains = chance.randint(1, 2), chance.choice((1, 1, 3))
            spread.append(SpreadConstraint(counted, key, skew, domains))
        else:
            terms = near if kind == "near" else apart
            terms.append(PodAffinityTerm(counted, key))
    ports = (HostPort(80),) if chance.random() < 0.1 else ()
    return PodConstraints(tuple(near), tuple(apart), tuple(spread), ports)


def cluster_of(chance: random.Random) -> Cluster:
    """Return a small cluster in three zones; most pods have constraints on each other."""
    nodes = []
    for number in range(chance.randint(3, 9)):
        name = f"n{number}"
        labels = {HOST_LABEL: name}
        if chance.random() < 0.95:
            labels[ZONE] = chance.choice("abc")
        made = node(name, chance.choice((500, 1000, 2000)), labels=labels)
        nodes.append(marked(made, since=1) if chance.random() < 0.15 else made)
    kinds = []
    for _ in range(chance.randint(1, 4)):
        app, value = chance.choice(APPS), chance.choice(HASHES)
        asks = constraints(chance, app, value) if chance.random() < 0.8 else NO_POD_CONSTRAINTS
        labels = {"app": app, TEMPLATE_LABEL: value}
        kind = REPLICA_SET if chance.random() < 0.9 else "StatefulSet"
        kinds.append((labels, asks, kind, chance.choice((50, 300))))
    left = {one.name: one.allocatable.cpu_millis for one in nodes}
    pods = []
    for number in range(chance.randint(1, 2 * len(nodes))):
        (labels, asks, kind, cpu), on = chance.choice(kinds), chance.choice(nodes).name
        if left[on] >= cpu:
            left[on] -= cpu
            made_pod = pod(f"p{number:02}", on, cpu, 0, labels=labels, pod_constraints=asks)
            terminating = chance.random() < 0.05
            pods.append(replace(made_pod, owner_kind=kind, terminating=terminating))
    return Cluster.of(nodes, pods)


def clusters(seeds: range) -> Iterator[tuple[Cluster, Plan]]:
    """Yield random clusters with their plans."""
    for seed in seeds:
        made = cluster_of(random.Random(seed))
        yield made, reconcile.plan(made, CONFIG)


def has_place(cluster: Cluster, gone: Collection[str], old: Pod) -> bool:
    """Return whether a node that stays admits another pod like *old* now, and has room for it.

    *gone*: names of the nodes that do not stay, besides marked ones.
    """
    labels = {key: value for key, value in old.labels.items() if key != TEMPLATE_LABEL}
    nodes = {one.name: one for one in cluster.nodes}
    standing = [
        (replace(other, labels=labels) if other is old else other, nodes[other.node or ""])
        for other in cluster.pods
    ]
    free = {
        one.name: one.allocatable
        - Resources.total(other.requests for other, at in standing if at.name == one.name)
        for one in cluster.nodes
    }
    return any(
        one.name not in gone
        and not is_marked(one)
        and admits(one, old.node_constraints, TAINT_KEY)
        and has_room(old.requests, free[one.name])
        and Beside(old, one, standing, cluster, TAINT_KEY).fits()
        for one in cluster.nodes
    )


def looks_at_other_nodes(cluster: Cluster, asked: Pod) -> bool:
    """Return whether pods on one node decide if the pod may run on another node."""
    own = asked.pod_constraints
    others = [
        term
        for other in cluster.pods
        for term in other.pod_constraints.apart
        if selects(term.selector, asked)
    ]

    def shared(key: str) -> bool:
        values = [one.labels[key] for one in cluster.nodes if key in one.labels]
        return len(set(values)) < len(values)

    apart = any(shared(term.topology_key) for term in (*own.apart, *others))
    return bool(own.near or own.spread or apart)


@pytest.mark.law(seeds_max=2000, seeds_min=100)
def test_crowded_pods_of_plan_are_those_for_which_no_node_that_stays_has_a_place(
    seeds: range,
) -> None:
    counts = Counter[bool]()
    for cluster, plan in clusters(seeds):
        removed = {removal.node for removal in plan.removals}
        for asked in cluster.pods:
            known = asked.node in removed and asked.owner_kind == REPLICA_SET
            if not known or not looks_at_other_nodes(cluster, asked):
                assert asked.key not in plan.crowded
                continue
            found = has_place(cluster, removed, asked)
            assert (asked.key in plan.crowded) is not found, asked.key
            counts[found] += 1
    assert min(counts[True], counts[False]) > len(seeds) // 20


@pytest.mark.law(seeds_max=2000, seeds_min=100)
def test_pods_without_crowded_ones_have_a_place_on_other_unmarked_nodes(seeds: range) -> None:
    counts = Counter[bool]()
    for cluster, _ in clusters(seeds):
        packer = new_packer(ClusterSnapshot(cluster, CONFIG))
        leaving = [number for number, one in enumerate(packer.nodes) if is_marked(one)]
        crowded = {packer.pods[one].key for one in packer.second_pods(leaving).crowded}
        for asked in cluster.pods:
            if asked.owner_kind != REPLICA_SET or not looks_at_other_nodes(cluster, asked):
                assert asked.key not in crowded
                continue
            found = has_place(cluster, [asked.node or ""], asked)
            assert (asked.key in crowded) is not found, asked.key
            counts[found] += 1
    assert min(counts[True], counts[False]) > len(seeds) // 2


def test_no_pod_is_crowded_when_surge_moves_are_disabled(seeds: range) -> None:
    for cluster, _ in clusters(seeds[: len(seeds) // 10]):
        plan = reconcile.plan(cluster, replace(CONFIG, surge=SurgeConfig()))
        assert not plan.crowded
