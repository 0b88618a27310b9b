"""kube-scheduler as oracle: the nodes that pass its filters for a pod, and a chosen binding.

The test runs an extender, which receives the nodes that have passed the filters and returns one of
them. Node affinity would not do: topology spread only counts nodes that match the affinity.
"""

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from tests.e2e.api import WAIT_SECONDS, Api, Json
from tests.e2e.plane import LOOPBACK
from tests.e2e.stub import served

ALL_PODS = "/api/v1/pods"
Choice = Callable[[list[str]], str | None]
"""Type of a function that chooses a node by name, or None to leave the pod Pending."""


class Verdict(NamedTuple):
    """The decision of kube-scheduler about a pod."""

    node: str | None
    """Node to which the scheduler has bound the pod."""
    allowed: frozenset[str]
    """Nodes that have passed the filters."""
    message: str
    """Message of the scheduler if the pod is not bound."""


def nowhere(_: list[str]) -> None:
    """Leave the pod Pending."""


def only(node: str) -> Choice:
    """Choose this node if it has passed the filters."""
    return lambda left: node if node in left else None


class Oracle:
    """Places pods through kube-scheduler, and serves its extender."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._choices: dict[str, Choice] = {}
        self._seen: dict[str, frozenset[str]] = {}
        """Nodes that have passed the filters, by uid of the pod."""
        self._told: Generator[tuple[str, Json]] | None = None

    @contextlib.contextmanager
    def serving(self) -> Iterator[Json]:
        """Serve the extender; yield its stanza for the scheduler's configuration."""
        oracle = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers["Content-Length"]))
                body = json.dumps(oracle.answer(json.loads(asked))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Suppress the log."""

        server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        server.daemon_threads = True
        with served(server):
            yield {
                "urlPrefix": f"http://{LOOPBACK}:{server.server_address[1]}",
                "filterVerb": "filter",
                "nodeCacheCapable": True,
                "httpTimeout": "10s",
            }

    def answer(self, asked: Json) -> Json:
        """Answer a filter call with at most one node."""
        meta, names = asked["Pod"]["metadata"], sorted(asked["NodeNames"])
        self._seen[meta["uid"]] = frozenset(names)
        chosen = self._choices.get(key_of(asked["Pod"]), nowhere)(names)
        left = [name for name in names if name == chosen]
        return {
            "NodeNames": left,
            "FailedNodes": {name: "not chosen by the test" for name in names if name not in left},
        }

    def follow(self) -> None:
        """Watch all pods from now on."""
        if self._told is not None:
            self._told.close()
        version = self._api.get(ALL_PODS)["metadata"]["resourceVersion"]
        self._told = self._api.watched(ALL_PODS, version, WAIT_SECONDS, {})

    def place(self, pod: Json, choice: Choice) -> Verdict:
        """Create the pod without a node, and wait for the scheduler's decision."""
        self._choices[key_of(pod)] = choice
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        path = pods_of(pod["metadata"]["namespace"])
        uid = self._api.create(path, {**pod, "spec": spec})["metadata"]["uid"]
        found = self._heard(uid)
        self._choices[key_of(pod)] = nowhere
        return Verdict(
            found["spec"].get("nodeName"), self._seen.get(uid, frozenset()), _refusal(found)
        )

    def _heard(self, uid: str) -> Json:
        assert self._told is not None
        for _, found in self._told:
            if found["metadata"]["uid"] == uid and _decided(found):
                return found
        raise AssertionError(f"pod {uid}: no decision of the scheduler within {WAIT_SECONDS} s")


def key_of(pod: Json) -> str:
    """Return namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def pods_of(namespace: str) -> str:
    """Return the API path of the pods in a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def _decided(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName") or _refusal(pod))


def _refusal(pod: Json) -> str:
    """Return the scheduler's reason for not binding the pod, or an empty text."""
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            assert one["reason"] == "Unschedulable", one
            message: str = one["message"]
            return message
    return ""
