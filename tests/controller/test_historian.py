"""Two ConfigMaps at an API server: what a leader stores, and how the next one continues."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from controller.decisions import DecisionLog
from controller.historian import (
    STORE_SECONDS,
    UNCHANGED_SECONDS_MAX,
    Historian,
    HistoryStores,
)
from core.engine.arrivals import TimeBuckets
from core.engine.stored_arrivals import StoredArrivals
from core.history.days import DAY_SECONDS, Day, PoolDay
from core.history.packing import pack_history, pack_today, read_history, read_today
from core.history.today import Today
from core.model.errors import UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from kube.client import Client
from kube.stores.packed_config_map import KEY, Packed, PackedConfigMap
from tests.controller.figures.test_day import FRAMES, OWN, A, Leader, T, with_mark, workers
from tests.support.clock import FakeClock, in_virtual_time
from tests.support.fake_api import FakeApi
from tests.support.following import opened

TODAY, HISTORY = "today", "history"
PATHS = {name: f"/api/v1/namespaces/ns/configmaps/{name}" for name in (TODAY, HISTORY)}
LABELS = {"app.kubernetes.io/name": "ebb"}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        empty(api)
        yield api


def empty(api: FakeApi) -> None:
    for name in (TODAY, HISTORY):
        metadata = {"name": name, "namespace": "ns", "labels": LABELS}
        api.put("configmaps", {"metadata": metadata})


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    async with opened(api) as client:
        yield client


@dataclass
class Counting:
    """What counts for a leader: it continues stored figures with its next reconciliation."""

    leader: Leader = field(default_factory=Leader)
    stored: Today | None = None
    arrivals: StoredArrivals | None = None
    restored: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def to_store(self) -> Today | None:
        today = self.leader.figures.to_store
        if self.stored is not None or today is None:
            return None
        return replace(today, arrivals=self.arrivals)

    def restore(self, stored: Today) -> None:
        self.stored = stored
        self.restored.set()

    def sees(self, nodes: Sequence[Node], at: int, pods: Sequence[Pod] = OWN) -> None:
        if self.stored is not None:
            self.leader.figures = self.leader.figures.restored(self.stored, at)
            self.stored = None
        self.leader.sees(nodes, at, pods)


class Replica:
    """A replica of the controller that leads."""

    def __init__(self, client: Client, name: str = "one", *, leading: bool = True) -> None:
        self.clock, self.counts = FakeClock(T), Counting()
        self.decisions = DecisionLog(self.clock)
        today, history = (PackedConfigMap(client, "ns", one) for one in ("today", "history"))
        self.historian = Historian(
            HistoryStores(today=today, history=history),
            self.counts,
            self.decisions,
            identity=name,
            leading=lambda: leading,
        )

    def sees(self, nodes: Sequence[Node], at: int) -> None:
        self.clock.seconds = at
        self.counts.sees(nodes, at)

    async def turn(self) -> None:
        await self.historian.turn()

    def past(self) -> Mapping[int, PoolDay] | None:
        return self.historian.past

    @property
    def today(self) -> Today:
        return self.counts.leader.today


def config_map(api: FakeApi, name: str) -> Any:
    return api.objects["configmaps"][f"ns/{name}"]


def content(api: FakeApi, name: str = TODAY) -> bytes:
    return base64.b64decode((config_map(api, name).get("binaryData") or {}).get(KEY, ""))


def stored(api: FakeApi) -> Today:
    found = read_today(content(api))
    assert found
    return found


def set_content(api: FakeApi, packed: bytes, name: str = TODAY) -> None:
    value = base64.b64encode(packed).decode()
    api.put("configmaps", {**config_map(api, name), "binaryData": {KEY: value}})


def writes(api: FakeApi, name: str) -> int:
    return sum(call.verb == "patch" and call.path == PATHS[name] for call in api.calls)


async def test_next_leader_continues_figures_and_decisions(api: FakeApi, client: Client) -> None:
    first, second = Replica(client), Replica(client, "two")
    await first.turn()
    first.sees([A, with_mark("z")], T)
    first.decisions.record("Node", "z", "NodeMarked", "removable")
    await first.turn()
    assert stored(api).writer == "one"
    second.decisions.record("Node", "y", "NodeMarked", "removable")
    await second.turn()
    assert second.counts.to_store is None, "nothing is stored before the stored figures continue"
    second.sees([A], T + 30)
    assert second.today.day.total.removed == 1
    assert [one.name for one in second.decisions.entries] == ["z", "y"]
    assert config_map(api, TODAY)["metadata"]["labels"] == LABELS


async def test_only_changes_are_written_and_time_sometimes(api: FakeApi, client: Client) -> None:
    replica = Replica(client)
    await replica.turn()
    written = []
    for second in range(0, UNCHANGED_SECONDS_MAX + 121, STORE_SECONDS):
        nodes = [A] if second != 120 else [A, with_mark("z", T + 100)]
        replica.sees(nodes, T + second)
        before = api.count("patch")
        await replica.turn()
        if api.count("patch") > before:
            written.append(second)
    assert written == [0, 120, 180], "then only time passes"
    replica.sees([A], T + 180 + UNCHANGED_SECONDS_MAX)
    await replica.turn()
    assert stored(api).counted_until == T + 180 + UNCHANGED_SECONDS_MAX


async def test_handover_at_each_second_of_a_minute_doubles_nothing(
    api: FakeApi, client: Client
) -> None:
    """The first leader has stored at second 0; another write arrives late, or not at all."""
    shown: dict[int, list[Node]] = {}
    alone, counted = Leader(), list[PoolDay]()
    for second in range(2 * STORE_SECONDS + 61):
        shown[second] = FRAMES.get(second, shown.get(second - 1, []))
        alone.sees(shown[second], T + second)
        counted.append(workers(alone.today))
    for ended in range(60):
        empty(api)
        first, later = Replica(client), Replica(client, "two")
        await first.turn()
        for second in range(ended + 1):
            first.sees(shown[second], T + second)
            if second == 0:
                await first.turn()
        await later.turn()
        if ended % 2:
            await first.turn()
        is_late = stored(api).counted_until > T
        begun = ended + 1
        for second in range(begun, begun + 2 * STORE_SECONDS + 1, 3):
            later.sees(shown[second], T + second)
            if second in (begun + STORE_SECONDS, begun + 2 * STORE_SECONDS):
                await later.turn()
            if second == begun + STORE_SECONDS:
                assert stored(api).writer == ("one" if is_late else "two"), "it reads that first"
        its, mine = counted[second], workers(later.today)
        # Only what came and went in the minute that nobody stored is lost: the marks of y and x.
        assert its.marks - 2 <= mine.marks <= its.marks
        assert its.removed - 1 <= mine.removed <= its.removed
        assert its.unmarks - 1 <= mine.unmarks <= its.unmarks
        assert abs(mine.node_seconds - its.node_seconds) <= 2 * STORE_SECONDS
        assert abs(mine.saved_seconds - its.saved_seconds) <= 2 * STORE_SECONDS


def arrivals(at: int) -> StoredArrivals:
    """Return arrivals of a leader whose last reconciliation was at this second."""
    buckets = TimeBuckets.of(60)
    return StoredArrivals(at=at, counting_since=T, buckets=buckets, recent={}, provisioning={})


async def test_stored_arrivals_are_continued_once(api: FakeApi, client: Client) -> None:
    """They are added to those of this leader, so a late write must not be added again."""
    today = Today(counted_until=T, writer="zero", day=Day(number=T // DAY_SECONDS))
    set_content(api, pack_today(replace(today, arrivals=arrivals(T))))
    replica = Replica(client)
    await replica.turn()
    assert replica.counts.stored
    assert replica.counts.stored.arrivals == arrivals(T)
    replica.sees([A], T + 10)
    late = replace(today, counted_until=T + 15, arrivals=arrivals(T + 15))
    set_content(api, pack_today(late))
    replica.sees([A, with_mark("z", T + 12)], T + 20)
    await replica.turn()
    assert replica.counts.stored == replace(late, arrivals=None)


async def test_arrivals_are_written_when_they_change_and_not_for_their_time(
    api: FakeApi, client: Client
) -> None:
    replica = Replica(client)
    await replica.turn()
    replica.sees([A], T)
    written = []
    for second, since in ((0, T), (60, T), (120, T + 1)):
        replica.counts.arrivals = replace(arrivals(T + second), counting_since=since)
        before = api.count("patch")
        await replica.turn()
        written.append(api.count("patch") - before)
    assert written == [1, 0, 1]


SOME = pack_today(Today(counted_until=T, day=Day(number=1)))


@pytest.mark.parametrize("garbage", [b"", b"x", SOME[:20]], ids=["none", "forged", "cut"])
async def test_unusable_content_loses_only_itself(
    api: FakeApi, client: Client, garbage: bytes
) -> None:
    set_content(api, garbage)
    replica = Replica(client)
    await replica.turn()
    replica.sees([A], T)
    await replica.turn()
    replica.sees([A, with_mark("z", T + 5)], T + 10)
    set_content(api, garbage)
    await replica.turn()
    assert workers(stored(api)).marks == 1, "what is in memory is not lost"


async def test_own_write_without_answer_is_not_taken_for_another_leader(
    api: FakeApi, client: Client
) -> None:
    replica = Replica(client)
    await replica.turn()
    replica.sees([A], T)
    await replica.turn()
    replica.sees([A, with_mark("z", T + 5)], T + 10)
    lost = replace(replica.today, writer="one")
    set_content(api, pack_today(lost))
    replica.sees([A, with_mark("z", T + 5), with_mark("y", T + 15)], T + 20)
    await replica.turn()
    assert stored(api).counted_until == T + 20
    assert workers(stored(api)).marks == 2


async def test_past_days_are_added_to_history_once(api: FakeApi, client: Client) -> None:
    midnight = (T // DAY_SECONDS + 1) * DAY_SECONDS
    old = Day(number=5, waited_seconds=7)
    set_content(api, pack_history({5: old}), HISTORY)
    replica = Replica(client)
    await replica.turn()
    replica.sees([A], midnight - 30)
    await replica.turn()
    assert list(read_history(content(api, HISTORY))) == [5]
    for second in range(0, 1800, 60):
        replica.sees([A], midnight + 30 + second)
        await replica.turn()
    days = read_history(content(api, HISTORY))
    assert list(days) == [5, T // DAY_SECONDS]
    assert days[5] == old
    assert days[T // DAY_SECONDS].total.node_seconds == 30
    assert writes(api, HISTORY) == 1
    await Replica(client, "two").turn()
    assert writes(api, HISTORY) == 1


async def test_next_leader_adds_day_that_history_lacks(api: FakeApi, client: Client) -> None:
    past = Day(number=T // DAY_SECONDS - 1, waited_seconds=9)
    today = Today(counted_until=T, day=Day(number=T // DAY_SECONDS), earlier=(past,))
    set_content(api, pack_today(today))
    set_content(api, b"garbage", HISTORY)
    await Replica(client).turn()
    assert read_history(content(api, HISTORY)) == {past.number: past}


async def test_past_days_are_known_when_leading_begins_and_after_midnight(
    api: FakeApi, client: Client
) -> None:
    old = Day(number=5, pools={"a": PoolDay(marks=1), "b": PoolDay(marks=2)})
    set_content(api, pack_history({5: old}), HISTORY)
    replica = Replica(client)
    assert replica.past() is None
    await replica.turn()
    assert replica.past() == {5: PoolDay(marks=3)}
    midnight = (T // DAY_SECONDS + 1) * DAY_SECONDS
    for second in (-30, 30):
        replica.sees([A], midnight + second)
        await replica.turn()
    assert sorted(replica.past() or ()) == [5, T // DAY_SECONDS]
    api.denied.add(PATHS[HISTORY])
    replica.sees([A], midnight + DAY_SECONDS)
    await replica.turn()
    assert replica.past() is None, "the last day is not stored"


@pytest.mark.parametrize("problem", ["missing", "forbidden", "garbage"])
async def test_past_days_are_unknown_until_history_can_be_read(
    api: FakeApi, client: Client, problem: str
) -> None:
    gone = config_map(api, HISTORY)
    if problem == "missing":
        del api.objects["configmaps"][f"ns/{HISTORY}"]
    elif problem == "forbidden":
        api.denied.add(PATHS[HISTORY])
    else:
        set_content(api, b"garbage", HISTORY)
    replica = Replica(client)
    await replica.turn()
    replica.sees([A], T)
    await replica.turn()
    assert replica.past() is None
    assert stored(api).counted_until == T, "today is stored all the same"
    if problem != "garbage":
        api.denied.clear()
        api.put("configmaps", gone)
        replica.sees([A], T + UNCHANGED_SECONDS_MAX)
        await replica.turn()
        assert replica.past() == {}


@pytest.mark.parametrize("problem", ["missing", "forbidden"])
async def test_figures_stay_in_memory_without_config_maps(
    api: FakeApi, client: Client, problem: str
) -> None:
    if problem == "missing":
        api.objects["configmaps"].clear()
    else:
        api.denied |= set(PATHS.values())
    replica = Replica(client)
    for second in (0, 60):
        replica.sees([A], T + second)
        if problem == "missing":
            await replica.turn()
        else:
            with pytest.raises(UnavailableError):
                await replica.turn()
    assert replica.today.day.total.node_seconds == 60
    assert api.count("patch") == 0


async def test_today_is_stored_although_history_is_not(api: FakeApi, client: Client) -> None:
    api.denied.add(PATHS[HISTORY])
    past = Day(number=T // DAY_SECONDS - 1, waited_seconds=9)
    today = Today(counted_until=T, day=Day(number=T // DAY_SECONDS), earlier=(past,))
    set_content(api, pack_today(today))
    replica = Replica(client, "two")
    await replica.turn()
    replica.sees([A], T + 10)
    await replica.turn()
    assert (stored(api).writer, stored(api).earlier) == ("two", (past,))
    api.denied.clear()
    replica.sees([A, with_mark("z", T + 15)], T + 20)
    await replica.turn()
    assert read_history(content(api, HISTORY)) == {past.number: past}


async def test_backup_of_config_map_does_not_replace_what_is_in_memory(
    api: FakeApi, client: Client
) -> None:
    replica = Replica(client)
    await replica.turn()
    replica.sees([A], T)
    await replica.turn()
    backup = api.objects["configmaps"].pop(f"ns/{TODAY}")
    replica.sees([A, with_mark("z", T + 5)], T + 10)
    await replica.turn()
    api.put("configmaps", backup)
    await replica.turn()
    await replica.turn()
    assert workers(stored(api)).marks == 1


@dataclass
class InMemory:
    """A ConfigMap that a single leader writes."""

    key: str = "ns/today"
    packed: Packed = field(default_factory=lambda: Packed(b"", "0"))

    async def read(self) -> Packed:
        return self.packed

    async def write(self, content: bytes, version: str) -> Packed:
        self.packed = Packed(content, str(int(version) + 1))
        return self.packed


@in_virtual_time
async def test_nothing_that_lasts_is_lost_when_leaders_are_killed_each_minute() -> None:
    """Each leads for less than a minute, and its node is removed while nobody leads."""
    stores, minutes = HistoryStores(today=InMemory(), history=InMemory()), 4
    for minute in range(minutes):
        counts, begun = Counting(), T + minute * STORE_SECONDS
        historian = Historian(
            stores,
            counts,
            DecisionLog(FakeClock(begun)),
            identity=f"leader-{minute}",
            leading=lambda: False,  # a killed leader stores nothing at its end
        )
        running = asyncio.create_task(historian.run())
        for second in range(0, STORE_SECONDS - 10, 5):
            await asyncio.sleep(5)
            counts.sees([A, with_mark(f"node-{minute}", begun)], begun + second)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    found = await stores.today.read()
    today = read_today(found.content) if found else None
    assert today
    assert today.writer == f"leader-{minutes - 1}"
    assert (workers(today).marks, workers(today).removed) == (minutes, minutes - 1)


@pytest.mark.parametrize("leading", [True, False])
@pytest.mark.parametrize("changed", [True, False])
async def test_figures_are_stored_once_more_when_leading_ends(
    api: FakeApi, client: Client, leading: bool, changed: bool
) -> None:
    """Also if only time has passed: the next leader then knows that no pod arrived."""
    set_content(api, pack_today(Today(counted_until=T, day=Day(number=T // DAY_SECONDS))))
    replica = Replica(client, leading=leading)
    running = asyncio.create_task(replica.historian.run())
    await replica.counts.restored.wait()
    replica.sees([A, with_mark("z", T + 5)] if changed else [A], T + 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert stored(api).counted_until == (T + 10 if leading else T), "a rollout loses nothing"


async def test_deleted_config_map_is_read_again_when_it_is_back(
    api: FakeApi, client: Client
) -> None:
    replica = Replica(client)
    await replica.turn()
    gone = api.objects["configmaps"].pop(f"ns/{TODAY}")
    replica.sees([A], T)
    await replica.turn()
    api.put("configmaps", gone)
    await replica.turn()
    await replica.turn()
    assert stored(api).counted_until == T
