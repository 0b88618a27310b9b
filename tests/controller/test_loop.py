"""When reconciliations start, what interrupts them, and how failed ones are retried."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controller.loop import (
    FAILURE_SECONDS_MAX,
    FAILURE_SECONDS_MIN,
    PAUSE_SECONDS,
    PLAN_SECONDS_MAX,
    RECONCILIATION_SECONDS_MAX,
    STALE_SECONDS,
    Loop,
)
from controller.metrics import Metrics
from controller.reconciler import Reconciler, ReconcileReport
from controller.view import ClusterView
from controller.writers import WRITERS_MAX
from core.cluster.read_options import KNOWN_SCHEDULERS, SCHEDULER_FIELD
from core.config.programs import ControllerConfig
from core.config.schedule import Window
from core.config.settings import Config, Mode, UsabilityMode
from core.marks.mark import Mark, protection_of
from core.marks.wellknown import DO_NOT_DISRUPT_ANNOTATION, KARPENTER_LABEL, MARK_LABEL
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.pod import DAEMON_SET, Pod
from kube.cluster_kinds import KINDS
from kube.decode.kinds import NODES, PODS, AnyKind
from tests.support.admission import merge, node_json
from tests.support.builders import UNLIMITED, marked, pod
from tests.support.clock import FakeClock
from tests.support.slow_api import SlowApi

pytestmark = pytest.mark.mutate

NAMES = [f"n{number:02}" for number in range(40)]
CONFIG = Config(
    mode=Mode.ENFORCE,
    unneeded_time_seconds=0,
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
    controller=ControllerConfig(interval_seconds=3600),
)


class RecordingReconciler(Reconciler):
    """Counts reconciliations, and calls a function of the test before each."""

    def __init__(self, api: SlowApi, metrics: Metrics) -> None:
        super().__init__(CONFIG, api, owner="me", metrics=metrics)
        self.before: Callable[[], object] = lambda: None
        self.passes = 0

    def evaluate(  # type: ignore[override]
        self, cluster: Cluster, now_seconds: int, in_time: Callable[[], bool]
    ) -> ReconcileReport:
        self.passes += 1
        self.before()
        return super().evaluate(cluster, now_seconds, in_time)


class World:
    """Forty nodes with a small pod each, almost all removable; `sync` updates the view."""

    def __init__(self) -> None:
        self.api, self.metrics, self.clock = (
            SlowApi(*map(node_json, NAMES)),
            Metrics(),
            FakeClock(),
        )
        self.view = ClusterView()
        self.controller = RecordingReconciler(self.api, self.metrics)
        self.leading = True
        self.loop = Loop(
            self.view, self.controller, self.clock, self.metrics, lambda: self.leading
        )
        for kind in KINDS:
            self.view.freshness.alive(kind, 0.0)
        self.view.changed(PODS, pod("p", "n00", 500, 500))
        for name in NAMES[1:]:
            self.view.changed(PODS, pod(f"small-{name}", name, 1, 1))
        self.sync()

    def sync(self) -> None:
        self.view.replaced(NODES, [self.api.node(name) for name in NAMES])

    async def until_due(self) -> None:
        """Make every node a candidate, and let its unneeded time pass."""
        await self.loop.step()
        self.clock.seconds += 1

    def marked(self) -> int:
        return sum(MARK_LABEL in self.api.nodes[name]["metadata"]["labels"] for name in NAMES)

    def count(self, what: str) -> float:
        found = self.metrics.registry.get_sample_value(f"ebb_reconcile_{what}_total")
        assert found is not None
        return found

    def add_unschedulable(self, name: str, cpu: int = 1000, **more: object) -> None:
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


async def test_changed_schedulers_apply_from_next_reconciliation() -> None:
    world = World()
    for one in list(world.view.pods.values()):
        theirs = replace(one, scheduler="own", unsupported=(SCHEDULER_FIELD,))
        world.view.changed(PODS, theirs)
    for schedulers, marks in (
        (KNOWN_SCHEDULERS, 0),
        ((*KNOWN_SCHEDULERS, "own"), len(NAMES) - 1),
        (KNOWN_SCHEDULERS, 0),
    ):
        world.controller.config = replace(CONFIG, schedulers=schedulers)
        await world.until_due()
        await world.loop.step()
        world.sync()
        assert world.marked() == marks


async def test_unschedulable_pod_is_urgent_when_its_scheduler_is_configured() -> None:
    world = World()
    await world.until_due()
    world.controller.config = replace(CONFIG, schedulers=("own",))
    lookout = asyncio.create_task(world.loop._check_unschedulable())
    world.add_unschedulable("theirs")
    await _until(lambda: not world.view.became_unschedulable.is_set())
    world.add_unschedulable("ours", scheduler="own", unsupported=(SCHEDULER_FIELD,))
    await world.view.wake.wait()
    lookout.cancel()


async def test_failed_reconciliation_is_counted_and_retried_with_backoff() -> None:
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


async def test_reconciliation_is_skipped_and_counted_when_nothing_changed() -> None:
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
    # The unneeded time ends; then the view has not yet received the written marks.
    assert found == [(1, 0, 0), (1, 1, 0), (2, 1, 39), (2, 2, 39), (2, 3, 39)]
    world.sync()
    await world.loop.step()
    assert (
        world.metrics.registry.get_sample_value("ebb_reconcile_total", {"result": "evaluated"})
        == 3
    )


def mark_no_schedule(world: World) -> None:
    hard = {"labels": {MARK_LABEL: "NoSchedule"}}
    world.api.store("n03", merge(world.api.nodes["n03"], {"metadata": hard}))
    world.sync()


@pytest.mark.parametrize(
    ("kinds", "becomes_prefer_no_schedule"), [({PODS}, True), ({PODS, NODES}, False)]
)
async def test_marks_become_prefer_no_schedule_when_only_pods_are_stale(
    kinds: set[AnyKind], becomes_prefer_no_schedule: bool
) -> None:
    world = World()
    mark_no_schedule(world)
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
    assert found == ([0, 0, 1] if becomes_prefer_no_schedule else [0, 0, 0])


async def test_successful_reconciliation_restarts_time_until_marks_become_prefer_no_schedule() -> (
    None
):
    world = World()
    written = []
    for blind in (True, False, True, True, True):
        world.clock.seconds += STALE_SECONDS
        for kind in KINDS:
            world.view.freshness.alive(kind, world.clock.seconds)
        if blind:
            world.view.freshness.lost(PODS)
        await world.loop.step()
        mark_no_schedule(world)
        written.append(len(world.api.log))
    assert [after - written[1] for after in written[2:]] == [0, 0, 1]


async def test_marks_become_prefer_no_schedule_while_reconciliations_fail() -> None:
    world = World()
    mark_no_schedule(world)
    world.controller.before = fail
    await world.loop.step()
    assert world.api.log == []
    await world.loop.step()
    assert world.api.log == [("patch", "n03")]
    assert world.api.nodes["n03"]["metadata"]["labels"] == {MARK_LABEL: "PreferNoSchedule"}
    world.api.down = {"n03"}
    await world.loop.step()
    assert world.loop.pause_seconds == 4 * FAILURE_SECONDS_MIN


async def test_loop_continues_when_reconciliations_raise() -> None:
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


async def test_reconciliation_timeout_is_counted_and_next_reconciliation_marks() -> None:
    world = World()
    await world.until_due()
    world.controller.before = lambda: setattr(
        world.clock, "seconds", world.clock.seconds + RECONCILIATION_SECONDS_MAX + 1
    )
    await world.loop.step()
    assert world.count("timeouts") == 1
    assert world.marked() == 0
    world.controller.before = lambda: None
    await world.loop.step()
    assert world.count("timeouts") == 1
    assert world.marked() == len(NAMES) - 1


async def test_interrupted_reconciliation_is_no_timeout() -> None:
    world = World()
    await world.until_due()
    world.controller.before = world.view.wake.set
    await world.loop.step()
    assert (world.count("timeouts"), world.marked()) == (0, 0)


def lose_a_watch(world: World) -> None:
    world.view.freshness.lost(PODS)


def receive_nothing(world: World) -> None:
    world.clock.seconds = STALE_SECONDS + 1


def let_plan_expire(world: World) -> None:
    world.clock.seconds += PLAN_SECONDS_MAX + 1


def lose_leadership(world: World) -> None:
    world.leading = False


def become_urgent(world: World) -> None:
    world.view.wake.set()


@pytest.mark.parametrize(
    "interrupt", [lose_a_watch, receive_nothing, let_plan_expire, lose_leadership, become_urgent]
)
async def test_remaining_writes_are_dropped_when_plan_becomes_invalid(
    interrupt: Callable[[World], None],
) -> None:
    world = World()
    await world.until_due()
    with world.api.held():
        step = asyncio.create_task(world.loop.step())
        await world.api.under_way(WRITERS_MAX)
        interrupt(world)
    await step
    await world.api.under_way(0)
    assert world.marked() == WRITERS_MAX


FOR_A_SECOND = DisruptionFacts(notes=((DO_NOT_DISRUPT_ANNOTATION, "1s"),), started_seconds=-100)


@pytest.mark.parametrize("in_progress", [True, False])
@pytest.mark.parametrize("karpenters", [True, False])
async def test_node_is_protected_when_pod_arrives_while_its_protection_is_removed(
    in_progress: bool, karpenters: bool
) -> None:
    """If the protection is being removed already, the next reconciliation restores it at once.

    On Karpenter nodes expendable pods count too, but not a pod of a DaemonSet whose
    do-not-disrupt duration has ended.
    """
    world = World()
    for name in NAMES if karpenters else ():
        world.api.nodes[name]["metadata"]["labels"][KARPENTER_LABEL] = "p"
        agent = replace(pod(f"agent-{name}", name, 1, 1), daemon=True, owner_kind=DAEMON_SET)
        world.view.changed(PODS, replace(agent, disruption_facts=FOR_A_SECOND))
    world.sync()
    await world.until_due()
    await world.loop.step()
    world.sync()
    for name in NAMES[1:]:
        world.view.deleted(PODS, f"d/small-{name}")
    where = NAMES[1] if in_progress else NAMES[-1]
    with world.api.held():
        step = asyncio.create_task(world.loop.step())
        await world.api.under_way(WRITERS_MAX)
        came = replace(pod("comes", where, 1, 1), priority=-11 if karpenters else 0)
        world.view.changed(PODS, came)
        assert not world.view.wake.is_set(), "the protection is not removed yet"
    await step
    protected = [name for name in NAMES if protection_of(world.api.node(name))]
    assert protected == ([] if in_progress else [where])
    world.sync()
    assert world.view.wake.is_set() is in_progress
    await world.loop.step()
    assert protection_of(world.api.node(where)) is not None


async def test_urgent_reconciliation_does_not_wait_for_writes() -> None:
    """A further reconciliation then sees the results of these writes."""
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


async def test_unschedulable_pod_that_fits_node_is_urgent() -> None:
    world = World()
    async with world.running():
        world.add_unschedulable("waits")
        await world.view.wake.wait()


@pytest.mark.parametrize(
    "impossible", [{"cpu": 5000}, {"unsupported": ("spec.schedulerName",)}], ids=str
)
async def test_unschedulable_pods_that_fit_no_node_are_not_urgent(
    impossible: dict[str, object],
) -> None:
    """Unevaluable pods are not urgent either, as long as no mark is NoSchedule."""
    world = World()
    await world.until_due()
    with world.api.held():
        lookout = asyncio.create_task(world.loop._check_unschedulable())
        step = asyncio.create_task(world.loop.step())
        for number in range(3):
            world.add_unschedulable(f"never-{number}", **impossible)  # type: ignore[arg-type]
            await _until(lambda: not world.view.became_unschedulable.is_set())
        assert not world.view.wake.is_set()
    await step
    lookout.cancel()
    assert world.marked() == len(NAMES) - 1


async def test_unevaluable_pod_is_urgent_when_no_schedule_mark_may_block_it() -> None:
    world = World()
    world.view.changed(NODES, marked(world.view.nodes["n05"], Mark.NO_SCHEDULE, 1))
    lookout = asyncio.create_task(world.loop._check_unschedulable())
    world.add_unschedulable("unlike", unsupported=("spec.schedulerName",))
    await world.view.wake.wait()
    lookout.cancel()


async def test_lookout_continues_when_evaluating_pod_raises() -> None:
    class Undecodable(Pod):
        @property
        def evaluable(self) -> bool:
            raise ZeroDivisionError

    world = World()
    lookout = asyncio.create_task(world.loop._check_unschedulable())
    world.view.changed(PODS, Undecodable(namespace="a", name="odd", unschedulable=True))
    await _until(lambda: world.count("errors") == 1)
    world.add_unschedulable("waits")
    await world.view.wake.wait()
    lookout.cancel()


@pytest.mark.parametrize(
    "then", [lambda: None, fail], ids=["reconciliation ends", "reconciliation raises"]
)
async def test_garbage_collector_is_disabled_during_reconciliation(
    then: Callable[[], None],
) -> None:
    world, seen = World(), []

    def look() -> None:
        seen.append(gc.isenabled())
        then()

    world.controller.before = look
    await world.loop.step()
    assert (seen, gc.isenabled()) == ([False], True)


async def test_reconciliation_starts_when_pause_ends_before_interval() -> None:
    world = World()
    world.controller.config = replace(CONFIG, pause_until_seconds=5)
    world.controller.before = lambda: setattr(world.clock, "seconds", 5)
    async with world.running():
        world.view.wake.set()
        await _until(lambda: world.marked() == len(NAMES) - 1)
    assert world.controller.passes == 2
    assert world.controller.opens_at is None


async def test_no_mark_is_written_after_window_has_closed() -> None:
    """The window closes between the decision and the writes."""
    world = World()
    window = Window(start="* * * * *", duration_seconds=60)
    last = Window(start="0 0 1 1 *", duration_seconds=60)
    for made, marks in ((last, 0), (window, len(NAMES) - 1)):
        world.controller.config = replace(CONFIG, schedule=(made,))
        world.clock.seconds = 58
        await world.until_due()
        world.controller.before = lambda: setattr(world.clock, "seconds", 61)
        await world.loop.step()
        assert world.marked() == marks
        world.controller.before = lambda: None
