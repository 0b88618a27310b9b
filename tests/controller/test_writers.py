"""Order of writes, bounds on concurrent writes, and the end of a batch."""

import asyncio
import dataclasses
from collections.abc import Callable, Container, Iterable

import pytest

from controller.metrics import Metrics, WriteResult
from controller.writers import (
    MISSING_TAINTS,
    URGENT_WRITERS_MAX,
    WRITERS_MAX,
    LiveView,
    WriteBatch,
    Writers,
)
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.errors import UnavailableError
from core.model.node import Node
from core.writes.write import URGENT, Write, WriteKind, repair
from kube.stores.objects import TRIES_MAX
from tests.support.admission import Json, merge, node_json
from tests.support.slow_api import SlowApi

pytestmark = pytest.mark.mutate

NAMES = [f"n{number:03}" for number in range(100)]
DROPPABLE = [kind for kind in WriteKind if kind not in URGENT]


class World:
    """A hundred nodes, and writes that set a label and an annotation."""

    def __init__(self) -> None:
        self.api, self.metrics = SlowApi(*map(node_json, NAMES)), Metrics()
        self.told: list[str] = []
        self.notes: list[str] = []
        self.updates: dict[str, Node] = {}
        """Nodes that the watches updated after the writes were decided."""
        self.occupied: set[str] = set()
        self.permitted = True
        self.writers = Writers(self.api, self.metrics, self.tell)

    def tell(self, node: Node, reason: str, note: str) -> None:
        self.told.append(f"{reason} {node.name}")
        self.notes.append(note)

    def write(self, kind: WriteKind, name: str) -> Write[Node]:
        labels = {MARK_LABEL: None if kind is WriteKind.UNMARK else "PreferNoSchedule"}
        return Write.of(kind, self.api.node(name), labels, {"on": kind.value}, "because")

    def writes(self, kind: WriteKind, names: Iterable[str]) -> list[Write[Node]]:
        return [self.write(kind, name) for name in names]

    async def carry_out(
        self,
        writes: list[Write[Node]],
        halted: Callable[[], str | None] = lambda: None,
        closed: Container[str] = (),
    ) -> WriteBatch:
        sight = LiveView(
            halted, self.updates.get, self.occupied.__contains__, lambda: self.permitted
        )
        return await self.writers.carry_out(writes, TAINT_KEY, sight, closed)

    def written(self, kind: WriteKind) -> list[str]:
        return [name for name in NAMES if self.annotation(name) == kind.value]

    def annotation(self, name: str) -> str | None:
        metadata: Json = self.api.nodes[name]["metadata"]
        found: str | None = metadata["annotations"].get("on")
        return found

    def count(self, result: WriteResult) -> float:
        """Return the number of writes with this result, of all operations."""
        return sum(
            sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "ebb_node_writes_total" and sample.labels["result"] == result
        )


async def test_unmark_is_recorded_with_code_of_its_reason() -> None:
    world = World()
    recorded: list[tuple[str, str]] = []
    world.writers = Writers(
        world.api, world.metrics, world.tell, lambda *unmark: recorded.append(unmark)
    )
    unmark = dataclasses.replace(world.write(WriteKind.UNMARK, "n000"), code="crowded")
    await world.carry_out([unmark, world.write(WriteKind.PROTECT, "n001")])
    assert recorded == [("n000", "crowded")]


async def test_write_takes_one_call_when_node_is_unchanged() -> None:
    world = World()
    await world.carry_out(world.writes(WriteKind.MARK, NAMES[:2]))
    assert world.api.log == [("patch", "n000"), ("patch", "n001")]
    assert world.told == ["NodeMarked n000", "NodeMarked n001"]


async def test_changed_node_is_read_and_written_when_relevant_fields_are_equal() -> None:
    world = World()
    writes = world.writes(WriteKind.MARK, NAMES[:2])
    for name, changed in (("n000", {"theirs": "x"}), ("n001", {"kube-ebb.io/keep": "true"})):
        world.api.nodes[name]["metadata"]["annotations"] = changed
        world.api.versions[name] = 9
    batch = await world.carry_out(writes)
    assert world.written(WriteKind.MARK) == ["n000"]
    assert world.api.nodes["n000"]["metadata"]["annotations"]["theirs"] == "x"
    assert batch.failed == []
    assert world.count(WriteResult.CONFLICT) == 1


