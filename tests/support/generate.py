"""Generate clusters for benchmarks: four node shapes, three zones, 40 pod shapes, four regimes."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from core.model.cluster import Cluster
from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SpreadConstraint,
    Toleration,
)
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources

GIB: Final = 1024**3
NODE_SHAPES: Final = ((8000, 32), (16_000, 64), (32_000, 128), (16_000, 128))
BATCH: Final = Taint("batch", "", "NoSchedule")
REGIMES: Final = {"loose": (60, 15), "tight": (88, 8), "packed": (97, 2), "hot": (0, 0)}
"""Target utilization of nodes and its spread in percent; hot: 92% are full, others at 25%."""
PODS_MAX: Final = 108


def cluster(count: int, regime: str, seed: int = 1, *, social: int = 0) -> Cluster:
    """Return a cluster of *count* nodes with about 30 pods each.

    *social* percent of the pods have inter-pod constraints.
    """
    chance = random.Random(seed)
    shapes = [
        Resources(int(16 * cpu * factor), int(GIB / 16 * memory * factor), 0, 1)
        for cpu, memory in ((1, 1), (2, 1), (1, 2), (3, 2), (2, 4), (5, 5), (4, 2), (8, 6))
        for factor in (1.0, 2.0, 4.0, 7.0, 13.0)
    ]
    nodes, pods = [], []
    for number in range(count):
        node = _node(number, chance)
        nodes.append(node)
        pods += _fill(node, shapes, _target(number, regime, chance), chance)
    if social:
        pods = _with_company(pods, social, chance)
    return Cluster.of(nodes, pods)


def of_reaches(made: Cluster, many: bool, seed: int = 1) -> Cluster:
    """Return the cluster with one reach or with twelve, with the same pods on the same nodes.

    The twelve reaches are: all nodes (for pods that tolerate the taint), untainted nodes, their
    three zones, their six pools, and their nodes with one kind of disk.
    """
    if not many:
        nodes = (replace(node, taints=()) for node in made.nodes)
        pods = (replace(pod, node_constraints=NO_NODE_CONSTRAINTS) for pod in made.pods)
        return Cluster.of(nodes, pods)
    chance, at = random.Random(seed), {node.name: node for node in made.nodes}
    return Cluster.of(made.nodes, [_dealt(pod, at[pod.node or ""], chance) for pod in made.pods])


def _dealt(pod: Pod, node: Node, chance: random.Random) -> Pod:
    if BATCH in node.taints:
        return replace(pod, node_constraints=_BATCH)
    asked = [_ASKING["zone", node.labels["zone"]], _ASKING["pool", node.labels["pool"]]]
    if node.labels["disk"] == "ssd":
        asked.append(_ASKING["disk", "ssd"])
    return replace(
        pod,
        node_constraints=chance.choice(asked) if chance.random() < 0.5 else NO_NODE_CONSTRAINTS,
    )


def _with_company(pods: list[Pod], social: int, chance: random.Random) -> list[Pod]:
    """Assign the pods to applications; pods of an application have the same constraints."""
    apps = []
    for number in range(len(pods) // REPLICAS + 1):
        one = PodSelector(("load",), (Requirement("app", "In", (f"app-{number}",)),))
        asks = chance.choices(COMPANIES, weights=_COMPANY_WEIGHTS)[0](one)
        labels = {"app": f"app-{number}"}
        apps.append((labels, asks if chance.randrange(100) < social else NO_POD_CONSTRAINTS))
    dealt = (chance.choice(apps) for _ in pods)
    return [
        replace(pod, labels=labels, pod_constraints=pod_constraints)
        for pod, (labels, pod_constraints) in zip(pods, dealt, strict=True)
    ]


REPLICAS: Final = 20
"""Approximate number of pods of an application."""
COMPANIES: Final[tuple[Callable[[PodSelector], PodConstraints], ...]] = (
    lambda one: PodConstraints(apart=(PodAffinityTerm(one, "host"),)),
    lambda one: PodConstraints(spread=(SpreadConstraint(one, "zone", 2),)),
    lambda one: PodConstraints(spread=(SpreadConstraint(one, "host", 2),)),
    lambda one: PodConstraints(near=(PodAffinityTerm(one, "zone"),)),
    lambda _: PodConstraints(host_ports=(HostPort(8000),)),
)
_COMPANY_WEIGHTS: Final = (8, 5, 3, 3, 1)


def _node(number: int, chance: random.Random) -> Node:
    cpu, memory = NODE_SHAPES[number % 4]
    pool = number % 7
    return Node(
        name=f"node-{number:05}",
        labels={
            "host": f"node-{number:05}",
            "zone": "abc"[number % 3],
            "pool": str(pool),
            "disk": "ssd" if chance.random() < 0.3 else "hdd",
        },
        taints=(BATCH,) if pool == 6 else (),
        allocatable=Resources(cpu, memory * GIB, 0, 110),
    )


def _target(number: int, regime: str, chance: random.Random) -> float:
    if regime == "hot":
        return 0.25 if number % 12 == 0 else 0.99
    mean, spread = REGIMES[regime]
    return min(mean + chance.uniform(-spread, spread), 100) / 100


_WEIGHTS: Final = [5, 4, 3, 2, 1] * 8
"""Weights of the five sizes of each shape; small pods are the most common."""
_ZONES: Final = {zone: NodeConstraints(node_selector=(("zone", zone),)) for zone in "abc"}
_ASKING: Final = {
    label: NodeConstraints(node_selector=(label,))
    for label in (
        *(("zone", zone) for zone in "abc"),
        *(("pool", str(pool)) for pool in range(6)),
        ("disk", "ssd"),
    )
}
_BATCH: Final = NodeConstraints(tolerations=(Toleration("batch", "Exists"),))


def _fill(node: Node, shapes: list[Resources], target: float, chance: random.Random) -> list[Pod]:
    """Fill the node up to its target with random pods in proportion to its size."""
    scale = node.allocatable.cpu_millis // 8000
    cpu = memory = 0
    pods: list[Pod] = []
    node_constraints = _BATCH if BATCH in node.taints else NO_NODE_CONSTRAINTS
    misses = 0
    while len(pods) < PODS_MAX and misses < 5:
        asked = chance.choices(shapes, weights=_WEIGHTS)[0]
        asked = _SCALED.setdefault(
            (asked, scale),
            Resources(asked.cpu_millis * scale, asked.memory_bytes * scale, 0, 1),
        )
        if (
            cpu + asked.cpu_millis > node.allocatable.cpu_millis * target
            or memory + asked.memory_bytes > node.allocatable.memory_bytes * target
        ):
            misses += 1
            continue
        cpu, memory = cpu + asked.cpu_millis, memory + asked.memory_bytes
        zoned = node_constraints is NO_NODE_CONSTRAINTS and chance.random() < 0.1
        pods.append(
            Pod(
                namespace="load",
                name=f"{node.name}-{len(pods):03}",
                node=node.name,
                requests=asked,
                node_constraints=_ZONES[node.labels["zone"]] if zoned else node_constraints,
                owner_kind="ReplicaSet",
            )
        )
    return pods


_SCALED: Final[dict[tuple[Resources, int], Resources]] = {}
