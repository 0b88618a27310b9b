"""Deletion costs are written while others change the pods."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.deletion_costs import WRITERS_MAX, WRITES_MAX, DeletionCosts
from controller.metrics import Metrics, WriteResult
from controller.reconciler import ORDER_SECONDS, Reconciler
from core.config.settings import Config, Mode, PodDeletionCost, UsabilityMode
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import PodConstraints, SpreadConstraint
from core.model.errors import ConflictError, UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from core.writes.costs import decide_costs
from core.writes.write import CostKind, Write
from kube.client import ApiError
from kube.stores.access_review import ANSWER_SECONDS, AccessReview
from kube.stores.objects import FORBIDDEN_MAX
from sim.ebb import annotated
from tests.support.admission import NodeApi, node_json
from tests.support.builders import marked, node, pod, select
from tests.support.clock import FakeClock

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
ZONE = "topology.kubernetes.io/zone"


class PodApi:
    """The pods of an API server."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {pod.key: pod for pod in pods}
        self.versions = dict.fromkeys(self.pods, 1)
        self.written: list[str] = []
        self.rejected: set[str] = set()
        self.rejection: UnavailableError = ApiError(403, "no right")
        self.between: dict[str, Pod] = {}
        """Pods that others write between our read and our write."""
        self.at_once = self.at_once_most = 0
        self.right: bool | None = False
        """Whether pods may be patched; None: the API server does not answer."""
        self.reviews = 0

    async def may(self) -> bool:
        self.reviews += 1
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
        if key in self.rejected:
            raise self.rejection
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
    """A marked and an unmarked node, pods on both, and the writer of deletion costs."""

    def __init__(
        self,
        *pods: Pod,
        mode: Mode = Mode.ENFORCE,
        order: PodDeletionCost = PodDeletionCost.ENABLED,
    ) -> None:
        self.nodes: list[Node] = [node("m", labels={MARK_LABEL: "PreferNoSchedule"}), node("u")]
        self.api, self.metrics, self.clock = PodApi(*pods), Metrics(), FakeClock()
        self.start(mode, order)

    def start(self, mode: Mode, order: PodDeletionCost) -> None:
        """Start a new leader without state."""
        self.mode, self.order = mode, order
        right = AccessReview(self.api.may, self.clock, "patch pods")
        self.deletion_costs = DeletionCosts(self.api, self.metrics, right)

    def judge(self) -> tuple[Write[Pod], ...]:
        enabled = self.deletion_costs.enabled(self.order)
        cluster = Cluster.of(self.nodes, self.api.pods.values())
        return () if enabled is None else decide_costs(cluster, TAINT_KEY, enabled=enabled).writes

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


def with_cost(one: Pod, cost: str | None, ours: str | None = None) -> Pod:
    return replace(one, deletion_cost=cost, deletion_cost_ours=ours)


async def test_costs_are_set_with_mark_and_cleared_with_it() -> None:
    mine = with_cost(pod("mine", "m", 100, 100), "5")
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


async def test_new_pod_on_marked_node_gets_cost() -> None:
    world = World(*some(1))
    await world.step()
    world.api.put(pod("late", "m", 100, 100))
    await world.step()
    assert world.api.written == ["d/m0000", "d/late"]


async def test_costs_of_previous_leader_are_cleared_when_disabled() -> None:
    world = World(*some(2))
    await world.step()
    world.start(Mode.ENFORCE, PodDeletionCost.DISABLED)
    await world.step()
    assert set(world.api.costs().values()) == {None}
    assert world.judge() == ()


async def test_no_cost_is_written_in_mode_observe() -> None:
    world = World(*some(2), with_cost(pod("theirs", "u", 100, 100), "-7"), mode=Mode.OBSERVE)
    assert len(world.judge()) == 2
    assert await world.step() == 0
    assert world.api.written == []


