"""Ebb against kube-scheduler on random clusters: what Ebb would place, the scheduler accepts, and
the reach of a pod is where the scheduler would let it go.

Each seed makes a cluster on the API server; its plan is carried out pod by pod, in the plan's own
order, and the scheduler decides. At every step both are asked about all nodes, not about the
planned one alone; at the end about every pod that may move.
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
from tests.e2e.objects import NODES, node, pod
from tests.e2e.oracle import ALL_PODS, Oracle, key_of, nowhere
from tests.e2e.plane import Plane
from tests.e2e.random_cluster import draw
from tests.e2e.random_terms import FEATURE, NAMESPACES, REQUIRED, RESTARTS_ALL
from tests.e2e.world import DifferenceError, World
from tests.support.builders import UNLIMITED
from tests.support.kube_json import cluster_from_dumps
from tests.support.reference_fit import PASSING

SEEDS = range(18)
ALL = Fraction(1)
CONFIG = Config(
    thresholds=Thresholds(cpu=ALL, memory=ALL),
    usability=UsabilityMode.NONE,
    budgets=UNLIMITED,
)
"""Nothing holds a node but what the scheduler would say."""
STRICTER = (
    "attach limit",  # a node without the driver would never start the pod (core.model.volumes)
    "another pod's anti-affinity",  # namespaces chosen by their labels count as all of them
    "host port",  # the scheduler forgets a port that two pods hold when the first of them goes
)
"""Where Ebb alone refuses a place, and may."""


@pytest.fixture(scope="module")
def oracle(plane: Plane) -> Iterator[Oracle]:
    """The scheduler, and the namespaces with the account that pods run as."""
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
    """Do what the plan says, in its order. Raises: DifferenceError."""
    world.lift(one.pod for one in decided.pending)
    for one in decided.pending:
        world.move(one.pod, one.node)
    for removal in decided.removals:
        world.lift(one.pod for one in removal.placements)
        for one in removal.placements:
            world.move(one.pod, one.node)
        world.leave(removal.node)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scheduler_accepts_whatever_the_plan_places(
    api: Api, oracle: Oracle, seed: int
) -> None:
    world = World(api, oracle, draw(seed))
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
        f"seed {seed}: {len(decided.removals)} of {len(world.cluster.nodes)} nodes go,"
        f" {sum(len(one.placements) for one in decided.removals)} pods move,"
        f" {len(decided.pending)} pending ones are placed,"
        f" {world.asked} pods asked about, {world.pairs} places allowed by both,"
        f" {len(world.stricter)} that Ebb alone refuses: {world.stricter}"
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
def test_a_wrong_place_is_found_out(api: Api, oracle: Oracle, wish: Json, words: str) -> None:
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


def test_spread_counts_the_nodes_of_the_other_system(api: Api, oracle: Oracle) -> None:
    """kube-scheduler lets `spec.os` pass: an empty zone of another system is one of the zones."""
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


def two_of_a_kind(seed: int, nodes: list[Json], **wish: Any) -> Drawn:
    """Return a cluster with a pod on node a, and one like it on b."""
    drawn = Drawn(seed, nodes=nodes)
    for name, where in (("there", "a"), ("moved", "b")):
        made = pod(name, node_name=where, **wish)
        made["metadata"]["labels"] = {"app": "web"}
        drawn.pods.append(made)
    return drawn


def blind(found: Pod) -> Pod:
    """Return the pod as an Ebb would have it that knows nothing of it."""
    return replace(
        found, placing=NO_NODE_CONSTRAINTS, company=NO_POD_CONSTRAINTS, requests=Resources(pods=1)
    )


SET_ASIDE = (TAINT_KEY, *PASSING)
"""Taints that a reach does not depend on: ours, and those that come and go."""


@pytest.mark.parametrize("seed", range(12))
def test_the_reach_of_a_pod_is_where_the_scheduler_lets_it_go(
    api: Api, oracle: Oracle, seed: int
) -> None:
    """In both directions, on large empty nodes; the exceptions are the four lines at the end.

    Each pod is asked about twice: as it is, and tolerating all that a reach sets aside.
    """
    chance = random.Random(seed)
    made = random_pools.nodes(chance, f"s{seed}")
    for one in made:
        api.create(NODES, one)
    api.wait(NODES, lambda found: all(settled(found, one) for one in made))
    oracle.follow()
    drawn = random_pools.pods(chance, made)
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
        if found - first - closed:  # what it heard of late, it has heard of by now
            api.wait(NODES, lambda there: all(settled(there, node) for node in made))
            allowed = oracle.place(renamed(one, "again"), nowhere).allowed
        assert allowed - virtual - other_system <= found
        assert found - allowed <= closed, (key_of(one), one["spec"])
    sizes = sorted(len(reach(cluster, key_of(one))) for one in drawn)
    print(f"seed {seed}: {len(made)} nodes, {len(virtual)} virtual; reaches of {sizes} nodes")


def reach(cluster: Cluster, key: str) -> set[str]:
    """Return the nodes that Ebb says the pod reaches."""
    survey = ClusterSnapshot(cluster, CONFIG)
    pod = next(pod for pod in cluster.pods if pod.key == key)
    return {survey.node_order.nodes[number].name for number in survey.reaches.members(pod.placing)}


def tolerating(one: Json) -> Json:
    """Return the pod as one that stands all taints that a reach sets aside."""
    more = [{"key": key, "operator": "Exists"} for key in SET_ASIDE]
    spec = {**one["spec"], "tolerations": [*one["spec"].get("tolerations", ()), *more]}
    return {**renamed(one, "tolerant"), "spec": spec}


def renamed(one: Json, word: str) -> Json:
    """Return the pod under another name."""
    return {**one, "metadata": {**one["metadata"], "name": f"{name_of(one)}-{word}"}}


def repels(found: Node) -> bool:
    """Say whether the node has a taint that a reach sets aside and that keeps pods away."""
    return any(
        taint.key in SET_ASIDE and taint.effect != "PreferNoSchedule" for taint in found.taints
    )


def wrong_system(cluster: Cluster, one: Json) -> set[str]:
    """Return nodes of another system than spec.os.name: kubelets refuse it, no scheduler does."""
    wanted = one["spec"].get("os", {}).get("name")
    return {n.name for n in cluster.nodes if wanted and n.labels.get(random_pools.OS) != wanted}


def settled(found: Mapping[str, Json], drawn: Json) -> bool:
    """Say whether the node runs, and is tainted by the control plane where it is cordoned."""
    one = found.get(drawn["metadata"]["name"])
    if one is None or one["status"].get("phase") != "Running":
        return False
    keys = {taint["key"] for taint in one["spec"].get("taints") or ()}
    cordoned = "node.kubernetes.io/unschedulable" in keys
    ready = "node.kubernetes.io/not-ready" not in keys
    return ready and cordoned == bool(drawn["spec"].get("unschedulable"))
