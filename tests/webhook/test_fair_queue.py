"""Turns of addresses: fair by time, without a rate, and safe when callers leave."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.clock import FakeClock
from webhook.fair_queue import FairQueue


class Calls:
    """Calls of several addresses that are all there at once; a call takes so many seconds."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns = FairQueue(self.clock)
        self.served: list[str] = []
        self.ten = asyncio.Event()
        """Set when ten calls have been served."""

    async def call(self, address: str, seconds: float) -> None:
        async with self.turns.turn(address):
            self.clock.seconds += seconds
            self.served.append(address)
            if len(self.served) == 10:
                self.ten.set()
            await asyncio.sleep(0)

    async def all(self, *calls: tuple[str, float]) -> str:
        async with asyncio.TaskGroup() as tasks:
            for address, seconds in calls:
                tasks.create_task(self.call(address, seconds))
        return "".join(self.served)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_addresses_alternate_when_their_calls_take_equal_time(seconds: float) -> None:
    calls = [("a", seconds)] * 6 + [("b", seconds)] * 2 + [("c", seconds)]
    assert await Calls().all(*calls) == "abcabaaaa"


async def test_address_waits_when_its_calls_have_used_more_time() -> None:
    calls = [("x", 10.0)] * 3 + [("y", 1.0)] * 20
    assert await Calls().all(*calls) == "x" + "y" * 10 + "x" + "y" * 10 + "x"


async def test_calls_are_served_in_order_when_there_is_one_address() -> None:
    made = Calls()
    assert await made.all(*[("a", 1.0)] * 1000) == "a" * 1000
    assert made.clock.seconds == 1000


async def test_used_time_does_not_count_when_nobody_waited_in_between() -> None:
    made = Calls()
    await made.all(("a", 100.0))
    assert await made.all(("a", 1.0), ("b", 1.0), ("b", 1.0)) == "a" + "abb"


async def test_new_address_is_not_favored_when_others_have_used_time_before() -> None:
    made = Calls()
    busy = asyncio.create_task(made.all(*[("a", 1.0)] * 20))
    await made.ten.wait()
    await made.all(*[("b", 1.0)] * 5)
    await busy
    after = "".join(made.served[10:])
    assert "bb" not in after
    assert after.rindex("b") <= 11


@pytest.mark.parametrize("called", [False, True])
async def test_others_are_served_when_a_caller_leaves(*, called: bool) -> None:
    made = Calls()
    gate = asyncio.Event()

    def leave() -> None:
        calls[0].cancel()
        calls[1].cancel()

    async def hold() -> None:
        async with made.turns.turn("h"):
            await gate.wait()
            if not called:
                leave()
        if called:  # the turn has been given to the first call, which has not begun
            leave()

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    calls = [asyncio.create_task(made.call(address, 0.0)) for address in "abc"]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, *calls, return_exceptions=True)
    assert "".join(made.served) == "c"
    assert await made.all(("d", 0.0)) == "cd"


async def test_turn_ends_when_the_call_fails() -> None:
    made = Calls()

    async def fail(addresses: Sequence[str]) -> None:
        for address in addresses:
            with pytest.raises(ValueError, match="x"):
                async with made.turns.turn(address):
                    raise ValueError("x")

    async with asyncio.timeout(20):
        await fail("aab")
        assert await made.all(("a", 0.0)) == "a"
