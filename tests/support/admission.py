"""Apply patches to Nodes as an API server does, with the webhook."""

import base64
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import orjson

from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.errors import ConflictError, UnavailableError
from core.model.node import Node
from core.writes.write import Write
from kube.client import ApiError
from kube.decode import kinds
from webhook import wire

Json = dict[str, Any]


def apply_json_patch(document: Json, patch: list[Json]) -> Json:
    """Apply `add` and `replace` operations on object members; fail like the API server."""
    result = deepcopy(document)
    for operation in patch:
        assert operation["op"] in ("add", "replace"), operation
        *way, last = operation["path"].lstrip("/").split("/")
        target = result
        for step in way:
            target = target[step]
        assert operation["op"] == "add" or last in target, f"replaces what is not there: {last}"
        target[last] = operation["value"]
    return result


def patch_of(response: bytes) -> list[Json] | None:
    found = orjson.loads(response)["response"]
    assert found["allowed"] is True
    assert ("patch" in found) == ("patchType" in found)
    return orjson.loads(base64.b64decode(found["patch"])) if "patch" in found else None


def merge(document: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def review_of(node: Json, old: Json | None = None, **request: Any) -> bytes:
    asked = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Node"},
        "operation": "UPDATE",
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": node,
        "oldObject": old,
    }
    body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": asked | request}
    return orjson.dumps(body)


def node_json(name: str = "n1", **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {}, "annotations": {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class NodeApi:
    """Nodes of an API server in memory; every write passes the webhook's code."""

    def __init__(self, *nodes: Json, taint_key: str = TAINT_KEY) -> None:
        self.nodes = {node["metadata"]["name"]: deepcopy(node) for node in nodes}
        self.versions = dict.fromkeys(self.nodes, 1)
        self.taint_key = taint_key
        self.webhook_up = True
        self.log: list[tuple[str, str]] = []
        """Verb and node of every requested write."""
        self.between: list[Json] = []
        """Merge patches of other clients that are applied before the next writes of taints."""
        self.down: set[str] = set()
        """Nodes whose writes fail."""
        self.throttles = 0
        """Number of next writes that are answered with 429."""

    def node(self, name: str) -> Node:
        return kinds.NODES.decode(orjson.dumps(self.nodes[name]))

    async def get(self, key: str) -> tuple[Node, str]:
        return self.node(key), str(self.versions[key])

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:
        name = write.key
        self.log.append(("patch" if write.taints is None else "taints", name))
        if name in self.down:
            raise UnavailableError("no answer")
        if self.throttles:
            self.throttles -= 1
            raise ApiError(429, "too many requests")
        if write.taints is not None and self.between:
            self.store(name, merge(self.nodes[name], self.between.pop(0)))
        if write.taints is not None and version != str(self.versions[name]):
            raise ConflictError("the object has been modified")
        patch = write.merge_patch(version)
        patch["metadata"].pop("resourceVersion")
        return self.store(name, merge(self.nodes[name], patch))

    def store(self, name: str, wanted: Json) -> tuple[Node, str]:
        old = self.nodes[name]
        selected = any(MARK_LABEL in one["metadata"]["labels"] for one in (wanted, old))
        if self.webhook_up and selected:
            patch = patch_of(wire.review(review_of(wanted, old), self.taint_key).body)
            wanted = apply_json_patch(wanted, patch or [])
        if wanted != old:
            self.nodes[name] = wanted
            self.versions[name] += 1
        return self.node(name), str(self.versions[name])
