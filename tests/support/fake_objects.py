"""Objects, responses and a kubeconfig for the fake API server."""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

Json = dict[str, Any]
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: it
clusters: [{{name: it, cluster: {{server: "{url}"}}}}]
users: [{{name: it, user: {{token: a-token}}}}]
contexts: [{{name: it, context: {{cluster: it, user: it}}}}]
"""


def merged(document: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def strategically_merged(document: Json, patch: Json) -> Json:
    """Apply a strategic merge patch of a Pod, whose owner references are merged by UID."""
    result: Json = merged(document, patch)
    changes = {one["uid"]: one for one in patch["metadata"].get("ownerReferences", ())}
    if changes:
        before = document["metadata"].get("ownerReferences", ())
        owners = [{**one, **changes.pop(one.get("uid"), {})} for one in before]
        result["metadata"]["ownerReferences"] = [*owners, *changes.values()]
    return result


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def matches(obj: Json, selector: str | None) -> bool:
    """Return whether an object matches a selector of the form `key` or `key=value`."""
    key, equals, value = (selector or "").partition("=")
    labels = obj["metadata"].get("labels") or {}
    return not key or (key in labels and (not equals or labels[key] == value))


def event(kind: str, obj: Json) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def json(found: Json) -> web.Response:
    return web.Response(body=orjson.dumps(found), content_type="application/json")


def failure(status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "code": status, "message": f"the fake API says {status}"}
    return web.Response(
        body=orjson.dumps(body), status=status, headers=headers, content_type="application/json"
    )


def node_object(name: str, *, labels: Mapping[str, str] | None = None) -> Json:
    """Return a minimal v1 Node."""
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def pod_object(name: str, *, node: str | None = None, phase: str = "Running") -> Json:
    """Return a minimal v1 Pod."""
    container = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }
