"""Leader election over one Lease, with clocks and waits of the test's own."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from core.edge.kube.lease import Lease
from core.errors import ConflictError, UnavailableError
from tests.support.clock import FakeClock
from webhook.election import Elector, Timing

TIMING = Timing.of(15)


@dataclass
class Store:
    """A Lease in memory with the API server's rule about versions."""

    lease: Lease | None = None
    writes: list[Lease] = field(default_factory=list)
    down: bool = False

    async def read(self) -> Lease | None:
        if self.down:
            raise UnavailableError("down")
        return self.lease

    async def write(self, lease: Lease) -> Lease:
        if self.down:
            raise UnavailableError("down")
        if lease.version != (self.lease.version if self.lease else ""):
            raise ConflictError("409")
        self.lease = replace(lease, version=str(int(lease.version or 0) + 1))
        self.writes.append(self.lease)
        return self.lease


class Replica:
    """An elector whose every wait is let go by the test, which moves the clock by as much."""

    def __init__(self, store: Store, name: str, clock: FakeClock) -> None:
        self.clock = clock
        self.waits: asyncio.Queue[tuple[float, asyncio.Event]] = asyncio.Queue()
        self.elector = Elector(store, name, clock, TIMING, wait=self._wait, jitter=lambda: 0.5)
        self.leads = 0
        self.ended = asyncio.Event()
        self.fail: Exception | None = None
        self._failing = asyncio.Event()
        self.task = asyncio.create_task(self.elector.run(self._lead))

    async def _wait(self, seconds: float) -> None:
        go = asyncio.Event()
        self.waits.put_nowait((seconds, go))
        await go.wait()

    async def _lead(self) -> None:
        self.leads += 1
        try:
            await self._failing.wait()
            assert self.fail is not None
            raise self.fail
        finally:
            self.ended.set()

    async def waiting(self) -> float:
        """Return how long it waits now, without letting it go."""
        seconds, go = await self.waits.get()
        self._go = go
        return seconds

    async def step(self, moved: float | None = None) -> None:
        """Let one wait pass, and wait for the next."""
        seconds = await self.waiting()
        self.clock.seconds += seconds if moved is None else moved
        self._go.set()
        nxt = await self.waits.get()
        self.waits.put_nowait(nxt)

    def break_down(self, fault: Exception) -> None:
        self.fail = fault
        self._failing.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_the_first_one_leads_and_renews_without_changing_hands() -> None:
    store = Store()
    one = Replica(store, "one", FakeClock(1000))
    for _ in range(3):
        await one.step()
    assert one.elector.leading
    assert {lease.holder for lease in store.writes} == {"one"}
    assert store.writes[-1].transitions == 0
    assert store.writes[-1].acquired == store.writes[0].acquired == "1970-01-01T00:16:40.000000Z"
    assert store.writes[-1].renewed > store.writes[0].renewed
    assert store.writes[-1].duration_seconds == 15
    await one.stop()


async def test_leaving_gives_the_lease_back_after_the_work_has_ended() -> None:
    store = Store()
    one = Replica(store, "one", FakeClock())
    await one.step()
    await one.stop()
    assert one.ended.is_set()
    assert store.lease is not None
    assert (store.lease.holder, store.lease.duration_seconds) == ("", 1)
    two = Replica(store, "two", FakeClock())
    await two.waiting()
    assert two.elector.leading
    assert store.lease.transitions == 1
    await two.stop()


async def test_the_second_waits_for_as_long_as_the_record_says_since_it_last_changed() -> None:
    store = Store(Lease(holder="dead", duration_seconds=40, renewed="2000-01-01", version="1"))
    two = Replica(store, "two", FakeClock(5))
    waited = 0.0
    while not two.elector.leading:
        assert waited <= 40, "its own duration is 15, but the record's holds"
        before = two.clock.seconds
        await two.step()
        waited += two.clock.seconds - before
    assert 40 <= waited < 45
    assert two.leads == 1
    await two.stop()


async def test_waits_for_the_lease_differ_between_replicas() -> None:
    store = Store(Lease(holder="other", duration_seconds=15, version="1"))
    two = Replica(store, "two", FakeClock())
    assert await two.waiting() == TIMING.retry * 1.6
    await two.stop()


async def test_no_answer_for_the_deadline_ends_leading_before_the_lease_does() -> None:
    store, clock = Store(), FakeClock()
    one = Replica(store, "one", clock)
    await one.step()
    renewed = clock.seconds
    store.down = True
    while one.elector.leading:
        await one.step()
    assert one.ended.is_set()
    assert TIMING.deadline <= clock.seconds - renewed < TIMING.duration
    store.down = False
    await one.step()
    assert one.leads == 2
    await one.stop()


async def test_somebody_who_took_it_ends_leading_at_once() -> None:
    store = Store()
    one = Replica(store, "one", FakeClock())
    await one.step()
    assert store.lease is not None
    store.lease = replace(store.lease, holder="two", version="99")
    await one.step()
    assert not one.elector.leading
    assert one.ended.is_set()
    await one.stop()
    assert store.lease.holder == "two", "only one's own lease is given back"


async def test_losing_the_race_for_a_write_is_no_fault() -> None:
    class Racing(Store):
        async def read(self) -> Lease | None:
            seen = await super().read()
            if not self.writes:
                await super().write(Lease(holder="faster", duration_seconds=15))
            return seen

    store = Racing()
    one = Replica(store, "one", FakeClock())
    await one.step()
    assert not one.elector.leading
    await one.stop()
    assert store.lease is not None
    assert store.lease.holder == "faster"


async def test_a_fault_of_the_work_ends_all_and_gives_the_lease_back() -> None:
    store = Store()
    one = Replica(store, "one", FakeClock())
    await one.waiting()
    one.break_down(ValueError("engine"))
    with pytest.raises(ValueError, match="engine"):
        await one.task
    assert store.lease is not None
    assert store.lease.holder == ""
