"""Objects that the tests create, and their API paths."""

from typing import Any

from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from tests.e2e.api import Api, Json

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
LIFE = "e2e.kube-ebb.io/life"
START = "e2e.kube-ebb.io/start"
DETAILS = '{"since":1700000000,"deadline":4000000000,"owner":"e2e","policy":"p","reason":"r"}'
TAINT = {"key": TAINT_KEY, "value": "1700000000", "effect": "PreferNoSchedule"}
THEIRS = {"key": "example.org/theirs", "value": "1", "effect": "NoSchedule"}


def node(name: str, *, cpu: str = "4", memory: str = "16Gi", **metadata: Any) -> Json:
    """Return a Node with the shape that the loads use."""
    room = {"cpu": cpu, "memory": memory, "pods": "110"}
    labels = {"kubernetes.io/hostname": name, **metadata.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, **metadata},
        "status": {"allocatable": room, "capacity": room},
    }


def pod(name: str, *, cpu: str = "1", node_name: str = "", **spec: Any) -> Json:
    """Return a pod of one container."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    bound = {"nodeName": node_name} if node_name else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "restartPolicy": "Never", **bound, **spec},
    }


def mark(api: Api, name: str, value: str | None = "PreferNoSchedule") -> Json:
    """Mark a Node as the controller does, or remove the mark; return the stored Node."""
    details = DETAILS if value else None
    metadata = {"labels": {MARK_LABEL: value}, "annotations": {DETAILS_ANNOTATION: details}}
    return api.merge(f"{NODES}/{name}", {"metadata": metadata})


def taints(found: Json) -> list[Json]:
    """Return the taints of a Node without timeAdded."""
    listed = found["spec"].get("taints") or []
    return [{name: value for name, value in t.items() if name != "timeAdded"} for t in listed]


def ready(found: Json) -> bool:
    """Return whether kwok and the controller manager have made a Node Ready and schedulable."""
    return found["status"].get("phase") == "Running" and not any(
        taint["key"].startswith("node.kubernetes.io/") for taint in taints(found)
    )


def add_nodes(api: Api, *names: str, **how: Any) -> None:
    """Create Nodes and wait until they are ready."""
    for name in names:
        api.create(NODES, node(name, **how))
    api.wait(NODES, lambda found: all(n in found and ready(found[n]) for n in names))


def clear(api: Api) -> None:
    """Delete the workloads, pods and Nodes of a test."""
    for path in (AUTOSCALERS, DEPLOYMENTS, JOBS):
        api.delete(path, propagationPolicy="Background")
    api.delete(PODS, gracePeriodSeconds=0)
    api.wait(PODS, lambda found: not found)
    api.delete(NODES)
    api.wait(NODES, lambda found: not found)
