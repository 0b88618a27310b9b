"""Leader election without the API server, a changed taint key, and corrupt certificates."""

import base64
import itertools
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from core.config.settings import Mode
from kube.target import NAMESPACE
from tests.e2e.api import Api
from tests.e2e.install import (
    LEASE,
    REGISTRATION,
    SECRET,
    apply,
    config,
    in_force,
    point,
    port_of,
    remove,
)
from tests.e2e.line import State
from tests.e2e.plane import Plane, until
from tests.e2e.replica import Replica, leads
from webhook.certs import REPLACED

LEASE_SECONDS = 6
LOST = "lost the Lease; this replica stops writing"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
"""Path of the Events about the Secret."""
NEW_KEY = "status-taint.cluster-autoscaler.kubernetes.io/another"

NUMBERS = itertools.count()
"""Numbers for the names of replicas."""

Pair = tuple[Replica, Replica]


@contextmanager
def running(plane: Plane, *modules: str) -> Iterator[list[Replica]]:
    """Run one replica per module in mode enforce; the API server calls the first webhook."""
    apply(plane)
    started: list[Replica] = []
    try:
        for module in modules:
            made = config(
                mode=Mode.ENFORCE,
                usableCapacity="all",
                flags={
                    "controller": {"--lease-duration": f"{LEASE_SECONDS}s"},
                    "webhook": {"--rotation-soak": "5s"},
                },
            )
            started.append(Replica(plane, module, made, f"ebb-{module}-{next(NUMBERS)}"))
        point(plane, port_of(started[modules.index("webhook")].settings))
        for replica in started:
            replica.ebb.wait_ready()
        in_force(plane)
        yield started
    finally:
        for replica in started:
            if replica.ebb.program in plane.programs:
                replica.kill()
            replica.line.end()
        remove(plane)


@pytest.fixture
def controllers(plane: Plane) -> Iterator[Pair]:
    """Run two controllers and one webhook; yield the controllers."""
    with running(plane, "controller", "controller", "webhook") as (one, two, _):
        yield one, two


@pytest.fixture
def webhooks(plane: Plane) -> Iterator[Pair]:
    """Run two webhooks and one controller; yield the webhooks."""
    with running(plane, "controller", "webhook", "webhook") as (_, one, two):
        yield one, two


def leader_first(controllers: Pair) -> Pair:
    one, two = controllers
    until(lambda: leads(one) != leads(two), "one leads")
    return (one, two) if leads(one) else (two, one)


def times(replica: Replica, message: str) -> list[float]:
    """Return the times at which a replica logged this message."""
    lines = replica.ebb.program.log.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [
        datetime.fromisoformat(line["ts"]).timestamp() for line in found if line["msg"] == message
    ]


@pytest.mark.parametrize("state", [State.HANGING, State.THROTTLED, State.BROKEN, State.CUT])
def test_leader_stops_before_other_replica_leads_when_api_server_is_unreachable(
    plane: Plane, controllers: Pair, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, other = leader_first(controllers)
    leader.line.retry_after = "60"
    renewed = 0.0

    def lost() -> list[float]:
        nonlocal renewed
        lease = plane.api.get(LEASE)["spec"]
        if lease["holderIdentity"].startswith(f"{leader.name}_"):
            renewed = datetime.fromisoformat(lease["renewTime"]).timestamp()
        return times(leader, LOST)

    with leader.line.be(state):
        begun = time.time()
        until(lost, "it ends")
        until(lambda: leads(other), "the other leads")
        assert not leads(leader)
    (ended,), began = times(leader, LOST), times(other, "started leading")[-1]
    with capsys.disabled():
        print(f"\n{state.name}: ended after {ended - begun:.2f} s, {began - ended:.2f} s before")
    assert ended < renewed + LEASE_SECONDS, "before the Lease expires"
    assert began > ended
    time.sleep(LEASE_SECONDS / 2)
    assert (leads(leader), leads(other)) == (False, True)


def test_paused_leader_does_not_lead_when_it_resumes(controllers: Pair) -> None:
    leader, other = leader_first(controllers)
    leader.ebb.program.send(signal.SIGSTOP)
    until(lambda: leads(other), "the other leads")
    leader.ebb.program.send(signal.SIGCONT)
    for _ in range(20):
        assert not leads(leader)
        assert leads(other)


@pytest.mark.parametrize(
    "garbage",
    [
        {"ca.crt": "Z2FyYmFnZQ=="},
        {"ca.key": "Z2FyYmFnZQ=="},
        {"ca.crt": None},
        {"ca.crt": "", "ca.key": ""},
    ],
)
def test_invalid_ca_in_secret_is_replaced(
    plane: Plane, api: Api, webhooks: Pair, garbage: dict[str, str | None]
) -> None:
    before = api.get(SECRET)["data"]
    api.merge(SECRET, {"data": garbage})
    until(lambda: has_ca(api, before["ca.crt"]), "a new CA")
    until(lambda: REPLACED in [one["reason"] for one in api.get(EVENTS)["items"]], "an Event")
    for replica in webhooks:
        until(lambda: len(times(replica, "serving a new certificate")) >= 2, "a new leaf")  # noqa: B023
        replica.ebb.wait_ready()
    in_force(plane)


def has_ca(api: Api, before: str) -> bool:
    data = api.get(SECRET).get("data") or {}
    return data.get("ca.crt") not in (None, "", before, "Z2FyYmFnZQ==")


def test_invalid_ca_bundle_is_overwritten(plane: Plane, api: Api, webhooks: Pair) -> None:
    assert webhooks
    found = api.get(REGISTRATION)
    good = found["webhooks"][0]["clientConfig"]["caBundle"]
    found["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(b"garbage").decode()
    api.call("PUT", REGISTRATION, found)
    until(
        lambda: api.get(REGISTRATION)["webhooks"][0]["clientConfig"]["caBundle"] == good,
        "the bundle is mended",
    )
    in_force(plane)
