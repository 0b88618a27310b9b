"""Leader election over one Lease, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from controller.election import Elector, Timing
from controller.stores.lease import Lease
from core.model.errors import UnavailableError
from tests.support.clock import in_virtual_time, virtual_clock
from tests.support.leases import Door, Store, Trouble, fine

TIMING = Timing.of(15)


async def hanging() -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def down() -> None:
    raise UnavailableError("down")


def slow(seconds: float, then: Trouble = fine) -> Trouble:
    async def wait() -> None:
        await asyncio.sleep(seconds)
        await then()

    return wait


class Replica:
    """An elector, and when it has worked."""

    def __init__(self, store: Store, name: str) -> None:
        self.door = Door(store)
        self.clock = virtual_clock()
        self.elector = Elector(self.door, name, self.clock, TIMING, jitter=lambda: 0.5)
        self.worked: list[tuple[float, float]] = []
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self.elector.run(self._lead))

    async def _lead(self) -> None:
        begun = self.clock.seconds
        self.begun.set()
        self.ended.clear()
        try:
            await asyncio.shield(self._fault)
        finally:
            self.worked.append((begun, self.clock.seconds))
            self.begun.clear()
            self.ended.set()

    def fail(self, fault: Exception) -> None:
        self._fault.set_exception(fault)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def running(store: Store, *names: str) -> AsyncIterator[list[Replica]]:
    """Run replicas, and stop them in the end."""
    replicas = [Replica(store, name) for name in names]
    yield replicas
    for replica in replicas:
        replica.door.before = replica.door.after = fine
        await replica.stop()


@in_virtual_time
async def test_the_first_one_leads_and_renews_without_changing_hands() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await asyncio.sleep(6.5)
        assert one.elector.leading
        assert {lease.holder for lease in store.writes} == {"one"}
        assert len(store.writes) == 4
        assert store.writes[-1].transitions == 0
        assert store.writes[-1].acquired == store.writes[0].acquired
        assert store.writes[0].acquired == "1970-01-01T00:00:00.000000Z"
        assert store.writes[-1].renewed > store.writes[0].renewed
        assert store.writes[-1].duration_seconds == 15


@in_virtual_time
async def test_leaving_gives_the_lease_back_after_the_work_has_ended() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.begun.wait()
    assert one.ended.is_set()
    assert not one.elector.leading
    assert store.lease is not None
    assert (store.lease.holder, store.lease.duration_seconds) == ("", 1)
    async with running(store, "two") as (two,):
        await two.begun.wait()
        assert store.lease.transitions == 1


@in_virtual_time
async def test_the_second_waits_for_as_long_as_the_record_says_since_it_last_changed() -> None:
    store = Store(Lease(holder="dead", duration_seconds=40, renewed="2000-01-01", version="1"))
    async with running(store, "two") as (two,):
        await two.begun.wait()
        assert 40 <= two.clock.seconds < 45, "its own duration is 15, but the record's holds"


@in_virtual_time
async def test_waits_for_the_lease_differ_between_replicas() -> None:
    store = Store(Lease(holder="other", duration_seconds=1, version="1"))
    async with running(store, "two") as (two,):
        await two.begun.wait()
        assert two.clock.seconds == pytest.approx(TIMING.retry * 1.6, abs=0.001)


@in_virtual_time
async def test_somebody_who_took_it_ends_leading_with_the_next_look() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.begun.wait()
        assert store.lease is not None
        store.lease = replace(store.lease, holder="two", version="99")
        await one.ended.wait()
        assert one.clock.seconds == pytest.approx(TIMING.retry, abs=0.001)
    assert store.lease.holder == "two", "only one's own lease is given back"


@in_virtual_time
async def test_losing_the_race_for_a_write_is_no_fault() -> None:
    store = Store()

    async def race() -> None:
        if not store.writes:
            store.writes.append(Lease(holder="faster", duration_seconds=15, version="1"))
            store.lease = store.writes[0]

    async with running(store, "one") as (one,):
        one.door.after = race
        await asyncio.sleep(1)
        assert not one.elector.leading
    assert store.lease is not None
    assert store.lease.holder == "faster"


@in_virtual_time
async def test_a_fault_of_the_work_ends_all_and_gives_the_lease_back() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.begun.wait()
        one.fail(ValueError("engine"))
        with pytest.raises(ValueError, match="engine"):
            await one.task
    assert store.lease is not None
    assert store.lease.holder == ""


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(down, id="down"),
        pytest.param(hanging, id="hanging"),
        pytest.param(slow(5, down), id="given up after the call's own bound"),
        pytest.param(slow(9.99), id="an answer one moment too late"),
        pytest.param(slow(60, down), id="throttled, and waited for inside of the call"),
    ],
)
@pytest.mark.parametrize("where", ["before", "after"])
@in_virtual_time
async def test_leading_ends_at_the_deadline_whatever_a_call_does(
    trouble: Trouble, where: str
) -> None:
    async with running(Store(), "one", "two") as (one, two):
        await asyncio.sleep(3)
        assert one.elector.leading
        setattr(one.door, where, trouble)
        await one.ended.wait()
        renewed = TIMING.retry  # the one renewal until then
        assert one.clock.seconds == pytest.approx(renewed + TIMING.deadline, abs=0.001)
        await two.begun.wait()
        assert two.clock.seconds >= renewed + TIMING.duration
        one.door.before = one.door.after = fine
        await asyncio.sleep(60)
        assert (one.elector.leading, two.elector.leading) == (False, True)


@in_virtual_time
async def test_a_lease_whose_taking_took_too_long_is_not_led_by() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        one.door.after = slow(TIMING.call + 1)
        await asyncio.sleep(TIMING.deadline + 3)
        assert store.lease is not None
        assert store.lease.holder == "one"
        assert not one.worked
        assert not one.begun.is_set()
        one.door.after = fine
        await one.begun.wait()


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("seconds", [2.5, 2.7, 3.5, 4.2, 4.9])
@in_virtual_time
async def test_a_leader_whose_calls_take_nearly_as_long_as_they_may_keeps_leading(
    seconds: float, where: str
) -> None:
    assert seconds < TIMING.call
    async with running(Store(), "one", "two") as (one, two):
        for replica in (one, two):
            setattr(replica.door, where, slow(seconds))
        await one.begun.wait()
        await asyncio.sleep(600)
        assert one.elector.leading
        assert not one.worked
        assert not two.begun.is_set()


@in_virtual_time
async def test_a_lease_that_somebody_has_deleted_or_edited_is_renewed_all_the_same() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.begun.wait()
        store.delete()
        await asyncio.sleep(TIMING.retry * 1.5)
        assert store.lease is not None
        assert (store.lease.holder, store.lease.version) == ("one", "1")
        store.lease = replace(store.lease, annotations={"theirs": "1"}, version="99")
        await asyncio.sleep(TIMING.retry)
        assert (store.lease.version, store.lease.annotations) == ("100", {"theirs": "1"})
        assert one.elector.leading
        assert not one.worked


@in_virtual_time
async def test_a_renewal_whose_answer_was_lost_is_seen_for_ones_own() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.begun.wait()
        one.door.after = down
        await asyncio.sleep(TIMING.retry * 1.5)
        assert len(store.writes) == 2, "it was written"
        one.door.after = fine
        await asyncio.sleep(TIMING.retry)
        assert len(store.writes) == 3
        await asyncio.sleep(TIMING.deadline)
        assert one.elector.leading
        assert not one.worked


@in_virtual_time
async def test_a_process_that_slept_through_its_deadline_knows_before_its_timers_do() -> None:
    async with running(Store(), "one") as (one,):
        await one.begun.wait()
        one.clock.seconds += TIMING.duration  # no timer has run yet
        assert not one.elector.leading
        await one.ended.wait()


@in_virtual_time
async def test_what_the_lease_carries_beside_the_record_stays() -> None:
    store = Store(Lease(version="1", annotations={"theirs": "1"}))
    async with running(store, "one") as (one,):
        await one.begun.wait()
    assert store.lease is not None
    assert store.lease.annotations == {"theirs": "1"}


def weather(seed: int) -> Iterator[Trouble]:
    """Draw what happens to one call after the other."""
    chance = random.Random(seed)
    while True:
        drawn = chance.choice([fine, fine, fine, down, hanging, None, None])
        seconds = chance.choice([0.1, 1, 5, 10, 14, 16])
        yield drawn or slow(seconds, chance.choice([fine, down]))


def troubled(seed: int) -> Trouble:
    """Return the trouble of calls that are each given up after a while, as real ones."""
    drawn = weather(seed)

    async def meet() -> None:
        try:
            async with asyncio.timeout(TIMING.call):
                await next(drawn)()
        except TimeoutError as fault:
            raise UnavailableError("no answer") from fault

    return meet


@pytest.mark.parametrize("seed", range(100))
@in_virtual_time
async def test_two_never_lead_at_once(seed: int) -> None:
    store = Store()
    async with running(store, "one", "two", "three") as replicas:
        for number, replica in enumerate(replicas):
            replica.door.before = troubled(seed * 10 + number)
            replica.door.after = troubled(seed * 10 + 5 + number)
        await asyncio.sleep(600)
    spans = sorted(span for replica in replicas for span in replica.worked)
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans
