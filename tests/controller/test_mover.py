"""Surge moves over real sockets: writes, faults, interference, and leaders that end anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from controller.metrics import Metrics
from controller.move_book import MoveRecordCache
from controller.mover import (
    BEGAN,
    ENDED,
    FORBIDDEN,
    MOVED,
    RETRY_SECONDS,
    Mover,
    MoverDependencies,
    MoveStores,
)
from controller.view import ClusterView
from core.config.schedule import Window
from core.config.settings import Config, Mode, PodDeletionCost, UsabilityMode
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.model.cluster import Cluster
from core.model.node import Effect, Taint
from core.moves.records import CONFIG_MAP, MoveOutcome
from kube.client import Client
from kube.decode.kinds import NODES, PODS, SURGE_KINDS
from kube.stores.access_review import AccessReview
from kube.stores.move_records import MoveRecordStore
from kube.stores.objects import pods
from kube.stores.scales import ScaleStore
from tests.support import builders
from tests.support.builders import UNLIMITED
from tests.support.clock import FakeClock
from tests.support.fake_api import FakeApi
from tests.support.fake_deployments import NAMESPACE, FakeDeployments, nodes_of
from tests.support.fake_objects import Json
from tests.support.following import opened

NOW = 1_767_225_600
OURS = "ebb-system"
CONFIG = Config(
    mode=Mode.ENFORCE,
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usability=UsabilityMode.NONE,
    budgets=UNLIMITED,
    surge=SurgeConfig(mode=SurgeMode.ENABLED),
)
DISABLED = replace(CONFIG, surge=SurgeConfig())
WRITES = frozenset({"put", "patch", "patch scale"})


@dataclass
class Source:
    """The reconciler, whose plan is always up to date."""

    view: ClusterView
    config: Config = CONFIG
    reconciled: asyncio.Event = field(default_factory=asyncio.Event)
    moving_pods: frozenset[str] | None = frozenset()

    @property
    def last(self) -> Any:
        cluster = self.view.snapshot(self.config.read_options)()
        return SimpleNamespace(plan=reconcile.plan(cluster, self.config))


class World:
    """A marked node n1 and an unmarked node n2, with Deployments."""

    def __init__(self, api: FakeApi, client: Client) -> None:
        self.api, self.client = api, client
        self.deployments = FakeDeployments(api)
        self.clock = FakeClock(NOW)
        self.rbac: dict[str, bool] = {"scale": True, "costs": True, "records": True}
        self.leading: Callable[[], bool] = lambda: True
        self.unknown: str | None = None
        self.events: list[str] = []
        self.config = CONFIG
        api.put("configmaps", {"metadata": {"name": CONFIG_MAP, "namespace": OURS}})
        self.start("first")

    def start(self, leader: str) -> None:
        """Start another leader, which knows nothing."""
        self.view, self.metrics = ClusterView(), Metrics()
        node = builders.node("n1")
        self.view.changed(
            NODES, builders.marked(node, "PreferNoSchedule", NOW - 60, 1, deadline=NOW + 10**6)
        )
        self.view.changed(NODES, builders.node("n2"))
        self.source = Source(self.view, self.config)

        def access(name: str) -> AccessReview:
            async def ask() -> bool:
                return self.rbac[name]

            return AccessReview(ask, self.clock, name)

        self.mover = Mover(
            self.source,
            self.view,
            MoveStores(
                book=MoveRecordCache(MoveRecordStore(self.client, OURS)),
                scales=ScaleStore(self.client),
                pods=pods(self.client),
            ),
            self.clock,
            self.metrics,
            MoverDependencies(
                leader=leader,
                namespace=OURS,
                leading=lambda: self.leading(),  # noqa: PLW0108 tests replace it
                why_unknown=lambda: self.unknown,
                scale_access=access("scale"),
                cost_access=access("costs"),
                record_access=access("records"),
                record_event=lambda _, reason, *__: self.events.append(reason),
                report_forbidden=lambda reason, _: self.events.append(reason),
            ),
        )

    def sync(self) -> None:
        """Bring the view up to date, as the watches do."""
        for kind in (PODS, *SURGE_KINDS):
            stored = self.api.objects[kind.resource].values()
            found = (kind.decode(orjson.dumps(one)) for one in stored)
            self.view.replaced(kind, [one for one in found if one is not None])

    async def turn(self, *, seconds: int = 1, reconciled: bool = True) -> None:
        """Let the controllers of Kubernetes and the mover take one step each."""
        self.deployments.step()
        self.sync()
        self.source.config = self.config
        if reconciled:
            self.source.reconciled.set()
        await self.mover.turn()
        self.clock.seconds += seconds

    async def turns(self, count: int = 12) -> None:
        for _ in range(count):
            await self.turn()

    @property
    def data(self) -> Json:
        found: Json = self.api.objects["configmaps"][f"{OURS}/{CONFIG_MAP}"].get("data") or {}
        return found

    @property
    def moves(self) -> list[str]:
        return [key for key in self.data if key.startswith("move.")]

    def writes(self) -> list[str]:
        return [call.verb for call in self.api.calls if call.verb in WRITES]

    def outcomes(self) -> dict[str, int]:
        found = {
            outcome.value: self.metrics.registry.get_sample_value(
                "ebb_surge_moves_total", {"outcome": outcome.value}
            )
            for outcome in MoveOutcome
            if outcome
        }
        return {name: int(count) for name, count in found.items() if count}

    def check_as_wanted(self, name: str, replicas: int) -> None:
        """Check that the owner's replicas are restored, and that no Ready pod was missing."""
        assert self.deployments.replicas(name) == replicas
        assert self.moves == []
        assert min(self.deployments.ready) >= replicas


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with made() as found:
        yield found


