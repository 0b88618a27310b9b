"""Record requests of a real API server and kube-scheduler: `python -m tests.e2e.record`.

It writes recorded_*.json into tests/webhook/messages and tests/extender/messages, byte for byte.
The MutatingWebhookConfiguration is the shipped one with wider rules and without conditions, so
that status writes and updates of kubelets are recorded too. Needs `make e2e-tools`.
"""

import base64
import contextlib
import http.server
import json
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from tests.e2e import tools
from tests.e2e.api import APPLY, MERGE, STRATEGIC, Api, Json
from tests.e2e.install import apply, in_force, point
from tests.e2e.objects import NODES, PODS, TAINT, THEIRS, add_nodes, mark, node, pod
from tests.e2e.pki import Signed
from tests.e2e.plane import LOOPBACK, ROOT, Plane
from tests.e2e.scheduling import scheduling, stanza
from webhook import wire
from webhook.app import MUTATE_PATH

BYTES_MAX = 30_000
"""Maximum size of a message, so that people can read it."""
WEBHOOK_FOLDER = ROOT / "tests" / "webhook" / "messages"
EXTENDER_FOLDER = ROOT / "tests" / "extender" / "messages"
NAME = "recorded"
NODE = f"{NODES}/{NAME}"
LOST = {"key": "example.org/lost", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NAMES_COUNT, FULL_COUNT = 10, 3
FEW = {"example.org/few": "yes"}


class Recorder:
    """Stores the bodies of POST requests, and responds with *reply*."""

    def __init__(self, reply: Callable[[bytes], bytes], serving: Signed | None = None) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bodies.append(body)
                answer = reply(body)
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Suppress the log."""

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        if serving is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(serving.certificate, serving.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve in a thread inside of the context."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()


def keep(folder: Path, name: str, body: bytes) -> None:
    """Write a message to its file."""
    assert len(body) <= BYTES_MAX, f"{name}: {len(body)} bytes"
    path = folder / f"recorded_{name}.json"
    path.write_bytes(body)
    print(f"{path.relative_to(ROOT)}: {len(body):,} bytes", file=sys.stderr)


def record_reviews(plane: Plane) -> None:
    """Provoke the AdmissionReviews one by one, and store them."""
    serving = plane.authority.sign("recorder", "recorder", hosts=(LOOPBACK,))
    recorder = Recorder(lambda body: wire.review(body, TAINT_KEY).body, serving)
    with recorder.serving():
        apply(plane)
        bundle = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
        point(
            plane,
            recorder.port,
            clientConfig={
                "url": f"https://{LOOPBACK}:{recorder.port}{MUTATE_PATH}",
                "caBundle": bundle,
            },
            rules=[
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["nodes", "nodes/status"],
                    "scope": "Cluster",
                }
            ],
            matchConditions=[],
        )
        in_force(plane)
        add_nodes(plane.api, NAME)
        for name, provoke in provocations(plane).items():
            recorder.bodies.clear()
            provoke()
            user = "system:node" if name.startswith("kubelet") else "admin"
            resource = "status" if name == "kubelet_status" else ""
            keep(WEBHOOK_FOLDER, name, last(recorder.bodies, user, resource))
        plane.api.delete(NODE)


def last(bodies: list[bytes], user: str, resource: str) -> bytes:
    """Return the last review of a user, as kwok and the controller manager write too."""
    for body in reversed(list(bodies)):
        asked = json.loads(body)["request"]
        by_user = asked["userInfo"]["username"].startswith(user)
        if by_user and asked["name"] == NAME and asked.get("subResource", "") == resource:
            return body
    raise AssertionError(f"no review of {user}'s write among {len(bodies)}")


def provocations(plane: Plane) -> dict[str, Callable[[], Any]]:
    """Return the writes in their order; each changes the result of the previous write."""
    api = plane.api
    kubelet = plane.api_as(plane.user(f"system:node:{NAME}", group="system:nodes"))
    note = {"metadata": {"annotations": {"example.org/note": "1"}}}
    return {
        "mark_dry_run": lambda: api.merge(
            f"{NODE}?dryRun=All", {"metadata": {"labels": {MARK_LABEL: "PreferNoSchedule"}}}
        ),
        "mark_added_foreign_taints": lambda: (taint(api, THEIRS, LOST), mark(api, NAME)),
        "kubelet_update": lambda: kubelet.merge(NODE, note),
        "kubelet_status": lambda: kubelet.call(
            "PATCH",
            f"{NODE}/status",
            {"status": {"nodeInfo": {"kubeletVersion": "v1.37.2"}}},
            content=STRATEGIC,
        ),
        "strategic_patch_of_taints": lambda: api.call(
            "PATCH", NODE, {"spec": {"taints": [THEIRS]}}, content=STRATEGIC
        ),
        "server_side_apply_of_taints": lambda: applied(api, LOST),
        "full_update_without_taints": lambda: updated(api),
        "mark_becomes_no_schedule": lambda: (
            taint(api, TAINT, THEIRS),
            mark(api, NAME, "NoSchedule"),
        ),
        "mark_removed": lambda: mark(api, NAME, None),
        "create": lambda: created(api),
    }


def created(api: Api) -> None:
    """Recreate the Node with the mark."""
    api.delete(NODE)
    api.wait(NODES, lambda found: NAME not in found)
    api.create(NODES, node(NAME, labels={MARK_LABEL: "PreferNoSchedule"}))


def taint(api: Api, *taints: Json) -> Json:
    """Replace the list of taints."""
    return api.call("PATCH", NODE, {"spec": {"taints": list(taints)}}, content=MERGE)


def applied(api: Api, *taints: Json) -> None:
    """Server-side apply the taints as their only owner."""
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAME},
        "spec": {"taints": list(taints)},
    }
    api.call("PATCH", f"{NODE}?fieldManager=somebody&force=true", body, content=APPLY)


def updated(api: Api) -> None:
    """Update the whole Node without taints."""
    found = api.get(NODE)
    del found["spec"]["taints"]
    api.call("PUT", NODE, found)


def record_calls(plane: Plane) -> None:
    """Record the calls of kube-scheduler, with names and with whole Nodes."""
    names = [f"node-{number}" for number in range(NAMES_COUNT)]
    add_nodes(plane.api, *names[FULL_COUNT:])
    add_nodes(plane.api, *names[:FULL_COUNT], labels=FEW)
    recorder = Recorder(lambda _: b"[]")
    with recorder.serving():
        for name, by_names, labels in (("names", True, {}), ("nodes", False, FEW)):
            recorder.bodies.clear()
            asked = stanza(recorder.port, nodeCacheCapable=by_names, httpTimeout="5s")
            with scheduling(plane, asked):
                plane.api.create(PODS, pod(name, nodeSelector=labels))
                plane.api.wait(PODS, all_bound)
            keep(EXTENDER_FOLDER, name, recorder.bodies[0])


def all_bound(found: Mapping[str, Json]) -> bool:
    """Return whether there are pods and all of them are bound."""
    return bool(found) and all("nodeName" in one["spec"] for one in found.values())


def main() -> None:
    """Record everything."""
    with tempfile.TemporaryDirectory(prefix="ebb-record-") as folder:
        try:
            plane = Plane(Path(folder))
        except tools.MissingError as fault:
            sys.exit(f"record: {fault}")
        try:
            plane.start()
            record_reviews(plane)
            record_calls(plane)
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
