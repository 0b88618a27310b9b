"""A metrics API (metrics.k8s.io) for HorizontalPodAutoscalers, with a load that the test sets."""

import http.server
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tests.e2e.api import Json
from tests.e2e.objects import PODS
from tests.e2e.plane import LOOPBACK, Plane, until
from tests.e2e.stub import served

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
SERVICES = "/api/v1/namespaces/default/services"
SERVICE = "pod-metrics"
RESOURCES: Json = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [{"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}],
}


class PodMetrics:
    """The CPU load of all pods of the namespace default, which Ready pods share evenly."""

    def __init__(self, plane: Plane) -> None:
        self.load_millis = 0
        self._api = plane.api_as(plane.admin)

    def answer(self, path: str) -> Json | None:
        if path == ROOT:
            return RESOURCES
        return self._pods() if path.startswith(f"{ROOT}/namespaces/default/pods") else None

    def _pods(self) -> Json:
        pods = [one["metadata"] for one in self._api.get(PODS)["items"] if ready(one)]
        usage = {"cpu": f"{self.load_millis // max(len(pods), 1)}m", "memory": "1Mi"}
        sample = {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "window": "1s",
            "containers": [{"name": "main", "usage": usage}],
        }
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "PodMetrics"}
        found = [
            {**kind, "metadata": {"name": one["name"], "namespace": "default"}, **sample}
            for one in pods
        ]
        return {**kind, "kind": "PodMetricsList", "metadata": {}, "items": found}


def ready(found: Json) -> bool:
    """Return whether a pod is Ready and not terminating."""
    conditions = found["status"].get("conditions") or ()
    return "deletionTimestamp" not in found["metadata"] and any(
        (one["type"], one["status"]) == ("Ready", "True") for one in conditions
    )


@contextmanager
def serving_pod_metrics(plane: Plane) -> Iterator[PodMetrics]:
    """Serve the metrics API through the API server, as metrics-server does."""
    metrics = PodMetrics(plane)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = metrics.answer(self.path.partition("?")[0])
            body = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    signed = plane.authority.sign("pod-metrics", "pod-metrics", hosts=(LOOPBACK,))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with served(server), registered(plane, server.server_address[1]):
        yield metrics


@contextmanager
def registered(plane: Plane, port: int) -> Iterator[None]:
    """Let the API server answer the metrics API from this port of the loopback interface."""
    service = {"type": "ExternalName", "externalName": LOOPBACK, "ports": [{"port": port}]}
    plane.api.create(SERVICES, {"metadata": {"name": SERVICE}, "spec": service})
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": SERVICE, "port": port},
    }
    name = {"metadata": {"name": f"{VERSION}.{GROUP}"}}
    plane.api.create(API_SERVICE.rpartition("/")[0], {**name, "spec": spec})

    def available() -> bool:
        found = plane.api.get(API_SERVICE).get("status", {}).get("conditions", ())
        return any((one["type"], one["status"]) == ("Available", "True") for one in found)

    try:
        until(available, "the metrics API is available")
        yield
    finally:
        # Otherwise the API server cannot list the kinds that a deleted namespace has.
        plane.api.delete(API_SERVICE)
        plane.api.delete(f"{SERVICES}/{SERVICE}")