@asynccontextmanager
async def made() -> AsyncIterator[World]:
    async with FakeApi() as api, opened(api) as client:
        yield World(api, client)


@pytest.mark.parametrize("others", [0, 1, 4])
async def test_pod_is_moved_without_missing_replicas(world: World, others: int) -> None:
    world.deployments.create("web", "n1", *["n2"] * others)
    await world.turns()
    world.check_as_wanted("web", 1 + others)
    assert nodes_of(world.deployments.pods("web")) == ["n2"] * (1 + others)
    assert world.outcomes() == {"moved": 1}
    assert world.events == [BEGAN, MOVED]
    assert world.writes() == ["put", "patch", "patch scale", "put", "put", "patch scale", "put"]
    assert world.source.moving_pods == frozenset()


@pytest.mark.parametrize("allowed", [True, False])
async def test_records_are_read_once_when_surge_is_disabled_and_rbac_allows_it(
    world: World, *, allowed: bool
) -> None:
    world.rbac["records"] = allowed
    world.config = DISABLED
    world.start("other")
    await world.turns(3)
    reads = [call for call in world.api.calls if call.resource == "configmaps"]
    assert len(reads) == allowed
    assert world.source.moving_pods == frozenset()
    world.config = CONFIG
    world.deployments.create("web", "n1")
    await world.turns()
    assert world.outcomes() == {"moved": 1}


async def test_nothing_is_written_when_surge_is_disabled(world: World) -> None:
    world.config = DISABLED
    world.deployments.create("web", "n1")
    await world.turns()
    assert world.writes() == []
    assert not world.mover.needs_objects
    assert [call.verb for call in world.api.calls] == ["get"]


