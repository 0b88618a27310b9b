"""Ebb compared with kube-scheduler on random clusters.

kube-scheduler must accept every placement of a plan, and the reach of a pod must be the nodes
that pass its filters. Each seed creates a cluster on the API server. The plan is carried out pod
by pod, in its order, and kube-scheduler decides. At each step both are asked about all nodes, not
only about the planned node.
"""

import json
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine.plan import Plan
from core.engine.reconcile import plan
from core.engine.snapshot import ClusterSnapshot
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NO_NODE_CONSTRAINTS, NO_POD_CONSTRAINTS
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.e2e import random_pools
from tests.e2e.api import Api, Json
from tests.e2e.drawn import ZONE, Drawn, name_of
from tests.e2e.objects import NODES, PODS, node, pod
from tests.e2e.oracle import ALL_PODS, Oracle, key_of, nowhere
from tests.e2e.plane import Plane
from tests.e2e.random_cluster import HOLD, draw
from tests.e2e.random_terms import (
    FEATURE,
    FEATURE_MINOR_MIN,
    NAMESPACES,
    REQUIRED,
    RESTARTS_ALL,
    remove_newer_fields,
)
from tests.e2e.test_preemption import PRIORITIES
from tests.e2e.world import DifferenceError, World
from tests.support.builders import UNLIMITED
from tests.support.kube_json import cluster_from_dumps
from tests.support.reference_fit import PASSING

SEEDS = range(18)
ALL = Fraction(1)
CONFIG = Config(
    thresholds=Thresholds(cpu=ALL, memory=ALL),
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
)
"""A configuration in which only scheduling constraints make a node unremovable."""
STRICTER = (
    "attach limit",  # a node without the driver could not start the pod (core.cluster.volumes)
    "another pod's anti-affinity",  # Ebb treats a namespace selector as all namespaces
    "host port",  # the scheduler forgets a port of two pods when the first is deleted
)
"""Reasons for which Ebb may reject a node that kube-scheduler accepts."""


@pytest.fixture(scope="module")
def oracle(plane: Plane) -> Iterator[Oracle]:
    """Run the scheduler; create the namespaces of the pods."""
    for name in NAMESPACES[1:]:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        plane.api.create("/api/v1/namespaces", body)
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        plane.api.wait(accounts, lambda found: "default" in found)
    made = Oracle(plane.api)
    with made.serving() as stanza:
        scheduler = plane.scheduler(stanza)
        try:
            yield made
        finally:
            plane.end(scheduler, signal.SIGKILL)


def may_move(found: Pod) -> bool:
    return not (found.unsupported or found.stays_with_node or found.terminating)


def carry_out(world: World, decided: Plan) -> None:
    """Carry out the plan in its order. Raises: DifferenceError."""
    # The room for other Pending pods is only the least that they need: the scheduler knows more.
    evaluable = {found.key for found in world.cluster.pods if found.evaluable}
    pending = [one for one in decided.pending if one.pod in evaluable]
    world.lift(one.pod for one in pending)
    for one in pending:
        world.move(one.pod, one.node)
    for removal in decided.removals:
        world.lift(one.pod for one in removal.placements)
        for one in removal.placements:
            world.move(one.pod, one.node)
        world.leave(removal.node)


@pytest.mark.parametrize("seed", SEEDS)
def test_scheduler_accepts_every_placement_of_plan(
    plane: Plane, api: Api, oracle: Oracle, seed: int
) -> None:
    drawn = draw(seed)
    remove_newer_fields(drawn.pods, plane.minor())
    world = World(api, oracle, drawn)
    try:
        world.build()
        for key in [found.key for found in world.cluster.pods if may_move(found)]:
            world.look(key)
        decided = plan(world.cluster, CONFIG)
        carry_out(world, decided)
        world.check()
        assert [one for one in world.stricter if not any(why in one for why in STRICTER)] == []
    finally:
        world.clear()
    print(
        f"seed {seed}: {len(decided.removals)} of {len(world.cluster.nodes)} nodes are removable,"
        f" {sum(len(one.placements) for one in decided.removals)} pods are moved,"
        f" {len(decided.pending)} Pending pods are placed,"
        f" {world.asked} pods compared, {world.pairs} nodes accepted by both,"
        f" {len(world.stricter)} rejected only by Ebb: {world.stricter}"
    )


