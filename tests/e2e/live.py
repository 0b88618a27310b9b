"""The live loop: run a recorded load on a real control plane with an autoscaler."""

import csv
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from sim.autoscaler import ScaleDown
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.karpenter import EMPTY, set_pool
from tests.e2e.objects import AUTOSCALERS, DEPLOYMENTS, JOBS, LIFE, NODES, PODS, node
from tests.e2e.observer import Observer, Outcome
from tests.e2e.plane import until
from tests.e2e.standin import TIMERS, CostWriter, StandIn
from tests.support.scale_in import ScaleInOrder

LOADS = Path(__file__).parent / "load"
ZONE = "topology.kubernetes.io/zone"
LATE_SECONDS = 1.0
"""If an event is later than this, the machine has stalled, and the rest of the load is put off."""
WORD_SECONDS = 30.0
HPA_WINDOW_SECONDS = 10
"""A thirtieth of the default stabilization window of HPAs, as of all times of the loads."""


@dataclass(frozen=True)
class Event:
    """One row of a load file; times in seconds."""

    second: float
    event: str
    app: str
    cpu: int = 0
    memory: int = 0
    life: float = 0.0
    replicas: int = 0
    pod_spec: Json = field(default_factory=dict)
    """Further fields of the spec of the pods."""
    annotations: Json = field(default_factory=dict)
    """Annotations of the pods of a Deployment."""


@dataclass(frozen=True)
class NodeShape:
    """The shape of all nodes."""

    cpu: str = "4"
    memory: str = "16Gi"
    zones: int = 0
    """Number of zones; 0: nodes have no label for their zone."""

    def node(self, number: int) -> Json:
        """Return a Node by its number."""
        labels = {ZONE: f"zone-{number % self.zones}"} if self.zones else {}
        return node(f"n-{number:02}", cpu=self.cpu, memory=self.memory, labels=labels)


