"""Replicas: leader election of controllers, certificate rotation of webhooks."""

import base64
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self

import pytest

from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from tests.e2e.api import MERGE, Api, Json
from tests.e2e.install import (
    LEASE,
    REGISTRATION,
    SECRET,
    apply,
    config,
    ending,
    in_force,
    point,
    port_of,
    remove,
    start_program,
)
from tests.e2e.objects import NODES, PODS, add_nodes, mark, pod, taints
from tests.e2e.plane import LOOPBACK, Ebb, Plane, free_port, until
from tests.e2e.stub import answering
from webhook.app import MUTATE_PATH
from webhook.certs import ROTATE_ANNOTATION

LEASE_SECONDS = 6
RECONCILIATIONS = "ebb_reconcile_duration_seconds_count"
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"


@contextmanager
def running(plane: Plane, controllers: int, webhooks: int) -> Iterator[list[tuple[Ebb, ...]]]:
    """Run replicas of both programs in mode enforce; the API server calls the first webhook."""
    apply(plane)
    groups: list[tuple[Ebb, ...]] = []
    for module, count in (("controller", controllers), ("webhook", webhooks)):
        group = [
            start_program(plane, module, settings(), f"ebb-{module}-{number}")
            for number in range(count)
        ]
        groups.append(tuple(group))
    started = [ebb for group in groups for ebb in group]
    point(plane, port_of(groups[1][0].settings))
    with ending(plane, *started):
        for ebb in started:
            ebb.wait_ready()
        in_force(plane)
        yield groups
    remove(plane)


def settings() -> Json:
    """Return settings with new free ports."""
    return config(
        mode=Mode.ENFORCE,
        usableCapacity="all",
        flags={
            "controller": {"--lease-duration": f"{LEASE_SECONDS}s"},
            "webhook": {"--rotation-soak": "5s"},
        },
    )


@pytest.fixture
def controllers(plane: Plane) -> Iterator[tuple[Ebb, ...]]:
    """Run two controllers and one webhook; yield the controllers."""
    with running(plane, controllers=2, webhooks=1) as (found, _):
        yield found


@pytest.fixture
def webhooks(plane: Plane) -> Iterator[tuple[Ebb, ...]]:
    """Run two webhooks and one controller; yield the webhooks."""
    with running(plane, controllers=1, webhooks=2) as (_, found):
        yield found


def leader_first(controllers: tuple[Ebb, ...]) -> tuple[Ebb, Ebb]:
    """Return the leader, then the other replica."""
    one, two = controllers
    until(lambda: leads(one) != leads(two), "one leads")
    return (one, two) if leads(one) else (two, one)


def leads(ebb: Ebb) -> bool:
    return ebb.metric("ebb_leader") == 1


def one_marked(api: Api) -> str:
    """Wait until one of two nodes is marked; return its name."""

    def marked(found: dict[str, Json]) -> list[str]:
        return [n for n, one in found.items() if MARK_LABEL in one["metadata"]["labels"]]

    return marked(api.wait(NODES, marked))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_second_replica_becomes_leader_and_marks_remain_when_leader_is_stopped(
    api: Api, controllers: tuple[Ebb, ...], how: signal.Signals
) -> None:
    leader, other = leader_first(controllers)
    # Before the nodes, as an empty node could be marked first, and protected later.
    api.create(PODS, pod("p", node_name="a"))
    api.create(PODS, pod("q", node_name="b"))
    add_nodes(api, "a", "b")
    name = one_marked(api)
    before = api.get(f"{NODES}/{name}")["metadata"]
    held = api.get(LEASE)["spec"]["holderIdentity"]
    leader.stop(how)
    if how is signal.SIGTERM:
        assert api.get(LEASE)["spec"].get("holderIdentity") != held, "given back or taken"
    until(lambda: leads(other), "the other leads")
    if how is signal.SIGTERM:
        assert "released the Lease" in leader.program.log.read_text()
    assert api.get(LEASE)["spec"]["leaseTransitions"] >= 1
    seen = other.metric(RECONCILIATIONS)
    until(lambda: other.metric(RECONCILIATIONS) > seen + 2, "in which nothing should happen")
    after = api.get(f"{NODES}/{name}")["metadata"]
    assert after["labels"][MARK_LABEL] == "PreferNoSchedule"
    assert after["annotations"] == before["annotations"]
    api.create(PODS, pod("big", node_name="b" if name == "a" else "a", cpu="3"))
    api.wait(NODES, lambda found: MARK_LABEL not in found[name]["metadata"]["labels"])


def test_only_leader_reconciles(api: Api, controllers: tuple[Ebb, ...]) -> None:
    leader, other = leader_first(controllers)
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    one_marked(api)
    # The mark is written during the reconciliation, which is counted at its end.
    until(
        lambda: leader.metric(RECONCILIATIONS) > 0, "the leader's first reconciliation has ended"
    )
    assert other.metric(RECONCILIATIONS) == 0


