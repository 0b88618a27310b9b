"""Evictions as they are carried out: what the API server answers, and what then follows."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.access_review import ANSWER_SECONDS
from controller.evictor import FORBIDDEN, Evictor
from controller.metrics import Metrics
from controller.reconciler import PodActions, Reconciler
from controller.stores.evictions import Answer, EvictionResult
from controller.writers import NO_LIVE_VIEW
from core.config.drain import DrainConfig, Eviction
from core.config.settings import Config, Mode, UsabilityMode
from core.config.thresholds import Thresholds
from core.drain.state import OBSERVE_SECONDS, REFUSED_SECONDS_MIN
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
)
from core.model.cluster import Cluster
from core.model.errors import UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from tests.support.admission import NodeApi, node_json
from tests.support.builders import UNLIMITED, pod
from tests.support.clock import FakeClock

NOW = 1_767_225_600
CONFIG = Config(
    mode=Mode.ENFORCE,
    unneeded_time_seconds=0,
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usability=UsabilityMode.NONE,
    budgets=UNLIMITED,
    eviction=Eviction.ENABLED,
    drain=DrainConfig(after_seconds=0, timeout_seconds=100, max_on_node=2),
)


class PodApi:
    """Who evicts: a pod that goes comes back elsewhere, Ready."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.right: bool | None = True
        self.asked: list[str] = []
        self.reviews = 0
        self.answers: dict[str, Answer] = {}
        self.hold: asyncio.Event | None = None
        self.before: Callable[[], None] = lambda: None
        self.all_asked = asyncio.Event()

    async def allowed(self) -> bool:
        self.reviews += 1
        if self.right is None:
            raise UnavailableError("no answer")
        return self.right

    async def evict(self, pod: Pod) -> Answer:
        self.asked.append(pod.name)
        if len(self.asked) == CONFIG.drain.max_on_node:
            self.all_asked.set()
        self.before()
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.get(pod.name, Answer(EvictionResult.EVICTED))
        if answer.result is EvictionResult.EVICTED:
            self._world.moved(pod)
        return answer


class World:
    """Two nodes, of which the first can go; time and pods are the test's to change."""

    def __init__(self, config: Config = CONFIG, pods: int = 3) -> None:
        kept = node_json("n2")
        kept["metadata"]["annotations"] = {KEEP_ANNOTATION: "true"}
        self.nodes = NodeApi(node_json("n1"), kept)
        self.pods = {f"p{number}": a_pod(f"p{number}", "n1") for number in range(pods)}
        self.clock, self.metrics = FakeClock(NOW), Metrics()
        self.api = PodApi(self)
        self.told: list[tuple[str, str]] = []
        self.forbidden: list[str] = []
        self.halted: str | None = None
        self.config = config
        self.starts()

    def starts(self) -> None:
        """Start a replica that leads and knows nothing of another one."""
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
            pod_actions=PodActions(evictor=self.evictor),
        )

    def moved(self, pod: Pod) -> None:
        del self.pods[pod.name]
        again = f"{pod.name}x"
        self.pods[again] = replace(pod, name=again, uid=again, node="n2")

    async def tick(self, seconds: int = 1) -> None:
        self.clock.seconds += seconds
        nodes = [self.nodes.node(name) for name in self.nodes.nodes]
        cluster = Cluster.of(nodes, self.pods.values())
        report = self.controller.evaluate(cluster, self.clock.unix_seconds())
        sight = NO_LIVE_VIEW._replace(halted=lambda: self.halted)
        await self.controller.carry_out(report, sight)

    async def ticks(self, count: int, seconds: int = 1) -> None:
        for _ in range(count):
            await self.tick(seconds)

    async def at_work(self) -> None:
        """Go on until the node is hard and the leader has looked on long enough, but for one."""
        await self.ticks(3)
        await self.tick(OBSERVE_SECONDS - 4)
        assert self.mark == "hard"
        assert self.api.asked == []

    @property
    def n1(self) -> Node:
        return self.nodes.node("n1")

    @property
    def mark(self) -> str | None:
        return self.n1.labels.get(MARK_LABEL)

    def evictions(self, result: str) -> float:
        labels = {"result": result}
        return self.metrics.registry.get_sample_value("ebb_evictions_total", labels) or 0


def a_pod(name: str, on: str) -> Pod:
    made = pod(name, on, 100, 100)
    return replace(made, uid=name, owner_name="web", ready=True)