async def test_record_is_written_before_any_other_write(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    assert world.moves == ["move.uid-web"]
    assert world.writes()[0] == "put"
    assert world.source.moving_pods == frozenset({"uid-pod-1"})


async def test_no_move_begins_until_a_reconciliation_ends(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn(reconciled=False)
    assert world.writes() == []
    await world.turn()
    for _ in range(8):
        await world.turn(reconciled=False)
    assert world.outcomes() == {"moved": 1}


async def test_no_move_begins_while_objects_are_unknown(world: World) -> None:
    world.unknown = "deployments have not been listed yet"
    world.deployments.create("web", "n1")
    await world.turns(3)
    assert world.writes() == []
    assert world.mover.needs_objects
    world.unknown = None
    await world.turns()
    assert world.outcomes() == {"moved": 1}


@pytest.mark.parametrize("done", range(8))
async def test_new_leader_finishes_when_leader_ends_between_two_writes(done: int) -> None:
    async with made() as world:
        world.deployments.create("web", "n1", "n2")
        world.leading = lambda: len(world.writes()) < done
        await world.turns(6)
        assert len(world.writes()) == min(done, 7)
        world.leading = lambda: True
        world.start("second")
        await world.turns(100)
        world.check_as_wanted("web", 2)
        assert nodes_of(world.deployments.pods("web")) == ["n2", "n2"]


@pytest.mark.parametrize("done", range(1, 7))
async def test_replicas_are_restored_when_new_leader_has_surge_disabled(done: int) -> None:
    async with made() as world:
        world.deployments.create("web", "n1", "n2")
        world.leading = lambda: len(world.writes()) < done
        await world.turns(6)
        world.leading, world.config = lambda: True, DISABLED
        world.start("second")
        await world.turns(100)
        world.check_as_wanted("web", 2)


@pytest.mark.parametrize("config", [DISABLED, replace(CONFIG, mode=Mode.OBSERVE)])
async def test_moves_end_when_configuration_forbids_them(world: World, config: Config) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turns(3)
    assert world.deployments.replicas("web") == 2
    world.config = config
    await world.turns(4)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"stopped": 1}
    assert nodes_of(world.deployments.pods("web")) == ["n1"]


@pytest.mark.parametrize("failure", [0, 403, 500])
@pytest.mark.parametrize("others", [0, 2])
async def test_pod_remains_when_move_is_undone_before_new_pod_is_available(
    others: int, failure: int
) -> None:
    async with made() as world:
        world.deployments.create("web", "n1", *["n1"] * others)
        world.deployments.start_available = False
        await world.turns(3)
        if failure:
            world.api.fail_next("patch", failure)
        world.config = DISABLED
        await world.turns(8)
        world.check_as_wanted("web", 1 + others)
        assert world.outcomes() == {"stopped": 1}
        # If the cost cannot be written, the new pod remains, which is Ready at least.
        remaining = ["n1"] * others + ["n2" if failure else "n1"]
        assert nodes_of(world.deployments.pods("web")) == remaining


async def test_replicas_are_restored_when_new_pod_never_becomes_ready(world: World) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turns(5)
    assert world.deployments.replicas("web") == 2
    world.clock.seconds += 600
    await world.turns(4)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"timed_out": 1}
    assert world.events == [BEGAN, ENDED]


@pytest.mark.parametrize("node", ["", "n1"])
async def test_replicas_are_restored_when_new_pod_is_misplaced(world: World, node: str) -> None:
    world.deployments.node = node
    world.deployments.create("web", "n1")
    await world.turns(6)
    assert world.deployments.replicas("web") == 1
    assert len(world.deployments.pods("web")) == 1
    assert world.moves == []
    assert set(world.outcomes()) <= {"unschedulable", "misplaced", "pending_pods"}


async def test_replicas_are_restored_when_quota_rejects_the_pod(world: World) -> None:
    world.deployments.quota = "exceeded quota: q"
    world.deployments.create("web", "n1")
    await world.turns(6)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"refused": 1}


@pytest.mark.parametrize("replicas", [1, 3])
async def test_value_of_another_writer_stays(world: World, replicas: int) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turns(3)
    world.deployments.set_replicas("web", replicas, "argocd")
    await world.turns(6)
    assert world.deployments.replicas("web") == replicas
    assert world.moves == []
    assert world.outcomes() == {"interfered": 1}
    assert orjson.loads(world.data["pause.uid-web"])["manager"] == (
        "argocd" if replicas == 1 else ""
    )


