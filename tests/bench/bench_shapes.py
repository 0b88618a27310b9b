"""Measure one reconciliation of unusual clusters: `python -m tests.bench.bench_shapes`.

It compares each cluster with a plain cluster of the same size, and one of twice the nodes. The
growth exponent is 1.0 for linear and 2.0 for quadratic growth.
"""

import gc
import math
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from core.cluster.tenant_limits import (
    BUDGET,
    CLAIM_COST,
    COUNTED_POD_COST,
    FOREIGN_COST,
    HOST_PORT_COST,
    NODE_REQUIREMENT_COST,
    NODE_TEMPLATE_COST,
    POD_REQUIREMENT_COST,
)
from core.config.budgets import Budget, Budgets, LabelSelector, Pool
from core.config.prices import Price
from core.config.settings import Config, PolicySettings
from core.config.thresholds import Thresholds
from core.engine.leader_state import LeaderState
from core.engine.reconcile import reconcile
from core.engine.zones import ZONE_LABEL
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    ClaimUse,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
)
from core.model.node import Effect, Node, Taint
from core.model.pod import CLAIMS_FIELD, Pod
from core.policies.ported.underutilized_count import CountedPool, CountedPools, UnderutilizedCount
from tests.bench.machine import factor, show
from tests.support.builders import marked, node, pod, select
from tests.support.cluster_pods import build_cluster, within_budget

NODES: Final = 500
"""Nodes of the small cluster; the large cluster has twice as many."""
PODS: Final = 10
"""Pods per node, of 400m and 1 GB; a node has 16 cores and 64 GB."""
TURNS: Final = 3
POOLS: Final = 40
PORTS: Final = 1000
WAITING: Final = 20
"""Pending pods per node."""
TERMS: Final = 64

Shape = tuple[Cluster, Config]


def a_node(number: int, **labels: str) -> Node:
    name = f"node-{number:05}"
    own = {HOST_LABEL: name, ZONE_LABEL: "abc"[number % 3], **labels}
    return node(name, 16_000, 64_000, labels=own)


def a_pod(
    number: int,
    place: int,
    *,
    cpu: int = 400,
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS,
) -> Pod:
    """Return a pod on the node with this number."""
    return pod(
        f"p-{number}-{place}", f"node-{number:05}", cpu, 1000, node_constraints=node_constraints
    )


def many(size: int) -> list[Pod]:
    return [a_pod(number, place) for number in range(size) for place in range(PODS)]


def plain(size: int) -> Shape:
    return Cluster.of(map(a_node, range(size)), many(size)), Config()


def one_on_each_node(size: int, pod_constraints: PodConstraints) -> Shape:
    """Return a cluster with a Deployment that has one pod on each node."""
    made = [a_pod(number, PODS) for number in range(size)]
    own = [replace(one, pod_constraints=pod_constraints, labels={"app": "own"}) for one in made]
    return Cluster.of(map(a_node, range(size)), [*many(size), *own]), Config()


def apart(size: int) -> Shape:
    return one_on_each_node(
        size, PodConstraints(apart=(PodAffinityTerm(select("own"), HOST_LABEL),))
    )


def spread(size: int) -> Shape:
    rule = SpreadConstraint(select("own"), HOST_LABEL, 1)
    return one_on_each_node(size, PodConstraints(spread=(rule,)))


def ports(size: int) -> Shape:
    """Return a cluster whose pods each have one of a thousand host ports."""
    found = [
        replace(
            one,
            pod_constraints=PodConstraints(host_ports=(HostPort(7000 + turn * 7 % PORTS, "UDP"),)),
        )
        for turn, one in enumerate(many(size))
    ]
    return Cluster.of(map(a_node, range(size)), found), Config()


def tenants(size: int) -> Shape:
    """Return a cluster with a tenant per two nodes, with its own taint and pods."""
    nodes, pods = [], []
    for number in range(size):
        tenant = f"t{number // 2}"
        taint = Taint("dedicated", tenant, Effect.NO_SCHEDULE)
        nodes.append(replace(a_node(number, tenant=tenant), taints=(taint,)))
        tolerated = (Toleration("dedicated", "Equal", tenant, "NoSchedule"),)
        node_constraints = NodeConstraints(
            node_selector=(("tenant", tenant),), tolerations=tolerated
        )
        made = (a_pod(number, place, node_constraints=node_constraints) for place in range(PODS))
        pods += [replace(one, namespace=tenant) for one in made]
    return Cluster.of(nodes, pods), Config()


def prices(size: int) -> Shape:
    """Return a cluster whose expensive half is full and whose cheap half is not."""
    nodes, pods = [], []
    for number in range(size):
        life = "own" if number % 2 else "spot"
        node_constraints = NodeConstraints(node_selector=(("life", life),))
        nodes.append(a_node(number, life=life))
        cpu = 1500 if number % 2 else 400
        pods += [
            a_pod(number, place, cpu=cpu + place, node_constraints=node_constraints)
            for place in range(PODS)
        ]
    own = (
        Price(node_selector=(("life", "own"),), price=Fraction(3)),
        Price(node_selector=(("life", "spot"),), price=Fraction(1)),
    )
    whole = Thresholds(cpu=Fraction(1), memory=Fraction(1))
    return Cluster.of(nodes, pods), Config(prices=own, thresholds=whole)