@pytest.mark.parametrize("order", list(PodDeletionCost))
async def test_costs_are_cleared_in_mode_observe_after_unmarking(
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


async def test_nothing_is_written_when_disabled_and_no_own_trace_exists() -> None:
    world = World(*some(2), with_cost(some(1, "u")[0], "-7"), order=PodDeletionCost.DISABLED)
    assert world.judge() == ()


async def test_auto_writes_costs_when_permission_is_granted() -> None:
    world = World(*some(2), order=PodDeletionCost.AUTO)
    for _ in range(3):
        await world.step()
    assert (world.api.written, world.api.reviews) == ([], 1), (
        "without permission: no write and no failure"
    )
    world.api.right = True
    world.clock.seconds += ANSWER_SECONDS - 1
    await world.step()
    assert world.judge() == ()
    world.clock.seconds += 1
    await world.step()
    await world.step()
    assert sorted(world.api.written) == ["d/m0000", "d/m0001"]
    assert (world.api.reviews, world.count(WriteResult.ERROR)) == (2, 0)


async def test_auto_clears_no_cost_before_permission_is_known() -> None:
    """A new leader would clear all costs, and set them again a reconciliation later."""
    world = World(*some(2))
    await world.step()
    world.api.right = True
    world.start(Mode.ENFORCE, PodDeletionCost.AUTO)
    for _ in range(3):
        await world.step()
    assert len(world.api.written) == 2, "each once, by the previous leader"
    world.release()
    await world.step()
    assert set(world.api.costs().values()) == {None}


async def test_auto_uses_last_permission_when_review_fails() -> None:
    world = World(*some(1), order=PodDeletionCost.AUTO)
    world.api.right = None
    await world.step()
    await world.step()
    assert (world.api.written, world.api.reviews) == ([], 2)
    world.api.right = True
    await world.step()
    world.api.right = None
    world.clock.seconds += ANSWER_SECONDS
    for name in ("late", "later"):
        world.api.put(pod(name, "m", 100, 100))
        await world.step()
    assert sorted(world.api.written) == ["d/late", "d/later", "d/m0000"]


async def test_auto_writes_nothing_when_permission_is_removed() -> None:
    """So a forged trace on a pod causes no calls if the component is not installed."""
    forged = with_cost(some(1, "u")[0], "-7", "-7")
    world = World(*some(1), forged, order=PodDeletionCost.AUTO)
    world.api.rejected = set(world.api.pods)
    for _ in range(3):
        assert await world.step() == 0
    assert world.count(WriteResult.ERROR) == 0


@pytest.mark.parametrize("order", [PodDeletionCost.ENABLED, PodDeletionCost.DISABLED])
async def test_permission_is_not_reviewed_when_explicitly_configured(
    order: PodDeletionCost,
) -> None:
    world = World(*some(2), order=order)
    for _ in range(3):
        await world.step()
    assert world.api.reviews == 0
    assert len(world.api.written) == (2 if order is PodDeletionCost.ENABLED else 0)


ONE = some(1)[0]


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(with_cost(ONE, "5"), id="changed by a person"),
        pytest.param(replace(ONE, terminating=True), id="terminating"),
        pytest.param(replace(ONE, uid="another"), id="recreated with the same name"),
        pytest.param(replace(ONE, owner_kind=""), id="orphaned by its ReplicaSet"),
        pytest.param(None, id="deleted"),
    ],
)
async def test_write_is_dropped_when_pod_has_changed(now: Pod | None) -> None:
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
async def test_conflict_is_retried_when_relevant_fields_are_unchanged(
    change: dict[str, Any], result: WriteResult
) -> None:
    world = World(ONE)
    world.api.between = {ONE.key: replace(ONE, **change)}
    assert await world.step() == 0
    assert world.api.written == [ONE.key] * (result is WriteResult.SUCCESS)
    assert (world.count(result), world.count(WriteResult.ERROR)) == (1, 0)