@dataclass(frozen=True)
class Load:
    """A load: its events, the number of nodes, and durations in seconds."""

    events: tuple[Event, ...]
    nodes: int = 40
    seconds: float = 480.0
    unneeded: float = 20.0
    shape: NodeShape = NodeShape()

    @classmethod
    def named(cls, name: str) -> "Load":
        """Read a load file: `ramp` falls, `day` falls and rises again."""
        with (LOADS / f"{name}.csv").open(newline="") as file:
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
        """Return the load for a fraction of the nodes, in less time; the unneeded time is halved.

        It contains every *of*-th job, so that it falls like the whole load.
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


class Autoscaler(Protocol):
    """An autoscaler that the test drives."""

    def act(self) -> float:
        """Carry out due actions; return the seconds until the next action."""


Start = Callable[[Api, Observer, Load], Autoscaler | None]
"""Type of a function that starts an autoscaler; it returns None if that runs by itself."""


def stand_in(how: ScaleDown, order: ScaleInOrder | None = None) -> Start:
    """Return a function that starts the stand-in autoscaler in this mode.

    *order*: another tool, whose pod deletion costs are written; None: none are.
    """

    def start(api: Api, observer: Observer, load: Load) -> StandIn:
        if order is not None:
            CostWriter(api, observer, order).start()
        timers = replace(TIMERS, unneeded_ms=round(1000 * load.unneeded))
        return StandIn(api, observer, how, timers, load.shape.node)

    return start


def karpenter_takes(policy: str = EMPTY) -> Start:
    """Return a function that enables the removal of nodes by Karpenter with this policy."""
    return lambda api, _, load: set_pool(api, f"{load.unneeded:.0f}s", policy)


def play(
    api: Api,
    load: Load,
    autoscaler: Start,
    say: Callable[[str], None] = lambda _: None,
    begin: Callable[[], None] = lambda: None,
    add: Callable[[Api, int], object] | None = None,
) -> Outcome:
    """Add the nodes, run the load, and return the outcome.

    *say* receives progress. At second 0, when the initial state exists, the autoscaler starts and
    *begin* is called; before that, all nodes would look unneeded. *add* adds nodes; None: they are
    created as Node objects.
    """
    if add is not None:
        add(api, load.nodes)
    else:
        for number in range(load.nodes):
            api.create(NODES, load.shape.node(number))
    observer = Observer(api)
    for path in (NODES, PODS, DEPLOYMENTS):
        threading.Thread(target=observer.follow, args=(path,), daemon=True).start()
    until(lambda: len(observer.nodes) == load.nodes, "all nodes are observed")
    drive = _Drive(api, load, observer, say)
    drive.until(0.0)
    begin()
    observer.begin()
    drive.until(load.seconds, autoscaler(api, observer, load))
    observer.end()
    return observer.outcome


class _Drive:
    """Carries out events at their time, starting a second before the first event.

    Time in which the machine stalls does not count. Otherwise the jobs of that time would start
    all at once, and need more nodes than the load ever does.
    """

    def __init__(
        self, api: Api, load: Load, observer: Observer, say: Callable[[str], None]
    ) -> None:
        self._api, self._observer, self._say = api, observer, say
        self._waiting = deque(load.events)
        self._start = time.monotonic() - self._waiting[0].second + 1
        self._next_word = 0.0
        self._replicas: dict[str, int] = {}

    def until(self, end: float, autoscaler: Autoscaler | None = None) -> None:
        """Run the load until that second."""
        observer = self._observer
        while (second := self._second()) < end:
            if self._waiting and (late := second - self._waiting[0].second) > LATE_SECONDS:
                self._say(f"{second:4.0f} s: events were {late:.1f} s late")
                self._start += late
                second -= late
            self._happen(second)
            due = [end, second + autoscaler.act()] if autoscaler else [end]
            if self._waiting:
                due.append(self._waiting[0].second)
            if second >= self._next_word:
                self._say(f"{second:4.0f} s: {observer.summary()}")
                self._next_word += WORD_SECONDS
            if observer.refused.wait(max(0.0, min(due) - self._second())):
                observer.refused.clear()

    def _second(self) -> float:
        return time.monotonic() - self._start

    def _happen(self, second: float) -> None:
        while self._waiting and self._waiting[0].second <= second:
            event = self._waiting.popleft()
            if event.event in ("deploy", "scale"):
                # Like an HPA, write replicas only if they change.
                if self._replicas.get(event.app) == event.replicas:
                    continue
                self._replicas[event.app] = event.replicas
            try:
                _happen(self._api, event, self._observer)
            except RefusedError as fault:
                self._observer.outcome.faults.append(f"{event}: {fault}")


def _happen(api: Api, event: Event, observer: Observer) -> None:
    requests = {"cpu": f"{event.cpu}m", "memory": f"{event.memory}Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    match event.event:
        case "job":
            template = {
                "metadata": {"annotations": {LIFE: f"{event.life:.3f}s"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
            spec = {"template": template, "ttlSecondsAfterFinished": 0}
            api.create(JOBS, {"metadata": {"generateName": "job-"}, "spec": spec})
        case "deploy":
            labels = {"app": event.app}
            spec = {
                "replicas": event.replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": event.annotations},
                    "spec": {"containers": [container], **event.pod_spec},
                },
            }
            api.create(DEPLOYMENTS, {"metadata": {"name": event.app}, "spec": spec})
            api.create(AUTOSCALERS, _autoscaler(event.app))
        case "scale":
            api.merge(f"{DEPLOYMENTS}/{event.app}/scale", {"spec": {"replicas": event.replicas}})
        case "kill":
            with observer.lock:
                oldest = _oldest(observer.pods.values(), event.app)
                observer.outcome.below.interrupted(event.app, time.monotonic())
            if oldest:
                api.delete(f"{PODS}/{oldest}")
        case unknown:
            raise AssertionError(unknown)


def _autoscaler(app: str) -> Json:
    """Return an HPA; without a metrics API, it changes no replicas, and the load does instead."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app}
    window = {"stabilizationWindowSeconds": HPA_WINDOW_SECONDS}
    spec = {"scaleTargetRef": target, "maxReplicas": 1000, "behavior": {"scaleDown": window}}
    return {"metadata": {"name": app}, "spec": spec}


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