def counted(size: int) -> Shape:
    """Return a pool for UnderutilizedCount; half of its nodes have a pod with anti-affinity."""
    nodes = [a_node(number, pool="p", half="ab"[number % 2]) for number in range(size)]
    pod_constraints = PodConstraints(apart=(PodAffinityTerm(select("own"), HOST_LABEL),))
    own = [
        replace(
            a_pod(number, PODS, node_constraints=NodeConstraints(node_selector=(("half", "a"),))),
            pod_constraints=pod_constraints,
            labels={"app": "own"},
        )
        for number in range(0, size, 2)
    ]
    pods = [a_pod(number, 0, cpu=800) for number in range(1, size, 2)]
    settings = CountedPools(
        pool_label="pool",
        pools={"p": CountedPool(enabled=True, limit=Fraction(3, 4), required=5)},
    )
    policies = PolicySettings(underutilized_count=settings)
    config = Config(policy=UnderutilizedCount.name, policies=policies, unneeded_time_seconds=0)
    return Cluster.of(nodes, [*pods, *own]), config


def pools(size: int) -> Shape:
    """Return a cluster of forty pools, one with thresholds, and pods that select half of them."""
    nodes = [a_node(number, pool=f"p{number % POOLS}") for number in range(size)]
    pods = many(size)
    for first in range(POOLS):
        names = sorted(f"p{(first + turn) % POOLS}" for turn in range(POOLS // 2))
        asked = SelectorTerm((Requirement("pool", "In", tuple(names)),))
        pods.append(a_pod(first, PODS, node_constraints=NodeConstraints(affinity=(asked,))))
    own = tuple(
        Pool(
            name=f"p{number}",
            selector=LabelSelector(match_labels=(("pool", f"p{number}"),)),
            budget=Budget(),
            thresholds=None if number else Thresholds(),
        )
        for number in range(POOLS)
    )
    return Cluster.of(nodes, pods), Config(budgets=Budgets(pools=own))


def sets(size: int) -> Shape:
    """Return a cluster in which each pod of a namespace excludes a different node."""
    pods = many(size)
    for number in range(size):
        away = Requirement(HOST_LABEL, "NotIn", (f"node-{(number + 1) % size:05}",))
        node_constraints = NodeConstraints(affinity=(SelectorTerm((away,)),))
        pods.append(
            replace(a_pod(number, PODS, node_constraints=node_constraints), namespace="tenant")
        )
    return Cluster.of(map(a_node, range(size)), pods), Config()


def waiting(number: int, memory: int = 1) -> Pod:
    """Return an unschedulable pod of a tenant."""
    made = pod(f"w-{number:05}", None, 590, memory, namespace="tenant")
    return replace(made, unschedulable=True)


def sizes(size: int) -> Shape:
    """Return a cluster with twenty Pending pods per node, of different sizes, that just fit."""
    pods = [waiting(number, memory=1000 + number % 500) for number in range(WAITING * size)]
    own = [
        replace(one, requests=replace(one.requests, memory_bytes=one.requests.memory_bytes + n))
        for n, one in enumerate(pods)
    ]
    return Cluster.of(map(a_node, range(size)), [*many(size), *own]), Config()


def terms(size: int) -> Shape:
    """Return a cluster with four Pending pods per node, each with its own labels and terms."""
    chance = random.Random(1)
    known = [
        PodAffinityTerm(
            PodSelector(("tenant",), (Requirement(f"l{number}", "In", ("x",)),)), HOST_LABEL
        )
        for number in range(TERMS)
    ]
    pods = [
        replace(
            waiting(number),
            pod_constraints=PodConstraints(apart=tuple(known[one] for one in some(chance))),
            labels={f"l{one}": "x" for one in some(chance)},
        )
        for number in range(4 * size)
    ]
    found = within_budget([*many(size), *pods])
    return Cluster.of(map(a_node, range(size)), found), Config()


def ending(size: int) -> Shape:
    """Return a cluster in which three of ten nodes are marked and half of the marks must end."""
    nodes = [a_node(number) for number in range(size)]
    first = range(3 * size // 10)
    nodes[: len(first)] = [marked(nodes[number], Mark.PREFER_NO_SCHEDULE, 1) for number in first]
    pods = [
        a_pod(number, place, cpu=600 + 40 * place if number in first else 1290 + place)
        for number in range(size)
        for place in range(PODS)
    ]
    return Cluster.of(nodes, pods), Config()


def tenants_pod(number: int, size: int, **changes: Any) -> Pod:
    """Return a small pod of the tenant that uses up the evaluation budget."""
    made = a_pod(number % size, PODS + number // size, cpu=10)
    return replace(made, namespace="tenant", **changes)


def beside(size: int, spending: Iterable[Pod]) -> Shape:
    """Return a plain cluster with the pods of a tenant that uses up the evaluation budget."""
    made = build_cluster([*map(a_node, range(size))], [*many(size), *spending])
    assert not any(one.too_much for one in made.pods)
    return made, Config()


def spent_nodes(size: int) -> Shape:
    """Return a cluster where each pod of a tenant excludes other nodes by one requirement."""
    chance, pods = random.Random(1), []
    for number in range(BUDGET // (NODE_TEMPLATE_COST + NODE_REQUIREMENT_COST) - 1):
        names = sorted(f"node-{one:05}" for one in chance.sample(range(size), 15))
        away = SelectorTerm((Requirement(HOST_LABEL, "NotIn", tuple(names)),))
        pods.append(tenants_pod(number, size, node_constraints=NodeConstraints(affinity=(away,))))
    return beside(size, pods)


def spent_ports(size: int) -> Shape:
    """Return a cluster where each pod of a tenant uses 64 other host ports."""
    pods = []
    for number in range((BUDGET - NODE_TEMPLATE_COST) // (64 * HOST_PORT_COST)):
        address = f"10.0.{number // 256}.{number % 256}"
        taken = tuple(HostPort(7000 + one, "TCP", address) for one in range(64))
        pods.append(tenants_pod(number, size, pod_constraints=PodConstraints(host_ports=taken)))
    return beside(size, pods)


def spent_terms(size: int, namespaces: tuple[str, ...] | None = ("tenant",)) -> Shape:
    """Return a cluster where each pod of a tenant has 32 other terms that select one pod each."""
    foreign = namespaces != ("tenant",)
    cost = POD_REQUIREMENT_COST + (FOREIGN_COST if foreign else 0) + COUNTED_POD_COST
    pods = []
    for number in range((BUDGET - NODE_TEMPLATE_COST) // (32 * cost)):
        wanted = (Requirement("own", "In", (f"{32 * number + one}",)) for one in range(32))
        found = (PodSelector(namespaces, (one,)) for one in wanted)
        pod_constraints = PodConstraints(
            apart=tuple(PodAffinityTerm(one, HOST_LABEL) for one in found)
        )
        pods.append(
            tenants_pod(number, size, pod_constraints=pod_constraints, labels={"own": f"{number}"})
        )
    return beside(size, pods)


def spent_foreign(size: int) -> Shape:
    """Return the cluster of `spent_terms` with terms for all namespaces."""
    return spent_terms(size, None)


def spent_counted(size: int) -> Shape:
    """Return a cluster where terms of a tenant's pods select nearly all of its 5,000 pods."""
    terms = (BUDGET - NODE_TEMPLATE_COST) // (POD_REQUIREMENT_COST + 5000 * COUNTED_POD_COST)
    pods = []
    for number in range(5000):
        others = PodSelector(("tenant",), (Requirement("app", "NotIn", (f"{number}",)),))
        term = PodAffinityTerm(others, HOST_LABEL)
        pod_constraints = PodConstraints(apart=(term,)) if number < terms else NO_POD_CONSTRAINTS
        pods.append(
            tenants_pod(number, size, pod_constraints=pod_constraints, labels={"app": f"{number}"})
        )
    return beside(size, pods)


def spent_claims(size: int) -> Shape:
    """Return a cluster where each pod of a tenant names 256 missing claims."""
    pods = []
    for number in range((BUDGET - NODE_TEMPLATE_COST) // (256 * CLAIM_COST)):
        disruption_facts = DisruptionFacts(
            claims=tuple(ClaimUse(f"c-{number}-{one}") for one in range(256))
        )
        pods.append(
            tenants_pod(
                number, size, disruption_facts=disruption_facts, unsupported=(CLAIMS_FIELD,)
            )
        )
    return beside(size, pods)


def some(chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(TERMS), 12))


SHAPES: Final[tuple[Callable[[int], Shape], ...]] = (
    plain, apart, spread, ports, tenants, prices, counted, pools, sets, sizes, terms,
    ending, spent_nodes, spent_ports, spent_terms, spent_foreign, spent_counted, spent_claims,
)  # fmt: skip


def seconds(shape: Shape) -> float:
    """Return the shortest processor time of several passes."""
    best = math.inf
    for _ in range(TURNS):
        gc.collect()
        start = time.process_time()
        reconcile(*shape, LeaderState(), 1000)
        best = min(best, time.process_time() - start)
    return best


def rows() -> Iterable[list[str]]:
    """Yield a row per shape."""
    beside = 0.0
    for make in SHAPES:
        small, large = make(NODES), make(2 * NODES)
        first, second = seconds(small), seconds(large)
        beside = beside or second
        yield [
            make.__name__,
            f"{len(large[0].pods):,}",
            f"{first * 1000:,.0f}",
            f"{second * 1000:,.0f}",
            f"{second / beside:.1f}",
            f"{math.log2(second / first):.1f}",
        ]
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def main() -> None:
    columns = [
        "shape",
        "pods",
        f"ms, {NODES:,} nodes",
        f"ms, {2 * NODES:,}",
        "ratio to plain",
        "growth exponent",
    ]
    show(f"one cold pass, processor time, K = {factor():.2f}", columns, list(rows()))


if __name__ == "__main__":
    main()