WEB = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
SPREAD = WEB | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3}
PORT = {"name": "main", "image": "none", "ports": [{"containerPort": 80, "hostPort": 80}]}
RESTART = {"name": "main", "image": "none", **RESTARTS_ALL}
LARGE = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3500m"}}}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"affinity": {"podAntiAffinity": {REQUIRED: [WEB]}}}, "anti-affinity rules"),
        ({"topologySpreadConstraints": [SPREAD]}, "topology spread constraints"),
        ({"containers": [PORT]}, "free ports"),
        ({"containers": [LARGE]}, "Insufficient cpu"),
        ({"nodeSelector": {"kubernetes.io/hostname": "b"}}, "node affinity/selector"),
        ({"containers": [RESTART]}, "required features"),
    ],
)
def test_comparison_detects_wrong_placement(
    plane: Plane, api: Api, oracle: Oracle, wish: Json, words: str
) -> None:
    if wish == {"containers": [RESTART]} and plane.minor() < FEATURE_MINOR_MIN:
        pytest.skip(f"declared features need Kubernetes 1.{FEATURE_MINOR_MIN}")
    nodes = [node("a"), node("b")]
    nodes[1]["status"]["declaredFeatures"] = [FEATURE]
    world = World(api, oracle, two_of_a_kind(-1, nodes, **wish))
    try:
        world.build()
        world.look("default/moved")
        world.lift(["default/moved"])
        with pytest.raises(DifferenceError, match=words):
            world.move("default/moved", "a")
        world.lift(["default/moved"])
        world.move("default/moved", "b")
        world.cluster = replace(world.cluster, pods=tuple(map(blind, world.cluster.pods)))
        with pytest.raises(DifferenceError, match=r"would place default/moved on \['a'\]"):
            world.look("default/moved")
    finally:
        world.clear()


def test_topology_spread_counts_nodes_of_other_operating_system(api: Api, oracle: Oracle) -> None:
    """kube-scheduler ignores `spec.os`, so an empty zone of Windows nodes counts as a zone."""
    places = (("a", "linux", "x"), ("b", "linux", "x"), ("w", "windows", "y"))
    nodes = [node(n, labels={random_pools.OS: s, ZONE: z}) for n, s, z in places]
    spread = {**SPREAD, "minDomains": 1, "topologyKey": ZONE}
    wish: Json = {"os": {"name": "linux"}, "topologySpreadConstraints": [spread]}
    world = World(api, oracle, two_of_a_kind(-2, nodes, **wish))
    try:
        world.build()
        world.look("default/moved")
        world.lift(["default/moved"])
        with pytest.raises(DifferenceError, match="topology spread constraints"):
            world.move("default/moved", "a")
    finally:
        world.clear()
    assert {one.partition(":")[0] for one in world.stricter} == {"default/moved on w"}


def test_nominated_pod_takes_the_room_of_its_node(api: Api, oracle: Oracle) -> None:
    """The victim of a preemption still runs, so the nominated pod is Pending."""
    api.create(PRIORITIES, {"metadata": {"name": "nominee"}, "value": 1000})
    victim = pod("victim", node_name="a", cpu="3")
    victim["metadata"]["finalizers"] = [HOLD]
    on_a: Json = {"nodeSelector": {"kubernetes.io/hostname": "a"}, "priorityClassName": "nominee"}
    nominee, moved = pod("nominee", cpu="3500m", **on_a), pod("moved", node_name="b", cpu="600m")
    drawn = Drawn(-3, nodes=[node("a"), node("b")], pods=[victim, moved, nominee])
    world = World(api, oracle, drawn)
    try:
        world.build()
        api.wait(PODS, lambda found: found["nominee"]["status"].get("nominatedNodeName") == "a")
        world.cluster = world.read()
        assert world.expected("default/moved") == {"b"}
        world.look("default/moved")
        assert world.stricter == []
    finally:
        api.merge(f"{PODS}/victim", {"metadata": {"finalizers": None}})
        world.clear()
        api.delete(f"{PRIORITIES}/nominee")


def two_of_a_kind(seed: int, nodes: list[Json], **wish: Any) -> Drawn:
    """Return a cluster with two equal pods, on nodes a and b."""
    drawn = Drawn(seed, nodes=nodes)
    for name, where in (("there", "a"), ("moved", "b")):
        made = pod(name, node_name=where, **wish)
        made["metadata"]["labels"] = {"app": "web"}
        drawn.pods.append(made)
    return drawn


