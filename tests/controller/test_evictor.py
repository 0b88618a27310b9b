"""Evictions are carried out: answers of the API server, and their consequences."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.evictor import FORBIDDEN, Evictor
from controller.metrics import Metrics
from controller.reconciler import Reconciler
from controller.writers import NO_LIVE_VIEW
from core.config.eviction import EvictionConfig, EvictionMode
from core.config.schedule import Window
from core.config.settings import Config, Mode, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine.maintenance_gate import RefusedWrite
from core.eviction.state import OBSERVE_SECONDS, REFUSED_SECONDS_MIN
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
)
from core.model.cluster import Cluster
from core.model.errors import UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from kube.stores.access_review import ANSWER_SECONDS
from kube.stores.evictions import EvictionAnswer, EvictionResult
from tests.support.admission import NodeApi, node_json
from tests.support.builders import UNLIMITED, pod
from tests.support.clock import FakeClock

NOW = 1_767_225_600
CONFIG = Config(
    mode=Mode.ENFORCE,
    unneeded_time_seconds=0,
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
    eviction=EvictionConfig(mode=EvictionMode.ENABLED, after_seconds=0, max_at_once=2),
)


class PodApi:
    """The eviction API; an evicted pod is recreated elsewhere and Ready."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.right: bool | None = True
        self.requested: list[str] = []
        self.reviews = 0
        self.answers: dict[str, EvictionAnswer] = {}
        self.hold: asyncio.Event | None = None
        self.before: Callable[[], None] = lambda: None
        self.all_requested = asyncio.Event()

    async def allowed(self) -> bool:
        self.reviews += 1
        if self.right is None:
            raise UnavailableError("no answer")
        return self.right

    async def evict(self, pod: Pod) -> EvictionAnswer:
        self.requested.append(pod.name)
        if len(self.requested) == CONFIG.eviction.max_at_once:
            self.all_requested.set()
        self.before()
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.get(pod.name, EvictionAnswer(EvictionResult.EVICTED))
        if answer.result is EvictionResult.EVICTED:
            self._world.move(pod)
        return answer


class World:
    """Two nodes, of which the first is removable; tests change time and pods."""

    def __init__(self, config: Config = CONFIG, pods: int = 3) -> None:
        kept = node_json("n2")
        kept["metadata"]["annotations"] = {KEEP_ANNOTATION: "true"}
        self.nodes = NodeApi(node_json("n1"), kept)
        self.pods = {f"p{number}": make_pod(f"p{number}", "n1") for number in range(pods)}
        self.clock, self.metrics = FakeClock(NOW), Metrics()
        self.api = PodApi(self)
        self.told: list[tuple[str, str]] = []
        self.forbidden: list[str] = []
        self.halted: str | None = None
        self.refused: RefusedWrite | None = None
        self.config = config
        self.start()

    def start(self) -> None:
        """Start a new replica that leads, without state."""
        self.evictor = Evictor(
            self.api,
            self.clock,
            self.metrics,
            own_namespace="ebb-system",
            jitter=lambda: 0.5,
            report_forbidden=lambda reason, _: self.forbidden.append(reason),
        )
        self.controller = Reconciler(
            self.config,
            self.nodes,
            owner="me",
            metrics=self.metrics,
            record_event=lambda _, reason, note: self.told.append((reason, note)),
            evictor=self.evictor,
            refused_write=lambda: self.refused,
        )

    def move(self, pod: Pod) -> None:
        del self.pods[pod.name]
        again = f"{pod.name}x"
        self.pods[again] = replace(pod, name=again, uid=again, node="n2")

    async def reconcile(self, seconds: int = 1) -> None:
        self.clock.seconds += seconds
        nodes = [self.nodes.node(name) for name in self.nodes.nodes]
        cluster = Cluster.of(nodes, self.pods.values())
        report = self.controller.evaluate(cluster, self.clock.unix_seconds())
        sight = NO_LIVE_VIEW._replace(halted=lambda: self.halted)
        await self.controller.carry_out(report, sight)

    async def reconcile_times(self, count: int, seconds: int = 1) -> None:
        for _ in range(count):
            await self.reconcile(seconds)

    async def until_no_schedule(self) -> None:
        """Reconcile until the mark is NoSchedule and the leader has almost observed enough."""
        await self.reconcile_times(3)
        await self.reconcile(OBSERVE_SECONDS - 4)
        assert self.mark == "NoSchedule"
        assert self.api.requested == []

    @property
    def n1(self) -> Node:
        return self.nodes.node("n1")

    @property
    def mark(self) -> str | None:
        return self.n1.labels.get(MARK_LABEL)

    def evictions(self, result: str) -> float:
        labels = {"result": result}
        return self.metrics.registry.get_sample_value("ebb_evictions_total", labels) or 0


