"""Refusals by the policies for Ebb's own accounts: when they begin and end, and how often told."""

import pytest

from controller.metrics import Metrics
from controller.refusals import FORGET_SECONDS, REFUSED, RETRY_SECONDS, Refusals
from core.engine.maintenance_gate import RefusedWrite
from kube.client import PolicyRefusedError
from tests.support.clock import FakeClock

NODE, POD = "/api/v1/nodes/n", "/api/v1/namespaces/shop/pods/p"
NOW = 1_767_225_600


class World:
    """Refusals with a clock that tests set."""

    def __init__(self) -> None:
        self.clock, self.metrics = FakeClock(NOW), Metrics()
        self.told: list[tuple[str, str]] = []
        self.refusals = Refusals(self.clock, self.metrics, lambda *one: self.told.append(one))

    def refuse(self, path: str, policy: str = "ebb-controller-nodes") -> None:
        fault = PolicyRefusedError(403, "no", policy=policy, change="metadata.labels: a")
        self.refusals.observe(path, fault)

    def accept(self, path: str) -> None:
        self.refusals.observe(path, None)

    @property
    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("ebb_writes_refused")


@pytest.fixture
def world() -> World:
    return World()


def test_first_refused_write_is_told_once_until_refusal_is_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        world.refuse(NODE)
        world.clock.seconds += RETRY_SECONDS + 1
    ((reason, note),) = world.told
    assert reason == REFUSED
    assert "ValidatingAdmissionPolicy ebb-controller-nodes" in note
    assert "refuses Ebb's writes to nodes (metadata.labels: a)" in note
    assert len(caplog.records) == 1
    world.accept(NODE)
    world.refuse(NODE)
    assert len(world.told) == len(caplog.records) == 2


def test_nothing_begins_for_a_minute_after_each_refused_write(world: World) -> None:
    world.refuse(NODE)
    world.clock.seconds += 30
    world.refuse(NODE)
    until = NOW + 30 + RETRY_SECONDS
    expected = RefusedWrite("ebb-controller-nodes", "metadata.labels: a", until)
    world.clock.seconds = until - 1
    assert world.refusals.of_node() == world.refusals.of_node_or_pod() == expected
    world.clock.seconds = until
    assert world.refusals.of_node() is world.refusals.of_node_or_pod() is None
    assert (world.refusals.current, world.gauge) == ({"nodes": expected}, 1)


def test_refusal_is_over_a_minute_after_it_when_another_write_is_accepted(world: World) -> None:
    world.refuse(NODE)
    world.clock.seconds += 10
    world.accept(POD)
    world.accept(NODE)
    assert world.gauge == 1
    world.clock.seconds = NOW + RETRY_SECONDS
    assert world.gauge == 0


def test_refusal_lasts_when_writes_are_refused_between_accepted_ones(world: World) -> None:
    for _ in range(10):
        world.refuse(NODE)
        world.accept(NODE)
        world.clock.seconds += RETRY_SECONDS - 1
        assert world.gauge == 1
    assert len(world.told) == 1


def test_refusal_is_forgotten_when_nothing_is_written_any_more(world: World) -> None:
    world.refuse(NODE)
    world.clock.seconds += RETRY_SECONDS + FORGET_SECONDS - 1
    assert world.gauge == 1
    world.clock.seconds += 1
    assert (world.gauge, world.refusals.current) == (0, {})


def test_refused_pod_stops_moves_but_no_marks(world: World) -> None:
    world.refuse(POD, "ebb-controller-pods")
    assert world.refusals.of_node() is None
    assert world.refusals.of_node_or_pod() is not None
    world.refuse(NODE)
    assert [one.policy for one in world.refusals.current.values()] == [
        "ebb-controller-pods",
        "ebb-controller-nodes",
    ]
    assert len(world.told) == 2


def test_gauge_is_0_when_another_replica_leads(world: World) -> None:
    world.refuse(NODE)
    world.metrics.is_leading = lambda: False
    assert world.gauge == 0
