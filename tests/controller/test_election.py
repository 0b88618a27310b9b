"""Leader election over one Lease, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from controller.election import HANDOVER_DURATIONS, Elector, Timing
from core.model.errors import UnavailableError
from kube.stores.lease import Lease
from tests.support.clock import in_virtual_time, virtual_clock
from tests.support.leases import Door, Store, Trouble, fine

TIMING = Timing.of(15)


async def hanging() -> None:
    """Wait forever."""
    await asyncio.Event().wait()


async def down() -> None:
    raise UnavailableError("down")


def slow(seconds: float, then: Trouble = fine) -> Trouble:
    async def wait() -> None:
        await asyncio.sleep(seconds)
        await then()

    return wait


class Replica:
    """An elector, and the times during which it led."""

    def __init__(self, store: Store, name: str) -> None:
        self.door = Door(store)
        self.clock = virtual_clock()
        self.elector = Elector(self.door, name, self.clock, TIMING, jitter=lambda: 0.5)
        self.worked: list[tuple[float, float]] = []
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self.elector.run(self._lead))

    async def _lead(self) -> None:
        started_at = self.clock.seconds
        self.started.set()
        self.ended.clear()
        try:
            await asyncio.shield(self._fault)
        finally:
            self.worked.append((started_at, self.clock.seconds))
            self.started.clear()
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
async def test_first_replica_leads_and_renews_lease() -> None:
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
async def test_lease_is_released_after_work_has_ended() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
    assert one.ended.is_set()
    assert not one.elector.leading
    assert store.lease is not None
    assert (store.lease.holder, store.lease.duration_seconds) == ("", 1)
    async with running(store, "two") as (two,):
        await two.started.wait()
        assert store.lease.transitions == 1


@in_virtual_time
async def test_second_replica_waits_for_recorded_lease_duration() -> None:
    store = Store(Lease(holder="dead", duration_seconds=40, renewed="2000-01-01", version="1"))
    async with running(store, "two") as (two,):
        await two.started.wait()
        assert 40 <= two.clock.seconds < 45, "its own duration is 15, but the recorded one counts"


@in_virtual_time
async def test_retry_has_jitter() -> None:
    store = Store(Lease(holder="other", duration_seconds=1, version="1"))
    async with running(store, "two") as (two,):
        await two.started.wait()
        assert two.clock.seconds == pytest.approx(TIMING.retry * 1.6, abs=0.001)


@in_virtual_time
async def test_leading_ends_at_next_read_when_lease_has_another_holder() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
        assert store.lease is not None
        store.lease = replace(store.lease, holder="two", version="99")
        await one.ended.wait()
        assert one.clock.seconds == pytest.approx(TIMING.retry, abs=0.001)
    assert store.lease.holder == "two", "only the own lease is released"


@in_virtual_time
async def test_conflict_of_lease_write_is_no_error() -> None:
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
async def test_lease_is_released_when_work_fails() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
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
        pytest.param(slow(5, down), id="fails after the timeout of the call"),
        pytest.param(slow(9.99), id="answers just too late"),
        pytest.param(slow(60, down), id="throttled inside the call"),
    ],
)
@pytest.mark.parametrize("where", ["before", "after"])
@in_virtual_time
async def test_leading_ends_at_deadline_when_renewal_fails(trouble: Trouble, where: str) -> None:
    async with running(Store(), "one", "two") as (one, two):
        await asyncio.sleep(3)
        assert one.elector.leading
        setattr(one.door, where, trouble)
        await one.ended.wait()
        renewed = TIMING.retry  # the one renewal until then
        assert one.clock.seconds == pytest.approx(renewed + TIMING.deadline, abs=0.001)
        await two.started.wait()
        assert two.clock.seconds >= renewed + TIMING.duration
        one.door.before = one.door.after = fine
        await asyncio.sleep(60)
        assert (one.elector.leading, two.elector.leading) == (False, True)


@in_virtual_time
async def test_replica_does_not_lead_when_acquiring_takes_too_long() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        one.door.after = slow(TIMING.call + 1)
        await asyncio.sleep(TIMING.deadline + 3)
        assert store.lease is not None
        assert store.lease.holder == "one"
        assert not one.worked
        assert not one.started.is_set()
        one.door.after = fine
        await one.started.wait()


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("seconds", [2.5, 2.7, 3.5, 4.2, 4.9])
@in_virtual_time
async def test_leader_keeps_leading_when_calls_are_slow_but_in_time(
    seconds: float, where: str
) -> None:
    assert seconds < TIMING.call
    async with running(Store(), "one", "two") as (one, two):
        for replica in (one, two):
            setattr(replica.door, where, slow(seconds))
        await one.started.wait()
        await asyncio.sleep(600)
        assert one.elector.leading
        assert not one.worked
        assert not two.started.is_set()


@in_virtual_time
async def test_lease_is_renewed_when_someone_deletes_or_edits_it() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
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
async def test_renewal_is_recognized_when_its_answer_was_lost() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
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
async def test_leading_ends_when_process_slept_through_deadline() -> None:
    async with running(Store(), "one") as (one,):
        await one.started.wait()
        one.clock.seconds += TIMING.duration  # no timer has run yet
        assert not one.elector.leading
        await one.ended.wait()


@in_virtual_time
async def test_foreign_annotations_of_lease_are_retained() -> None:
    store = Store(Lease(version="1", annotations={"theirs": "1"}))
    async with running(store, "one") as (one,):
        await one.started.wait()
    assert store.lease is not None
    assert store.lease.annotations == {"theirs": "1"}


def random_faults(seed: int) -> Iterator[Trouble]:
    """Yield a random fault for each call."""
    chance = random.Random(seed)
    while True:
        drawn = chance.choice([fine, fine, fine, down, hanging, None, None])
        seconds = chance.choice([0.1, 1, 5, 10, 14, 16])
        yield drawn or slow(seconds, chance.choice([fine, down]))


def troubled(seed: int) -> Trouble:
    """Return faults of calls that time out, as real calls do."""
    drawn = random_faults(seed)

    async def fail() -> None:
        try:
            async with asyncio.timeout(TIMING.call):
                await next(drawn)()
        except TimeoutError as fault:
            raise UnavailableError("no answer") from fault

    return fail


@pytest.mark.parametrize("seed", range(100))
@in_virtual_time
async def test_at_most_one_replica_leads(seed: int) -> None:
    store = Store()
    async with running(store, "one", "two", "three") as replicas:
        for number, replica in enumerate(replicas):
            replica.door.before = troubled(seed * 10 + number)
            replica.door.after = troubled(seed * 10 + 5 + number)
        await asyncio.sleep(600)
    spans = sorted(span for replica in replicas for span in replica.worked)
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans


@in_virtual_time
async def test_other_replica_leads_after_handover() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
        async with running(store, "two") as (two,):
            await asyncio.sleep(1)
            one.elector.hand_over()
            await two.started.wait()
            assert one.ended.is_set()
            assert not one.elector.leading
            assert two.clock.seconds < 1 + TIMING.duration, "the Lease was released"
            await asyncio.sleep(10 * TIMING.duration)
            assert (one.elector.leading, two.elector.leading) == (False, True)
        await one.started.wait()
        await asyncio.sleep(10 * TIMING.duration)
        assert one.elector.leading, "it hands over once"


@in_virtual_time
async def test_replica_leads_again_when_nobody_takes_lease_after_handover() -> None:
    store = Store()
    async with running(store, "one") as (one,):
        await one.started.wait()
        begun = one.clock.seconds
        one.elector.hand_over()
        await one.ended.wait()
        await asyncio.sleep(1)
        assert store.lease is not None
        assert store.lease.holder == ""
        await one.started.wait()
        waited = one.clock.seconds - begun
        assert HANDOVER_DURATIONS * TIMING.duration <= waited < 3 * TIMING.duration