def make_pod(name: str, on: str) -> Pod:
    made = pod(name, on, 100, 100)
    return replace(made, uid=name, owner_name="web", ready=True)


async def test_marked_node_becomes_no_schedule_and_is_emptied_in_batches() -> None:
    world = World()
    await world.until_no_schedule()
    await world.reconcile(3)
    assert sorted(world.api.requested) == ["p0", "p1"]
    await world.reconcile()
    assert sorted(world.api.requested) == ["p0", "p1", "p2"]
    await world.reconcile_times(3)
    assert world.evictions("evicted") == 3
    assert world.mark == "NoSchedule", "no pod returns before the node is deleted"
    assert [one for one in world.told if one[0] == "PodEvicted"] == [
        ("PodEvicted", f"evicted d/{name}") for name in world.api.requested
    ]


async def test_no_further_pod_is_evicted_once_a_write_is_refused() -> None:
    world = World()
    await world.until_no_schedule()

    def refuse() -> None:
        world.refused = RefusedWrite("a-policy", "a", world.clock.unix_seconds() + 60)

    world.api.before = refuse
    await world.reconcile(3)
    first = len(world.api.requested)
    assert 0 < first <= CONFIG.eviction.max_at_once
    await world.reconcile_times(3)
    assert len(world.api.requested) == first
    world.refused, world.api.before = None, lambda: None
    await world.reconcile_times(3)
    assert world.evictions("evicted") == 3


@pytest.mark.parametrize("interval", [60, 100, 600])
async def test_node_is_emptied_when_interval_exceeds_timeout(
    interval: int,
) -> None:
    world = World()
    await world.reconcile_times(6, interval)
    assert (world.api.requested, world.mark) == (["p0", "p1", "p2"], "NoSchedule")


@pytest.mark.parametrize(
    ("answer", "seconds", "events"),
    [
        (EvictionAnswer(EvictionResult.REFUSED, "429"), REFUSED_SECONDS_MIN, 1),
        (EvictionAnswer(EvictionResult.REFUSED, "429", 20), 20, 1),
        (EvictionAnswer(EvictionResult.ERROR, "no answer"), REFUSED_SECONDS_MIN, 1),
        (
            EvictionAnswer(EvictionResult.GONE, "409"),
            REFUSED_SECONDS_MIN,
            0,
        ),  # usually the pod is gone
    ],
)
async def test_failed_eviction_is_retried_after_its_own_pause(
    answer: EvictionAnswer, seconds: int, events: int
) -> None:
    world = World(pods=1)
    await world.until_no_schedule()
    world.api.answers["p0"] = answer
    await world.reconcile(3)
    assert world.evictions(answer.result) == 1
    wait = round(seconds * 1.5)  # the jitter
    await world.reconcile(wait - 1)
    assert world.api.requested == ["p0"]
    await world.reconcile(1)
    assert world.api.requested == ["p0", "p0"]
    refused = [note for reason, note in world.told if reason == "PodEvictionRefused"]
    assert refused == [f"cannot evict d/p0: {answer.why}"] * events


