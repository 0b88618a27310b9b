"""Generate small random clusters with all features that the engine evaluates.

The clusters have pools with taints and labels, virtual nodes, nodes in every state, marks, prices,
devices and zones. Most pods are on feasible nodes; some violate constraints, and some nodes are
overcommitted, as on real clusters.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_USERS,
    NO_POD_CONSTRAINTS,
    RESTARTS_ALL,
    Disk,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
    VolumeTopology,
)
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.builders import MB, marked, select
from tests.support.mixed_autoscalers import beside, with_autoscalers
from tests.support.reference_assumed import BUILD, assumed
from tests.support.reference_fit import ZONE, admits, has_room

T = TypeVar("T")
GPU = Taint("gpu", "true", "NoSchedule")
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
HOST = "kubernetes.io/hostname"
SHAPES = ((4000, 8000), (8000, 8000), (2000, 16_000))
SIZES = (
    (0, 0),
    (0, 200),
    (100, 0),
    (100, 200),
    (500, 300),
    (500, 2000),
    (1500, 1000),
    (2000, 6000),
)
LEAVING = (
    Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"),
    Taint("karpenter.sh/disrupted", "", "NoSchedule"),
    Taint("karpenter.sh/disruption", "disrupting", "NoSchedule"),
    Taint("node.kubernetes.io/out-of-service", "x", "NoExecute"),
    Taint("aws-node-termination-handler/spot-itn", "x", "PreferNoSchedule"),
    Taint("atlassian.com/escalator", "1700000000", "NoSchedule"),
    Taint("medik8s.io/drain", "", "NoSchedule"),
    Taint("team.example/drain", "", "NoSchedule"),
)
OWN_LEAVING = frozenset({"team.example/drain"})
"""Taints that announce a removal only because the setting `leavingTaints` names them."""
PASSING = (
    Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),
    Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
    Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"),
    Taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule"),
)
ROLLOUT = {
    "n03": Taint("node.cluster.x-k8s.io/outdated-revision", "", "PreferNoSchedule"),
    "n05": Taint("decommission-pending", "rolling-upgrade", "NoSchedule"),
}
"""Taints of a rolling update, by the name of the node that has them in place of PASSING[3]."""
TOLERATE_GPU = (Toleration("gpu", "Exists"),)
A, B = select("a"), select("b")
COMPANIES = (
    PodConstraints(apart=(PodAffinityTerm(A, HOST),)),
    PodConstraints(apart=(PodAffinityTerm(B, ZONE),)),
    PodConstraints(near=(PodAffinityTerm(A, ZONE),)),
    PodConstraints(spread=(SpreadConstraint(A, ZONE, 1),)),
    PodConstraints(spread=(SpreadConstraint(A, HOST, 1, honor_taints=True),)),
    PodConstraints(host_ports=(HostPort(80),)),
    PodConstraints(disks=(Disk("ebs", "v1"),)),
    PodConstraints(sole=("d/one",)),
)


FEATURES = (RESTARTS_ALL, HOST_USERS)


def _expression(key: str, operator: str, *values: str) -> NodeConstraints:
    return NodeConstraints(affinity=(SelectorTerm((Requirement(key, operator, values),)),))


PLACINGS = (
    *(NodeConstraints(),) * 7,
    NodeConstraints(features=FEATURES[:1]),
    NodeConstraints(node_selector=(("pool", "batch"),)),
    NodeConstraints(node_selector=(("pool", "batch"),), features=FEATURES),
    *(NodeConstraints(node_selector=(("pool", "gpu"),), tolerations=TOLERATE_GPU),) * 2,
    NodeConstraints(tolerations=TOLERATE_GPU),
    NodeConstraints(tolerations=(Toleration(operator="Exists"),)),
    NodeConstraints(tolerations=(Toleration("node.kubernetes.io/not-ready", "Exists"),)),
    NodeConstraints(node_selector=((ZONE, "a"),)),
    NodeConstraints(
        system=(("kubernetes.io/os", "windows"),), tolerations=(Toleration("os", "Exists"),)
    ),
    _expression(ZONE, "In", "a", "b"),
    _expression(ZONE, "NotIn", "b"),
    _expression("pool", "Exists"),
    _expression("pool", "DoesNotExist"),
    _expression("rank", "Gt", "1"),
    _expression("rank", "Lt", "2"),
    NodeConstraints(affinity=()),
    NodeConstraints(affinity=(SelectorTerm((), (Requirement("metadata.name", "In", ("n00",)),)),)),
    NodeConstraints(
        affinity=(SelectorTerm((), (Requirement("metadata.name", "NotIn", ("n01",)),)),)
    ),
    NodeConstraints(volumes=(VolumeTopology(zones=((ZONE, ("a",)),)),)),
    NodeConstraints(
        node_selector=(("pool", "batch"),),
        volumes=(VolumeTopology(affinity=(SelectorTerm((Requirement(ZONE, "In", ("b",)),)),)),),
    ),
)


def general(chance: random.Random, node: Node) -> Node:
    """Return an untainted node, in one of two pools or in none."""
    label = chance.choice(({}, {"pool": "batch"}, {"pool": "general"}))
    return replace(node, labels={**node.labels, **label})


def gpu(_: random.Random, node: Node) -> Node:
    """Return a tainted node with devices."""
    room = replace(node.allocatable, extended=(("gpu", 2),))
    labels = {**node.labels, "pool": "gpu"}
    return replace(node, labels=labels, taints=(GPU,), allocatable=room)


def control_plane(_: random.Random, node: Node) -> Node:
    """Return a tainted node of the control plane, with or without its label."""
    labels = {**node.labels, CONTROL_PLANE: ""} if node.name[-1] in "02468" else node.labels
    return replace(node, labels=labels, taints=(Taint(CONTROL_PLANE, "", "NoSchedule"),))


def virtual(chance: random.Random, node: Node) -> Node:
    """Return a virtual node with huge capacity, with or without a taint."""
    taints = chance.choice(((), (Taint("virtual-kubelet.io/provider", "x", "NoSchedule"),)))
    room = Resources(10_000_000, 80_000_000 * MB, 10**15, 5000)
    return replace(node, virtual=True, taints=taints, allocatable=room)


def forsaken(_: random.Random, node: Node) -> Node:
    """Return a node that hardly any pod tolerates."""
    return replace(node, taints=(Taint("nobody", "", "NoExecute"),))


def windows(chance: random.Random, node: Node) -> Node:
    """Return a node with another operating system, of one of two builds or of an unknown one."""
    build = ("", "10.0.17763", "10.0.20348", "10.0.20348")[sum(node.name.encode()) % 4]
    known = {BUILD: build} if build else {}
    labels = {**node.labels, "kubernetes.io/os": "windows", **known}
    taints = chance.choice(((), (Taint("os", "windows", "NoSchedule"),)))
    return replace(node, labels=labels, taints=taints)


KINDS: tuple[Callable[[random.Random, Node], Node], ...] = (
    *(general,) * 8,
    *(gpu,) * 2,
    control_plane,
    virtual,
    forsaken,
    windows,
)


def node(chance: random.Random, name: str) -> Node:
    """Return a node of any kind in any state."""
    cpu, memory = chance.choice(SHAPES)
    zone = chance.choice(("a", "a", "b", "b", "c", ""))
    made = Node(
        name=name,
        labels={
            "kubernetes.io/os": "linux",
            HOST: name,
            "rank": chance.choice(("0", "1", "2", "1_0", "x")),
            **({ZONE: zone} if chance.random() < 0.8 else {}),
        },
        features=FEATURES[: sum(name.encode()) % 3],
        allocatable=Resources(cpu, memory * MB, 10_000 * MB, chance.choice((3, 10, 110))),
    )
    return state(chance, chance.choice(KINDS)(chance, made))


def tainted(made: Node, taint: Taint) -> Node:
    """Return the node with an additional taint."""
    return replace(made, taints=(*made.taints, taint))


def leaving(made: Node, taint: Taint) -> Node:
    """Return the node with a taint that announces its removal."""
    named = tuple(OWN_LEAVING.intersection({taint.key}))
    return replace(tainted(made, taint), leaving_taints=named)


def passing(made: Node, taint: Taint) -> Taint:
    """Return the taint, or one of a rolling update."""
    return ROLLOUT.get(made.name, taint) if taint is PASSING[3] else taint


def state(chance: random.Random, made: Node) -> Node:
    """Return the node as it is, marked, or in some other state."""
    mark = chance.choice(("PreferNoSchedule", "NoSchedule"))
    states = (
        (45, made),
        (29, marked(made, mark, chance.randint(1, 3), chance.randint(0, 2))),
        (6, replace(tainted(made, CORDON), unschedulable=True)),
        (5, replace(tainted(made, NOT_READY), ready=False)),
        (5, leaving(made, chance.choice(LEAVING))),
        (1, replace(made, leaving="condition Terminating announces that it will be removed")),
        (1, replace(made, deleting=True)),
        (1, replace(made, suspended=True)),
        (4, tainted(made, passing(made, chance.choice(PASSING)))),
        (2, replace(made, annotations={"kube-ebb.io/keep": "true"})),
        (1, replace(made, labels={**made.labels, "autoscaling.cast.ai/removal-disabled": "true"})),
        (1, replace(made, unreadable="status")),
    )
    return weighed(chance, states)


def weighed(chance: random.Random, found: Sequence[tuple[int, T]]) -> T:
    """Return a random element, by weight."""
    number = chance.randrange(sum(weight for weight, _ in found))
    for weight, one in found:
        number -= weight
        if number < 0:
            return one
    raise AssertionError


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoExecute")


def cluster(chance: random.Random, most: int = 12, *, social: bool = True) -> Cluster:
    """Return a random cluster; without *social*, no pod has inter-pod constraints."""
    return assumed(as_decoded(chance, most, social=social))


def as_decoded(chance: random.Random, most: int = 12, *, social: bool = True) -> Cluster:
    """Return a cluster whose pods carry only data of their own objects, none of their node."""
    nodes = [node(chance, f"n{number:02}") for number in range(chance.randint(1, most))]
    wishes = chance.choice((0.0, 0.0, 0.1, 0.5)) if social else 0.0
    apps = [app(chance, wishes) for _ in range(chance.randint(2, 8))]
    pods = [daemon(chance, one) for one in nodes if chance.random() < 0.5]
    left = {one.name: one.allocatable for one in nodes}
    for number in range(chance.randint(0, 5 * len(nodes))):
        made = replace(chance.choice(apps), name=f"p{number:02}")
        pods.append(bound(chance, odd(chance, made), nodes, left))
    limits = {one.name: chance.choice(({"ebs": 1}, {"ebs": None}, {})) for one in nodes}
    made_of = replace(Cluster.of(nodes, pods), attach_limits=limits)
    return with_autoscalers(beside(chance), made_of)


def app(chance: random.Random, wishes: float) -> Pod:
    """Return a pod from which the pods of one application are made."""
    cpu, memory = chance.choice(SIZES)
    node_constraints = chance.choice(PLACINGS)
    gpus = (
        (("gpu", 1),)
        if node_constraints.tolerations == TOLERATE_GPU and chance.random() < 0.6
        else ()
    )
    return Pod(
        namespace=chance.choice(("d", "d", "e")),
        name="",
        requests=Resources(cpu, memory * MB, chance.choice((0,) * 9 + (6000 * MB,)), 1, gpus),
        node_constraints=node_constraints,
        labels={"app": chance.choice("abc")},
        pod_constraints=chance.choice(COMPANIES)
        if chance.random() < wishes
        else NO_POD_CONSTRAINTS,
        owner_kind=chance.choice(("ReplicaSet", "ReplicaSet", "ReplicaSet", "StatefulSet", "Job")),
    )


def daemon(chance: random.Random, on: Node) -> Pod:
    """Return a DaemonSet pod or a static pod."""
    cpu, memory = chance.choice(SIZES[:6])
    static = chance.random() < 0.2
    return Pod(
        namespace="kube-system",
        name=f"agent-{on.name}",
        node=on.name,
        requests=Resources(cpu, memory * MB, 0, 1),
        node_constraints=NodeConstraints(tolerations=(Toleration(operator="Exists"),)),
        owner_kind="Node" if static else "DaemonSet",
        mirror=static,
        daemon=not static,
    )


NOW = 5
"""Time of the plans of mixed clusters, in Unix seconds; before the rate limits end."""
OVERDUE = DisruptionFacts(overdue_seconds=NOW - 1)
NOT_YET_OVERDUE = DisruptionFacts(overdue_seconds=NOW)


def odd(chance: random.Random, made: Pod) -> Pod:
    """Return the pod, sometimes changed so that it cannot be moved, or keeps its node."""
    notes = (("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),)
    if made.name.endswith(("3", "7")):
        notes = (("kube-ebb.io/keep", "true"),)
    return weighed(
        chance,
        (
            (80, made),
            (2, replace(made, unsupported=("spec.volumes",))),
            (1, replace(made, too_much="terms")),
            (1, replace(made, unreadable="spec")),
            (4, replace(made, terminating=True)),
            (3, replace(made, terminating=True, disruption_facts=OVERDUE)),
            (1, replace(made, terminating=True, disruption_facts=NOT_YET_OVERDUE)),
            (4, replace(made, owner_kind="")),
            (3, replace(made, owner_kind="", disruption_facts=DisruptionFacts(completes=True))),
            (1, replace(made, owner_kind="Workflow")),
            (
                1,
                replace(
                    made, owner_kind="Workflow", disruption_facts=DisruptionFacts(completes=True)
                ),
            ),
            (4, replace(made, disruption_facts=DisruptionFacts(notes=notes))),
            (4, replace(made, priority=-20)),
        ),
    )


def bound(chance: random.Random, made: Pod, nodes: list[Node], left: dict[str, Resources]) -> Pod:
    """Return the pod bound to a feasible node, rarely to another node, or Pending.

    Some unbound pods are on a node that no longer exists.
    """
    careless = chance.random() < 0.04
    fitting = [
        one
        for one in nodes
        if careless
        or (
            admits(one, made.node_constraints, TAINT_KEY)
            and has_room(made.requests, left[one.name])
        )
    ]
    if not fitting or chance.random() < 0.05:
        drawn = chance.random()
        nominated = chance.choice(nodes).name if drawn < 0.2 else ""
        return replace(
            made,
            unschedulable=drawn < 0.5,
            node="left" if drawn > 0.85 else None,
            nominated_node=nominated,
        )
    target = chance.choice(fitting)
    left[target.name] -= made.requests
    return replace(made, node=target.name)
