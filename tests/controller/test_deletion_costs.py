"""Deletion costs against pods that others change at the same time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controller.access_review import ANSWER_SECONDS, AccessReview
from controller.deletion_costs import WRITERS_MAX, WRITES_MAX, DeletionCosts
from controller.metrics import Metrics, WriteResult
from controller.reconciler import PodActions, Reconciler
from core.config.settings import Config, Mode, PodDeletionCost, UsabilityMode
from core.edge.kube.client import ApiError
from core.edge.kube.stores.objects import FORBIDDEN_MAX
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.errors import ConflictError, UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from core.writes.costs import decide_costs
from core.writes.write import CostKind, Write
from tests.support.admission import NodeApi, node_json
from tests.support.builders import node, pod
from tests.support.clock import FakeClock

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600


class PodApi:
    """An API server's pods."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {pod.key: pod for pod in pods}
        self.versions = dict.fromkeys(self.pods, 1)
        self.written: list[str] = []
        self.refuses: set[str] = set()
        self.refusal: UnavailableError = ApiError(403, "no right")
        self.between: dict[str, Pod] = {}
        """What others write between our read and our write."""
        self.at_once = self.at_once_most = 0
        self.right: bool | None = False
        """Whether pods may be patched; None: nobody answers."""
        self.asked = 0

    async def may(self) -> bool:
        self.asked += 1
        if self.right is None:
            raise UnavailableError("no answer")
        return self.right

    async def get(self, key: str) -> tuple[Pod, str] | None:
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        await asyncio.sleep(0)
        self.at_once -= 1
        return (self.pods[key], str(self.versions[key])) if key in self.pods else None

    async def write(self, write: Write[Pod], version: str) -> tuple[Pod, str]:
        key = write.key
        if key in self.refuses:
            raise self.refusal
        if key in self.between:
            self.put(self.between.pop(key))
        if version != str(self.versions[key]):
            raise ConflictError("the object has been modified")
        new, old = write.annotations, self.pods[key]
        self.put(
            replace(
                old,
                deletion_cost=new.get(COST_ANNOTATION, old.deletion_cost),
                deletion_cost_ours=new.get(COST_OURS_ANNOTATION, old.deletion_cost_ours),
            )
        )
        self.written.append(key)
        return self.pods[key], str(self.versions[key])

    def put(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.versions[pod.key] = self.versions.get(pod.key, 0) + 1

    def costs(self) -> dict[str, str | None]:
        return {key: pod.deletion_cost for key, pod in self.pods.items()}


class World:
    """A marked and an unmarked node, pods on both, and what carries the decision out."""

    def __init__(
        self,
        *pods: Pod,
        mode: Mode = Mode.ENFORCE,
        order: PodDeletionCost = PodDeletionCost.ENABLED,
    ) -> None:
        self.nodes: list[Node] = [node("m", labels={MARK_LABEL: "soft"}), node("u")]
        self.api, self.metrics, self.clock = PodApi(*pods), Metrics(), FakeClock()
        self.start(mode, order)

    def start(self, mode: Mode, order: PodDeletionCost) -> None:
        """Start anew: nothing is remembered."""
        self.mode, self.order = mode, order
        right = AccessReview(self.api.may, self.clock, "patch pods")
        self.deletion_costs = DeletionCosts(self.api, self.metrics, right)

    def judge(self) -> tuple[Write[Pod], ...]:
        enabled = self.deletion_costs.enabled(self.order)
        cluster = Cluster.of(self.nodes, self.api.pods.values())
        return () if enabled is None else decide_costs(cluster, TAINT_KEY, enabled=enabled)

    async def step(self) -> int:
        failed = await self.deletion_costs.carry_out(self.judge(), self.mode)
        await self.deletion_costs.refresh_access(self.order)
        return failed

    def release(self) -> None:
        self.nodes[0] = node("m")

    def count(self, result: WriteResult) -> float:
        return self.of(CostKind.SET, result) + self.of(CostKind.REMOVE, result)

    def of(self, operation: CostKind, result: WriteResult = WriteResult.SUCCESS) -> float:
        labels: dict[str, str] = {"operation": operation, "result": result}
        found = self.metrics.registry.get_sample_value("ebb_pod_writes_total", labels)
        assert found is not None
        return found


def some(number: int, on: str = "m") -> list[Pod]:
    return [pod(f"{on}{one:04}", on, 100, 100) for one in range(number)]


def priced(one: Pod, cost: str | None, ours: str | None = None) -> Pod:
    return replace(one, deletion_cost=cost, deletion_cost_ours=ours)


async def test_costs_come_with_the_mark_and_go_with_it_and_are_written_once() -> None:
    mine = priced(pod("mine", "m", 100, 100), "5")
    world = World(*some(3), *some(2, "u"), mine)
    assert await world.step() == 0
    costs = world.api.costs()
    assert all(int(costs[one.key] or 0) < 0 for one in some(3))
    assert all(costs[one.key] is None for one in some(2, "u"))
    assert world.judge() == ()
    world.release()
    assert await world.step() == 0
    left = {key: cost for key, cost in world.api.costs().items() if cost is not None}
    assert left == {"d/mine": "5"}
    assert all(one.deletion_cost_ours is None for one in world.api.pods.values())
    assert sorted(world.api.written) == sorted(one.key for one in some(3) * 2)
    assert (world.of(CostKind.SET), world.of(CostKind.REMOVE)) == (3, 3)


async def test_a_pod_that_arrives_later_gets_its_cost() -> None:
    world = World(*some(1))
    await world.step()
    world.api.put(pod("late", "m", 100, 100))
    await world.step()
    assert world.api.written == ["d/m0000", "d/late"]


async def test_what_a_dead_leader_left_is_taken_away_by_one_with_the_option_off() -> None:
    world = World(*some(2))
    await world.step()
    world.start(Mode.ENFORCE, PodDeletionCost.DISABLED)
    await world.step()
    assert set(world.api.costs().values()) == {None}
    assert world.judge() == ()


async def test_observe_decides_and_writes_no_cost() -> None:
    world = World(*some(2), priced(pod("theirs", "u", 100, 100), "-7"), mode=Mode.OBSERVE)
    assert len(world.judge()) == 2
    assert await world.step() == 0
    assert world.api.written == []


@pytest.mark.parametrize("order", list(PodDeletionCost))
async def test_observe_takes_away_what_another_mode_left_once_it_has_released(
    order: PodDeletionCost,
) -> None:
    world = World(*some(2), pod("new", "m", 100, 100))
    await world.step()
    world.api.right = True
    world.start(Mode.OBSERVE, order)
    world.release()
    await world.step()
    await world.step()
    assert set(world.api.costs().values()) == {None}
    assert world.judge() == ()


async def test_turned_off_without_a_trace_of_ours_there_is_nothing_to_do() -> None:
    world = World(*some(2), priced(some(1, "u")[0], "-7"), order=PodDeletionCost.DISABLED)
    assert world.judge() == ()


async def test_auto_is_enabled_with_the_right_and_asks_for_it_now_and_then() -> None:
    world = World(*some(2), order=PodDeletionCost.AUTO)
    for _ in range(3):
        await world.step()
    assert (world.api.written, world.api.asked) == ([], 1), "no right: nothing, and no failure"
    world.api.right = True
    world.clock.seconds += ANSWER_SECONDS - 1
    await world.step()
    assert world.judge() == ()
    world.clock.seconds += 1
    await world.step()
    await world.step()
    assert sorted(world.api.written) == ["d/m0000", "d/m0001"]
    assert (world.api.asked, world.count(WriteResult.ERROR)) == (2, 0)


async def test_auto_takes_no_cost_away_before_it_knows_of_its_right() -> None:
    """A new leader would take all of them away, and set them again a pass later."""
    world = World(*some(2))
    await world.step()
    world.api.right = True
    world.start(Mode.ENFORCE, PodDeletionCost.AUTO)
    for _ in range(3):
        await world.step()
    assert len(world.api.written) == 2, "each once, by the leader before"
    world.release()
    await world.step()
    assert set(world.api.costs().values()) == {None}


async def test_auto_without_an_answer_goes_on_by_the_last_one() -> None:
    world = World(*some(1), order=PodDeletionCost.AUTO)
    world.api.right = None
    await world.step()
    await world.step()
    assert (world.api.written, world.api.asked) == ([], 2)
    world.api.right = True
    await world.step()
    world.api.right = None
    world.clock.seconds += ANSWER_SECONDS
    for name in ("late", "later"):
        world.api.put(pod(name, "m", 100, 100))
        await world.step()
    assert sorted(world.api.written) == ["d/late", "d/later", "d/m0000"]


async def test_auto_whose_right_was_taken_away_tries_no_write() -> None:
    """So a forged trace on a pod costs nothing where the component is not installed."""
    forged = priced(some(1, "u")[0], "-7", "-7")
    world = World(*some(1), forged, order=PodDeletionCost.AUTO)
    world.api.refuses = set(world.api.pods)
    for _ in range(3):
        assert await world.step() == 0
    assert world.count(WriteResult.ERROR) == 0


@pytest.mark.parametrize("order", [PodDeletionCost.ENABLED, PodDeletionCost.DISABLED])
async def test_what_is_said_outright_asks_for_no_right(order: PodDeletionCost) -> None:
    world = World(*some(2), order=order)
    for _ in range(3):
        await world.step()
    assert world.api.asked == 0
    assert len(world.api.written) == (2 if order is PodDeletionCost.ENABLED else 0)


ONE = some(1)[0]


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(priced(ONE, "5"), id="a person was faster"),
        pytest.param(replace(ONE, terminating=True), id="it is going"),
        pytest.param(replace(ONE, uid="another"), id="another of the same name"),
        pytest.param(replace(ONE, owner_kind=""), id="its ReplicaSet let it go"),
        pytest.param(None, id="gone"),
    ],
)
async def test_a_pod_that_is_not_as_it_was_is_left_to_the_next_pass(now: Pod | None) -> None:
    world = World(ONE)
    writes = world.judge()
    if now is None:
        world.api.pods.clear()
    else:
        world.api.put(now)
    assert await world.deletion_costs.carry_out(writes, world.mode) == 0
    assert world.api.written == []
    assert world.count(WriteResult.CONFLICT) == 1


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"labels": {"changed": "1"}}, WriteResult.SUCCESS),
        ({"deletion_cost": "5"}, WriteResult.CONFLICT),
    ],
)
async def test_a_lost_race_is_tried_again_if_what_counts_is_as_it_was(
    change: dict[str, Any], result: WriteResult
) -> None:
    world = World(ONE)
    world.api.between = {ONE.key: replace(ONE, **change)}
    assert await world.step() == 0
    assert world.api.written == [ONE.key] * (result is WriteResult.SUCCESS)
    assert (world.count(result), world.count(WriteResult.ERROR)) == (1, 0)


