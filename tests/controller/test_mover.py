"""Surge moves over real sockets: patches, faults, changes by others, leaders that end anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from controller.handovers import Handovers
from controller.hourly_moves import HourlyMoves
from controller.metrics import Metrics
from controller.mover import (
    BEGAN,
    ENDED,
    FORBIDDEN,
    FOUND_MAX,
    HANDED_OVER,
    MOVED,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    SEEN_SECONDS_MAX,
    Mover,
    MoverDependencies,
    MoveStores,
)
from controller.refusals import Refusals
from controller.view import ClusterView
from core.config.schedule import Window
from core.config.settings import Config, Mode, UsabilityMode
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.node_share import WINDOW_SECONDS
from core.model.cluster import Cluster
from core.moves.hourly import MOVES_BEGUN_ANNOTATION
from core.moves.note import OVERDUE_SECONDS, MoveNote
from core.moves.outcomes import SETTLE_SECONDS, MoveOutcome
from kube.client import Client
from kube.cluster_kinds import SURGE_KINDS
from kube.decode.kinds import NODES, PODS
from kube.stores.access_review import AccessReview
from kube.stores.lease import Lease
from kube.stores.objects import TRIES_MAX, pods
from kube.stores.pod_moves import PodMoves
from kube.stores.selecting import selecting_objects
from tests.support import builders
from tests.support.builders import UNLIMITED
from tests.support.clock import FakeClock
from tests.support.fake_api import STRATEGIC, Call, FakeApi
from tests.support.fake_deployments import NAMESPACE, FakeDeployments, nodes_of
from tests.support.fake_objects import Json
from tests.support.following import opened
from tests.support.leases import Door, Store

NOW = 1_767_225_600
OURS = "ebb-system"
CONFIG = Config(
    mode=Mode.ENFORCE,
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
    surge=SurgeConfig(mode=SurgeMode.ENABLED),
)
DISABLED = replace(CONFIG, surge=SurgeConfig())
HASH, DETACHED = "pod-template-hash", "kube-ebb.io/detached"
COST, OURS_COST = "controller.kubernetes.io/pod-deletion-cost", "kube-ebb.io/deletion-cost"
MOVE = "kube-ebb.io/move"
OLD_POD = f"{NAMESPACE}/web-1-1"
LISTS = (
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/replicationcontrollers",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
)
"""Lists of objects that select pods and that Ebb does not watch."""
NO_OWNER_REFERENCES = orjson.dumps(
    {"kind": "Status", "message": "cannot set an ownerRef on a resource you can't delete: , <nil>"}
)


@dataclass
class Source:
    """The reconciler, whose plan is always up to date."""

    view: ClusterView
    config: Config = CONFIG
    reconciled: asyncio.Event = field(default_factory=asyncio.Event)

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
        self.allowed = True
        """RBAC allows patching pods."""
        self.leading: Callable[[], bool] = lambda: True
        self.unknown: str | None = None
        self.events: list[str] = []
        self.config = CONFIG
        self.leader_pod = ""
        self.handed_over = 0
        self.leases = Store(Lease(holder="first", version="1"))
        for namespace in (NAMESPACE, "evil"):
            for path in LISTS:
                api.put_document(path.format(namespace), {"items": []})
        self.start()

    def start(self) -> None:
        """Start another leader, which knows nothing."""
        self.view, self.metrics = ClusterView(), Metrics()
        self.mark("n1", marked=True)
        self.view.changed(NODES, builders.node("n2"))
        self.source = Source(self.view, self.config)
        refusals = Refusals(self.clock, self.metrics, lambda reason, _: self.events.append(reason))
        self.client.observe_patch = refusals.observe

        async def ask() -> bool:
            return self.allowed

        self.mover = Mover(
            self.source,
            self.view,
            MoveStores(
                moves=PodMoves(self.client),
                pods=pods(self.client),
                hourly=HourlyMoves(Door(self.leases)),
                handovers=Handovers(Door(self.leases)),
                selecting=partial(selecting_objects, self.client),
            ),
            self.clock,
            self.metrics,
            MoverDependencies(
                namespace=OURS,
                leading=lambda: self.leading(),  # noqa: PLW0108 tests replace it
                why_unknown=lambda: self.unknown,
                pod_access=AccessReview(ask, self.clock, "patch pods"),
                leader_pod=self.leader_pod,
                hand_over=self._hand_over,
                refused_write=refusals.of_node_or_pod,
                record_event=lambda _, reason, *__: self.events.append(reason),
                report_forbidden=lambda reason, _: self.events.append(reason),
            ),
        )

    def _hand_over(self) -> None:
        self.handed_over += 1

    def mark(self, name: str, *, marked: bool, **changes: Any) -> None:
        node = builders.node(name)
        if marked:
            node = builders.marked(node, "PreferNoSchedule", NOW - 60, 1, deadline=NOW + 10**6)
        self.view.changed(NODES, replace(node, **changes))

    def sync(self) -> None:
        """Bring the view up to date, as the watches do."""
        for kind in (PODS, *SURGE_KINDS):
            stored = self.api.objects[kind.resource].values()
            found = (kind.decode(orjson.dumps(one)) for one in stored)
            self.view.replaced(kind, [one for one in found if one is not None])

    async def turn(
        self, *, seconds: int = 1, reconciled: bool = True, synced: bool = True
    ) -> None:
        """Let the controllers of Kubernetes and the mover take one step each."""
        self.deployments.step()
        if synced:
            self.sync()
        self.source.config = self.config
        if reconciled:
            self.source.reconciled.set()
        await self.mover.turn()
        self.clock.seconds += seconds

    async def turns(self, count: int = 4, **how: Any) -> None:
        for _ in range(count):
            await self.turn(**how)

    @property
    def patches(self) -> list[Call]:
        return [call for call in self.api.calls if call.verb == "patch"]

    def pod(self, key: str = OLD_POD) -> Json:
        return self.api.objects["pods"][key]

    def change_pod(self, key: str = OLD_POD, **status: Any) -> None:
        changed = deepcopy(self.pod(key))
        changed["status"] |= status
        self.api.put("pods", changed)

    def detached(self) -> list[str]:
        """Return the names of the detached pods."""
        stored = self.api.objects["pods"].values()
        found = [one["metadata"] for one in stored if DETACHED in one["metadata"]["labels"]]
        return sorted(meta["name"] for meta in found)

    def value(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(metric, labels) or 0

    def outcomes(self) -> dict[str, int]:
        counts = {
            one.value: self.value("ebb_surge_moves_total", outcome=one.value)
            for one in MoveOutcome
        }
        return {name: int(count) for name, count in counts.items() if count}

    def check_as_wanted(self, name: str, replicas: int) -> None:
        """Check that no pod is detached, none is missing or was, and that no spec was written."""
        assert self.detached() == []
        assert len(self.deployments.pods(name)) == replicas
        assert min(self.deployments.ready) >= replicas
        found = self.deployments.deployment(name)
        assert (found["metadata"]["generation"], found["spec"]["replicas"]) == (1, replicas)
        assert {call.resource for call in self.patches} <= {"pods"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with made() as found:
        yield found


@asynccontextmanager
async def made() -> AsyncIterator[World]:
    async with FakeApi() as api, opened(api) as client:
        yield World(api, client)


# Usual moves


@pytest.mark.parametrize("others", [0, 1, 4])
async def test_pod_is_moved_without_missing_replicas(world: World, others: int) -> None:
    world.deployments.create("web", "n1", *["n2"] * others)
    await world.turns()
    world.check_as_wanted("web", 1 + others)
    assert nodes_of(world.deployments.pods("web")) == ["n2"] * (1 + others)
    assert world.outcomes() == {"moved": 1}
    assert world.events == [BEGAN, MOVED]
    assert len(world.patches) == 2
    assert world.value("ebb_surge_move_duration_seconds_count") == 1


async def test_pod_of_leader_is_moved_after_it_has_handed_its_lease_over(world: World) -> None:
    world.deployments.create("web", "n1", "n2")
    world.leader_pod = OLD_POD
    world.start()
    await world.turns()
    assert (world.events, world.handed_over, world.patches) == ([HANDED_OVER], 1, [])
    world.leader_pod = f"{NAMESPACE}/web-1-2"
    world.start()
    await world.turns()
    world.check_as_wanted("web", 2)
    assert nodes_of(world.deployments.pods("web")) == ["n2", "n2"]
    assert world.events == [HANDED_OVER, BEGAN, MOVED]


async def test_pods_of_others_are_moved_before_leader_hands_over(world: World) -> None:
    world.deployments.create("web", "n1", "n2")
    world.deployments.create("shop", "n1")
    world.leader_pod = OLD_POD
    world.start()
    await world.turns()
    assert world.events[:2] == [BEGAN, MOVED]
    await world.turns()
    assert world.events == [BEGAN, MOVED, HANDED_OVER]
    await world.turns(3, seconds=3600)
    assert world.handed_over == 1, "at most once a day"


async def test_moves_wait_for_ten_minutes_when_a_node_has_got_its_share(world: World) -> None:
    for name in ("n3", "n4"):
        world.view.changed(NODES, builders.node(name))
    for number in range(6):
        world.deployments.create(f"web-{number}", "n1")
    await world.turns(8)
    assert world.outcomes() == {"moved": 4}, "all of them to n2"
    await world.turn(seconds=WINDOW_SECONDS - 8)
    await world.turns(2)
    assert world.outcomes() == {"moved": 4}
    await world.turns(6)
    assert world.outcomes() == {"moved": 6}


async def test_move_makes_two_patches_of_one_pod(world: World) -> None:
    world.deployments.create("web", "n1")
    version = world.pod()["metadata"]["resourceVersion"]
    await world.turns()
    detach, attach = world.patches
    note = MoveNote(NOW, NOW + 600)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/web-1-1"
    assert {(call.path, call.headers["Content-Type"]) for call in (detach, attach)} == {
        (path, STRATEGIC)
    }
    assert detach.sent["metadata"] == {
        "resourceVersion": version,
        "labels": {HASH: None, DETACHED: "1"},
        "annotations": {
            COST: "-100000001",
            OURS_COST: "-100000001",
            MOVE: note.encode(),
        },
        "ownerReferences": [
            {"uid": "uid-web-1", "controller": False, "blockOwnerDeletion": False}
        ],
    }
    assert attach.sent["metadata"] == {
        "resourceVersion": attach.sent["metadata"]["resourceVersion"],
        "labels": {HASH: "1", DETACHED: None},
        "annotations": {MOVE: note._replace(outcome="moved").encode()},
    }


async def test_nothing_is_read_or_written_when_surge_is_disabled(world: World) -> None:
    world.config = DISABLED
    world.deployments.create("web", "n1")
    await world.turns()
    assert world.api.calls == []
    assert not world.mover.needs_objects


async def test_no_move_begins_until_a_reconciliation_ends(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn(reconciled=False)
    assert world.patches == []
    await world.turn()
    await world.turns(reconciled=False)
    assert world.outcomes() == {"moved": 1}


async def test_no_move_begins_while_objects_are_unknown(world: World) -> None:
    world.unknown = "deployments have not been listed yet"
    world.deployments.create("web", "n1")
    await world.turns()
    assert world.patches == []
    assert world.mover.needs_objects
    world.unknown = None
    await world.turns()
    assert world.outcomes() == {"moved": 1}


async def test_nothing_is_written_while_the_view_is_outdated(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    world.deployments.step()
    world.sync()
    await world.mover.turn(lambda: "pods are outdated")
    assert len(world.patches) == 1
    await world.mover.turn()
    assert world.outcomes() == {"moved": 1}


async def test_deployment_settles_between_two_moves(world: World) -> None:
    world.deployments.create("web", "n1", "n1")
    await world.turns(8)
    assert world.outcomes() == {"moved": 1}
    world.clock.seconds += SETTLE_SECONDS
    await world.turns()
    assert world.outcomes() == {"moved": 2}
    world.check_as_wanted("web", 2)


async def test_new_pod_is_available_after_min_ready_seconds(world: World) -> None:
    world.deployments.ready_seconds = NOW + 1
    world.deployments.create("web", "n1", minReadySeconds=10)
    await world.turns(12)
    assert world.detached() == ["web-1-1"]
    await world.turns(2)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}


# Moves that end otherwise


async def test_deployment_is_left_alone_longer_after_each_failure(world: World) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turn()
    for failures, pause in ((1, 600), (2, 1200)):
        begun = int(world.clock.seconds) - 1
        world.clock.seconds = begun + 600
        await world.turns(2)
        note = orjson.loads(world.pod()["metadata"]["annotations"][MOVE])
        until = begun + 600 + pause
        assert (note["outcome"], note["failures"], note["until"]) == ("timed_out", failures, until)
        world.check_as_wanted("web", 1)
        world.clock.seconds = until - 1
        await world.turn()
        assert world.detached() == []
        await world.turn()
        assert world.detached() == ["web-1-1"]
    assert world.outcomes() == {"timed_out": 2}
    assert world.events == [BEGAN, ENDED] * 2 + [BEGAN]


@pytest.mark.parametrize(
    ("node", "outcome"), [("", "unschedulable"), ("n1", "misplaced")], ids=["no node", "marked"]
)
async def test_move_is_undone_when_new_pod_finds_no_other_node(
    world: World, node: str, outcome: str
) -> None:
    world.deployments.node = node
    world.deployments.create("web", "n1", "n2")
    await world.turns()
    world.check_as_wanted("web", 2)
    assert world.outcomes() == {outcome: 1}
    assert nodes_of(world.deployments.pods("web")) == ["n1", "n2"]
    assert "web-1-1" in {one["metadata"]["name"] for one in world.deployments.pods("web")}


async def test_move_is_undone_when_quota_rejects_the_new_pod(world: World) -> None:
    world.deployments.quota = "exceeded quota: q"
    world.deployments.create("web", "n1")
    await world.turns()
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"refused": 1}


def disable(world: World) -> None:
    world.config = DISABLED


def observe(world: World) -> None:
    world.config = replace(CONFIG, mode=Mode.OBSERVE)


def unmark(world: World) -> None:
    world.mark("n1", marked=False)


def cordon(world: World) -> None:
    world.mark("n1", marked=True, unschedulable=True)


def pause(world: World) -> None:
    world.deployments.change_spec("web", paused=True)


def forget_deployment(world: World) -> None:
    world.api.remove("deployments", f"{NAMESPACE}/web")


CHANGES = {
    disable: "stopped",
    observe: "stopped",
    unmark: "node_unmarked",
    cordon: "cordoned",
    pause: "changed",
    forget_deployment: "gone",
}


@pytest.mark.parametrize("ready", [True, False], ids=["new pod Ready", "new pod starts"])
@pytest.mark.parametrize(
    ("change", "outcome"),
    CHANGES.items(),
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
async def test_pod_is_given_back_at_once_when_conditions_change(
    world: World, change: Callable[[World], None], outcome: str, *, ready: bool
) -> None:
    world.deployments.start_ready = ready
    world.deployments.ready_seconds = NOW
    world.deployments.create("web", "n1", minReadySeconds=60)
    await world.turns(2)
    assert world.detached() == ["web-1-1"]
    change(world)
    await world.turn()
    assert world.detached() == []
    assert world.outcomes() == {outcome: 1}
    assert MOVE not in world.pod()["metadata"]["annotations"], "it is nobody's failure"
    assert COST not in world.pod()["metadata"]["annotations"]
    if change is not forget_deployment:
        world.deployments.step()
        assert [one["metadata"]["name"] for one in world.deployments.pods("web")] == ["web-1-1"]


async def test_undo_lowers_cost_of_ready_new_pod_before_it_gives_the_old_one_back(
    world: World,
) -> None:
    world.deployments.ready_seconds = NOW
    world.deployments.create("web", "n1", minReadySeconds=60)
    await world.turns(2)
    world.config = DISABLED
    await world.turn()
    _, lower, attach = world.patches
    assert lower.path.endswith("/web-1-2")
    assert lower.sent["metadata"]["annotations"] == {COST: "-100000002", OURS_COST: "-100000002"}
    assert attach.path.endswith("/web-1-1")
    assert attach.sent["metadata"]["annotations"] == {COST: None, OURS_COST: None, MOVE: None}


@pytest.mark.parametrize("status", [403, 422])
async def test_pod_is_given_back_although_cost_of_new_pod_is_refused(
    world: World, status: int
) -> None:
    """The new pod may remain then, which is Ready at least."""
    world.deployments.ready_seconds = NOW
    world.deployments.create("web", "n1", minReadySeconds=60)
    await world.turns(2)
    world.api.fail_next("patch", status)
    world.config = DISABLED
    await world.turns(2)
    world.check_as_wanted("web", 1)


@pytest.mark.parametrize("fault", [429, 500, "answer lost"])
async def test_pod_is_given_back_later_when_cost_of_new_pod_is_unknown(
    world: World, fault: int | str
) -> None:
    """Otherwise the available pod would be deleted."""
    world.deployments.ready_seconds = NOW
    world.deployments.create("web", "n1", minReadySeconds=60)
    await world.turns(2)
    if isinstance(fault, int):
        world.api.fail_next("patch", fault)
    else:
        world.api.lose_next("patch")
    world.config = DISABLED
    await world.turn()
    assert world.detached() == ["web-1-1"]
    await world.turns(2)
    world.check_as_wanted("web", 1)
    assert nodes_of(world.deployments.pods("web")) == ["n1"]


async def test_other_moves_continue_when_a_new_pod_is_unschedulable(world: World) -> None:
    world.deployments.start_ready = False
    world.deployments.create("a", "n1")
    await world.turns(2)
    world.deployments.node = ""
    world.deployments.create("b", "n1")
    await world.turns()
    assert world.outcomes() == {"unschedulable": 1}
    world.deployments.node = "n2"
    world.deployments.let_be_ready()
    await world.turns()
    assert world.outcomes() == {"unschedulable": 1, "moved": 1}


# Faults of writes and of the watch


@pytest.mark.parametrize("passed", [0, 1], ids=["detach", "attach"])
@pytest.mark.parametrize("conflicts", [1, TRIES_MAX - 1, TRIES_MAX])
async def test_patch_is_decided_again_when_others_change_the_pod(
    world: World, passed: int, conflicts: int
) -> None:
    world.deployments.create("web", "n1")
    for _ in range(passed):
        world.api.pass_next("patch")
    world.api.fail_next("patch", 409, times=conflicts)
    await world.turns(12)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}


async def test_move_that_could_not_begin_is_not_counted_as_one(world: World) -> None:
    world.deployments.create("web", "n1")
    world.api.fail_next("patch", 409, times=TRIES_MAX)
    await world.turn()
    assert world.mover.moves == ()
    assert world.value("ebb_surge_write_errors_total", result="conflict") == 1


@pytest.mark.parametrize("status", [403, 422, 429, 500, 503])
@pytest.mark.parametrize("passed", [0, 1], ids=["detach", "attach"])
async def test_moves_end_well_when_any_patch_fails_once(
    world: World, status: int, passed: int
) -> None:
    world.deployments.create("web", "n1")
    for _ in range(passed):
        world.api.pass_next("patch")
    world.api.fail_next("patch", status)
    await world.turns(4)
    world.clock.seconds += REFUSED_SECONDS
    await world.turns(4)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}


async def test_move_goes_on_when_answer_to_detach_is_lost(world: World) -> None:
    world.deployments.create("web", "n1")
    world.api.lose_next("patch")
    await world.turn()
    assert world.detached() == ["web-1-1"]
    await world.turns()
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}
    assert len(world.patches) == 2


async def test_move_ends_when_answer_to_attach_is_lost(world: World) -> None:
    world.deployments.create("web", "n1")
    world.api.pass_next("patch")
    world.api.lose_next("patch")
    await world.turns()
    world.check_as_wanted("web", 1)
    assert nodes_of(world.deployments.pods("web")) == ["n2"]
    assert world.mover.moves == ()
    assert len(world.patches) == 2


async def test_only_the_failed_move_waits_when_a_write_fails(world: World) -> None:
    world.deployments.create("a", "n1")
    world.deployments.create("b", "n1")
    world.api.fail_next("patch", 500)
    await world.turn()
    assert len(world.detached()) == 1
    await world.turns(RETRY_SECONDS + 4)
    assert world.outcomes() == {"moved": 2}


async def test_move_waits_for_a_watch_that_is_late(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    await world.turns(SEEN_SECONDS_MAX - 1, synced=False)
    assert len(world.patches) == 1
    await world.turns(2)
    world.check_as_wanted("web", 1)
    assert world.outcomes() == {"moved": 1}


async def test_pod_is_given_back_when_watch_never_reports_it(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    await world.turns(SEEN_SECONDS_MAX + 1, synced=False)
    assert world.detached() == []
    assert world.outcomes() == {"stopped": 1}


async def test_pod_is_not_given_back_twice_when_watch_is_late(world: World) -> None:
    world.deployments.create("web", "n1")
    await world.turns(2)
    assert world.outcomes() == {"moved": 1}
    await world.turns(SEEN_SECONDS_MAX - 1, synced=False)
    assert len(world.patches) == 2


async def test_finished_pod_gets_its_label_back(world: World) -> None:
    """Its ReplicaSet does not adopt it again, and no watch reports it."""
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turns(2)
    world.change_pod(phase="Failed")
    await world.turns(2)
    assert world.detached() == []
    assert world.outcomes() == {"pod_gone": 1}


@pytest.mark.parametrize("outcome", ["pod_gone", "stopped"])
async def test_move_is_forgotten_when_others_end_it(world: World, outcome: str) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turns(2)
    if outcome == "pod_gone":
        world.api.remove("pods", OLD_POD)
    else:
        changed = deepcopy(world.pod())
        del changed["metadata"]["labels"][DETACHED]
        changed["metadata"]["labels"][HASH] = "1"
        world.api.put("pods", changed)
    await world.turns(2)
    assert world.outcomes() == {outcome: 1}
    assert world.mover.moves == ()
    assert len(world.patches) == 1


# Leaders that end


@pytest.mark.parametrize("slow", [0, 60], ids=["available at once", "Ready, not yet available"])
@pytest.mark.parametrize("done", range(4))
@pytest.mark.parametrize("config", [CONFIG, DISABLED], ids=["enabled", "disabled"])
async def test_new_leader_undoes_move_when_leader_ends_after_any_patch(
    done: int, slow: int, config: Config
) -> None:
    async with made() as world:
        world.deployments.ready_seconds = NOW
        world.deployments.create("web", "n1", "n2", minReadySeconds=slow)
        world.leading = lambda: len(world.patches) < done
        await world.turns(3)
        undone = world.detached()
        world.leading, world.config = (lambda: True), config
        world.start()
        await world.turns(2, reconciled=False)
        world.check_as_wanted("web", 2)
        assert world.outcomes() == ({"stopped": 1} if undone else {})
        if undone:
            assert "web-1-1" in {one["metadata"]["name"] for one in world.deployments.pods("web")}
            assert MOVE not in world.pod()["metadata"]["annotations"]


async def test_undo_is_completed_when_leader_ends_between_its_two_patches(world: World) -> None:
    world.deployments.ready_seconds = NOW
    world.deployments.create("web", "n1", "n2", minReadySeconds=60)
    await world.turns(2)
    world.start()
    world.api.pass_next("patch")
    world.api.fail_next("patch", 500)
    await world.turn()
    assert world.detached() == ["web-1-1"]
    assert world.pod(f"{NAMESPACE}/web-1-3")["metadata"]["annotations"][COST] == "-100000002"
    world.start()
    await world.turns(2)
    world.check_as_wanted("web", 2)
    assert nodes_of(world.deployments.pods("web")) == ["n1", "n2"]
    assert [call.path.rpartition("/")[2] for call in world.patches] == [
        *("web-1-1", "web-1-3", "web-1-1", "web-1-1")
    ]


async def test_deployment_settles_after_the_undo_of_another_leaders_move(world: World) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turn()
    world.start()
    await world.turns(4)
    assert world.events == [BEGAN, ENDED]
    world.clock.seconds += SETTLE_SECONDS
    await world.turn()
    assert world.events == [BEGAN, ENDED, BEGAN]


async def test_pause_after_failures_survives_the_leader(world: World) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turn()
    world.clock.seconds += 600
    await world.turn()
    world.start()
    world.clock.seconds += SETTLE_SECONDS
    await world.turns(2)
    assert world.events == [BEGAN, ENDED]


async def test_new_leader_counts_moves_that_the_previous_one_has_begun(world: World) -> None:
    world.config = replace(CONFIG, surge=replace(CONFIG.surge, max_per_hour=1))
    world.deployments.create("a", "n1")
    world.deployments.create("b", "n1")
    await world.turns()
    assert world.outcomes() == {"moved": 1}
    assert world.leases.lease is not None
    assert world.leases.lease.annotations == {MOVES_BEGUN_ANNOTATION: f'{{"{NOW}":1}}'}
    assert world.leases.lease.holder == "first"
    world.start()
    await world.turns()
    assert world.outcomes() == {}
    world.clock.seconds += 3660
    await world.turns()
    assert world.outcomes() == {"moved": 1}, "of the second leader"


async def test_no_move_begins_when_it_cannot_be_counted(world: World) -> None:
    world.leases.lease = None
    world.deployments.create("web", "n1")
    with pytest.raises(Exception, match="could not be written"):
        await world.turn()
    assert world.patches == []
    world.leases.lease = Lease(holder="first", version="1")
    await world.turns()
    assert world.outcomes() == {"moved": 1}


async def test_former_leader_stops_writing(world: World) -> None:
    world.deployments.create("web", "n1")
    world.leading = lambda: False
    await world.turns(3)
    assert world.patches == []


# Refusals


async def test_no_move_begins_when_rbac_forbids_patching_pods(world: World) -> None:
    world.allowed = False
    world.deployments.create("web", "n1")
    await world.turns(3)
    assert world.patches == []
    assert world.events == [FORBIDDEN]


async def test_replica_set_is_not_tried_again_when_owner_references_are_refused(
    world: World,
) -> None:
    world.deployments.create("web", "n1")
    world.api.answer_next("patch", NO_OWNER_REFERENCES, status=403)
    await world.turns()
    assert (len(world.patches), world.events) == (1, [FORBIDDEN])
    assert dict(world.mover.refused) == {"surge-owner-references": 1}
    world.clock.seconds = NOW + REFUSED_SECONDS - 1
    await world.turn()
    assert len(world.patches) == 1
    await world.turns()
    assert world.outcomes() == {"moved": 1}


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_replica_set_is_not_tried_again_when_its_pod_cannot_be_detached(
    world: World, status: int
) -> None:
    world.deployments.create("web", "n1")
    world.api.fail_next("patch", status)
    await world.turns()
    assert (len(world.patches), world.events) == (1, [])
    assert dict(world.mover.refused) == {"surge-not-detached": 1}
    facts = world.mover.capture()(Cluster.of((), ())).surge
    assert facts.allowed == frozenset(), "plans do not count on moves"


async def test_moves_wait_when_own_policy_refuses_to_detach_pod(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    denied = (
        "pods \"web-1-1\" is forbidden: ValidatingAdmissionPolicy 'ebb-controller-pods' with "
        "binding 'b' denied request: metadata.labels: a"
    )
    for name in ("web", "api"):
        world.deployments.create(name, "n1")
    for _ in range(2):
        world.api.answer_next("patch", orjson.dumps({"message": denied}), status=403)
    await world.turns()
    tries = len(world.patches)
    assert tries <= 2
    assert world.events == ["WritesRefused"]
    assert [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == [
        one for one in caplog.records if one.name == "ebb.refusals"
    ]
    assert dict(world.mover.refused) == {}, "no ReplicaSet is the reason"
    await world.turns(seconds=60)
    assert world.outcomes() == {"moved": 2}
    assert world.events.count("WritesRefused") == 1


def selecting(kind: str, **labels: str) -> tuple[str, Json]:
    return kind, {
        "metadata": {"name": "agent", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}},
    }


@pytest.mark.parametrize(
    ("kind", "labels"),
    [("daemonsets", {"app": "web"}), ("replicasets", {"app": "web", HASH: "1"})],
)
async def test_pod_is_not_detached_when_another_controller_selects_it(
    world: World, kind: str, labels: dict[str, str]
) -> None:
    _, stored = selecting(kind, **labels)
    world.api.put(kind, stored)
    world.deployments.create("web", "n1")
    await world.turns()
    assert world.patches == []
    assert dict(world.mover.refused) == {"surge-other-controller": 1}
    lists = [call.path for call in world.api.calls if call.path.endswith("networkpolicies")]
    assert len(lists) == 1, "not tried again for some time"
    world.api.remove(kind, f"{NAMESPACE}/agent")
    world.clock.seconds += REFUSED_SECONDS
    await world.turns()
    assert world.outcomes() == {"moved": 1}


async def test_other_namespaces_are_moved_when_the_objects_of_one_cannot_be_listed(
    world: World,
) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/services"
    world.api.documents[path]["items"] = [{"metadata": 7}]
    world.deployments.create("web", "n1")
    other = {**world.pod(), "metadata": {**world.pod()["metadata"], "namespace": "evil"}}
    world.api.put("pods", other)
    for kind in ("deployments", "replicasets"):
        for stored in [*world.api.objects[kind].values()]:
            moved = {**stored, "metadata": {**stored["metadata"], "namespace": "evil"}}
            world.api.put(kind, moved)
    await world.turn()
    assert [call.path for call in world.patches] == ["/api/v1/namespaces/evil/pods/web-1-1"]


async def test_missing_right_to_list_is_reported_once(world: World) -> None:
    world.api.denied.add(f"/api/v1/namespaces/{NAMESPACE}/services")
    world.deployments.create("web", "n1")
    await world.turns(3)
    assert (world.patches, world.events) == ([], [FORBIDDEN])


# Pods that anybody has labeled


def forge(world: World, count: int, **annotations: str) -> None:
    """Store detached pods without a ReplicaSet in another namespace."""
    for number in range(count):
        meta = {
            "name": f"forged-{number:03}",
            "namespace": "evil",
            "uid": f"uid-forged-{number}",
            "labels": {DETACHED: "1"},
            "annotations": annotations,
        }
        spec = {"nodeName": "n2", "containers": []}
        world.api.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


@pytest.mark.parametrize("refused", [False, True], ids=["patched", "refused"])
async def test_forged_pods_by_the_hundred_delay_no_move(world: World, *, refused: bool) -> None:
    world.deployments.create("web", "n1")
    await world.turn()
    forge(world, 300, **{MOVE: MoveNote(NOW - 60, NOW + 500).encode()})
    if refused:
        path = "/api/v1/namespaces/evil/pods/forged-{:03}"
        world.api.denied |= {path.format(number) for number in range(300)}
    await world.turn()
    assert world.outcomes()["moved"] == 1
    assert len(world.patches) <= 2 + FOUND_MAX
    if not refused:
        await world.turns(6)
        assert world.detached() == []


async def test_new_move_begins_beside_more_forged_pods_than_moves_are_allowed(
    world: World,
) -> None:
    world.api.fail_next("patch", 422, times=CONFIG.surge.max_at_once)
    forge(world, CONFIG.surge.max_at_once, **{MOVE: MoveNote(NOW - 60, NOW + 500).encode()})
    world.deployments.create("web", "n1")
    await world.turn()
    assert "web-1-1" in world.detached()


async def test_forged_pod_does_not_count_in_durations(world: World) -> None:
    forge(world, 1)
    await world.turns(2)
    assert world.outcomes() == {"stopped": 1}
    assert world.value("ebb_surge_move_duration_seconds_count") == 0


async def test_detached_pod_beyond_its_deadline_is_overdue(world: World) -> None:
    world.api.fail_next("patch", 422, times=1000)
    forge(world, 2, **{MOVE: MoveNote(NOW - 100, NOW).encode()})
    world.metrics.is_leading = lambda: True
    await world.turn(seconds=OVERDUE_SECONDS)
    assert world.value("ebb_surge_overdue_pods") == 0
    world.clock.seconds += 1
    assert world.value("ebb_surge_overdue_pods") == 2
    world.metrics.is_leading = lambda: False
    assert world.value("ebb_surge_overdue_pods") == 0


# The task, plans and reports


async def test_report_has_moves_of_this_leader_and_found_ones(world: World) -> None:
    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turn()
    forge(world, 1)
    world.sync()
    assert [(one.key, one.deployment_key) for one in world.mover.moves] == [
        (OLD_POD, f"{NAMESPACE}/web"),
        ("evil/forged-000", ""),
    ]


async def test_removed_node_reports_its_moved_pods(world: World) -> None:
    world.deployments.create("a", "n1")
    world.deployments.create("b", "n1")
    await world.turns()
    world.view.deleted(NODES, "n1")
    await world.turn()
    name = "ebb_surge_moved_pods_per_removed_node"
    assert (world.value(f"{name}_sum"), world.value(f"{name}_count")) == (2, 1)


async def test_plan_knows_moving_replica_sets(world: World) -> None:
    def facts() -> Any:
        cluster = world.view.snapshot(world.config.read_options)()
        return world.mover.capture()(cluster).surge

    world.deployments.start_ready = False
    world.deployments.create("web", "n1")
    await world.turns(2)
    assert facts().allowed == facts().moving == {(NAMESPACE, "web-1")}
    assert facts().replaced == {OLD_POD}
    world.deployments.let_be_ready()
    await world.turns(2)
    assert [facts().moving for _ in range(2)] == [{(NAMESPACE, "web-1")}, frozenset()]


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
    world.deployments.step()
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
    assert (world.events, world.patches) == ([], [])
