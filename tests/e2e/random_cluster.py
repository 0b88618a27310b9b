"""Random clusters as Kubernetes objects, with every constraint that core.placement supports.

kube-scheduler places most pods. Some pods are bound to a node that it might reject, as in clusters
whose labels and taints have changed after scheduling.
"""

import random

from tests.e2e.api import Json
from tests.e2e.drawn import HOSTNAME, REGION, ZONE, Drawn, name_of
from tests.e2e.oracle import key_of
from tests.e2e.random_terms import (
    FEATURE,
    NAMESPACES,
    RESTARTS_ALL,
    SCHEDULE_LABELS,
    TAINTS,
    node_affinity,
    pod_affinity,
    spread,
    tolerates_evicting,
    tolerations,
)
from tests.e2e.random_volumes import csi_node, left_attached, own_claim, shared_claim

GPU = "example.org/gpu"
DAEMON = {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}
KEEP = {"kube-ebb.io/keep": "true"}
HOLD = "e2e.kube-ebb.io/hold"
"""Finalizer that keeps a deleted pod Terminating."""
CPUS = ("50m", "50m", "100m", "100m", "250m", "250m", "500m", "1")
MEMORIES = ("64Mi", "64Mi", "128Mi", "500M", "1Gi")
PORTS = (
    {"hostPort": 8080},
    {"hostPort": 8080, "hostIP": "127.0.0.1"},
    {"hostPort": 8080, "hostIP": "127.0.0.2"},
    {"hostPort": 8080, "protocol": "UDP"},
    {"hostPort": 9090},
)


def draw(seed: int) -> Drawn:
    """Return the cluster of a seed."""
    chance = random.Random(seed)
    drawn = Drawn(seed)
    for number in range(chance.randint(5, 8)):
        drawn.nodes.append(_node(chance, f"s{seed}-n{number}"))
        if chance.random() < 0.85:
            drawn.csi_nodes.append(csi_node(chance, f"s{seed}-n{number}"))
    if chance.random() < 0.6:
        _dedicate(chance, drawn.nodes)
    for name in "abcdef"[: chance.randint(4, 6)]:
        _app(chance, drawn, name)
    chance.shuffle(drawn.pods)
    drawn.pods[:0] = _daemons(chance, drawn)
    left_attached(chance, drawn)
    return drawn


def _node(chance: random.Random, name: str) -> Json:
    room = {
        "cpu": chance.choice(("1930m", "4", "4", "8", "8")),
        "memory": chance.choice(("4Gi", "7500Mi", "16G", "32Gi")),
        "ephemeral-storage": "20Gi",
        "pods": chance.choice(("7", "20", "110")),
    }
    if chance.random() < 0.3:
        room[GPU] = chance.choice("12")
    taints = [] if chance.random() < 0.85 else [chance.choice(TAINTS)]
    cordoned = {"unschedulable": True} if chance.random() < 0.07 else {}
    metadata: Json = {"name": name, "labels": _node_labels(chance, name)}
    if chance.random() < 0.2:
        metadata["annotations"] = KEEP
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    declared = {"declaredFeatures": [FEATURE]} if chance.random() < 0.6 else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": taints, **cordoned},
        "status": {"allocatable": room, "capacity": room, "conditions": [ready], **declared},
    }


def _dedicate(chance: random.Random, nodes: list[Json]) -> None:
    """Taint all nodes of one topology domain, so that some pods cannot use it."""
    key, value = chance.choice((("rack", "1"), ("disk", "ssd"), (ZONE, "a"), (ZONE, "b")))
    taint = chance.choice(TAINTS)
    for node in nodes:
        if node["metadata"]["labels"].get(key) == value:
            node["spec"]["taints"] = [taint]


def _node_labels(chance: random.Random, name: str) -> dict[str, str]:
    labels = {HOSTNAME: name}
    zone = chance.choice("abc")
    if chance.random() < 0.9:
        labels[ZONE if chance.random() < 0.9 else "failure-domain.beta.kubernetes.io/zone"] = zone
    if chance.random() < 0.3:
        labels[REGION] = chance.choice(("north", "south"))
    for key, values in SCHEDULE_LABELS.items():
        if chance.random() < 0.8:
            labels[key] = chance.choice(values)
    return labels


def _app(chance: random.Random, drawn: Drawn, name: str) -> None:
    """Add the pods of one template, each with its own claims if it has any."""
    namespace = chance.choice(NAMESPACES)
    labels = {"app": name, **({"tier": chance.choice("xy")} if chance.random() < 0.7 else {})}
    template = _template(chance, drawn, labels)
    claims = chance.choice((None,) * 5 + (own_claim, own_claim, shared_claim))
    # Topology spread has an effect only with more pods than domains.
    few, many = (4, 9) if "topologySpreadConstraints" in template else (2, 5)
    for number in range(chance.randint(few, many)):
        track = {"track": chance.choice("12")} if chance.random() < 0.8 else {}
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": namespace,
                "name": f"{name}{number}",
                "labels": {**labels, **track},
            },
            "spec": dict(template),
        }
        if claims is not None:
            pod["spec"]["volumes"] = [
                {"name": claim, "persistentVolumeClaim": {"claimName": claim}}
                for claim in claims(chance, drawn, pod)
            ]
        if chance.random() < 0.15:
            _bind(chance, drawn, pod)
        elif chance.random() < 0.15:
            drawn.waiting.add(key_of(pod))
        drawn.pods.append(pod)


