"""Serve webhook and extender on loopback, and call them over HTTP(S) as the control plane does.

The servers run in a thread with its own event loop. The simulation calls them on persistent
blocking connections, as kube-scheduler and the API server do.
"""

import asyncio
import base64
import http.client
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import orjson

from core.marks.wellknown import TAINT_KEY
from core.model.errors import UnavailableError
from core.model.node import Node, Taint
from core.model.pod import Pod
from extender import wire
from extender.app import make_app as extender_app
from extender.metrics import Metrics as ExtenderMetrics
from extender.view import View
from runtime.clock import SystemClock
from serving import http as bones
from serving import tls
from serving.tls_contexts import client_context, server_context
from webhook.app import MUTATE_PATH
from webhook.app import make_app as webhook_app
from webhook.metrics import Metrics as WebhookMetrics

LOOPBACK: Final = "127.0.0.1"
ANY_PORT: Final = f"{LOOPBACK}:0"
CALL_SECONDS_MAX: Final = 10.0
MUTATE: Final = f"{MUTATE_PATH}?timeout=1s"
"""Path of the API server's call; like a real call it has the webhook's timeout in its query."""


class _StoppedClock:
    """Clock that stands still, so that the extender's data is never stale and no wait ends."""

    def unix_seconds(self) -> int:
        return 0

    def monotonic_seconds(self) -> float:
        return 0.0


class OverTheWire:
    """Context manager that runs extender and webhook as servers and calls them (sim.ebb.Peers)."""

    def __init__(self, view: View) -> None:
        pair = tls.make_pair([LOOPBACK], SystemClock().unix_seconds())
        self._extender = bones.Server(
            extender_app(view, _StoppedClock(), ExtenderMetrics(), bones.Health()), ANY_PORT
        )
        self._webhook = bones.Server(
            webhook_app(WebhookMetrics(), bones.Health(), _StoppedClock(), TAINT_KEY),
            ANY_PORT,
            server_context(pair),
        )
        self._trust = client_context(pair.ca)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._reviews = 0

    def __enter__(self) -> Self:
        self._thread.start()
        for server in (self._extender, self._webhook):
            asyncio.run_coroutine_threadsafe(server.start(), self._loop).result(CALL_SECONDS_MAX)
        self._plain = http.client.HTTPConnection(
            LOOPBACK, self._extender.port, timeout=CALL_SECONDS_MAX
        )
        self._secure = http.client.HTTPSConnection(
            LOOPBACK, self._webhook.port, timeout=CALL_SECONDS_MAX, context=self._trust
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._plain.close()
        self._secure.close()
        for server in (self._extender, self._webhook):
            asyncio.run_coroutine_threadsafe(server.stop(), self._loop).result(CALL_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Return the extender's score of each node by name, by POST /prioritize."""
        body = wire.names_body(names, written(pod))
        return wire.scores(_post(self._plain, "/prioritize", body))

    def mutate(self, before: Node, after: Node) -> Node:
        """Return the Node *after* as the webhook patches it; *before*: the Node stored until now.

        The webhook gets an AdmissionReview, as from the API server.
        """
        self._reviews += 1
        uid = f"review-{self._reviews}"
        answer = orjson.loads(_post(self._secure, MUTATE, _review(uid, before, after)))
        response = answer["response"]
        if response["uid"] != uid or not response["allowed"]:
            raise UnavailableError(f"webhook: not an answer to {uid}")
        if "patch" not in response:
            return after
        return _patched(after, orjson.loads(base64.b64decode(response["patch"])))


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> bytes:
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as fault:
        raise UnavailableError(f"{path}: {fault}") from fault
    if response.status != 200:
        raise UnavailableError(f"{path}: status {response.status}: {answer[:200]!r}")
    return answer


def _review(uid: str, before: Node, after: Node) -> bytes:
    """Return the JSON of an AdmissionReview for an update of a Node, not by a kubelet."""
    kind = {"group": "", "version": "v1", "kind": "Node"}
    resource = {"group": "", "version": "v1", "resource": "nodes"}
    request = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": after.name,
        "operation": "UPDATE",
        "userInfo": {"username": "simulation", "groups": ["system:authenticated"]},
        "object": _node_json(after),
        "oldObject": _node_json(before),
        "dryRun": False,
        "options": {"kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return orjson.dumps(review)


def written(pod: Pod) -> bytes:
    """Return the JSON of a Pending pod, with the fields that the extender reads."""
    owner = {"kind": pod.owner_kind, "name": pod.owner_name, "controller": True}
    requests = {
        "cpu": f"{pod.requests.cpu_millis}m",
        "memory": str(pod.requests.memory_bytes),
        **{name: str(units) for name, units in pod.requests.extended},
    }
    return orjson.dumps(
        {
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "labels": dict(pod.labels),
                "ownerReferences": [owner] if pod.owner_kind else [],
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"phase": "Pending"},
        }
    )


def _node_json(node: Node) -> dict[str, Any]:
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": node.name,
            "uid": node.uid,
            "labels": dict(node.labels),
            "annotations": dict(node.annotations),
        },
        "spec": {"taints": taints} if taints else {},
    }


def _patched(node: Node, operations: Sequence[Mapping[str, Any]]) -> Node:
    """Return the Node after a JSONPatch that may only set `/spec/taints`.

    Raises: UnavailableError for any other operation.
    """
    for operation in operations:
        if (operation["op"], operation["path"]) != ("add", "/spec/taints"):
            raise UnavailableError(f"webhook: unexpected operation {operation}")
        taints = operation["value"]
        node = replace(
            node,
            taints=tuple(Taint(t["key"], t.get("value", ""), t["effect"]) for t in taints),
        )
    return node
