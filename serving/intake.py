"""Own the limits of the POST requests of one path, whichever way they come in.

aiohttp's handlers and the fast path ask the same object, so that neither way lacks a limit of the
other. The bytes of all bodies together are limited by the port (`connections`).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Final

from aiohttp import web

from runtime.clock import Clock

PAUSE_SECONDS_MIN: Final = 0.002
"""Minimum duration of a call that is followed by a pause.

After a shorter call, the event loop handles the other events that are due before it serves the
peer again. So each call delays other peers by less than this."""


class PerPeerLimiter:
    """Allow each peer (address) one call at a time, then a pause as long as the call took.

    One event loop answers all calls. The limit leaves at least half of its time to other peers,
    except between calls shorter than PAUSE_SECONDS_MIN. The number of peers and of waiting calls
    is bounded by the number of connections.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """Waiting calls, the oldest first, by each peer that calls or pauses."""

    @contextmanager
    def turn_now(self, peer: str | None) -> Iterator[bool]:
        """Begin a call of the peer if it may call now; yield whether it may.

        If True, the call lasts until the context ends, and a pause follows. False: another call of
        the peer runs, or its pause has not ended.
        """
        if peer in self._waiting:
            yield False
            return
        self._waiting[peer] = deque()
        with self._call(peer):
            yield True

    @asynccontextmanager
    async def turn(self, peer: str | None) -> AsyncIterator[None]:
        """Wait until the peer may call; the call lasts until the context ends.

        A pause follows, in which the peer must wait again.
        """
        if peer in self._waiting:
            mine = asyncio.get_running_loop().create_future()
            self._waiting[peer].append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():
                    self._next(peer)  # this call was chosen before it was cancelled
                raise
        else:
            self._waiting[peer] = deque()
        with self._call(peer):
            yield

    @contextmanager
    def _call(self, peer: str | None) -> Iterator[None]:
        began = self._clock.monotonic_seconds()
        try:
            yield
        finally:
            took = self._clock.monotonic_seconds() - began
            loop = asyncio.get_running_loop()
            if took < PAUSE_SECONDS_MIN:
                loop.call_soon(self._next, peer)
            else:
                loop.call_later(took, self._next, peer)

    def _next(self, peer: str | None) -> None:
        """Start the oldest waiting call of the peer, if there is one."""
        waiting = self._waiting[peer]
        while waiting:
            first = waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        del self._waiting[peer]


class Intake:
    """The limits of the POST requests of one path: their senders, bodies and turns."""

    def __init__(
        self,
        body_bytes_max: int,
        *,
        certificate_required: bool = False,
        turns: PerPeerLimiter | None = None,
    ) -> None:
        """Create the limits.

        *body_bytes_max*: maximum size of a body. *certificate_required*: whether a sender needs a
        client certificate. *turns*: None if each peer may call at any time.
        """
        self.body_bytes_max = body_bytes_max
        self._certificate_required = certificate_required
        self._turns = turns

    def refusal(
        self, length: int, transport: asyncio.BaseTransport | None
    ) -> web.HTTPException | None:
        """Return the error for a request that is refused before its body is read; None for others.

        *length*: size of the body in bytes, as its sender claims. *transport*: None if the
        connection is lost.
        """
        if self._certificate_required and not (transport and transport.get_extra_info("peercert")):
            return web.HTTPForbidden(text="a client certificate is required")
        if length > self.body_bytes_max:
            return web.HTTPRequestEntityTooLarge(self.body_bytes_max, length)
        return None

    def turn_now(self, peer: str | None) -> AbstractContextManager[bool]:
        """Return a context that begins a call of the peer if it may call now.

        The context tells whether it may.
        """
        return (
            nullcontext(enter_result=True) if self._turns is None else self._turns.turn_now(peer)
        )

    def turn(self, peer: str | None) -> AbstractAsyncContextManager[None]:
        """Return a context that waits until the peer may call, and ends its call."""
        return nullcontext() if self._turns is None else self._turns.turn(peer)
