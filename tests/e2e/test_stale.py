"""An outdated plan is abandoned, even when the API server is slow."""

import itertools
import threading
from collections.abc import Iterator, Mapping

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
from tests.e2e.plane import Plane, until
from tests.e2e.replica import Replica
from tests.e2e.test_safety import mark

NODE_COUNT = 130
MARKED_MAX = NODE_COUNT // 2
"""Maximum number of nodes that are ever marked; an outdated plan would mark all but one.

About a dozen are marked when the pods turn, and calls in progress are completed.
"""
UNMARKED_SECONDS = 60.0
RECONCILIATIONS = "ebb_reconcile_duration_seconds_count"
NUMBERS = itertools.count()
REFUSED = {
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    }
}


@pytest.fixture
def replica(plane: Plane) -> Iterator[Replica]:
    """Run a webhook, and a controller with a proxy to the API server; yield the controller."""
    cooldown = {"delayAfterAdd": "0s", "delayAfterPending": "10m"}
    thresholds = {"cpu": "80%", "memory": "80%"}
    how = {"usableCapacity": "all", "cooldown": cooldown, "thresholds": thresholds}
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


def count(found: Mapping[str, Json]) -> int:
    return sum(bool(mark(one)) for one in found.values())


def test_marking_stops_and_nodes_are_unmarked_when_pods_become_unschedulable(
    replica: Replica, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call takes half a second, so marking all nodes would take half a minute."""
    ever: set[str] = set()

    def note(_: str, found: Json) -> None:
        if mark(found):
            ever.add(found["metadata"]["name"])

    def turn() -> None:
        for name in names:
            api.merge(f"{PODS}/{name}/status", REFUSED)

    add_nodes(api, "n000")
    api.create(PODS, pod("there", node_name="n000"))
    names = [f"p{number:03}" for number in range(120)]
    with replica.line.be(State.SLOW):
        add_nodes(api, *(f"n{number:03}" for number in range(1, NODE_COUNT)))
        api.wait(NODES, lambda found: count(found) >= 8)
        for name in names:  # no scheduler runs
            api.create(PODS, pod(name, cpu="3900m"))
        before = count({one["metadata"]["name"]: one for one in api.get(NODES)["items"]})
        turning = threading.Thread(target=turn)
        turning.start()
        api.wait(NODES, lambda found: not count(found), UNMARKED_SECONDS, told=note)
        turning.join()
        seen = replica.ebb.metric(RECONCILIATIONS)
        until(lambda: replica.ebb.metric(RECONCILIATIONS) > seen + 2, "reconciliations follow")
        assert not any(mark(one) for one in api.get(NODES)["items"])
    with capsys.disabled():
        print(
            f"\ncalls of {SLOW_SECONDS} s: {before} of {NODE_COUNT} nodes were marked when "
            f"{len(names)} pods turned, and {len(ever) - before} later"
        )
    assert len(ever) < MARKED_MAX


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