async def test_other_moves_continue_when_a_new_pod_is_unschedulable(world: World) -> None:
    world.deployments.start_available = False
    world.deployments.create("a", "n1")
    await world.turns(3)
    world.deployments.node = ""
    world.deployments.create("b", "n1")
    await world.turns(4)
    assert world.outcomes() == {"unschedulable": 1}
    assert (world.deployments.replicas("a"), world.deployments.replicas("b")) == (2, 1)
    world.deployments.let_be_available()
    world.deployments.node = "n2"
    world.deployments.create("c", "n1")
    await world.turns(8)
    assert world.outcomes() == {"unschedulable": 1, "moved": 2}


async def test_only_the_failed_move_waits_when_a_write_fails(world: World) -> None:
    world.deployments.create("a", "n1")
    world.deployments.create("b", "n1")
    world.api.fail_next("patch scale", 500)
    await world.turn()
    assert sorted(map(world.deployments.replicas, "ab")) == [1, 2]
    await world.turns(RETRY_SECONDS + 12)
    for name in "ab":
        assert world.deployments.replicas(name) == 1
    assert world.outcomes() == {"moved": 2}


@pytest.mark.parametrize("verb", ["put", "patch", "patch scale"])
@pytest.mark.parametrize("status", [403, 409, 429, 500])
@pytest.mark.parametrize("passed", range(3))
async def test_moves_end_well_when_any_write_fails_once(
    verb: str, status: int, passed: int
) -> None:
    async with made() as world:
        world.deployments.create("web", "n1")
        for _ in range(passed):
            world.api.pass_next(verb)
        world.api.fail_next(verb, status)
        await world.turns(80)
        world.check_as_wanted("web", 1)
        assert nodes_of(world.deployments.pods("web")) == ["n2"]


async def test_change_of_others_to_records_is_read_again(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    stored = world.api.objects["configmaps"][f"{OURS}/{CONFIG_MAP}"]
    world.api.put("configmaps", {**stored, "data": {**stored["data"], "move.x": "{", "odd": ""}})
    await world.turns()
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}
    assert set(world.data) <= {"begun", "pause.uid-web"}


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_replicas_are_restored_when_records_are_removed_by_hand(turns: int) -> None:
    async with made() as world:
        world.deployments.create("web", "n1")
        await world.turns(turns)
        stored = world.api.objects["configmaps"][f"{OURS}/{CONFIG_MAP}"]
        world.api.put("configmaps", {"metadata": stored["metadata"]})
        await world.turns(20)
        world.check_as_wanted("web", 1)


async def test_replicas_are_restored_when_config_map_is_deleted(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    world.api.remove("configmaps", f"{OURS}/{CONFIG_MAP}")
    await world.turns(10)
    assert world.deployments.replicas("web") == 1
    assert world.mover._book.records.moves == {}
    assert world.outcomes() == {"moved": 1}
    world.deployments.create("b", "n1")
    await world.turns(10)
    assert nodes_of(world.deployments.pods("b")) == ["n1"], "no move begins without a record"


async def test_no_move_begins_when_config_map_does_not_exist(world: World) -> None:
    world.api.remove("configmaps", f"{OURS}/{CONFIG_MAP}")
    world.deployments.create("web", "n1")
    await world.turns(3)
    assert world.writes() == []
    assert world.events == [FORBIDDEN]
    world.api.put("configmaps", {"metadata": {"name": CONFIG_MAP, "namespace": OURS}})
    await world.turns(80)
    assert world.outcomes() == {"moved": 1}


@pytest.mark.parametrize("right", ["scale", "costs"])
async def test_no_move_begins_when_rbac_forbids_a_write(world: World, right: str) -> None:
    world.rbac[right] = False
    world.deployments.create("web", "n1")
    await world.turns(3)
    assert world.writes() == []
    assert world.events == [FORBIDDEN]


async def test_rbac_of_all_namespaces_is_not_needed_when_costs_are_enabled(world: World) -> None:
    world.rbac["costs"] = False
    world.config = replace(CONFIG, pod_deletion_cost=PodDeletionCost.ENABLED)
    world.deployments.create("web", "n1")
    await world.turns()
    assert world.outcomes() == {"moved": 1}


async def test_deletion_costs_wait_until_records_have_been_read(world: World) -> None:
    world.start("second")
    assert world.source.moving_pods is None
    await world.turn()
    assert world.source.moving_pods == frozenset()


async def test_former_leader_stops_writing(world: World) -> None:
    world.deployments.create("web", "n1")
    world.leading = lambda: False
    await world.turns(3)
    assert world.writes() == []


async def test_new_leader_counts_moves_that_the_previous_one_has_begun(world: World) -> None:
    world.config = replace(CONFIG, surge=replace(CONFIG.surge, max_per_hour=1))
    world.deployments.create("a", "n1")
    world.deployments.create("b", "n1")
    await world.turns(10)
    assert world.outcomes() == {"moved": 1}
    world.start("second")
    await world.turns(3)
    assert world.moves == []
    world.clock.seconds += 3660
    await world.turns(10)
    assert world.outcomes() == {"moved": 1}, "of the second leader"


async def test_move_is_finished_when_its_node_is_leaving(world: World) -> None:
    world.deployments.start_available = False
    world.deployments.create("web", "n1")
    await world.turns(3)
    leaving = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
    node = world.view.nodes["n1"]
    world.view.changed(NODES, replace(node, taints=(*node.taints, leaving)))
    await world.turns(3)
    assert len(world.moves) == 1
    world.deployments.let_be_available()
    await world.turns(5)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}
    world.deployments.create("b", "n1")
    await world.turns(3)
    assert world.moves == [], "no move begins"


