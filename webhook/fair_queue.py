"""Share the time of one event loop fairly between the addresses of callers.

There is no rate limit: while only one address calls, each of its calls is served at once. While
calls of several addresses wait, the address that has used the least time is served next. So each
of these addresses gets an equal share of the time, however long its calls take.

Source: start-time fair queueing (Goyal, Vin and Cheng, 1996), with equal weights.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from runtime.clock import Clock

TURN_SECONDS_MIN: Final = 1e-6
"""Minimum time that a call counts, so that addresses alternate even if calls take no time."""


class FairQueue:
    """Let one call run at a time; the address that has used the least time is next.

    The number of waiting calls is limited by the number of connections.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """Waiting calls by address, the oldest first."""
        self._starts: dict[str | None, float] = {}
        """Virtual time at which the next call of an address starts.

        A call of any other address starts at the current virtual time."""
        self._now = 0.0
        """Current virtual time: the virtual start of the call that runs."""
        self._taken = False
        """Whether a call runs."""

    @asynccontextmanager
    async def turn(self, address: str | None) -> AsyncIterator[None]:
        """Wait until a call from *address* may run; the next call runs when the context ends."""
        if self._taken:
            await self._wait(address)
        self._taken = True
        self._now = max(self._now, self._starts.get(address, 0.0))
        began = self._clock.monotonic_seconds()
        try:
            yield
        finally:
            took = self._clock.monotonic_seconds() - began
            self._starts[address] = self._now + max(took, TURN_SECONDS_MIN)
            self._next()

    async def _wait(self, address: str | None) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._next()  # this call was chosen before it was cancelled
            raise

    def _next(self) -> None:
        """Let the waiting call run whose address has used the least time, if any call waits."""
        while self._waiting:
            address = min(self._waiting, key=self._start)
            waiting = self._waiting[address]
            first = waiting.popleft()
            if not waiting:
                del self._waiting[address]
            if not first.cancelled():
                self._now = self._start(address)
                later = ((caller, at) for caller, at in self._starts.items() if at > self._now)
                self._starts = dict(later)
                first.set_result(None)
                return
        self._taken, self._now = False, 0.0
        self._starts.clear()

    def _start(self, address: str | None) -> float:
        return max(self._now, self._starts.get(address, 0.0))
