"""Serve the addresses of callers by turns, where one event loop does the work of all of them.

Nothing is limited by a rate: a caller that is alone is served at once, as often as it calls. While
several addresses wait, the one that has used the least time is next. So an address with costly
calls delays the calls of the others by about as much time as theirs take.

Source: start-time fair queueing (Goyal, Vin and Cheng, 1996), with equal weights.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from core.edge.clock import Clock

TURN_SECONDS_MIN: Final = 1e-6
"""Time that a turn counts at least, so that equal addresses alternate."""


class Turns:
    """Turns of addresses; only one has its turn at a time.

    The number of waiting turns is limited by the number of connections.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """Waiting turns by address, the oldest first."""
        self._starts: dict[str | None, float] = {}
        """Virtual time at which the next turn of an address starts; others start now."""
        self._now = 0.0
        """Virtual time: the start of the current turn."""
        self._taken = False

    @asynccontextmanager
    async def turn(self, address: str | None) -> AsyncIterator[None]:
        """Wait for the turn of a caller; the turn ends with the context."""
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
                self._next()  # the turn was given before the caller left
            raise

    def _next(self) -> None:
        """Give the turn to the address whose next turn starts first, or to nobody."""
        while self._waiting:
            address = min(self._waiting, key=self._start)
            waiting = self._waiting[address]
            first = waiting.popleft()
            if not waiting:
                del self._waiting[address]
            if not first.cancelled():
                self._now = self._start(address)
                later = ((one, at) for one, at in self._starts.items() if at > self._now)
                self._starts = dict(later)
                first.set_result(None)
                return
        self._taken, self._now = False, 0.0
        self._starts.clear()

    def _start(self, address: str | None) -> float:
        return max(self._now, self._starts.get(address, 0.0))