async def test_removed_node_reports_its_moved_pods(world: World) -> None:
    world.deployments.create("a", "n1")
    world.deployments.create("b", "n1")
    await world.turns()
    world.view.deleted(NODES, "n1")
    await world.turn()
    name = "ebb_surge_moved_pods_per_removed_node"
    value = world.metrics.registry.get_sample_value
    assert (value(f"{name}_sum"), value(f"{name}_count")) == (2, 1)


async def test_plan_knows_moving_replica_sets(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    world.sync()
    facts = world.mover.capture()(Cluster.of((), ())).surge
    assert facts.allowed == facts.moving == {(NAMESPACE, "web-1")}
    await world.turns()
    added = [world.mover.capture()(Cluster.of((), ())).surge.moving for _ in range(2)]
    assert added == [{(NAMESPACE, "web-1")}, frozenset()], "it had one before"


async def test_task_reacts_to_changes_and_due_steps(world: World) -> None:
    world.deployments.create("web", "n1")
    running = asyncio.create_task(world.mover.run(lambda: None))
    try:
        async with asyncio.timeout(20):
            while world.outcomes() != {"moved": 1}:
                world.deployments.step()
                world.sync()
                world.source.reconciled.set()
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    world.check_as_wanted("web", 1)


@pytest.mark.parametrize("turns", range(6))
async def test_task_ends_when_cancelled_while_it_wakes_up(world: World, turns: int) -> None:
    """*turns*: turns of the event loop between the end of a wait and the cancellation."""
    world.mover._due = NOW + 3600
    waiting = asyncio.create_task(world.mover._until_due())
    await asyncio.sleep(0.01)
    world.source.reconciled.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    requested = waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled() is requested


async def test_move_finishes_after_its_window_has_closed(world: World) -> None:
    """Another move does not begin."""
    window = Window(start="0 0 * * *", duration_seconds=60)
    world.config = replace(CONFIG, schedule=(window,))
    world.deployments.create("web", "n1")
    await world.turn()
    assert world.events == [BEGAN]
    world.deployments.create("db", "n1")
    world.clock.seconds = NOW + 60
    await world.turns()
    assert world.outcomes() == {"moved": 1}
    world.check_as_wanted("web", 1)
    assert nodes_of(world.deployments.pods("db")) == ["n1"]
    world.config = CONFIG
    await world.turns()
    assert world.outcomes() == {"moved": 2}


async def test_no_move_begins_during_pause(world: World) -> None:
    world.config = replace(CONFIG, pause_until_seconds=NOW + 3600)
    world.deployments.create("web", "n1")
    await world.turns()
    assert (world.events, world.writes()) == ([], [])
