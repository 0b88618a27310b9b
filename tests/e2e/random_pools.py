"""Random clusters to test reaches: large empty nodes, and pods with small requests.

The clusters have pools with taints and labels, virtual nodes, and nodes in every state that a
taint can express. Resources, other pods and volumes have no influence.
"""

import random

from tests.e2e.api import Json
from tests.e2e.drawn import HOSTNAME, ZONE, name_of
from tests.e2e.objects import TAINT
from tests.e2e.random_terms import FEATURE, RESTARTS_ALL, node_affinity

OS = "kubernetes.io/os"
VIRTUAL = ({"type": "virtual-kubelet"}, {"eks.amazonaws.com/compute-type": "fargate"})
GPU = {"key": "example.org/gpu", "value": "true", "effect": "NoSchedule"}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
OURS = (TAINT, {**TAINT, "effect": "NoSchedule"})
PASSING = (
    {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"},
    {"key": "DeletionCandidateOfClusterAutoscaler", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    {"key": "karpenter.sh/disruption", "value": "disrupting", "effect": "NoSchedule"},
    {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"},
    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"},
)
"""Transient taints that remain until a client removes them. The control plane manages taints of
conditions itself, so they are not included."""
OTHERS = (
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "value": "b", "effect": "NoExecute"},
    {"key": "team", "value": "c", "effect": "PreferNoSchedule"},
)
TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "example.org/gpu", "operator": "Exists"},
    {"key": "example.org/gpu", "value": "true", "effect": "NoSchedule"},
    {"key": "example.org/gpu", "value": "false"},
    {"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"},
    {"key": "team", "operator": "Exists", "effect": "NoExecute"},
    {"key": "team", "operator": "Equal", "value": "a"},
    {"key": "ToBeDeletedByClusterAutoscaler", "operator": "Exists"},
    {"key": "kubernetes.azure.com/os", "operator": "Exists"},
)
LABELS = {"disk": ("ssd", "hdd"), "rack": ("1", "2", "3", "1_0"), "pool": ("batch", "web", "gpu")}


def nodes(chance: random.Random, prefix: str) -> list[Json]:
    """Return large nodes of all kinds."""
    return [_node(chance, f"{prefix}-n{number}") for number in range(chance.randint(6, 12))]


def _node(chance: random.Random, name: str) -> Json:
    labels = {HOSTNAME: name, OS: "windows" if chance.random() < 0.15 else "linux"}
    if chance.random() < 0.8:
        labels[ZONE] = chance.choice(("a", "b", "c", ""))
    for key, values in LABELS.items():
        if chance.random() < 0.7:
            labels[key] = chance.choice(values)
    taints: list[Json] = []
    kind = chance.random()
    if kind < 0.2:
        labels["pool"] = "gpu"
        taints.append(GPU)
    elif kind < 0.3:
        labels[CONTROL_PLANE] = ""
        taints.append({"key": CONTROL_PLANE, "effect": "NoSchedule"})
    elif kind < 0.4:
        labels |= chance.choice(VIRTUAL)
    for found, share in ((OURS, 0.25), (PASSING, 0.25), (OTHERS, 0.15)):
        if chance.random() < share:
            taints.append(chance.choice(found))
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    declared = {"declaredFeatures": [FEATURE]} if chance.random() < 0.6 else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, **({"unschedulable": True} if chance.random() < 0.1 else {})},
        "status": {"allocatable": room, "capacity": room, **declared},
    }


def pods(chance: random.Random, drawn: list[Json]) -> list[Json]:
    """Return pods with one or two node constraints."""
    hosts = [name_of(one) for one in drawn]
    return [_pod(chance, f"p{number}", hosts) for number in range(20)]


def _pod(chance: random.Random, name: str, hosts: list[str]) -> Json:
    asked = {"cpu": "1m"} if chance.random() < 0.5 else {}
    container = {"name": "main", "image": "none", "resources": {"requests": asked}}
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if chance.random() < 0.5:
        spec["tolerations"] = chance.sample(TOLERATIONS, chance.choice((1, 1, 2)))
    if chance.random() < 0.35:
        key = chance.choice(list(LABELS))
        spec["nodeSelector"] = {key: chance.choice(LABELS[key])}
    if chance.random() < 0.4:
        spec["affinity"] = {"nodeAffinity": node_affinity(chance, hosts)}
    if chance.random() < 0.15:
        spec["os"] = {"name": chance.choice(("linux", "windows"))}
    if chance.random() < 0.15:
        container |= RESTARTS_ALL
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
