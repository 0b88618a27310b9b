"""Kubernetes objects as JSON, and functions to change them."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import orjson

from core.cluster.read_options import READ_DEFAULTS
from core.model.cluster import Cluster
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from kube.decode import kinds
from kube.dump import from_dumps

Json = dict[str, Any]
NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "labels": {"zone": "a"},
        "annotations": {"kube-ebb.io/keep": "no"},
    },
    "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "99"},
        "allocatable": {
            "cpu": "3920m",
            "memory": "7Gi",
            "ephemeral-storage": "10G",
            "pods": "58",
            "hugepages-1Gi": "0",
            "nvidia.com/gpu": "2",
            "attachable-volumes-aws-ebs": "25",
        },
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ],
        "images": [{"names": ["a"], "sizeBytes": 1}],
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u2",
        "labels": {"app": "web"},
        "ownerReferences": [
            {"kind": "Thing", "name": "t"},
            {"kind": "ReplicaSet", "name": "web-1", "controller": True},
        ],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [
            {"name": "main", "resources": {"requests": {"cpu": 0.25, "memory": "1.5Gi"}}}
        ],
    },
    "status": {"phase": "Running"},
}
MISSING = object()


def changed(document: Json, **changes: Any) -> bytes:
    """Set fields by path (a__b__0__c); the value MISSING removes a field."""
    result = deepcopy(document)
    for path, value in changes.items():
        *way, last = [int(step) if step.isdecimal() else step for step in path.split("__")]
        target: Any = result
        for step in way:
            target = target[step] if isinstance(step, int) else target.setdefault(step, {})
        if value is MISSING:
            del target[last]
        else:
            target[last] = value
    return orjson.dumps(result)


def node(**changes: Any) -> Node:
    return kinds.NODES.decode(changed(NODE, **changes), "f")


def pod(**changes: Any) -> Pod:
    found = kinds.PODS.decode(changed(POD, **changes), "f")
    assert found is not None
    return found


def dump(*items: Json | bytes) -> bytes:
    parts = [item if isinstance(item, bytes) else orjson.dumps(item) for item in items]
    return b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(parts) + b"]}"


def cluster_from_dumps(dumps: Sequence[tuple[str, bytes]]) -> Cluster:
    return from_dumps(dumps, READ_DEFAULTS, [])[0]


def fault_of(raw: bytes) -> str:
    """Return the error of the dump, or of its first invalid object."""
    refused: list[str] = []
    try:
        from_dumps([("f.json", raw)], READ_DEFAULTS, refused)
    except InvalidInputError as fault:
        refused.insert(0, str(fault))
    (text, *_) = refused
    assert "\n" not in text
    return text