async def test_writes_and_concurrent_calls_of_reconciliation_are_bounded() -> None:
    world = World(*some(WRITES_MAX + 20))
    await world.step()
    assert 0 < len(world.api.written) <= WRITES_MAX
    assert 0 < world.api.at_once_most <= WRITERS_MAX
    while world.judge():
        await world.step()
    assert sorted(world.api.written) == [one.key for one in some(WRITES_MAX + 20)]


async def test_forged_traces_of_one_namespace_do_not_delay_others() -> None:
    forged = [
        replace(pod(f"f{n:04}", "u", 1, 1, namespace="a"), deletion_cost_ours="1")
        for n in range(WRITES_MAX + 50)
    ]
    world = World(*some(5), *forged)
    await world.step()
    assert all(world.api.costs()[one.key] is not None for one in some(5))


async def test_pod_whose_write_always_fails_does_not_delay_others() -> None:
    world = World(*some(2 * FORBIDDEN_MAX))
    world.api.rejected = {one.key for one in some(FORBIDDEN_MAX + WRITERS_MAX + 2)}
    for _ in range(4):
        assert await world.step() > 0
    assert {write.key for write in world.judge()} == world.api.rejected
    failed = world.count(WriteResult.ERROR)
    assert await world.step() > 0
    assert world.count(WriteResult.ERROR) > failed
    world.api.rejected = set()
    assert await world.step() == 0
    assert world.judge() == ()