async def test_a_marked_node_becomes_hard_and_is_emptied_in_batches() -> None:
    world = World()
    await world.at_work()
    await world.tick(3)
    assert sorted(world.api.asked) == ["p0", "p1"]
    await world.tick()
    assert sorted(world.api.asked) == ["p0", "p1", "p2"]
    await world.ticks(3)
    assert world.evictions("evicted") == 3
    assert world.mark == "hard", "nobody comes back before it is gone"
    assert [one for one in world.told if one[0] == "PodEvicted"] == [
        ("PodEvicted", f"evicted d/{name}") for name in world.api.asked
    ]


@pytest.mark.parametrize("interval", [60, 100, 600])
async def test_passes_that_are_further_apart_than_the_timeout_empty_the_node(
    interval: int,
) -> None:
    world = World()
    await world.ticks(6, interval)
    assert (world.api.asked, world.mark) == (["p0", "p1", "p2"], "hard")


@pytest.mark.parametrize(
    ("answer", "seconds", "told"),
    [
        (Answer(EvictionResult.REFUSED, "429"), REFUSED_SECONDS_MIN, 1),
        (Answer(EvictionResult.REFUSED, "429", 20), 20, 1),
        (Answer(EvictionResult.ERROR, "no answer"), REFUSED_SECONDS_MIN, 1),
        (Answer(EvictionResult.GONE, "409"), REFUSED_SECONDS_MIN, 0),  # as a rule it is
    ],
)
async def test_a_pod_that_was_not_let_go_is_asked_for_again_after_its_own_time(
    answer: Answer, seconds: int, told: int
) -> None:
    world = World(pods=1)
    await world.at_work()
    world.api.answers["p0"] = answer
    await world.tick(3)
    assert world.evictions(answer.result) == 1
    wait = round(seconds * 1.5)  # the jitter
    await world.tick(wait - 1)
    assert world.api.asked == ["p0"]
    await world.tick(1)
    assert world.api.asked == ["p0", "p0"]
    refused = [note for reason, note in world.told if reason == "PodEvictionRefused"]
    assert refused == [f"cannot evict d/p0: {answer.why}"] * told


@pytest.mark.parametrize("result", [EvictionResult.REFUSED, EvictionResult.GONE])
async def test_a_pod_that_is_never_let_go_fails_the_drain_and_the_node_says_why(
    result: EvictionResult,
) -> None:
    world = World(pods=1)
    await world.at_work()
    world.api.answers["p0"] = Answer(result, "a webhook denied it")
    await world.ticks(60, 5)
    assert world.mark is None
    assert world.n1.annotations[BACKOFF_ANNOTATION].endswith(" evict-refused")
    (note,) = [note for reason, note in world.told if reason == "DrainReleased"]
    assert "d/p0" in note
    assert "a webhook denied it" in note
    labels = {"reason": "evict-refused"}
    failures = "ebb_drain_failures_total"
    assert world.metrics.registry.get_sample_value(failures, labels) == 1


async def test_a_node_that_refuses_its_hard_mark_for_ever_stops_no_other() -> None:
    world = World(pods=1)
    world.nodes.nodes["n3"], world.nodes.versions["n3"] = node_json("n3"), 1
    world.pods["q"] = a_pod("q", "n3")
    await world.ticks(2)
    world.nodes.down.add("n1")
    await world.ticks(20, 10)
    assert (world.api.asked, world.mark) == (["q"], "soft")


async def test_a_pod_that_is_gone_is_not_waited_for() -> None:
    world = World()
    await world.at_work()
    world.api.answers["p0"] = Answer(EvictionResult.GONE)

    def leaves() -> None:
        if "p0" in world.pods:
            world.moved(world.pods["p0"])

    world.api.before = leaves
    await world.ticks(6)
    assert world.api.asked == ["p0", "p1", "p2"]
    assert world.evictions("gone") == 1
    assert world.evictions("evicted") == 2


async def test_without_the_right_it_is_told_once_and_the_node_stays_soft() -> None:
    world = World()
    world.api.right = False
    await world.ticks(10, 20)
    assert (world.api.asked, world.mark, world.forbidden) == ([], "soft", [FORBIDDEN])
    told = "ebb_eviction_forbidden"
    assert world.metrics.registry.get_sample_value(told) == 1
    world.metrics.is_leading = lambda: False
    assert world.metrics.registry.get_sample_value(told) == 0, "another leads, and tells of it"
    world.metrics.is_leading = lambda: True
    world.api.right = True
    await world.tick(ANSWER_SECONDS)
    await world.ticks(3)
    assert world.api.asked == ["p0", "p1", "p2"]
    assert world.metrics.registry.get_sample_value(told) == 0
    assert world.forbidden == [FORBIDDEN]


