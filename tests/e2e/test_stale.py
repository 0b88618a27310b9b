"""An outdated plan is abandoned, even when the API server is slow."""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from core.config.settings import Mode
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    apply,
    config,
    ending,
    in_force,
    point,
    port_of,
    remove,
    start_program,
)
from tests.e2e.line import SLOW_SECONDS, State
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import Plane
from tests.e2e.replica import Replica
from tests.e2e.test_safety import mark

BUSY_SECONDS = 3.0
"""Maximum time until the last mark, and until all nodes are unmarked.

The budget is one second; a loaded machine needs longer, and calls in progress are completed.
Marking all nodes would take far longer.
"""
AFTER_SECONDS = 6.0
"""Time after the change during which marks and their removals are observed."""
NUMBERS = itertools.count()
REFUSED = {
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    }
}


@pytest.fixture
def replica(plane: Plane) -> Iterator[Replica]:
    """Run a webhook, and a controller with a proxy to the API server; yield the controller."""
    how = {"usability": "none", "cooldown": {"delayAfterAdd": "0s", "delayAfterPending": "10m"}}
    settings = config(mode=Mode.ENFORCE, **how)
    apply(plane)
    point(plane, port_of(settings))
    webhook = start_program(plane, "webhook", settings)
    found = Replica(plane, "controller", settings, f"ebb-slow-{next(NUMBERS)}")
    try:
        with ending(plane, webhook, found.ebb):
            for ebb in (webhook, found.ebb):
                ebb.wait_ready()
            in_force(plane)
            yield found
    finally:
        found.line.end()
        remove(plane)


class Marks:
    """Records when nodes are marked and unmarked, from its creation on."""

    def __init__(self, api: Api) -> None:
        listed = api.get(NODES)
        self._had = {one["metadata"]["name"]: bool(mark(one)) for one in listed["items"]}
        self.before = {name for name, had in self._had.items() if had}
        self.got: dict[str, float] = {}
        self.lost: dict[str, float] = {}
        version = listed["metadata"]["resourceVersion"]
        self._end = time.monotonic() + 2 * AFTER_SECONDS
        watching = threading.Thread(target=self._watch, args=(api, version), daemon=True)
        watching.start()
        self._watching = watching

    def _watch(self, api: Api, version: str) -> None:
        for _, found in api.watched(NODES, version, AFTER_SECONDS, {}):
            name, now = found["metadata"]["name"], bool(mark(found))
            if now != self._had.get(name, False):
                (self.got if now else self.lost)[name] = time.monotonic()
            self._had[name] = now
            if time.monotonic() > self._end:
                return

    def ended(self) -> None:
        """Wait until the watch ends."""
        self._watching.join()

    def since(self, moment: float) -> tuple[list[float], list[float]]:
        """Return the seconds after *moment* at which marks were set and removed."""
        got, lost = (
            sorted(round(at - moment, 2) for at in times.values() if at > moment)
            for times in (self.got, self.lost)
        )
        return got, lost


def count(found: Mapping[str, Json]) -> int:
    return sum(bool(mark(one)) for one in found.values())


@contextmanager
def turning(api: Api, pods: int, cpu: str) -> Iterator[tuple[Marks, float]]:
    """Create Pending pods, then set all of them unschedulable; no scheduler runs."""
    names = [f"p{number:03}" for number in range(pods)]
    for name in names:
        api.create(PODS, pod(name, cpu=cpu))
    marks, turned = Marks(api), time.monotonic()
    for name in names:
        api.merge(f"{PODS}/{name}/status", REFUSED)
    yield marks, turned
    marks.ended()


def test_marking_stops_and_nodes_are_unmarked_when_pods_become_unschedulable(
    replica: Replica, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call takes half a second, so marking all nodes would take half a minute."""
    add_nodes(api, "n000")
    api.create(PODS, pod("there", node_name="n000"))
    with replica.line.be(State.SLOW):
        add_nodes(api, *(f"n{number:03}" for number in range(1, 130)))
        api.wait(NODES, lambda found: count(found) >= 8)
        with turning(api, 120, "3900m") as (marks, turned):
            pass
    got, lost = marks.since(turned)
    with capsys.disabled():
        print(
            f"\ncalls of {SLOW_SECONDS} s: {len(marks.before)} of 130 nodes were marked when 120 "
            f"pods turned; marked after that: {got} s; unmarked: {lost} s"
        )
    assert max(got, default=0.0) < BUSY_SECONDS
    assert len(lost) == len(marks.before) + len(got)
    assert lost[-1] < BUSY_SECONDS
    assert not any(mark(one) for one in api.get(NODES)["items"])


def test_marking_continues_when_unschedulable_pods_fit_on_no_node(
    replica: Replica, api: Api
) -> None:
    add_nodes(api, "n00")
    api.create(PODS, pod("there", node_name="n00"))
    end = threading.Event()

    def stream() -> None:
        number = 0
        while not end.wait(0.05):
            api.create(PODS, pod(f"never-{number}", cpu=f"{5000 + number}m"))
            api.merge(f"{PODS}/never-{number}/status", REFUSED)
            number += 1

    streaming = threading.Thread(target=stream)
    with replica.line.be(State.SLOW):
        streaming.start()
        try:
            add_nodes(api, *(f"n{number:02}" for number in range(1, 30)))
            api.wait(NODES, lambda found: count(found) == 29)
        finally:
            end.set()
            streaming.join()
    assert replica.ebb.metric_sum("ebb_node_writes_total", 'result="dropped"') == 0
    assert replica.ebb.metric("ebb_reconcile_errors_total") == 0