def _template(chance: random.Random, drawn: Drawn, labels: dict[str, str]) -> Json:
    """Return a spec with one or two constraints; pods with more would fit nowhere."""
    spec: Json = {
        "terminationGracePeriodSeconds": 0,
        "containers": [_container(chance)],
        "affinity": {},
    }
    if chance.random() < 0.4:
        spec["tolerations"] = tolerations(chance)
    for wish in chance.sample(WISHES, chance.choice((0, 1, 1, 2, 2, 3))):
        wish(chance, drawn, labels["app"], spec)
    return spec


def _wish_init(chance: random.Random, _: Drawn, __: str, spec: Json) -> None:
    always = {"restartPolicy": "Always"} if chance.random() < 0.5 else {}
    spec["initContainers"] = [{**_container(chance), "name": "first", **always}]
    spec.pop("resources", None)


def _wish_pod_level(_: random.Random, __: Drawn, ___: str, spec: Json) -> None:
    spec["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec.pop("initContainers", None)


def _wish_selector(chance: random.Random, _: Drawn, __: str, spec: Json) -> None:
    key = chance.choice(list(SCHEDULE_LABELS))
    spec["nodeSelector"] = {key: chance.choice(SCHEDULE_LABELS[key])}


def _wish_kubelet(_: random.Random, __: Drawn, ___: str, spec: Json) -> None:
    spec["containers"][0] |= RESTARTS_ALL


def _wish_ports(chance: random.Random, _: Drawn, __: str, spec: Json) -> None:
    if chance.random() < 0.3:
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": 8080}]
    else:
        spec["containers"][0]["ports"] = [{"containerPort": 80, **chance.choice(PORTS)}]


def _wish_spread(chance: random.Random, drawn: Drawn, app: str, spec: Json) -> None:
    """Add topology spread, often with node constraints, which its policies refer to."""
    spec["topologySpreadConstraints"] = spread(chance, app)
    if chance.random() < 0.4:
        _wish_selector(chance, drawn, app, spec)


def _wish_nodes(chance: random.Random, drawn: Drawn, _: str, spec: Json) -> None:
    hosts = [name_of(one) for one in drawn.nodes]
    spec["affinity"]["nodeAffinity"] = node_affinity(chance, hosts)


def _wish_near(chance: random.Random, _: Drawn, app: str, spec: Json) -> None:
    spec["affinity"]["podAffinity"] = pod_affinity(chance, app)


def _wish_apart(chance: random.Random, _: Drawn, app: str, spec: Json) -> None:
    spec["affinity"]["podAntiAffinity"] = pod_affinity(chance, app)


WISHES = (
    _wish_init,
    _wish_pod_level,
    _wish_selector,
    _wish_kubelet,
    _wish_ports,
    _wish_spread,
    _wish_spread,
    _wish_spread,
    _wish_nodes,
    _wish_near,
    _wish_apart,
    _wish_apart,
)


def _container(chance: random.Random) -> Json:
    asked = {"cpu": chance.choice(CPUS), "memory": chance.choice(MEMORIES)}
    if chance.random() < 0.15:
        asked.pop(chance.choice(("cpu", "memory")))
    if chance.random() < 0.1:
        asked["ephemeral-storage"] = "6Gi"
    limits = {}
    if chance.random() < 0.05:
        asked[GPU] = limits[GPU] = "1"
    return {"name": "main", "image": "none", "resources": {"requests": asked, "limits": limits}}


def _daemons(chance: random.Random, drawn: Drawn) -> list[Json]:
    """Return DaemonSet pods; their ports and anti-affinity may affect other pods."""
    spec: Json = {"containers": [_container(chance)], "terminationGracePeriodSeconds": 0}
    spec["tolerations"] = [{"operator": "Exists"}]
    if chance.random() < 0.3:
        spec["containers"][0]["ports"] = [{"containerPort": 80, **chance.choice(PORTS)}]
    if chance.random() < 0.2:
        spec["affinity"] = {"podAntiAffinity": pod_affinity(chance, "daemon")}
    shared = {"labels": {"app": "daemon", "tier": "x"}, "annotations": DAEMON}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": NAMESPACES[0], "name": f"daemon-{name_of(node)}", **shared
            },
            "spec": {**spec, "nodeName": name_of(node)},
        }
        for node in drawn.nodes
        if chance.random() < 0.7
    ]  # fmt: skip


def _bind(chance: random.Random, drawn: Drawn, pod: Json) -> None:
    """Bind the pod to any node whose taints would not evict it."""
    node = chance.choice(drawn.nodes)
    if not tolerates_evicting(pod["spec"].get("tolerations", ()), node["spec"]["taints"]):
        return
    pod["spec"]["nodeName"] = name_of(node)
    if node["metadata"].get("annotations") == KEEP:
        pod["metadata"]["finalizers"] = [HOLD]
        drawn.leaving.add(key_of(pod))
