"""When the engine looks, what it does about passes that fail, and what interrupts them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controller.loop import (
    FAILURE_SECONDS_MAX,
    FAILURE_SECONDS_MIN,
    PASS_SECONDS_MAX,
    PAUSE_SECONDS,
    PLAN_SECONDS_MAX,
    STALE_SECONDS,
    Loop,
)
from controller.metrics import Metrics
from controller.reconciler import PassReport, Reconciler
from controller.view import ClusterView
from controller.writers import WRITERS_MAX
from core.config.programs import ControllerConfig
from core.config.settings import Config, Mode, UsabilityMode
from core.edge.decode.kinds import KINDS, NODES, PODS, AnyKind
from core.marks.mark import Mark, guard_of
from core.marks.wellknown import KARPENTER_KEEP_ANNOTATION, KARPENTER_LABEL, MARK_LABEL
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.pod import Pod
from core.model.schedulers import KNOWN, SCHEDULER_FIELD
from core.model.workload import DAEMON_SET
from tests.support.admission import merge, node_json
from tests.support.builders import UNLIMITED, marked, pod
from tests.support.clock import FakeClock
from tests.support.slow_api import SlowApi

pytestmark = pytest.mark.mutate

NAMES = [f"n{number:02}" for number in range(40)]
CONFIG = Config(
    mode=Mode.ENFORCE,
    unneeded_time_seconds=0,
    usability=UsabilityMode.NONE,
    budgets=UNLIMITED,
    controller=ControllerConfig(interval_seconds=3600),
)


class Told(Reconciler):
    """Tells of every pass, and does before each what the test wants."""

    def __init__(self, api: SlowApi, metrics: Metrics) -> None:
        super().__init__(CONFIG, api, owner="me", metrics=metrics)
        self.before: Callable[[], object] = lambda: None
        self.passes = 0

    def evaluate(  # type: ignore[override]
        self, cluster: Cluster, now_seconds: int, in_time: Callable[[], bool]
    ) -> PassReport:
        self.passes += 1
        self.before()
        return super().evaluate(cluster, now_seconds, in_time)


class World:
    """Forty nodes that are almost all spare, with a pod each; watches tell what was written."""

    def __init__(self) -> None:
        self.api, self.metrics, self.clock = (
            SlowApi(*map(node_json, NAMES)),
            Metrics(),
            FakeClock(),
        )
        self.view = ClusterView()
        self.controller = Told(self.api, self.metrics)
        self.leading = True
        self.loop = Loop(
            self.view, self.controller, self.clock, self.metrics, lambda: self.leading
        )
        for kind in KINDS:
            self.view.freshness.alive(kind, 0.0)
        self.view.changed(PODS, pod("p", "n00", 500, 500))
        for name in NAMES[1:]:
            self.view.changed(PODS, pod(f"small-{name}", name, 1, 1))
        self.hear()

    def hear(self) -> None:
        self.view.replaced(NODES, [self.api.node(name) for name in NAMES])

    async def until_due(self) -> None:
        """Let every node become a candidate, and its delay pass."""
        await self.loop.step()
        self.clock.seconds += 1

    def marked(self) -> int:
        return sum(MARK_LABEL in self.api.nodes[name]["metadata"]["labels"] for name in NAMES)

    def count(self, what: str) -> float:
        found = self.metrics.registry.get_sample_value(f"ebb_reconcile_{what}_total")
        assert found is not None
        return found

    def turn(self, name: str, cpu: int = 1000, **more: object) -> None:
        waits = replace(pod(name, None, cpu, 100), unschedulable=True)
        self.view.changed(PODS, replace(waits, **more))  # type: ignore[arg-type]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.loop.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert self.api.calls == 0


def fail() -> None:
    raise ZeroDivisionError


async def test_other_schedulers_hold_from_the_next_pass_on() -> None:
    world = World()
    for one in list(world.view.pods.values()):
        theirs = replace(one, scheduler="own", unsupported=(SCHEDULER_FIELD,))
        world.view.changed(PODS, theirs)
    for schedulers, marks in ((KNOWN, 0), ((*KNOWN, "own"), len(NAMES) - 1), (KNOWN, 0)):
        world.controller.config = replace(CONFIG, schedulers=schedulers)
        await world.until_due()
        await world.loop.step()
        world.hear()
        assert world.marked() == marks


async def test_a_pod_that_turned_is_urgent_if_its_scheduler_is_known() -> None:
    world = World()
    await world.until_due()
    world.controller.config = replace(CONFIG, schedulers=("own",))
    lookout = asyncio.create_task(world.loop._check_unschedulable())
    world.turn("theirs")
    await _until(lambda: not world.view.became_unschedulable.is_set())
    world.turn("ours", scheduler="own", unsupported=(SCHEDULER_FIELD,))
    await world.view.wake.wait()
    lookout.cancel()


async def test_a_pass_that_raises_is_counted_and_backed_off_and_ends_nothing() -> None:
    world = World()
    world.controller.before = fail
    waits = []
    for _ in range(8):
        await world.loop.step()
        waits.append(world.loop.pause_seconds)
    assert waits == [FAILURE_SECONDS_MIN * 2**n for n in range(5)] + [FAILURE_SECONDS_MAX] * 3
    assert world.count("errors") == 8
    world.controller.before = lambda: None
    await world.until_due()
    await world.loop.step()
    assert world.loop.pause_seconds == PAUSE_SECONDS
    assert world.marked() == len(NAMES) - 1


async def test_a_pass_that_follows_no_change_is_skipped_and_counted() -> None:
    world = World()
    found = []
    for seconds in (0, 0, 1, 0, 0):
        world.clock.seconds += seconds
        await world.loop.step()
        passes = (
            world.metrics.registry.get_sample_value("ebb_reconcile_total", {"result": result})
            for result in ("evaluated", "skipped")
        )
        found.append((*passes, world.marked()))
    # The delay ends; then the marks that were written are news of a kind that the view lacks.
    assert found == [(1, 0, 0), (1, 1, 0), (2, 1, 39), (2, 2, 39), (2, 3, 39)]
    world.hear()
    await world.loop.step()
    assert (
        world.metrics.registry.get_sample_value("ebb_reconcile_total", {"result": "evaluated"})
        == 3
    )


def harden(world: World) -> None:
    hard = {"labels": {MARK_LABEL: "hard"}}
    world.api.store("n03", merge(world.api.nodes["n03"], {"metadata": hard}))
    world.hear()


@pytest.mark.parametrize(("kinds", "softened"), [({PODS}, True), ({PODS, NODES}, False)])
async def test_hard_marks_do_not_stand_while_nothing_can_be_judged_but_nodes_are_known(
    kinds: set[AnyKind], softened: bool
) -> None:
    world = World()
    harden(world)
    found = []
    for _ in range(3):
        world.clock.seconds += STALE_SECONDS
        for kind in KINDS:
            if kind not in kinds:
                world.view.freshness.alive(kind, world.clock.seconds)
            elif kind is PODS:
                world.view.freshness.lost(kind)
        await world.loop.step()
        found.append(len(world.api.log))
    assert found == ([0, 0, 1] if softened else [0, 0, 0])


async def test_what_was_judged_in_between_begins_that_time_anew() -> None:
    world = World()
    written = []
    for blind in (True, False, True, True, True):
        world.clock.seconds += STALE_SECONDS
        for kind in KINDS:
            world.view.freshness.alive(kind, world.clock.seconds)
        if blind:
            world.view.freshness.lost(PODS)
        await world.loop.step()
        harden(world)
        written.append(len(world.api.log))
    assert [after - written[1] for after in written[2:]] == [0, 0, 1]


async def test_hard_marks_do_not_stand_while_passes_fail() -> None:
    world = World()
    harden(world)
    world.controller.before = fail
    await world.loop.step()
    assert world.api.log == []
    await world.loop.step()
    assert world.api.log == [("patch", "n03")]
    assert world.api.nodes["n03"]["metadata"]["labels"] == {MARK_LABEL: "soft"}
    world.api.down = {"n03"}
    await world.loop.step()
    assert world.loop.pause_seconds == 4 * FAILURE_SECONDS_MIN


async def test_the_lead_survives_passes_that_raise() -> None:
    world = World()
    world.controller.before = fail
    failed = asyncio.Event()

    def fail_and_tell() -> None:
        loop.call_soon_threadsafe(failed.set)
        fail()

    loop = asyncio.get_running_loop()
    world.controller.before = fail_and_tell
    async with world.running():
        world.view.wake.set()
        await failed.wait()
        world.controller.before = lambda: loop.call_soon_threadsafe(good.set)
        good = asyncio.Event()
        world.view.wake.set()
        await good.wait()


async def test_a_pass_that_runs_out_of_time_says_so_and_marks_what_it_has_found() -> None:
    world = World()
    await world.until_due()
    world.controller.before = lambda: setattr(
        world.clock, "seconds", world.clock.seconds + PASS_SECONDS_MAX + 1
    )
    await world.loop.step()
    assert world.count("timeouts") == 1
    assert world.marked() == 0
    world.controller.before = lambda: None
    await world.loop.step()
    assert world.count("timeouts") == 1
    assert world.marked() == len(NAMES) - 1


async def test_a_pass_that_something_interrupts_has_not_run_out_of_time() -> None:
    world = World()
    await world.until_due()
    world.controller.before = world.view.wake.set
    await world.loop.step()
    assert (world.count("timeouts"), world.marked()) == (0, 0)


def lose_a_watch(world: World) -> None:
    world.view.freshness.lost(PODS)


def hear_nothing(world: World) -> None:
    world.clock.seconds = STALE_SECONDS + 1


def become_old(world: World) -> None:
    world.clock.seconds += PLAN_SECONDS_MAX + 1


def wake_too_late(world: World) -> None:
    world.leading = False


def become_urgent(world: World) -> None:
    world.view.wake.set()


@pytest.mark.parametrize(
    "happen", [lose_a_watch, hear_nothing, become_old, wake_too_late, become_urgent]
)
async def test_a_plan_that_may_not_be_true_any_more_is_dropped(
    happen: Callable[[World], None],
) -> None:
    world = World()
    await world.until_due()
    with world.api.held():
        step = asyncio.create_task(world.loop.step())
        await world.api.under_way(WRITERS_MAX)
        happen(world)
    await step
    await world.api.under_way(0)
    assert world.marked() == WRITERS_MAX


FOR_A_SECOND = DisruptionFacts(notes=((KARPENTER_KEEP_ANNOTATION, "1s"),), started_seconds=-100)


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("karpenters", [True, False])
async def test_a_pod_that_comes_while_nodes_are_handed_over_is_not_left_without_a_guard(
    begun: bool, karpenters: bool
) -> None:
    """Where the guard is being lifted already, the next pass puts it back at once.

    On Karpenter's nodes a pod that Cluster Autoscaler would pass over; a DaemonSet's whose time to
    be left in peace is over keeps none.
    """
    world = World()
    for name in NAMES if karpenters else ():
        world.api.nodes[name]["metadata"]["labels"][KARPENTER_LABEL] = "p"
        agent = replace(pod(f"agent-{name}", name, 1, 1), daemon=True, owner_kind=DAEMON_SET)
        world.view.changed(PODS, replace(agent, ties=FOR_A_SECOND))
    world.hear()
    await world.until_due()
    await world.loop.step()
    world.hear()
    for name in NAMES[1:]:
        world.view.deleted(PODS, f"d/small-{name}")
    where = NAMES[1] if begun else NAMES[-1]
    with world.api.held():
        step = asyncio.create_task(world.loop.step())
        await world.api.under_way(WRITERS_MAX)
        came = replace(pod("comes", where, 1, 1), priority=-11 if karpenters else 0)
        world.view.changed(PODS, came)
        assert not world.view.wake.is_set(), "the node is not handed over"
    await step
    guarded = [name for name in NAMES if guard_of(world.api.node(name))]
    assert guarded == ([] if begun else [where])
    world.hear()
    assert world.view.wake.is_set() is begun
    await world.loop.step()
    assert guard_of(world.api.node(where)) is not None


async def test_a_pass_that_cannot_wait_does_not_wait_for_writes() -> None:
    """And a further one sees what has come of them."""
    world = World()
    passes: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    world.controller.before = lambda: loop.call_soon_threadsafe(passes.put_nowait, None)
    async with world.running():
        world.view.wake.set()
        await passes.get()
        world.clock.seconds += 1
        with world.api.held():
            world.view.wake.set()
            await passes.get()
            await world.api.under_way(WRITERS_MAX)
            world.view.wake.set()
            await passes.get()
            assert world.api.calls == WRITERS_MAX
        await passes.get()
    assert world.marked() >= WRITERS_MAX


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 there is nothing to await
        await asyncio.sleep(0)


async def test_a_pod_that_some_node_could_hold_interrupts_a_batch() -> None:
    world = World()
    async with world.running():
        world.turn("waits")
        await world.view.wake.wait()


@pytest.mark.parametrize(
    "impossible", [{"cpu": 5000}, {"unsupported": ("spec.schedulerName",)}], ids=str
)
async def test_a_stream_of_pods_that_no_node_could_hold_interrupts_nothing(
    impossible: dict[str, object],
) -> None:
    """Nor do those that cannot be judged, as long as no mark is hard."""
    world = World()
    await world.until_due()
    with world.api.held():
        lookout = asyncio.create_task(world.loop._check_unschedulable())
        step = asyncio.create_task(world.loop.step())
        for number in range(3):
            world.turn(f"never-{number}", **impossible)  # type: ignore[arg-type]
            await _until(lambda: not world.view.became_unschedulable.is_set())
        assert not world.view.wake.is_set()
    await step
    lookout.cancel()
    assert world.marked() == len(NAMES) - 1


async def test_a_pod_that_cannot_be_judged_is_urgent_if_a_hard_mark_may_keep_it_waiting() -> None:
    world = World()
    world.view.changed(NODES, marked(world.view.nodes["n05"], Mark.HARD, 1))
    lookout = asyncio.create_task(world.loop._check_unschedulable())
    world.turn("unlike", unsupported=("spec.schedulerName",))
    await world.view.wake.wait()
    lookout.cancel()


async def test_what_is_asked_of_pods_that_turned_may_raise() -> None:
    class Odd(Pod):
        @property
        def evaluable(self) -> bool:
            raise ZeroDivisionError

    world = World()
    lookout = asyncio.create_task(world.loop._check_unschedulable())
    world.view.changed(PODS, Odd(namespace="a", name="odd", unschedulable=True))
    await _until(lambda: world.count("errors") == 1)
    world.turn("waits")
    await world.view.wake.wait()
    lookout.cancel()


@pytest.mark.parametrize("then", [lambda: None, fail], ids=["and ends", "and raises"])
async def test_no_collection_of_cycles_stops_reviews_during_a_pass(
    then: Callable[[], None],
) -> None:
    world, seen = World(), []

    def look() -> None:
        seen.append(gc.isenabled())
        then()

    world.controller.before = look
    await world.loop.step()
    assert (seen, gc.isenabled()) == ([False], True)
