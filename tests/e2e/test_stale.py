"""A plan that is not true any more is not carried out to its end, however slow the API server."""

import time
from collections.abc import Iterator, Mapping

import pytest

from core.config import Mode
from tests.e2e.api import Api, Json
from tests.e2e.install import apply, config, in_force, point, port_of, remove
from tests.e2e.line import SLOW_SECONDS, State
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import Plane
from tests.e2e.replica import Replica
from tests.e2e.test_safety import mark

NODE_COUNT, POD_COUNT = 140, 120
BUDGET_SECONDS = 1.0
AFTER_SECONDS = 6.0
"""How long it is looked at what is still marked."""


@pytest.fixture(scope="module")
def replica(plane: Plane) -> Iterator[Replica]:
    """The webhook program with a line of its own, and so many passes as it likes."""
    how = {"usability": "none", "cooldown": {"afterNodeAdd": "0s", "afterPending": "10m"}}
    settings = config(mode=Mode.ENFORCE, **how)
    apply(plane)
    point(plane, port_of(settings))
    found = Replica(plane, "ebb-webhook-slow", settings)
    try:
        found.ebb.wait_ready()
        in_force(plane)
        yield found
    finally:
        found.ebb.stop()
        found.line.end()
        remove(plane)


REFUSED = {
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    }
}


def turn(api: Api, name: str, **spec: object) -> None:
    """Create a pod that every node has refused; no scheduler runs here."""
    api.create(PODS, pod(name, **spec))  # type: ignore[arg-type]
    api.merge(f"{PODS}/{name}/status", REFUSED)


def marks(api: Api, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Watch for so long; return when which nodes got a mark, and when which lost theirs."""
    got: dict[str, float] = {}
    lost: dict[str, float] = {}
    listed = api.get(NODES)
    before = {found["metadata"]["name"]: bool(mark(found)) for found in listed["items"]}
    end = time.monotonic() + seconds
    version = listed["metadata"]["resourceVersion"]
    for _, found in api.watched(NODES, version, seconds, {}):
        name, now = found["metadata"]["name"], bool(mark(found))
        if now != before[name]:
            (got if now else lost)[name] = time.monotonic()
        before[name] = now
        if time.monotonic() > end:
            break
    return got, lost


def count(found: Mapping[str, Json]) -> int:
    return sum(bool(mark(one)) for one in found.values())


def test_pods_that_turn_unschedulable_end_the_marking(
    replica: Replica, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every call takes half a second: marking all that could go would take half a minute."""
    with replica.line.be(State.SLOW):
        names = [f"n{number:03}" for number in range(NODE_COUNT)]
        add_nodes(api, *names)
        api.create(PODS, pod("there", node_name="n000"))
        found = api.wait(NODES, lambda found: count(found) >= 8)
        before = {name for name, one in found.items() if mark(one)}
        for number in range(POD_COUNT):
            api.create(PODS, pod(f"p{number:03}", cpu="3900m"))
        api.merge(f"{PODS}/p000/status", REFUSED)
        turned = time.monotonic()
        for number in range(1, POD_COUNT):
            api.merge(f"{PODS}/p{number:03}/status", REFUSED)
        all_turned = time.monotonic() - turned
        got, lost = marks(api, AFTER_SECONDS)
    late = sorted(seconds - turned for seconds in got.values())
    freed = sorted(seconds - turned for seconds in lost.values())
    with capsys.disabled():
        print(
            f"\ncalls of {SLOW_SECONDS} s: {len(before)} nodes marked before; "
            f"120 pods turned within {all_turned:.2f} s; {len(got)} marked in the "
            f"{AFTER_SECONDS:.0f} s after that; released from {freed[:1]} to {freed[-1:]} s"
        )
    assert [seconds for seconds in late if seconds > BUDGET_SECONDS] == []


def test_a_pod_that_needs_a_marked_node_gets_it_within_a_second(
    replica: Replica, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Although others are being marked, and every call takes half a second."""
    names = [f"n{number:02}" for number in range(40)]
    with replica.line.be(State.SLOW):
        add_nodes(api, *names)
        for number, name in enumerate(names):
            api.create(PODS, pod(f"on-{number:02}", node_name=name, cpu="50m"))
        found = api.wait(NODES, lambda found: count(found) >= 8)
        version = api.get(NODES)["metadata"]["resourceVersion"]
        before = {name: bool(mark(one)) for name, one in found.items()}
        for number in range(36):
            api.create(PODS, pod(f"p{number:02}", cpu="3500m"))
        turned = time.monotonic()
        for number in range(36):
            api.merge(f"{PODS}/p{number:02}/status", REFUSED)
        for _, one in api.watched(NODES, version, 10, {}):
            name, now = one["metadata"]["name"], bool(mark(one))
            if before[name] and not now:
                break
            before[name] = now
        seconds = time.monotonic() - turned
    with capsys.disabled():
        print(f"\ncalls of {SLOW_SECONDS} s: first turned to first released: {seconds:.2f} s")
    assert seconds < BUDGET_SECONDS + 0.5


def test_a_stream_of_pods_that_no_node_could_hold_does_not_keep_marking_frozen(
    replica: Replica, api: Api
) -> None:
    add_nodes(api, *(f"n{number:02}" for number in range(20)))
    api.create(PODS, pod("there", node_name="n00"))
    for number in range(100):
        turn(api, f"never-{number:03}", cpu=f"{5 + number}")
        found = {one["metadata"]["name"]: one for one in api.get(NODES)["items"]}
        if count(found) == 19:
            break
    api.wait(NODES, lambda found: count(found) == 19)
    assert replica.ebb.metric("ebb_engine_pass_failures_total") == 0