def blind(found: Pod) -> Pod:
    """Return the pod without its constraints, as a faulty Ebb would see it."""
    return replace(
        found,
        node_constraints=NO_NODE_CONSTRAINTS,
        pod_constraints=NO_POD_CONSTRAINTS,
        requests=Resources(pods=1),
    )


SET_ASIDE = (TAINT_KEY, *PASSING)
"""Taints that a reach ignores: Ebb's, and transient taints."""


@pytest.mark.parametrize("seed", range(12))
def test_reach_of_pod_matches_filters_of_scheduler(
    plane: Plane, api: Api, oracle: Oracle, seed: int
) -> None:
    """Nodes in the reach pass the filters, and vice versa; the last assertions name exceptions.

    kube-scheduler sees each pod twice: as it is, and tolerating all taints that a reach ignores.
    """
    chance = random.Random(seed)
    made = random_pools.nodes(chance, f"s{seed}")
    for one in made:
        api.create(NODES, one)
    api.wait(NODES, lambda found: all(settled(found, one) for one in made))
    oracle.follow()
    drawn = random_pools.pods(chance, made)
    remove_newer_fields(drawn, plane.minor())
    as_is, tolerant = [], []
    for one in drawn:
        as_is.append(oracle.place(one, nowhere).allowed)
        tolerant.append(oracle.place(tolerating(one), nowhere).allowed)
    cluster = cluster_from_dumps(
        [(path, json.dumps(api.get(path)).encode()) for path in (NODES, ALL_PODS)]
    )
    virtual = {n.name for n in cluster.nodes if n.virtual}
    closed = {n.name for n in cluster.nodes if n.unschedulable or repels(n)}
    for one, first, at_best in zip(drawn, as_is, tolerant, strict=True):
        found, allowed = reach(cluster, key_of(one)), first
        other_system = wrong_system(cluster, one)
        assert found == at_best - virtual - other_system, (key_of(one), one["spec"])
        if found - first - closed:  # the scheduler may have received the nodes late
            api.wait(NODES, lambda there: all(settled(there, node) for node in made))
            allowed = oracle.place(renamed(one, "again"), nowhere).allowed
        assert allowed - virtual - other_system <= found
        assert found - allowed <= closed, (key_of(one), one["spec"])
    sizes = sorted(len(reach(cluster, key_of(one))) for one in drawn)
    print(f"seed {seed}: {len(made)} nodes, {len(virtual)} virtual; reaches of {sizes} nodes")


def reach(cluster: Cluster, key: str) -> set[str]:
    """Return the nodes in the pod's reach according to Ebb."""
    survey = ClusterSnapshot(cluster, CONFIG)
    pod = next(pod for pod in cluster.pods if pod.key == key)
    return {
        survey.node_order.nodes[number].name
        for number in survey.reaches.members(pod.node_constraints)
    }


def tolerating(one: Json) -> Json:
    """Return the pod with tolerations for all taints that a reach ignores."""
    more = [{"key": key, "operator": "Exists"} for key in SET_ASIDE]
    spec = {**one["spec"], "tolerations": [*one["spec"].get("tolerations", ()), *more]}
    return {**renamed(one, "tolerant"), "spec": spec}


def renamed(one: Json, word: str) -> Json:
    """Return a copy of the pod with another name."""
    return {**one, "metadata": {**one["metadata"], "name": f"{name_of(one)}-{word}"}}


def repels(found: Node) -> bool:
    """Return whether the node has a blocking taint that a reach ignores."""
    return any(
        taint.key in SET_ASIDE and taint.effect != "PreferNoSchedule" for taint in found.taints
    )


def wrong_system(cluster: Cluster, one: Json) -> set[str]:
    """Return the nodes whose OS differs from spec.os.name; only kubelets reject such a pod."""
    wanted = one["spec"].get("os", {}).get("name")
    return {n.name for n in cluster.nodes if wanted and n.labels.get(random_pools.OS) != wanted}


def settled(found: Mapping[str, Json], drawn: Json) -> bool:
    """Return whether the node runs, and has the taint of the control plane if it is cordoned."""
    one = found.get(drawn["metadata"]["name"])
    if one is None or one["status"].get("phase") != "Running":
        return False
    keys = {taint["key"] for taint in one["spec"].get("taints") or ()}
    cordoned = "node.kubernetes.io/unschedulable" in keys
    ready = "node.kubernetes.io/not-ready" not in keys
    return ready and cordoned == bool(drawn["spec"].get("unschedulable"))