class Stream:
    """A thread that updates a marked Node until it is stopped."""

    def __init__(self, plane: Plane, name: str) -> None:
        self._api, self._path = plane.api_as(plane.admin), f"{NODES}/{name}"
        self.faults: list[str] = []
        self.writes = 0
        self.slowest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            metadata = {"annotations": {"stream": str(self.writes)}}
            body = {"metadata": metadata, "spec": {"taints": None}}
            try:
                answer = self._api.call("PATCH", self._path, body, content=MERGE)
            except Exception as fault:  # noqa: BLE001 the test reports any error
                self.faults.append(str(fault))
                continue
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.writes += 1
            if TAINT_KEY not in [taint["key"] for taint in taints(answer)]:
                self.faults.append(f"write {self.writes}: the webhook did not answer")


def failed_open(plane: Plane) -> float:
    """Return the number of failed webhook calls that the API server has ignored."""
    lines = plane.api.text("/metrics").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(FAIL_OPEN))


def test_ca_rotation_fails_no_webhook_call(
    plane: Plane, api: Api, webhooks: tuple[Ebb, ...]
) -> None:
    first = api.get(SECRET)["data"]["ca.crt"]
    bundle = registered(api)
    before = failed_open(plane)
    add_nodes(api, "n", "other")  # with a second node, the controller does not unmark the first
    mark(api, "n")
    with Stream(plane, "n") as stream:
        api.merge(SECRET, {"metadata": {"annotations": {ROTATE_ANNOTATION: "now"}}})
        until(lambda: api.get(SECRET)["data"]["ca.crt"] != first, "a new CA signs")
        for ebb in webhooks:
            until(partial(signed_anew, ebb), "every replica has signed anew")
        writes = stream.writes
        until(lambda: stream.writes > writes + 50, "more updates under the new CA")
    assert stream.faults == []
    assert failed_open(plane) == before
    assert registered(api) != bundle
    assert ROTATE_ANNOTATION not in (api.get(SECRET)["metadata"].get("annotations") or {})


def registered(api: Api) -> str:
    bundle: str = api.get(REGISTRATION)["webhooks"][0]["clientConfig"]["caBundle"]
    return bundle


def signed_anew(ebb: Ebb) -> bool:
    """Return whether the replica has served a second certificate."""
    return ebb.program.log.read_text().count("serving a new certificate") >= 2


class TestBrokenWebhook:
    """Updates of Nodes succeed, whatever the webhook does."""

    @pytest.fixture
    def marked(self, api: Api, webhooks: tuple[Ebb, ...]) -> Api:
        assert webhooks
        add_nodes(api, "n", "other")
        mark(api, "n")
        return api

    def update(self, api: Api) -> float:
        """Update the Node; return the duration in seconds."""
        begun = time.monotonic()
        value = str(begun)
        answer = api.merge(f"{NODES}/n", {"metadata": {"annotations": {"written": value}}})
        assert answer["metadata"]["annotations"]["written"] == value
        return time.monotonic() - begun

    def test_node_update_succeeds_when_webhook_is_killed(
        self, marked: Api, webhooks: tuple[Ebb, ...]
    ) -> None:
        webhooks[0].stop(signal.SIGKILL)
        self.update(marked)

    def test_node_update_succeeds_after_timeout_when_webhook_is_paused(
        self, marked: Api, webhooks: tuple[Ebb, ...]
    ) -> None:
        timeout = marked.get(REGISTRATION)["webhooks"][0]["timeoutSeconds"]
        webhooks[0].program.send(signal.SIGSTOP)
        assert self.update(marked) >= timeout, "it was waited for"
        webhooks[0].program.send(signal.SIGCONT)

    @pytest.mark.parametrize(
        ("body", "status"),
        [(b"garbage", 200), (b"{}", 200), (b"", 500), (b'{"response":{"uid":"x"}}', 200)],
    )
    def test_node_update_succeeds_when_webhook_response_is_invalid(
        self, plane: Plane, marked: Api, body: bytes, status: int
    ) -> None:
        served = plane.authority.sign("stub", "stub", hosts=(LOOPBACK,))
        before = failed_open(plane)
        with answering(body, status=status, serving=served) as port:
            found = marked.get(REGISTRATION)
            client = found["webhooks"][0]["clientConfig"]
            client["url"] = f"https://{LOOPBACK}:{port}{MUTATE_PATH}"
            client["caBundle"] = encoded(plane)
            marked.call("PUT", REGISTRATION, found)

            def went_open() -> bool:
                self.update(marked)
                return failed_open(plane) > before

            until(went_open, "the stub was asked and passed over")

    def test_node_update_succeeds_when_webhook_port_is_closed(
        self, plane: Plane, marked: Api
    ) -> None:
        point(plane, free_port())
        before = failed_open(plane)

        def went_open() -> bool:
            self.update(marked)
            return failed_open(plane) > before

        until(went_open, "the closed port was asked and passed over")


def encoded(plane: Plane) -> str:
    return base64.b64encode(plane.authority.certificate.read_bytes()).decode()
