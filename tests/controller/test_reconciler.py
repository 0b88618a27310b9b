"""Reconcile Nodes; every write passes through the wire code of the webhook."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from controller.metrics import Metrics
from controller.reconciler import Reconciler, ReconcileReport
from core.config.budgets import Reserve
from core.config.settings import Config, Mode, UsabilityMode
from core.engine.maintenance_gate import RefusedWrite
from core.engine.plan import REACHES_SHOWN
from core.history.packing import pack_today, read_today
from core.marks.wellknown import (
    DETAILS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.admission import Json, NodeApi, node_json
from tests.support.builders import EIGHTY_PERCENT, UNLIMITED

pytestmark = pytest.mark.mutate

PROTECTION_SECONDS = Config().scale_down_protection.after_unmark_seconds
NOW = 1_767_225_600
DELAY = 600
TO_BE_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
LOST = {
    "key": "node.kubernetes.io/unreachable",
    "effect": "NoExecute",
    "timeAdded": "2026-01-01T00:00:00Z",
}


class World:
    """Three nodes with few pods; tests change time and pods."""

    def __init__(self, mode: Mode = Mode.ENFORCE, **spec: Any) -> None:
        self.config = Config(
            mode=mode,
            unneeded_time_seconds=DELAY,
            thresholds=EIGHTY_PERCENT,
            usable_capacity=UsabilityMode.ALL,
            budgets=UNLIMITED,
        )
        self.api = NodeApi(node_json("n1", **spec), node_json("n2"), node_json("n3"))
        self.pods = [make_pod("p1", "n1"), make_pod("p2", "n2", 2000), make_pod("p3", "n3", 2000)]
        self.metrics = Metrics()
        self.refused: RefusedWrite | None = None
        self.controller = Reconciler(
            self.config,
            self.api,
            owner="me",
            metrics=self.metrics,
            refused_write=lambda: self.refused,
        )
        self.now = NOW

    async def reconcile(self, seconds: int = 0) -> ReconcileReport:
        self.now += seconds
        nodes = [self.api.node(name) for name in self.api.nodes]
        return await self.controller.reconcile(Cluster.of(nodes, self.pods), self.now)

    async def until_marked(self) -> ReconcileReport:
        await self.reconcile()
        return await self.reconcile(DELAY + 1)

    def metadata(self, name: str = "n1") -> Json:
        found: Json = self.api.nodes[name]["metadata"]
        return found

    def taints(self, name: str = "n1") -> list[Json]:
        return self.api.nodes[name]["spec"].get("taints") or []

    def change(self, **metadata: Any) -> None:
        self.api.nodes["n1"]["metadata"] |= metadata

    def kinds(self, report: ReconcileReport) -> list[tuple[str, str]]:
        return [(write.kind.value, write.key) for write in report.writes]


def make_pod(name: str, node: str | None, cpu_millis: int = 500) -> Pod:
    requests = Resources(cpu_millis, 2**30, 0, 1)
    return Pod(namespace="a", name=name, node=node, requests=requests, owner_kind="ReplicaSet")


async def test_node_is_not_marked_before_unneeded_time_ends() -> None:
    world = World()
    await world.reconcile()
    report = await world.reconcile(DELAY)
    assert "n1" in report.result.state.candidates
    assert report.writes == ()
    assert world.api.log == []


async def test_mark_and_taint_are_stored_in_one_write() -> None:
    world = World()
    report = await world.until_marked()
    assert world.kinds(report) == [("mark", "n1")]
    assert world.api.log == [("patch", "n1")]
    assert world.api.versions["n1"] == 2
    assert world.metadata()["labels"] == {MARK_LABEL: "PreferNoSchedule"}
    assert world.metadata()["annotations"].keys() == {
        DETAILS_ANNOTATION,
        SCALE_DOWN_DISABLED_ANNOTATION,
        PROTECTION_ANNOTATION,
    }
    assert [taint["key"] for taint in world.taints()] == [TAINT_KEY]


async def test_no_node_is_marked_until_refused_write_may_be_tried_again() -> None:
    world = World()
    await world.reconcile()
    until = NOW + DELAY + 60
    world.refused = RefusedWrite("a-policy", "metadata.labels: a", until)
    report = await world.reconcile(DELAY + 1)
    assert (report.writes, world.api.log) == ((), [])
    (kept,) = (one for one in report.result.plan.kept if one.node == "n1")
    assert [one.code for one in kept.blockers] == ["writes-refused"]
    assert world.controller.opens_at == until
    world.refused = None
    report = await world.reconcile(1)
    assert world.kinds(report) == [("mark", "n1")]


async def test_node_is_unmarked_while_writes_are_refused() -> None:
    world = World()
    await world.until_marked()
    world.refused = RefusedWrite("a-policy", "metadata.labels: a", world.now + 60)
    world.change(annotations={**world.metadata()["annotations"], KEEP_ANNOTATION: "true"})
    report = await world.reconcile(1)
    assert world.kinds(report) == [("unmark", "n1")]
    assert MARK_LABEL not in world.metadata()["labels"]


async def test_second_reconciliation_writes_nothing() -> None:
    world = World()
    await world.until_marked()
    report = await world.reconcile(10)
    assert report.writes == ()


async def test_nothing_is_written_in_mode_observe() -> None:
    world = World(Mode.OBSERVE)
    report = await world.until_marked()
    assert world.kinds(report) == [("mark", "n1")]
    assert world.api.log == []


async def test_taint_is_written_by_controller_when_webhook_is_down() -> None:
    world = World()
    world.api.webhook_up = False
    report = await world.until_marked()
    assert world.api.log == [("patch", "n1"), ("taints", "n1")]
    assert [taint["key"] for taint in world.taints()] == [TAINT_KEY]
    assert report.failed == 0
    assert (await world.reconcile(10)).writes == ()


async def test_taint_is_restored_when_someone_removes_it() -> None:
    world = World()
    await world.until_marked()
    world.api.nodes["n1"]["spec"]["taints"] = []
    report = await world.reconcile(10)
    assert world.kinds(report) == [("repair_taints", "n1")]
    assert [taint["key"] for taint in world.taints()] == [TAINT_KEY]


async def test_conflicting_write_is_retried_on_new_node() -> None:
    world = World()
    world.api.webhook_up = False
    theirs = {"key": "theirs", "value": "", "effect": "NoSchedule"}
    world.api.between = [{"spec": {"taints": [theirs]}}]
    report = await world.until_marked()
    assert world.api.log == [("patch", "n1"), ("taints", "n1"), ("taints", "n1")]
    assert [taint["key"] for taint in world.taints()] == ["theirs", TAINT_KEY]
    assert report.failed == 0


async def test_write_fails_after_some_tries_when_node_always_changes() -> None:
    world = World()
    world.api.webhook_up = False
    world.api.between = [{"spec": {"unschedulable": turn % 2 == 0}} for turn in range(100)]
    report = await world.until_marked()
    assert report.failed == 1


async def test_repair_keeps_unknown_taint_fields() -> None:
    world = World(taints=[LOST])
    world.api.webhook_up = False
    await world.until_marked()
    assert world.taints()[0] == LOST


async def test_webhook_keeps_unknown_taint_fields() -> None:
    world = World(taints=[LOST])
    await world.until_marked()
    assert world.taints()[0] == LOST


async def test_failed_mark_ends_batch_and_next_reconciliation_marks_other_nodes() -> None:
    world = World()
    for name in ("n4", "n5"):
        world.pods.append(make_pod(f"on-{name}", name, 10 if name == "n4" else 20))
        world.api.nodes[name] = node_json(name)
        world.api.versions[name] = 1
    world.api.down = {"n4"}
    report = await world.until_marked()
    assert [write.key for write in report.writes] == ["n4", "n5", "n1"]
    assert report.failed == 1
    assert world.api.log == [("patch", "n4")]
    report = await world.reconcile(1)
    written = {write.key for write in report.writes}
    assert written >= {"n5", "n1"}
    assert "n4" not in written
    assert report.failed == 0
    assert report.result.state.candidates["n4"] == world.now


async def test_throttled_mark_is_written_in_next_reconciliation() -> None:
    world = World()
    world.api.throttles = 1
    report = await world.until_marked()
    assert report.failed == 1
    assert world.kinds(await world.reconcile(1)) == [("mark", "n1")]
    assert world.metadata()["labels"] == {MARK_LABEL: "PreferNoSchedule"}


@pytest.mark.parametrize(("cpu_millis", "marked"), [(500, ["n1"]), (3000, [])])
async def test_no_schedule_mark_that_cannot_be_removed_blocks_no_other_node(
    cpu_millis: int, marked: list[str]
) -> None:
    """A kubelet that fills the annotations of its Node makes every write fail."""
    world = World()
    world.pods[0] = make_pod("p1", "n1", cpu_millis)
    for name in ("n1", "n2", "n3"):
        world.pods.append(make_pod(f"on-{name}", name, 100))
    world.api.nodes["n4"], world.api.versions["n4"] = node_json("n4"), 1
    world.metadata("n4").update(
        labels={MARK_LABEL: "NoSchedule"}, annotations={KEEP_ANNOTATION: "true"}
    )
    world.api.down = {"n4"}
    for _ in range(4):
        report = await world.reconcile(DELAY)
        assert report.failed == 1, "the unmarking is tried each time"
    assert [write for write in world.api.log if write != ("patch", "n4")] == [
        ("patch", name) for name in marked
    ]
    world.api.down = set()
    await world.reconcile(1)
    assert MARK_LABEL not in world.metadata("n4")["labels"]


@pytest.mark.parametrize("webhook_up", [True, False])
async def test_infeasible_node_is_unmarked_and_protected_temporarily(
    webhook_up: bool,
) -> None:
    world = World()
    await world.until_marked()
    world.api.webhook_up = webhook_up
    world.pods += [make_pod(f"more-{name}", name, 1900) for name in ("n2", "n3")]
    report = await world.reconcile(10)
    until = str(world.now + PROTECTION_SECONDS)
    assert world.kinds(report) == [("unmark", "n1")]
    assert world.taints() == []
    assert world.metadata()["labels"] == {}
    left = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: until}
    assert world.metadata()["annotations"] == left

    assert (await world.reconcile(PROTECTION_SECONDS - 1)).writes == ()
    await world.reconcile(1)
    assert world.metadata()["annotations"] == {}


async def test_scale_down_of_empty_node_is_allowed_until_pod_arrives() -> None:
    world = World()
    await world.until_marked()
    first = world.pods.pop(0)
    assert world.kinds(await world.reconcile(10)) == [("remove_protection", "n1")]
    assert world.metadata()["annotations"].keys() == {DETAILS_ANNOTATION}
    assert (await world.reconcile(10)).writes == ()
    world.pods.append(first)
    assert world.kinds(await world.reconcile(1)) == [("protect", "n1")]
    assert world.metadata()["annotations"][SCALE_DOWN_DISABLED_ANNOTATION] == "true"


async def test_node_is_unmarked_at_its_deadline() -> None:
    world = World()
    await world.until_marked()
    report = await world.reconcile(world.config.deadline_seconds)
    assert world.kinds(report) == [("unmark", "n1")]


@pytest.mark.parametrize("annotation", [KEEP_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION])
async def test_opted_out_node_is_not_marked(annotation: str) -> None:
    world = World()
    world.change(annotations={annotation: "true"})
    report = await world.until_marked()
    assert [write for write in report.writes if write.key == "n1"] == []
    assert world.metadata()["annotations"] == {annotation: "true"}


async def test_node_is_unmarked_when_opted_out() -> None:
    world = World()
    await world.until_marked()
    world.change(annotations=world.metadata()["annotations"] | {KEEP_ANNOTATION: "true"})
    report = await world.reconcile(10)
    assert ("unmark", "n1") in world.kinds(report)
    assert world.metadata()["annotations"][KEEP_ANNOTATION] == "true"


async def test_foreign_protection_remains_after_unmarking() -> None:
    world = World()
    await world.until_marked()
    annotations = world.metadata()["annotations"]
    del annotations[PROTECTION_ANNOTATION]
    world.pods.pop(0)
    report = await world.reconcile(10)
    assert world.kinds(report) == [("unmark", "n1")]
    assert world.metadata()["annotations"] == {SCALE_DOWN_DISABLED_ANNOTATION: "true"}


async def test_node_that_is_being_deleted_is_not_written() -> None:
    world = World()
    await world.until_marked()
    world.api.nodes["n1"]["spec"] |= {"taints": [TO_BE_DELETED], "unschedulable": True}
    world.pods += [make_pod(f"more-{name}", name, 1900) for name in ("n2", "n3")]
    world.api.log.clear()
    report = await world.reconcile(world.config.deadline_seconds)
    assert [write for write in report.writes if write.key == "n1"] == []
    assert [entry for entry in world.api.log if entry[1] == "n1"] == []
    assert world.taints() == [TO_BE_DELETED]


async def test_metrics_count_writes_and_marked_nodes() -> None:
    world = World()
    await world.until_marked()
    await world.reconcile(10)
    text = world.metrics.text().decode()
    assert 'ebb_node_writes_total{operation="mark",result="success"} 1.0' in text
    assert 'ebb_marked_nodes{effect="PreferNoSchedule"} 1.0' in text
    assert 'ebb_marked_nodes{effect="NoSchedule"} 0.0' in text


async def test_reach_metrics_are_removed_with_reach() -> None:
    world = World()
    await world.reconcile()
    text = world.metrics.text().decode()
    assert 'ebb_reach_nodes{reach="general"} 3.0' in text
    shares = [line for line in text.splitlines() if line.startswith("ebb_reach_")]
    (cpu,) = (line for line in shares if "requests_ratio" in line and 'resource="cpu"' in line)
    assert cpu.startswith('ebb_reach_requests_ratio{reach="general",resource="cpu"} 0.3')
    assert 'ebb_reach_threshold_ratio{reach="general",resource="memory"} 0.8' in shares
    world.pods = []
    await world.reconcile()
    assert "reach=" not in world.metrics.text().decode()


async def test_only_figures_of_current_policy_are_exported() -> None:
    world = World()
    await world.reconcile()
    assert "\nebb_excess_nodes " not in world.metrics.text().decode()
    world.controller.config = replace(world.config, policy="ExcessNodes")
    await world.reconcile(1)
    text = world.metrics.text().decode()
    assert "\nebb_excess_nodes 1.875" in text  # 7,500m of 12,000m are free, a node has 4,000m
    assert "ebb_reach_nodes{" not in text


async def test_number_of_exported_reaches_is_bounded() -> None:
    """Reach names contain label values, which any user can set."""
    world = World()
    count = REACHES_SHOWN + 5
    for number in range(count):
        labels = {f"own-{number}": "x"}
        for half in "ab":
            name = f"of-{number}{half}"
            world.api.nodes[name] = node_json(name)
            world.api.nodes[name]["metadata"]["labels"] = labels
        node_constraints = NodeConstraints(node_selector=tuple(labels.items()))
        world.pods.append(
            replace(make_pod(f"q{number}", f"of-{number}a"), node_constraints=node_constraints)
        )
    report = await world.reconcile()
    assert len(report.result.plan.reaches) > count
    assert world.metrics.text().decode().count("ebb_reach_nodes{") == REACHES_SHOWN


async def test_restarted_controller_reserves_what_it_reserved_before() -> None:
    """Without the store it would know no arrivals, and keep all that is protected for a window."""
    reserve = Reserve(window_seconds=60, percentile=Fraction(1))
    pods = [make_pod("p1", "n1", 3900), make_pod("p2", "n2", 3900)]

    async def after_restart(stored: bool) -> tuple[Any, Any]:
        first, second = World(), World()
        for one in (first, second):
            one.controller.config = replace(
                one.config, budgets=replace(UNLIMITED, reserve=reserve)
            )
            one.pods = pods
        await first.reconcile()
        first.pods = [*pods, make_pod("burst", "n3", 3000)]
        await first.reconcile(70)
        first.pods = pods
        before = await first.reconcile(10)
        second.now = first.now
        if stored:
            today = first.controller.to_store
            assert today
            read = read_today(pack_today(today))
            assert read
            second.controller.restore(read)
            assert second.controller.to_store is None
        after = await second.reconcile(2)
        return before.result, after.result

    before, after = await after_restart(stored=True)
    assert [one.node for one in before.plan.reserve] == ["n3"]
    assert after.plan.reserve == before.plan.reserve
    assert after.state.arrivals.counting_since == NOW
    _, without = await after_restart(stored=False)
    assert without.plan.reserve == ()