@pytest.mark.parametrize(
    ("rejection", "continues"),
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
async def test_batch_continues_when_failure_is_specific_to_pod(
    rejection: UnavailableError, continues: bool
) -> None:
    """A tenant can create new pods for every reconciliation, so earlier failures do not help."""
    world = World(*some(30))
    world.api.rejected = {one.key for one in some(WRITERS_MAX)}
    world.api.rejection = rejection
    assert await world.step() == WRITERS_MAX
    assert len(world.api.written) == (30 - WRITERS_MAX if continues else 0)


async def test_policy_in_one_namespace_does_not_delay_others() -> None:
    """For any number of new pods per reconciliation, and any message of the policy."""
    denied = [pod(f"a{one:04}", "m", 100, 100, namespace="a") for one in range(2 * FORBIDDEN_MAX)]
    world = World(*some(FORBIDDEN_MAX), *denied)
    world.api.rejected = {one.key for one in denied}
    await world.step()
    assert sorted(world.api.written) == [one.key for one in some(FORBIDDEN_MAX)]


async def test_calls_are_bounded_when_server_rejects_every_write() -> None:
    """For example permission is missing, but the configuration is `enabled`."""
    world = World(*some(2 * FORBIDDEN_MAX))
    world.api.rejected = set(world.api.pods)
    assert FORBIDDEN_MAX <= await world.step() < FORBIDDEN_MAX + WRITERS_MAX
    assert world.count(WriteResult.ERROR) < FORBIDDEN_MAX + WRITERS_MAX


async def test_batch_ends_when_reconciliation_becomes_urgent() -> None:
    world = World(*some(30))
    interruptions = iter([None] * 5)
    writes = world.judge()
    assert (
        await world.deletion_costs.carry_out(
            writes, world.mode, lambda: next(interruptions, "urgent")
        )
        == 0
    )
    assert len(world.api.written) == 5


async def test_reconciliation_ends_with_deletion_costs_of_marks() -> None:
    config = Config(mode=Mode.ENFORCE, usable_capacity=UsabilityMode.ALL)
    assert config.pod_deletion_cost is PodDeletionCost.AUTO
    nodes, metrics = NodeApi(node_json("m"), node_json("u")), Metrics()
    nodes.nodes["m"]["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule"}
    pods = PodApi(*some(2), *some(1, "u"))
    pods.right = True
    deletion_costs = DeletionCosts(
        pods, metrics, AccessReview(pods.may, FakeClock(), "patch pods")
    )
    controller = Reconciler(
        config, nodes, owner="me", metrics=metrics, deletion_costs=deletion_costs
    )
    cluster = Cluster.of((nodes.node(name) for name in nodes.nodes), pods.pods.values())
    assert (await controller.reconcile(cluster, NOW)).costs.writes == (), (
        "the permission is not known yet"
    )
    report = await controller.reconcile(cluster, NOW)
    assert [write.key for write in report.costs.writes] == ["d/m0000", "d/m0001"]
    assert report.failed == 0
    assert sorted(pods.written) == ["d/m0000", "d/m0001"]
    nodes.down = {"m"}
    pods.put(pod("m0003", "m", 100, 100))
    protected = Cluster.of((nodes.node(name) for name in nodes.nodes), pods.pods.values())
    assert (await controller.reconcile(protected, NOW)).failed == 1
    assert "d/m0003" in pods.written, "costs depend on existing marks, not on writes that fail"
    pods.rejected = {"d/m0002"}
    pods.put(pod("m0002", "m", 100, 100))
    cluster = Cluster.of((nodes.node(name) for name in nodes.nodes), pods.pods.values())
    cluster = replace(
        cluster, nodes=(replace(cluster.nodes[0], labels={MARK_LABEL: "PreferNoSchedule"}),)
    )
    assert (await controller.reconcile(cluster, NOW)).failed >= 1


class SpreadWorld:
    """A ReplicaSet that spreads its pods over two zones, and a marked node with one of them."""

    def __init__(self) -> None:
        self.pods = {one.key: one for one in map(replica, "123", ("a1", "b1", "m"))}
        self.nodes = {
            name: node(name, labels={ZONE: zone})
            for name, zone in (("a1", "a"), ("b1", "b"), ("m", "b"))
        }
        self.mark("m")
        metrics, api = Metrics(), PodApi()
        access = AccessReview(api.may, FakeClock(), "patch pods")
        self.reconciler = Reconciler(
            Config(mode=Mode.ENFORCE, pod_deletion_cost=PodDeletionCost.ENABLED),
            NodeApi(),
            owner="me",
            metrics=metrics,
            deletion_costs=DeletionCosts(api, metrics, access),
        )

    def mark(self, name: str) -> None:
        self.nodes[name] = marked(self.nodes[name], since=NOW)

    def scale_out(self) -> None:
        """Create two pods in zone a, which need costs so that scale-ins keep the spread."""
        self.pods.update({one.key: one for one in map(replica, "45", ("a1", "a1"))})

    def decide(self, at: int) -> tuple[Write[Pod], ...]:
        cluster = Cluster.of(self.nodes.values(), self.pods.values())
        return self.reconciler.evaluate(cluster, at).costs.writes

    def write(self, writes: Iterable[Write[Pod]]) -> None:
        for write in writes:
            self.pods[write.key] = annotated(self.pods[write.key], write.annotations)


def replica(number: str, on: str) -> Pod:
    return replace(
        pod(f"web-{number}", on, 100, 100, labels={"app": "web"}),
        owner_name="web",
        ready=True,
        pod_constraints=PodConstraints(spread=(SpreadConstraint(select("web"), ZONE, 1),)),
    )


@pytest.mark.parametrize(
    ("seconds", "marked_too", "ordered"),
    [
        (1, (), False),
        (ORDER_SECONDS - 1, (), False),
        (ORDER_SECONDS, (), True),
        (1, ("b1",), True),
        (-1, (), True),  # the clock was set back
    ],
)
def test_complete_order_is_checked_once_a_minute_or_when_nodes_are_marked(
    seconds: int, marked_too: Sequence[str], ordered: bool
) -> None:
    world = SpreadWorld()
    world.write(world.decide(NOW))
    assert world.decide(NOW) == world.decide(NOW + 1) == ()
    world.scale_out()
    for name in marked_too:
        world.mark(name)
    assert bool(world.decide(NOW + seconds)) is ordered


def test_order_is_checked_again_until_all_its_costs_are_written() -> None:
    world = SpreadWorld()
    world.write(world.decide(NOW)[:1])
    world.scale_out()
    assert "d/web-4" in {write.key for write in world.decide(NOW + 1)}
