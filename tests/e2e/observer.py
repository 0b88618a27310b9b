"""Measure a run of the live loop with watches of Nodes, Pods and Deployments."""

import threading
import time
from dataclasses import dataclass, field

from urllib3.exceptions import HTTPError

from core.marks.wellknown import MARK_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.below_desired import BelowDesired
from tests.e2e.objects import DEPLOYMENTS, NODES

EVICTIONS = "apiserver_request_total{"
WATCHED_SECONDS_MAX = 3600.0
"""Longer than any load."""


@dataclass
class Outcome:
    """Counts from second 0 of the load on; times in seconds."""

    node_seconds: float = 0.0
    nodes: int = 0
    removed: int = 0
    emptied: int = 0
    """Removed nodes that were marked."""
    killed: int = 0
    """Pods that were running on a node when it was deleted."""
    evicted: int = 0
    waits: dict[str, float] = field(default_factory=dict)
    """Time from creation to binding, by pod."""
    waited: dict[str, str] = field(default_factory=dict)
    """Pods for which the scheduler found no node at first, with its last message."""
    marks: int = 0
    below: BelowDesired = field(default_factory=BelowDesired)
    faults: list[str] = field(default_factory=list)

    @property
    def longest(self) -> float:
        """Return the longest wait."""
        return max(self.waits.values(), default=0.0)

    def line(self) -> str:
        """Return the table's row."""
        return (
            f"{self.node_seconds:>12,.0f} {self.nodes:>6} {self.removed:>8} {self.emptied:>8}"
            f" {self.marks:>6} {self.evicted:>8} {self.killed:>7} {len(self.waited):>7}"
            f" {self.longest:>8.1f} {self.below.pod_seconds:>6.1f}"
        )


HEAD = (
    f"{'node-seconds':>12} {'nodes':>6} {'removed':>8} {'(marked)':>8} {'marks':>6}"
    f" {'evicted':>8} {'killed':>7} {'waited':>7} {'longest':>8} {'below':>6}"
)


def evictions(api: Api) -> int:
    """Return the number of eviction requests to the API server, of all clients."""
    lines = api.text("/metrics").splitlines()
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in lines
        if line.startswith(EVICTIONS) and 'subresource="eviction"' in line
    )


class Observer:
    """Watches Nodes, Pods and Deployments, and updates the outcome."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.lock = threading.RLock()
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.outcome = Outcome()
        self.refused = threading.Event()
        """Set when the scheduler has found no node for a pod; the waiting thread clears it."""
        self._created: dict[str, float] = {}
        self._last = 0.0
        self._evictions = 0
        self.counting = False
        self.ended = threading.Event()

    def follow(self, path: str) -> None:
        """Watch one kind until `end` is called."""
        take = {NODES: self._node, DEPLOYMENTS: self._deployment}.get(path, self._pod)
        try:
            self._api.wait(path, lambda _: self.ended.is_set(), WATCHED_SECONDS_MAX, told=take)
        except (AssertionError, HTTPError) as fault:
            if not self.ended.is_set():
                self.outcome.faults.append(f"{path} was not watched to the end: {fault}")

    def begin(self) -> None:
        """Start counting."""
        self._evictions = evictions(self._api)
        with self.lock:
            self._last = time.monotonic()
            self.counting = True

    def end(self) -> None:
        """Stop counting."""
        with self.lock:
            self._tick()
            self.outcome.below.end(self._last)
            self.counting = False
            self.ended.set()
            self.outcome.nodes = len(self.nodes)
            self.outcome.evicted = evictions(self._api) - self._evictions
            for name in self.outcome.waits.keys() & self.pods.keys():
                if not _bound(self.pods[name]):
                    self.outcome.waits[name] = self._last - self._created[name]

    def seen(self) -> tuple[list[Json], list[Json], dict[str, float]]:
        """Return the Nodes, the Pods, and the creation time of each pod as monotonic time."""
        with self.lock:
            return list(self.nodes.values()), list(self.pods.values()), dict(self._created)

    def summary(self) -> str:
        """Return the numbers of nodes and of marked nodes as text."""
        with self.lock:
            marked = sum(_marked(one) for one in self.nodes.values())
            return f"{len(self.nodes)} nodes, {marked} marked"

    def _tick(self) -> None:
        now = time.monotonic()
        if self.counting:
            self.outcome.node_seconds += len(self.nodes) * (now - self._last)
        self._last = now

    def _node(self, kind: str, found: Json) -> None:
        name, outcome = found["metadata"]["name"], self.outcome
        with self.lock:
            self._tick()
            before = self.nodes.pop(name, None)
            if kind == "DELETED":
                outcome.removed += self.counting
                outcome.killed += len(self._running_on(name))
                outcome.emptied += self.counting and _marked(found)
            else:
                self.nodes[name] = found
                outcome.marks += self.counting and _marked(found) and not _marked(before)

    def _running_on(self, name: str) -> list[str]:
        """Return the unfinished pods that are bound to a node."""
        return [
            pod
            for pod, found in self.pods.items()
            if found["spec"].get("nodeName") == name
            and found["status"].get("phase") not in ("Succeeded", "Failed")
            and "deletionTimestamp" not in found["metadata"]
        ]

    def _deployment(self, _: str, found: Json) -> None:
        with self.lock:
            self.outcome.below.deployment_seen(found, time.monotonic())

    def _pod(self, kind: str, found: Json) -> None:
        name = found["metadata"]["name"]
        with self.lock:
            gone = kind == "DELETED"
            self.outcome.below.pod_seen(found, time.monotonic(), deleted=gone)
            if gone:
                self.pods.pop(name, None)
                return
            if name not in self._created:
                self._created[name] = time.monotonic()
                if self.counting:
                    self.outcome.waits[name] = 0.0
            before = self.pods.get(name, found)
            self.pods[name] = found
            if name in self.outcome.waits and not _bound(before):
                self.outcome.waits[name] = time.monotonic() - self._created[name]
            if not _bound(found) and (refusal := _refusal(found)) is not None:
                if name in self.outcome.waits:
                    self.outcome.waited[name] = refusal
                self.refused.set()


def _bound(pod: Json) -> bool:
    return "nodeName" in pod["spec"]


def _marked(found: Json | None) -> bool:
    return found is not None and MARK_LABEL in found["metadata"]["labels"]


def _refusal(pod: Json) -> str | None:
    """Return the scheduler's message if it has found no node for the pod."""
    for one in pod["status"].get("conditions") or ():
        found = (one["type"], one["status"], one.get("reason"))
        if found == ("PodScheduled", "False", "Unschedulable"):
            return str(one.get("message", ""))
    return None