async def test_as_long_as_nobody_knows_of_the_right_nothing_is_evicted() -> None:
    world = World()
    world.api.right = None
    await world.ticks(5, 20)
    assert (world.api.asked, world.mark, world.forbidden) == ([], "soft", [])


@pytest.mark.parametrize("changes", [{"eviction": Eviction.DISABLED}, {"mode": Mode.OBSERVE}, {}])
async def test_nothing_is_asked_of_the_api_server_unless_eviction_is_asked_for(
    changes: dict[str, Any],
) -> None:
    world = World(replace(CONFIG, **changes) if changes else Config(mode=Mode.ENFORCE))
    await world.ticks(5, 20)
    assert (world.api.asked, world.api.reviews) == ([], 0)


async def test_turned_off_halfway_the_node_is_soft_again_and_the_other_pods_stay() -> None:
    world = World()
    await world.at_work()
    await world.tick(3)
    world.controller.config = replace(CONFIG, eviction=Eviction.DISABLED)
    await world.ticks(4)
    assert (world.mark, len(world.api.asked)) == ("soft", 2)


async def test_pods_that_came_while_ebb_had_softened_the_mark_are_none_that_came_back() -> None:
    world = World()
    await world.at_work()
    await world.tick(3)
    await world.controller.set_prefer_no_schedule([world.n1])
    assert (world.mark, len(world.api.asked)) == ("soft", 2)
    world.pods["new"] = a_pod("new", "n1")
    await world.ticks(4)
    assert world.mark == "hard"
    assert sorted(world.api.asked) == ["new", "p0", "p1", "p2"]


async def test_whoever_does_not_lead_any_more_evicts_nobody_else() -> None:
    world = World()
    await world.at_work()

    def lost() -> None:
        world.halted = "this replica does not lead any more"

    world.api.before = lost
    await world.tick(3)
    await world.ticks(3)
    assert len(world.api.asked) == 1


async def test_a_pass_that_overtakes_another_evicts_nobody_beside_it() -> None:
    world = World()
    await world.at_work()
    world.api.hold = asyncio.Event()
    first = asyncio.create_task(world.tick(3))
    await world.api.all_asked.wait()
    await world.tick()
    assert len(world.api.asked) == CONFIG.drain.max_on_node
    world.api.hold.set()
    await first
    await world.ticks(3)
    assert sorted(world.api.asked) == ["p0", "p1", "p2"]


async def test_who_leads_anew_looks_on_again() -> None:
    world = World()
    await world.at_work()
    await world.tick(3)
    world.controller.begin()
    await world.ticks(4)
    assert len(world.api.asked) == 2
    await world.tick(OBSERVE_SECONDS)
    assert len(world.api.asked) == 3


@pytest.mark.parametrize(
    ("right", "agent", "mark"),
    [
        (True, {}, "hard"),
        (None, {}, "hard"),
        (False, {}, "soft"),
        (True, {"daemon": True, "owner_kind": "DaemonSet"}, "soft"),
    ],
)
async def test_a_new_replica_leaves_a_mark_hard_unless_something_speaks_against_it(
    right: bool | None, agent: dict[str, Any], mark: str
) -> None:
    world = World(pods=5)
    await world.at_work()
    await world.tick(3)
    world.pods["agent"] = replace(a_pod("agent", "n1"), **agent)
    world.api.right = right
    world.starts()
    told = len(world.told)
    await world.ticks(2, 10)
    assert world.mark == mark
    kinds = {reason for reason, _ in world.told[told:]} - {"PodEvicted"}
    assert kinds == ({"DrainSoftened"} if mark == "soft" else set())


async def test_a_node_that_cannot_be_written_keeps_no_pod_of_another_from_eviction() -> None:
    world = World()
    left_over = node_json("n3")
    left_over["metadata"]["annotations"] = {KEEP_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "1"}
    world.nodes.nodes["n3"], world.nodes.versions["n3"] = left_over, 1
    world.nodes.down.add("n3")
    await world.at_work()
    await world.ticks(3, 3)
    assert len(world.api.asked) == 3
    assert ("patch", "n3") in world.nodes.log