async def test_a_pass_writes_so_many_and_no_more_at_once_than_so_many() -> None:
    world = World(*some(WRITES_MAX + 20))
    await world.step()
    assert 0 < len(world.api.written) <= WRITES_MAX
    assert 0 < world.api.at_once_most <= WRITERS_MAX
    while world.judge():
        await world.step()
    assert sorted(world.api.written) == [one.key for one in some(WRITES_MAX + 20)]


async def test_traces_that_one_namespace_forges_after_each_pass_hold_nobody_up() -> None:
    forged = [
        replace(pod(f"f{n:04}", "u", 1, 1, namespace="a"), deletion_cost_ours="1")
        for n in range(WRITES_MAX + 50)
    ]
    world = World(*some(5), *forged)
    await world.step()
    assert all(world.api.costs()[one.key] is not None for one in some(5))


async def test_a_pod_that_is_always_refused_holds_nobody_up() -> None:
    world = World(*some(2 * FORBIDDEN_MAX))
    world.api.refuses = {one.key for one in some(FORBIDDEN_MAX + WRITERS_MAX + 2)}
    for _ in range(4):
        assert await world.step() > 0
    assert {write.key for write in world.judge()} == world.api.refuses
    failed = world.count(WriteResult.ERROR)
    assert await world.step() > 0
    assert world.count(WriteResult.ERROR) > failed
    world.api.refuses = set()
    assert await world.step() == 0
    assert world.judge() == ()