async def test_write_takes_one_call_when_watch_has_updated_node() -> None:
    world = World()
    writes = world.writes(WriteKind.MARK, NAMES[:2])
    for name, changed in (("n000", {"theirs": "x"}), ("n001", {"kube-ebb.io/keep": "true"})):
        world.api.nodes[name]["metadata"]["annotations"] = changed
        world.api.versions[name] = 9
        world.updates[name] = world.api.node(name)
    await world.carry_out(writes)
    assert world.api.log == [("patch", "n000")]
    assert world.written(WriteKind.MARK) == ["n000"]
    assert world.count(WriteResult.CONFLICT) == 1


async def test_taints_are_written_separately_when_webhook_is_down() -> None:
    world = World()
    world.api.webhook_up = False
    await world.carry_out(world.writes(WriteKind.MARK, NAMES[:1]))
    assert world.api.log == [("patch", "n000"), ("taints", "n000")]
    assert world.told == ["NodeMarked n000", "TaintsRepaired n000"]
    assert world.notes == ["because", MISSING_TAINTS]


async def test_repair_keeps_taints_added_meanwhile() -> None:
    """The write replaces the whole list, so it is computed from the stored node."""
    world = World()
    world.api.nodes["n000"]["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule"}
    write = repair(world.api.node("n000"), TAINT_KEY, "because")
    assert write is not None
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    world.api.nodes["n000"]["spec"]["taints"] = [theirs]
    world.api.versions["n000"] = 9
    await world.carry_out([write])
    ours = {"key": TAINT_KEY, "value": "0", "effect": "PreferNoSchedule"}
    assert world.api.nodes["n000"]["spec"]["taints"] == [theirs, ours]


