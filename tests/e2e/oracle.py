"""kube-scheduler as the judge: which nodes its own filters leave to a pod, and a binding to ours.

It is asked through an extender of the test's own, which hears the nodes that have passed the
scheduler's filters and leaves one of them. A pod that names its node in its own affinity would be
another pod: topology spread counts on the nodes that the affinity admits.
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
"""Which of the nodes, by name, the pod goes to; None: it waits."""


class Verdict(NamedTuple):
    """What became of a pod."""

    node: str | None
    """Where the scheduler has bound it."""
    allowed: frozenset[str]
    """The nodes that its filters have let pass."""
    message: str
    """Why it is not bound, in the scheduler's words."""


def nowhere(_: list[str]) -> None:
    """Let the pod wait."""


def only(node: str) -> Choice:
    """Take this node if it is left."""
    return lambda left: node if node in left else None


class Oracle:
    """The extender's side, and the questions."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._choices: dict[str, Choice] = {}
        self._seen: dict[str, frozenset[str]] = {}
        """By uid of the pod."""
        self._told: Generator[tuple[str, Json]] | None = None

    @contextlib.contextmanager
    def serving(self) -> Iterator[Json]:
        """Serve; yield what stands about it in the scheduler's configuration."""
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
                """Keep quiet."""

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
        """Leave one node at most."""
        meta, names = asked["Pod"]["metadata"], sorted(asked["NodeNames"])
        self._seen[meta["uid"]] = frozenset(names)
        chosen = self._choices.get(key_of(asked["Pod"]), nowhere)(names)
        left = [name for name in names if name == chosen]
        return {
            "NodeNames": left,
            "FailedNodes": {name: "not where it should go" for name in names if name not in left},
        }

    def follow(self) -> None:
        """Hear of all pods from now on."""
        if self._told is not None:
            self._told.close()
        version = self._api.get(ALL_PODS)["metadata"]["resourceVersion"]
        self._told = self._api.watched(ALL_PODS, version, WAIT_SECONDS, {})

    def place(self, pod: Json, choice: Choice) -> Verdict:
        """Create the pod, unbound, and wait for what the scheduler says."""
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
        raise AssertionError(f"pod {uid}: no word of the scheduler for {WAIT_SECONDS} s")


def key_of(pod: Json) -> str:
    """Return namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def pods_of(namespace: str) -> str:
    """Return where the pods of a namespace stand."""
    return f"/api/v1/namespaces/{namespace}/pods"


def _decided(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName") or _refusal(pod))


def _refusal(pod: Json) -> str:
    """Return why the scheduler has not bound the pod; empty: it has not said no."""
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            assert one["reason"] == "Unschedulable", one
            message: str = one["message"]
            return message
    return ""
