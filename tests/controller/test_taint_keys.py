"""A taint's key that was changed, and whose taints go."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controller.taint_keys import (
    FORGET_SECONDS,
    NODES_AT_ONCE,
    NOTE_TRIES_MAX,
    TaintKeys,
)
from controller.view import ClusterView
from core.edge.decode.kinds import NODES
from core.edge.kube.stores.lease import Lease
from core.marks.taints import KEYS_ANNOTATION, KEYS_MAX, keys_of
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.errors import ConflictError, UnavailableError
from tests.support.admission import Json, NodeApi, node_json
from tests.support.clock import FakeClock, in_virtual_time, virtual_clock
from tests.support.leases import Door, Store

pytestmark = pytest.mark.mutate

OLD, NEW = "example.com/old", "example.com/new"
SOFT, HARD = "PreferNoSchedule", "NoSchedule"


def taint(key: str, value: str = "1700000000", effect: str = SOFT) -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def node(name: str, *taints: Json, mark: str | None = None, **spec: Any) -> Json:
    made = node_json(name, taints=[*taints], **spec)
    if mark:
        made["metadata"]["labels"][MARK_LABEL] = mark
    return made


class Bench:
    """Nodes, a Lease, and a leader that uses a key."""

    def __init__(self, *nodes: Json, noted: str | None = OLD, key: str = NEW) -> None:
        self.api = NodeApi(*nodes, taint_key=key)
        annotations = {} if noted is None else {KEYS_ANNOTATION: noted, "theirs": "1"}
        self.store = Store(Lease(holder="one", version="1", annotations=annotations))
        self.view, self.clock = ClusterView(), FakeClock()
        self.keys = TaintKeys(Door(self.store), self.api, self.view, self.clock, key)
        self.look()

    def look(self) -> None:
        self.view.replaced(NODES, [self.api.node(name) for name in self.api.nodes])

    async def sweep(self, after: float = 0) -> None:
        self.clock.seconds += after
        await self.keys.sweep()
        self.look()

    def taints(self, name: str) -> list[tuple[str, str, str]]:
        return [(one.key, one.value, one.effect) for one in self.api.node(name).taints]

    @property
    def noted(self) -> list[str]:
        assert self.store.lease is not None
        return keys_of(self.store.lease.annotations.get(KEYS_ANNOTATION, ""))


async def test_old_taints_go_from_all_nodes_and_marked_ones_get_the_new_one() -> None:
    bench = Bench(
        node("marked", taint(OLD), mark="soft"),
        node("hard", taint("theirs", ""), taint(OLD, effect=HARD), mark="hard"),
        node("released", taint(OLD), taint("theirs", "", "NoExecute")),
        node("clean"),
    )
    await bench.sweep()
    assert [key for key, _, _ in bench.taints("marked")] == [NEW]
    assert [(key, effect) for key, _, effect in bench.taints("hard")] == [
        ("theirs", SOFT),
        (NEW, HARD),
    ]
    assert bench.taints("released") == [("theirs", "", "NoExecute")]
    assert bench.api.log == [("taints", "marked"), ("taints", "hard"), ("taints", "released")]
    await bench.sweep()
    assert len(bench.api.log) == 3, "once"


@pytest.mark.parametrize(
    "kept",
    [
        taint(OLD, "maintenance"),
        taint(OLD, ""),
        taint(OLD, "1.5"),
        taint(OLD, "٣"),
        taint(OLD, "1" * 13),
        taint(OLD, effect="NoExecute"),
        taint("example.com/never"),
        taint("node.kubernetes.io/unschedulable", ""),
    ],
)
async def test_others_taints_stay(kept: Json) -> None:
    bench = Bench(node("n", kept))
    bench.api.nodes["n"]["metadata"]["annotations"] = {KEYS_ANNOTATION: "example.com/never"}
    bench.look()
    await bench.sweep()
    assert [key for key, _, _ in bench.taints("n")] == [kept["key"]]
    assert bench.api.log == []


async def test_the_key_that_ebb_has_by_default_needs_no_note() -> None:
    bench = Bench(node("n", taint(TAINT_KEY)), noted=None)
    await bench.sweep()
    assert bench.taints("n") == []
    assert bench.noted == [NEW]


async def test_the_key_in_use_is_noted_beside_the_others_and_nothing_else_is_touched() -> None:
    bench = Bench()
    await bench.keys.note()
    assert bench.noted == [OLD, NEW]
    assert bench.store.lease is not None
    assert bench.store.lease.annotations["theirs"] == "1"
    assert bench.store.lease.holder == "one"
    await bench.keys.note()
    assert len(bench.store.writes) == 1


async def test_keys_are_bounded_and_the_newest_stay() -> None:
    bench = Bench(noted=",".join(f"k{number}" for number in range(1000)))
    await bench.keys.note()
    assert len(bench.noted) == KEYS_MAX
    assert bench.noted[-2:] == ["k999", NEW]


async def test_without_a_lease_nothing_is_known_and_nothing_written() -> None:
    bench = Bench(node("n", taint(TAINT_KEY), taint(OLD)))
    bench.store.lease = None
    await bench.sweep()
    assert [key for key, _, _ in bench.taints("n")] == [TAINT_KEY, OLD]
    assert bench.store.writes == []


async def test_a_key_is_forgotten_long_after_the_last_node_carried_it() -> None:
    bench = Bench(node("n", taint(OLD)))
    await bench.sweep()
    await bench.sweep(FORGET_SECONDS - 1)
    assert bench.noted == [OLD, NEW]
    bench.api.store("n", node("n", taint(OLD)))  # a replica that still has the old key
    bench.look()
    await bench.sweep(2)
    assert bench.taints("n") == []
    await bench.sweep(FORGET_SECONDS - 1)
    assert bench.noted == [OLD, NEW]
    await bench.sweep(1)
    assert bench.noted == [NEW]
    bench.api.store("n", node("n", taint(OLD)))
    bench.look()
    await bench.sweep()
    assert len(bench.taints("n")) == 1, "from now on it is somebody else's"


async def test_a_node_that_cannot_be_written_holds_nobody_else_up() -> None:
    bench = Bench(*(node(name, taint(OLD)) for name in ("a", "b", "c")))
    bench.api.down.add("a")
    with pytest.raises(UnavailableError):
        await bench.sweep()
    assert len(bench.taints("b")) == 1
    with pytest.raises(UnavailableError):
        await bench.sweep()
    assert bench.taints("b") == bench.taints("c") == []


async def test_on_a_node_that_an_autoscaler_deletes_nothing_is_written() -> None:
    going = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": HARD}
    bench = Bench(node("n", taint(OLD), going))
    await bench.sweep()
    assert bench.api.log == []


@in_virtual_time
async def test_the_leader_waits_for_a_view_and_ends_when_it_is_told_to() -> None:
    bench, stale = Bench(node("n", taint(OLD))), ["not synced"]
    bench.keys._clock = virtual_clock()
    task = asyncio.create_task(bench.keys.clean(lambda: stale[0] if stale else None))
    await asyncio.sleep(60)
    assert bench.api.log == []
    stale.clear()
    await asyncio.sleep(60)
    assert bench.taints("n") == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_before_it_leads_on_the_key_stands_on_the_lease() -> None:
    bench = Bench()
    lease, bench.store.lease = bench.store.lease, None
    beginning = asyncio.create_task(bench.keys.begin())
    await asyncio.sleep(60)
    assert not beginning.done(), "somebody has deleted the Lease: it is made when it is renewed"
    bench.store.lease = lease
    await beginning
    assert bench.noted == [OLD, NEW]


@pytest.mark.parametrize("faster", [1, NOTE_TRIES_MAX - 1, NOTE_TRIES_MAX])
async def test_somebody_who_writes_the_lease_meanwhile_costs_another_try(faster: int) -> None:
    bench, left = Bench(), [faster]

    async def meanwhile() -> None:
        lease = bench.store.lease
        if left[0] and lease is not None:
            left[0] -= 1
            bench.store.lease = replace(lease, version=f"{lease.version}0")

    keys = TaintKeys(
        Door(bench.store, after=meanwhile), bench.api, bench.view, bench.clock, bench.keys._key
    )
    if faster < NOTE_TRIES_MAX:
        await keys.note()
        assert bench.noted == [OLD, NEW]
    else:
        with pytest.raises(ConflictError):
            await keys.note()


async def test_others_have_their_turn_while_all_nodes_are_looked_at() -> None:
    bench = Bench(*(node(f"n{number}") for number in range(2 * NODES_AT_ONCE + 1)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    await bench.sweep()
    beside.cancel()
    assert turns >= 2
