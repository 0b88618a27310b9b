"""The live loop: a falling load on real programs, and a stand-in for the autoscaler."""

import csv
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.marks.keys import GUARD_ANNOTATION, MARK_LABEL
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.objects import DEPLOYMENTS, JOBS, LIFE, NODES, PODS, node

RAMP = Path(__file__).parent / "load" / "ramp.csv"
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
SCAN_SECONDS = 2.0
LONG_WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class Event:
    """One line of a load; times in seconds."""

    second: float
    event: str
    app: str
    cpu: int
    memory: int
    life: float
    replicas: int


@dataclass(frozen=True)
class Load:
    """What happens when, on how many nodes."""

    events: tuple[Event, ...]
    nodes: int = 40
    seconds: float = 480.0
    unneeded: float = 20.0

    @classmethod
    def ramp(cls) -> "Load":
        """Read the whole load."""
        with RAMP.open(newline="") as file:
            rows = [
                Event(
                    float(row["second"]),
                    row["event"],
                    row["app"],
                    int(row["cpu_milli"] or 0),
                    int(row["memory_mib"] or 0),
                    float(row["life_s"] or 0),
                    int(row["replicas"] or 0),
                )
                for row in csv.DictReader(file)
            ]
        return cls(tuple(rows))

    def part(self, of: int, faster: int) -> "Load":
        """Return the same on a part of the nodes, in less time; an empty node waits half as long.

        Every so-manieth job, from the second on: a part that falls as the whole does.
        """
        jobs = [event for event in self.events if event.event == "job"]
        rest = [event for event in self.events if event.event in ("deploy", "scale")]
        kept = [*jobs[1::of], *rest]
        events = [
            replace(
                event,
                second=event.second / faster if event.second > 0 else event.second,
                life=max(1.0, event.life / faster),
                replicas=max(1, event.replicas // of),
            )
            for event in sorted(kept, key=lambda event: event.second)
        ]
        return Load(tuple(events), self.nodes // of, self.seconds / faster, self.unneeded / 2)


@dataclass
class Outcome:
    """What a run came to; seconds."""

    node_seconds: float = 0.0
    nodes: int = 0
    removed: int = 0
    emptied: int = 0
    """Of the removed nodes those that carried a mark."""
    killed: int = 0
    """Pods that were running on a node when it was deleted."""
    waits: dict[str, float] = field(default_factory=dict)
    """By pod: from creation to binding, of those that were created in the run."""
    marks: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def long_waits(self) -> int:
        """Count pods that waited long."""
        return sum(wait > LONG_WAIT_SECONDS for wait in self.waits.values())

    def line(self) -> str:
        """Return the table's row."""
        longest = max(self.waits.values(), default=0)
        return (
            f"{self.node_seconds:>12,.0f} {self.nodes:>6} {self.removed:>8} {self.emptied:>8}"
            f" {self.marks:>6}"
            f" {self.killed:>7} {self.long_waits:>6} {longest:>8.1f}"
        )


HEAD = (
    f"{'node-seconds':>12} {'nodes':>6} {'removed':>8} {'(marked)':>8} {'marks':>6}"
    f" {'killed':>7} {'> 5 s':>6} {'longest':>8}"
)


class Observer:
    """Follows Nodes and Pods, and notes what counts."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.lock = threading.RLock()
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.outcome = Outcome()
        self._created: dict[str, float] = {}
        self._last = 0.0
        self.counting = False

    def follow(self, path: str, seconds: float) -> None:
        """Follow one kind until the time is over."""
        take = self._node if path == NODES else self._pod
        end = time.monotonic() + seconds

        try:
            self._api.wait(path, lambda _: time.monotonic() > end, seconds, told=take)
        except AssertionError:
            return

    def count(self, counting: bool) -> None:
        """Begin or end the count of node-seconds."""
        with self.lock:
            self._tick()
            self.counting = counting

    def _tick(self) -> None:
        now = time.monotonic()
        if self.counting:
            self.outcome.node_seconds += len(self.nodes) * (now - self._last)
        self._last = now

    def _node(self, kind: str, found: Json) -> None:
        name = found["metadata"]["name"]
        with self.lock:
            self._tick()
            if kind == "DELETED":
                self.nodes.pop(name, None)
                self.outcome.killed += len(self.running_on(name))
                self.outcome.emptied += MARK_LABEL in found["metadata"]["labels"]
                return
            before = self.nodes.get(name, {"metadata": {"labels": {}}})
            self.outcome.marks += (
                MARK_LABEL in found["metadata"]["labels"]
                and MARK_LABEL not in before["metadata"]["labels"]
            )
            self.nodes[name] = found

    def running_on(self, name: str) -> list[str]:
        """Return the unfinished pods that are bound to a node."""
        return [
            pod
            for pod, found in self.pods.items()
            if found["spec"].get("nodeName") == name
            and found["status"].get("phase") not in ("Succeeded", "Failed")
            and "deletionTimestamp" not in found["metadata"]
        ]

    def _pod(self, kind: str, found: Json) -> None:
        name = found["metadata"]["name"]
        with self.lock:
            if kind == "DELETED":
                self.pods.pop(name, None)
                return
            self.pods[name] = found
            now = time.monotonic()
            self._created.setdefault(name, now)
            if found["spec"].get("nodeName") and name not in self.outcome.waits:
                self.outcome.waits[name] = now - self._created[name]


class Autoscaler:
    """The stand-in: takes nodes that are unguarded and empty for so long, in two steps."""

    def __init__(self, api: Api, observer: Observer, unneeded: float) -> None:
        self._api, self._observer, self._unneeded = api, observer, unneeded
        self._since: dict[str, float] = {}
        self._going: dict[str, float] = {}

    def scan(self) -> None:
        """Look once."""
        now = time.monotonic()
        with self._observer.lock:
            free = {
                name
                for name, found in self._observer.nodes.items()
                if GUARD_ANNOTATION not in (found["metadata"].get("annotations") or {})
                and not self._observer.running_on(name)
            }
        self._since = {name: self._since.get(name, now) for name in free}
        for name in sorted(free):
            if now - self._since[name] >= self._unneeded and len(self._observer.nodes) > 1:
                self._take(name)

    def _take(self, name: str) -> None:
        """Taint, cordon, look again, delete: as Cluster Autoscaler does."""
        try:
            found = self._api.get(f"{NODES}/{name}")
            found["spec"]["taints"] = [*(found["spec"].get("taints") or []), GOING]
            found["spec"]["unschedulable"] = True
            self._api.call("PUT", f"{NODES}/{name}", found)
            on_it = self._api.get(f"{PODS}?fieldSelector=spec.nodeName%3D{name}")["items"]
            if any(pod["status"].get("phase") in ("Pending", "Running") for pod in on_it):
                kept = [t for t in found["spec"]["taints"] if t != GOING]
                patch = {"taints": kept or None, "unschedulable": None}
                self._api.merge(f"{NODES}/{name}", {"spec": patch})
                self._since.pop(name, None)
                return
            self._api.delete(f"{NODES}/{name}")
            self._observer.outcome.removed += 1
        except RefusedError as fault:
            if fault.status not in (404, 409):
                raise


def play(api: Api, load: Load, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Create the nodes, play the load, and return what came of it."""
    for number in range(load.nodes):
        api.create(NODES, node(f"n-{number:02}"))
    observer = Observer(api)
    autoscaler = Autoscaler(api, observer, load.unneeded)
    total = load.seconds + 25
    followers = [
        threading.Thread(target=observer.follow, args=(path, total), daemon=True)
        for path in (NODES, PODS)
    ]
    for thread in followers:
        thread.start()
    start = time.monotonic() - min(event.second for event in load.events) + 1
    _drive(api, load, observer, autoscaler, start, say)
    observer.count(False)
    observer.outcome.nodes = len(observer.nodes)
    return observer.outcome


def _drive(
    api: Api,
    load: Load,
    observer: Observer,
    autoscaler: Autoscaler,
    start: float,
    say: Callable[[str], None],
) -> None:
    waiting = list(load.events)
    next_scan, next_word = 0.0, 0.0
    while (second := time.monotonic() - start) < load.seconds:
        while waiting and waiting[0].second <= second:
            event = waiting.pop(0)
            try:
                _happen(api, event, observer)
            except RefusedError as fault:
                observer.outcome.faults.append(f"{event}: {fault}")
        if second >= 0 and not observer.counting:
            observer.count(True)
        if second >= next_scan:
            autoscaler.scan()
            next_scan = second + SCAN_SECONDS
        if second >= next_word:
            marked = sum(MARK_LABEL in n["metadata"]["labels"] for n in observer.nodes.values())
            say(f"{second:4.0f} s: {len(observer.nodes)} nodes, {marked} marked")
            next_word = second + 30
        due = [next_scan, *(event.second for event in waiting[:1]), load.seconds]
        if not observer.counting:
            due.append(0.0)
        time.sleep(max(0.0, min(due) - (time.monotonic() - start)))


def _happen(api: Api, event: Event, observer: Observer) -> None:
    requests = {"cpu": f"{event.cpu}m", "memory": f"{event.memory}Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    match event.event:
        case "job":
            template = {
                "metadata": {"annotations": {LIFE: f"{event.life:.3f}s"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
            spec = {"template": template, "backoffLimit": 0, "ttlSecondsAfterFinished": 0}
            api.create(JOBS, {"metadata": {"generateName": "job-"}, "spec": spec})
        case "deploy":
            labels = {"app": event.app}
            spec = {
                "replicas": event.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            }
            api.create(DEPLOYMENTS, {"metadata": {"name": event.app}, "spec": spec})
        case "scale":
            api.merge(f"{DEPLOYMENTS}/{event.app}", {"spec": {"replicas": event.replicas}})
        case "kill":
            with observer.lock:
                oldest = _oldest(observer.pods.values(), event.app)
            if oldest:
                api.delete(f"{PODS}/{oldest}")
        case unknown:
            raise AssertionError(unknown)


def _oldest(pods: Iterable[Json], app: str) -> str:
    running: Sequence[Json] = [
        pod
        for pod in pods
        if pod["metadata"].get("labels", {}).get("app") == app
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    ]
    first = min(running, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
    return str(first["metadata"]["name"]) if first else ""