@pytest.mark.parametrize(
    "changed",
    [
        {"uid": "another machine that has taken the name"},
        {"labels": {MARK_LABEL: "NoSchedule"}},
        {"annotations": {DETAILS_ANNOTATION: "{}"}},
        {"annotations": {SCALE_DOWN_DISABLED_ANNOTATION: "true"}},
        {"annotations": {PROTECTION_ANNOTATION: "marked"}},
        {"annotations": {KEEP_ANNOTATION: "false"}},
        {"annotations": {DO_NOT_DISRUPT_ANNOTATION: "true"}},
        {"annotations": {BACKOFF_ANNOTATION: "1 5"}},
        {"annotations": {RESERVE_ANNOTATION: "what another leader has said"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("updated", [True, False], ids=["updated by watch", "read"])
@pytest.mark.parametrize(
    "kind", [kind for kind in WriteKind if kind is not WriteKind.REPAIR_TAINTS]
)
async def test_write_is_dropped_when_relevant_fields_have_changed(
    kind: WriteKind, updated: bool, changed: Json
) -> None:
    """The resource version alone is not enough: the write would be retried on the new one."""
    world = World()
    writes = world.writes(kind, NAMES[:1])
    world.api.nodes["n000"] = merge(world.api.nodes["n000"], {"metadata": changed})
    world.api.versions["n000"] = 9
    if updated:
        world.updates["n000"] = world.api.node("n000")
    batch = await world.carry_out(writes)
    assert world.api.log == ([] if updated else [("get", "n000")])
    assert (batch.failed, world.told, world.count(WriteResult.CONFLICT)) == ([], [], 1)


@pytest.mark.parametrize(
    ("kind", "most"),
    [(kind, URGENT_WRITERS_MAX if kind in URGENT else WRITERS_MAX) for kind in WriteKind
     if kind is not WriteKind.REPAIR_TAINTS],
)  # fmt: skip
async def test_number_of_concurrent_writes_is_bounded(kind: WriteKind, most: int) -> None:
    world = World()
    with world.api.held():
        batch = asyncio.create_task(world.carry_out(world.writes(kind, NAMES)))
        await world.api.under_way(most)
    await batch
    assert world.api.most == most
    assert world.written(kind) == NAMES


@pytest.mark.parametrize("kind", DROPPABLE)
async def test_deferrable_writes_stop_when_reconciliation_is_interrupted(kind: WriteKind) -> None:
    """Writes in progress are finished; no further write is started."""
    world = World()
    urgent = asyncio.Event()
    with world.api.held():
        batch = asyncio.create_task(
            world.carry_out(
                world.writes(kind, NAMES), lambda: "urgent" if urgent.is_set() else None
            )
        )
        await world.api.under_way(WRITERS_MAX)
        urgent.set()
    assert (await batch).dropped == len(NAMES) - WRITERS_MAX
    assert (await batch).why == "urgent"
    assert world.written(kind) == NAMES[:WRITERS_MAX]
    assert world.count(WriteResult.DROPPED) == len(NAMES) - WRITERS_MAX


async def test_interruption_is_checked_again_after_read() -> None:
    world = World()
    writes = world.writes(WriteKind.MARK, NAMES[:1])
    world.api.versions["n000"] = 9
    halted = iter([None, "urgent", "urgent"])
    batch = await world.carry_out(writes, lambda: next(halted))
    assert world.api.log == [("get", "n000")]
    assert batch.dropped == 1


@pytest.mark.parametrize(
    "kind", [WriteKind.UNMARK, WriteKind.SET_PREFER_NO_SCHEDULE, WriteKind.PROTECT]
)
async def test_urgent_writes_continue_when_reconciliation_is_interrupted(kind: WriteKind) -> None:
    world = World()
    world.api.down = {"n003"}
    batch = await world.carry_out(world.writes(kind, NAMES), lambda: "urgent")
    assert world.written(kind) == [name for name in NAMES if name != "n003"]
    assert [write.key for write in batch.failed] == ["n003"]


async def test_other_writes_are_dropped_when_urgent_write_fails() -> None:
    world = World()
    writes = world.writes(WriteKind.MARK, NAMES[10:]) + world.writes(WriteKind.UNMARK, NAMES[:10])
    world.api.down = {"n005"}
    batch = await world.carry_out(writes)
    assert [name for _, name in world.api.log] == NAMES[:10]
    assert batch.dropped == 90


@pytest.mark.parametrize(
    ("kind", "mark", "continues"),
    [
        (WriteKind.UNMARK, "PreferNoSchedule", True),
        (WriteKind.UNMARK, "NoSchedule", False),
        (WriteKind.SET_PREFER_NO_SCHEDULE, "NoSchedule", False),
        (WriteKind.PROTECT, "PreferNoSchedule", True),
        (WriteKind.PROTECT, "NoSchedule", True),
        (WriteKind.REPAIR_TAINTS, "NoSchedule", True),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
async def test_failing_urgent_write_blocks_others_only_for_its_no_schedule_mark(
    kind: WriteKind, mark: str, continues: bool, closed: bool
) -> None:
    """A NoSchedule mark that remains blocks pods that the plan may place there."""
    world = World()
    world.api.nodes["n000"]["metadata"]["labels"][MARK_LABEL] = mark
    world.api.down = {"n000"}
    for _ in range(3):
        pressing = world.write(kind, "n000")
        batch = [pressing, *world.writes(WriteKind.MARK, NAMES[1:3])]
        await world.carry_out(batch, closed={"n000"} if closed else set())
    assert world.written(WriteKind.MARK) == (NAMES[1:3] if continues or closed else [])


@pytest.mark.parametrize("kind", DROPPABLE)
async def test_first_failed_write_ends_batch_and_is_tried_last(
    kind: WriteKind,
) -> None:
    world = World()
    world.api.down = {"n000"}
    batch = await world.carry_out(world.writes(kind, NAMES))
    assert world.api.log == [("patch", "n000")]
    assert (batch.dropped, batch.why) == (99, "a write failed")
    if kind is not WriteKind.MARK:  # the next plan leaves such a node out
        await world.carry_out(world.writes(kind, NAMES))
        assert world.written(kind) == NAMES[1:]


async def test_write_that_fails_by_internal_error_is_tried_last() -> None:
    world = World()
    odd = world.write(WriteKind.PROTECT_UNMARKED, "n000")
    del world.api.versions["n000"]
    batch = await world.carry_out([odd])
    assert batch.failed == batch.refused == [odd]
    await world.carry_out([odd, world.write(WriteKind.PROTECT_UNMARKED, "n001")])
    assert world.written(WriteKind.PROTECT_UNMARKED) == ["n001"]


async def test_marks_are_written_after_planless_writes_and_before_failed_ones() -> None:
    world = World()
    world.api.down = {"n000"}
    await world.carry_out([world.write(WriteKind.PROTECT_UNMARKED, "n000")])
    world.api.down, world.api.log = set(), []
    writes = [
        world.write(WriteKind.PROTECT_UNMARKED, "n000"),
        world.write(WriteKind.MARK, "n002"),
        world.write(WriteKind.MARK, "n001"),
        world.write(WriteKind.PROTECT_UNMARKED, "n003"),
    ]
    await world.carry_out(writes)
    assert [name for _, name in world.api.log] == ["n003", "n002", "n001", "n000"]


async def test_failing_rewrite_of_existing_mark_is_tried_after_new_marks() -> None:
    """An admission policy may reject every write on nodes whose marks need new details."""
    world = World()
    frozen = NAMES[: WRITERS_MAX + 1]
    for name in frozen:
        world.api.nodes[name]["metadata"]["labels"][MARK_LABEL] = "PreferNoSchedule"
    world.api.down = set(frozen)
    for _ in range(len(frozen)):
        await world.carry_out(world.writes(WriteKind.MARK, frozen))
    await world.carry_out(world.writes(WriteKind.MARK, NAMES[:10]))
    assert world.written(WriteKind.MARK) == NAMES[len(frozen) : 10]


@pytest.mark.parametrize("mark", ["PreferNoSchedule", "NoSchedule", None])
@pytest.mark.parametrize(
    "kind", [WriteKind.REMOVE_PROTECTION, WriteKind.SET_NO_SCHEDULE, WriteKind.PROTECT]
)
async def test_protection_is_not_removed_when_pod_has_arrived(
    kind: WriteKind, mark: str | None
) -> None:
    """The protection of an unmarked node is removed for other reasons, with any pods."""
    world = World()
    for name in NAMES[:6] if mark else ():
        world.api.nodes[name]["metadata"]["labels"][MARK_LABEL] = mark
    writes = world.writes(kind, NAMES[:6])
    with world.api.held():
        under_way = asyncio.create_task(world.carry_out(writes))
        await world.api.under_way(6 if kind in URGENT else WRITERS_MAX)
        world.occupied.add(NAMES[4])
    batch = await under_way
    left = {NAMES[4]} if kind is WriteKind.REMOVE_PROTECTION and mark else set()
    assert set(world.written(kind)) == set(NAMES[:6]) - left
    assert (batch.dropped, batch.failed) == (len(left), [])


async def test_pods_are_checked_again_when_removal_of_protection_conflicts() -> None:
    world = World()
    world.api.nodes["n000"]["metadata"]["labels"][MARK_LABEL] = "PreferNoSchedule"
    writes = world.writes(WriteKind.REMOVE_PROTECTION, NAMES[:1])
    world.api.versions["n000"] = 9
    with world.api.held():
        under_way = asyncio.create_task(world.carry_out(writes))
        await world.api.under_way(1)
        world.occupied.add("n000")
    assert (await under_way).why == "a pod is now on the node"
    assert world.written(WriteKind.REMOVE_PROTECTION) == []


class Broken(SlowApi):
    """Raises an unexpected exception."""

    async def write(self, *_: object) -> tuple[Node, str]:
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", [WriteKind.UNMARK, WriteKind.MARK])
async def test_any_exception_counts_as_failed_write(kind: WriteKind) -> None:
    world = World()
    world.writers = Writers(Broken(*map(node_json, NAMES)), world.metrics, world.tell)
    batch = await world.carry_out(world.writes(kind, NAMES[:2]))
    assert len(batch.failed) == (2 if kind in URGENT else 1)
    assert world.count(WriteResult.ERROR) == len(batch.failed)


class WithoutTaints(SlowApi):
    """No webhook answers, and the API server refuses to write taints."""

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:
        if write.taints is not None:
            raise UnavailableError("refused")
        return await super().write(write, version)


async def test_failed_repair_is_counted_apart_from_the_written_mark() -> None:
    world = World()
    api = WithoutTaints(*map(node_json, NAMES))
    api.webhook_up = False
    world.writers = Writers(api, world.metrics, world.tell)
    await world.carry_out(world.writes(WriteKind.MARK, NAMES[:1]))
    registry = world.metrics.registry
    for operation, result in (("mark", "success"), ("repair_taints", "error")):
        labels = {"operation": operation, "result": result}
        assert registry.get_sample_value("ebb_node_writes_total", labels) == 1
    assert world.count(WriteResult.ERROR) == 1


class Racing(SlowApi):
    """Others write to the node before every write of ours."""

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:
        self.versions[write.key] += 1
        return await super().write(write, version)


async def test_write_fails_after_some_tries_when_node_always_changes() -> None:
    world = World()
    api = Racing(*map(node_json, NAMES))
    world.writers = Writers(api, world.metrics, world.tell)
    batch = await world.carry_out(world.writes(WriteKind.MARK, NAMES[:1]))
    assert len(batch.failed) == 1
    assert len(api.log) == TRIES_MAX - 1


async def test_later_batch_writes_only_urgent_writes_at_once() -> None:
    """Started writes of the earlier batch are finished; no node is written twice at once."""
    world = World()
    with world.api.held():
        early = asyncio.create_task(world.carry_out(world.writes(WriteKind.MARK, NAMES[:50])))
        await world.api.under_way(WRITERS_MAX)
        writes = world.writes(WriteKind.UNMARK, [NAMES[0], *NAMES[60:63]])
        writes += world.writes(WriteKind.MARK, NAMES[50:60])
        late = asyncio.create_task(world.carry_out(writes))
        await world.api.under_way(WRITERS_MAX + 3)
    first, second = await early, await late
    assert first.why == "a later reconciliation has decided again"
    assert second.why == "an earlier reconciliation is still writing"
    assert world.written(WriteKind.MARK) == NAMES[:WRITERS_MAX]
    assert world.written(WriteKind.UNMARK) == NAMES[60:63]
    assert (first.dropped, second.dropped) == (50 - WRITERS_MAX, 11)
    await world.carry_out(world.writes(WriteKind.MARK, NAMES[50:60]))
    assert world.written(WriteKind.MARK) == [*NAMES[:WRITERS_MAX], *NAMES[50:60]]


async def test_node_that_is_still_being_written_is_left_to_next_reconciliation() -> None:
    world = World()
    with world.api.held():
        early = asyncio.create_task(world.carry_out(world.writes(WriteKind.MARK, NAMES[:1])))
        await world.api.under_way(1)
        late = await world.carry_out(world.writes(WriteKind.UNMARK, NAMES[:1]))
    await early
    assert (late.dropped, late.why) == (1, "an earlier reconciliation is still writing this node")
    assert world.written(WriteKind.MARK) == NAMES[:1]


async def test_overtaking_batches_have_bounded_concurrency() -> None:
    world = World()
    with world.api.held():
        batches = []
        for number in range(20):
            names = NAMES[number * 5 :][: URGENT_WRITERS_MAX // 2]
            writes = world.writes(WriteKind.UNMARK, names)
            batches.append(asyncio.create_task(world.carry_out(writes)))
            await asyncio.sleep(0)
        await world.api.under_way(URGENT_WRITERS_MAX + WRITERS_MAX)
    await asyncio.gather(*batches)
    assert world.api.most == URGENT_WRITERS_MAX + WRITERS_MAX


async def test_batch_reports_failures_when_api_is_down() -> None:
    world = World()
    world.api.down = set(NAMES)
    batch = await world.carry_out(world.writes(WriteKind.UNMARK, NAMES))
    assert len(batch.failed) == len(NAMES)
    with pytest.raises(UnavailableError):
        await world.api.write(world.write(WriteKind.MARK, "n000"), "1")


async def test_nothing_begins_after_permission_has_ended() -> None:
    """All other writes are made."""
    world = World()
    world.permitted = False
    writes = [world.write(kind, name) for kind, name in zip(WriteKind, NAMES, strict=False)]
    await world.carry_out(writes)
    missing = {kind for kind in WriteKind if not world.written(kind)}
    assert missing - {WriteKind.REPAIR_TAINTS} == {WriteKind.MARK, WriteKind.SET_NO_SCHEDULE}
    assert world.count(WriteResult.DROPPED) == 2