@pytest.mark.parametrize(
    ("refusal", "goes_on"),
    [
        (ApiError(422, "metadata.annotations: Too long"), True),
        (ApiError(400, "denied by a policy"), True),
        (ConflictError("its owner changes it all the time"), True),
        (ApiError(403, 'admission webhook "keep" denied the request'), True),
        (ApiError(401, 'pods "p" is forbidden: ValidatingAdmissionPolicy denies it'), True),
        (ApiError(401, "who?"), False),
        (ApiError(429, "too many"), False),
        (ApiError(500, "etcd"), False),
        (UnavailableError("no answer in time"), False),
    ],
    ids=str,
)
async def test_pods_that_are_refused_for_what_they_are_end_no_batch(
    refusal: UnavailableError, goes_on: bool
) -> None:
    """Whoever owns pods can have new ones in each pass: none of them was refused before."""
    world = World(*some(30))
    world.api.refuses = {one.key for one in some(WRITERS_MAX)}
    world.api.refusal = refusal
    assert await world.step() == WRITERS_MAX
    assert len(world.api.written) == (30 - WRITERS_MAX if goes_on else 0)


async def test_pods_that_a_policy_keeps_in_one_namespace_hold_up_no_other() -> None:
    """However many new ones there are in each pass, and however the policy words it."""
    kept = [pod(f"a{one:04}", "m", 100, 100, namespace="a") for one in range(2 * FORBIDDEN_MAX)]
    world = World(*some(FORBIDDEN_MAX), *kept)
    world.api.refuses = {one.key for one in kept}
    await world.step()
    assert sorted(world.api.written) == [one.key for one in some(FORBIDDEN_MAX)]


