"""Clocks and event loops whose time the test controls."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass
class FakeClock:
    """A clock that only advances when the test sets it."""

    seconds: float = 0.0

    def unix_seconds(self) -> int:
        return int(self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds


@dataclass
class Apart:
    """A clock whose wall time differs from that of another clock."""

    clock: FakeClock
    seconds: int

    def unix_seconds(self) -> int:
        return self.clock.unix_seconds() + self.seconds

    def monotonic_seconds(self) -> float:
        return self.clock.monotonic_seconds()


START = 1_800_000_000


@dataclass
class Machine:
    """A clock with independent monotonic time and wall time."""

    wall: float = START
    monotonic: float = 50.0

    def unix_seconds(self) -> int:
        return int(self.wall)

    def monotonic_seconds(self) -> float:
        return self.monotonic

    def goes_on(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when idle; without sockets and threads."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(_Skipping(self.clock))

    def time(self) -> float:
        return self.clock.seconds

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 of the interface
        func: Callable[..., _Result],
        *given: object,
    ) -> asyncio.Future[_Result]:
        """Call the function at once: the time would jump while a thread works."""
        done: asyncio.Future[_Result] = self.create_future()
        try:
            done.set_result(func(*given))
        except Exception as fault:  # noqa: BLE001 as a thread does
            done.set_exception(fault)
        return done


TURN_SECONDS = 1e-6
"""Time that each turn of the loop takes; without it very short waits would not end."""


class _Skipping(selectors.SelectSelector):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everybody waits, and for nothing that will come"
            self._clock.seconds += max(timeout, TURN_SECONDS)
        return found


def virtual_clock() -> FakeClock:
    """Return the clock of the running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.clock


def in_virtual_time(
    test: Callable[_Given, Coroutine[None, None, None]],
) -> Callable[_Given, None]:
    """Run a test in a virtual loop, in which sleeping takes no real time."""

    @functools.wraps(test)
    def run(*given: _Given.args, **named: _Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*given, **named))

    return run