@pytest.mark.parametrize("outcome", [EvictionResult.REFUSED, EvictionResult.GONE])
async def test_evictions_fail_with_reason_when_always_refused(
    outcome: EvictionResult,
) -> None:
    world = World(pods=1)
    await world.until_no_schedule()
    world.api.answers["p0"] = EvictionAnswer(outcome, "a webhook denied it")
    await world.reconcile_times(160, 5)
    assert world.mark is None
    assert world.n1.annotations[BACKOFF_ANNOTATION].endswith(" evict-refused")
    (note,) = [note for reason, note in world.told if reason == "NodeUnmarked"]
    assert "d/p0" in note
    assert "a webhook denied it" in note
    labels = {"reason": "evict-refused"}
    failures = "ebb_drain_failures_total"
    assert world.metrics.registry.get_sample_value(failures, labels) == 1


async def test_node_whose_no_schedule_write_fails_blocks_no_other() -> None:
    world = World(pods=1)
    world.nodes.nodes["n3"], world.nodes.versions["n3"] = node_json("n3"), 1
    world.pods["q"] = make_pod("q", "n3")
    await world.reconcile_times(2)
    world.nodes.down.add("n1")
    await world.reconcile_times(20, 10)
    assert (world.api.requested, world.mark) == (["q"], "PreferNoSchedule")


async def test_evictions_continue_when_pod_is_already_gone() -> None:
    world = World()
    await world.until_no_schedule()
    world.api.answers["p0"] = EvictionAnswer(EvictionResult.GONE)

    def leaves() -> None:
        if "p0" in world.pods:
            world.move(world.pods["p0"])

    world.api.before = leaves
    await world.reconcile_times(6)
    assert world.api.requested == ["p0", "p1", "p2"]
    assert world.evictions("gone") == 1
    assert world.evictions("evicted") == 2


async def test_missing_permission_is_reported_once_and_mark_remains_prefer_no_schedule() -> None:
    world = World()
    world.api.right = False
    await world.reconcile_times(10, 20)
    assert (world.api.requested, world.mark, world.forbidden) == (
        [],
        "PreferNoSchedule",
        [FORBIDDEN],
    )
    gauge = "ebb_eviction_forbidden"
    assert world.metrics.registry.get_sample_value(gauge) == 1
    world.metrics.is_leading = lambda: False
    assert world.metrics.registry.get_sample_value(gauge) == 0, (
        "another replica leads and reports it"
    )
    world.metrics.is_leading = lambda: True
    world.api.right = True
    await world.reconcile(ANSWER_SECONDS)
    await world.reconcile_times(3)
    assert world.api.requested == ["p0", "p1", "p2"]
    assert world.metrics.registry.get_sample_value(gauge) == 0
    assert world.forbidden == [FORBIDDEN]


async def test_no_pod_is_evicted_while_permission_is_unknown() -> None:
    world = World()
    world.api.right = None
    await world.reconcile_times(5, 20)
    assert (world.api.requested, world.mark, world.forbidden) == ([], "PreferNoSchedule", [])


@pytest.mark.parametrize("changes", [{"eviction": EvictionConfig()}, {"mode": Mode.OBSERVE}, {}])
async def test_no_review_or_eviction_is_sent_unless_eviction_is_enabled(
    changes: dict[str, Any],
) -> None:
    world = World(replace(CONFIG, **changes) if changes else Config(mode=Mode.ENFORCE))
    await world.reconcile_times(5, 20)
    assert (world.api.requested, world.api.reviews) == ([], 0)


async def test_evictions_stop_and_mark_becomes_prefer_no_schedule_when_disabled() -> None:
    world = World()
    await world.until_no_schedule()
    await world.reconcile(3)
    world.controller.config = replace(CONFIG, eviction=EvictionConfig())
    await world.reconcile_times(4)
    assert (world.mark, len(world.api.requested)) == ("PreferNoSchedule", 2)