async def test_a_server_that_refuses_everything_is_asked_a_few_times_a_pass_only() -> None:
    """As where the right is missing, and the configuration says `enabled` all the same."""
    world = World(*some(2 * FORBIDDEN_MAX))
    world.api.refuses = set(world.api.pods)
    assert FORBIDDEN_MAX <= await world.step() < FORBIDDEN_MAX + WRITERS_MAX
    assert world.count(WriteResult.ERROR) < FORBIDDEN_MAX + WRITERS_MAX


async def test_a_batch_ends_when_something_comes_up_that_cannot_wait() -> None:
    world = World(*some(30))
    begun = iter([None] * 5)
    writes = world.judge()
    assert (
        await world.deletion_costs.carry_out(writes, world.mode, lambda: next(begun, "urgent"))
        == 0
    )
    assert len(world.api.written) == 5


async def test_a_pass_of_the_engine_ends_with_the_costs_that_the_marks_ask_for() -> None:
    config = Config(mode=Mode.ENFORCE, usability=UsabilityMode.NONE)
    assert config.pod_deletion_cost is PodDeletionCost.AUTO
    nodes, metrics = NodeApi(node_json("m"), node_json("u")), Metrics()
    nodes.nodes["m"]["metadata"]["labels"] = {MARK_LABEL: "soft"}
    pods = PodApi(*some(2), *some(1, "u"))
    pods.right = True
    deletion_costs = DeletionCosts(
        pods, metrics, AccessReview(pods.may, FakeClock(), "patch pods")
    )
    controller = Reconciler(
        config, nodes, owner="me", metrics=metrics, pod_actions=PodActions(deletion_costs)
    )
    cluster = Cluster.of((nodes.node(name) for name in nodes.nodes), pods.pods.values())
    assert (await controller.tick(cluster, NOW)).costs == (), "the right is not known yet"
    report = await controller.tick(cluster, NOW)
    assert [write.key for write in report.costs] == ["d/m0000", "d/m0001"]
    assert report.failed == 0
    assert sorted(pods.written) == ["d/m0000", "d/m0001"]
    nodes.down = {"m"}
    pods.put(pod("m0003", "m", 100, 100))
    guarded = Cluster.of((nodes.node(name) for name in nodes.nodes), pods.pods.values())
    assert (await controller.tick(guarded, NOW)).failed == 1
    assert "d/m0003" in pods.written, "costs rest on marks that stand, not on writes that fail"
    pods.refuses = {"d/m0002"}
    pods.put(pod("m0002", "m", 100, 100))
    cluster = Cluster.of((nodes.node(name) for name in nodes.nodes), pods.pods.values())
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], labels={MARK_LABEL: "soft"}),))
    assert (await controller.tick(cluster, NOW)).failed >= 1