async def test_pods_that_arrived_under_prefer_no_schedule_mark_are_not_returned_pods() -> None:
    world = World()
    await world.until_no_schedule()
    await world.reconcile(3)
    await world.controller.set_prefer_no_schedule([world.n1])
    assert (world.mark, len(world.api.requested)) == ("PreferNoSchedule", 2)
    world.pods["new"] = make_pod("new", "n1")
    await world.reconcile_times(4)
    assert world.mark == "NoSchedule"
    assert sorted(world.api.requested) == ["new", "p0", "p1", "p2"]


async def test_eviction_stops_when_leadership_is_lost() -> None:
    world = World()
    await world.until_no_schedule()

    def lost() -> None:
        world.halted = "this replica does not lead any more"

    world.api.before = lost
    await world.reconcile(3)
    await world.reconcile_times(3)
    assert len(world.api.requested) == 1


async def test_overtaking_reconciliation_evicts_no_pods() -> None:
    world = World()
    await world.until_no_schedule()
    world.api.hold = asyncio.Event()
    first = asyncio.create_task(world.reconcile(3))
    await world.api.all_requested.wait()
    await world.reconcile()
    assert len(world.api.requested) == CONFIG.eviction.max_at_once
    world.api.hold.set()
    await first
    await world.reconcile_times(3)
    assert sorted(world.api.requested) == ["p0", "p1", "p2"]


async def test_new_leader_observes_again_before_it_evicts() -> None:
    world = World()
    await world.until_no_schedule()
    await world.reconcile(3)
    world.controller.begin()
    await world.reconcile_times(4)
    assert len(world.api.requested) == 2
    await world.reconcile(OBSERVE_SECONDS)
    assert len(world.api.requested) == 3


@pytest.mark.parametrize(
    ("right", "agent", "mark"),
    [
        (True, {}, "NoSchedule"),
        (None, {}, "NoSchedule"),
        (False, {}, "PreferNoSchedule"),
        (True, {"daemon": True, "owner_kind": "DaemonSet"}, "PreferNoSchedule"),
    ],
)
async def test_new_replica_keeps_no_schedule_mark_unless_it_is_blocked(
    right: bool | None, agent: dict[str, Any], mark: str
) -> None:
    world = World(pods=5)
    await world.until_no_schedule()
    await world.reconcile(3)
    world.pods["agent"] = replace(make_pod("agent", "n1"), **agent)
    world.api.right = right
    world.start()
    gauge = len(world.told)
    await world.reconcile_times(2, 10)
    assert world.mark == mark
    kinds = {reason for reason, _ in world.told[gauge:]} - {"PodEvicted"}
    assert kinds == ({"PreferNoScheduleSet"} if mark == "PreferNoSchedule" else set())


async def test_node_whose_write_fails_does_not_block_evictions_of_another() -> None:
    world = World()
    left_over = node_json("n3")
    left_over["metadata"]["annotations"] = {KEEP_ANNOTATION: "true", PROTECTION_ANNOTATION: "1"}
    world.nodes.nodes["n3"], world.nodes.versions["n3"] = left_over, 1
    world.nodes.down.add("n3")
    await world.until_no_schedule()
    await world.reconcile_times(3, 3)
    assert len(world.api.requested) == 3
    assert ("patch", "n3") in world.nodes.log


async def test_no_pod_is_evicted_after_permit_has_ended() -> None:
    """The window closes between the decision and the eviction."""
    window = Window(start="0 * * * *", duration_seconds=60)
    world = World(replace(CONFIG, schedule=(window,)), pods=1)
    await world.until_no_schedule()
    world.clock.seconds += 3
    nodes = [world.nodes.node(name) for name in world.nodes.nodes]
    cluster = Cluster.of(nodes, world.pods.values())
    report = world.controller.evaluate(cluster, world.clock.unix_seconds())
    world.clock.seconds = NOW + 60
    await world.controller.carry_out(report, NO_LIVE_VIEW)
    assert world.api.requested == []
    await world.reconcile_times(3)
    assert (world.api.requested, world.mark) == ([], "NoSchedule"), "marks stay"
    world.clock.seconds = NOW + 3600
    await world.reconcile_times(2)
    assert world.api.requested == ["p0"]
