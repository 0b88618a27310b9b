"""The extender's HTTP routes: prioritize, health and metrics."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from aiohttp import web
from prometheus_client import Counter

from extender import wire
from extender.metrics import Metrics
from extender.view import View
from runtime.clock import Clock
from serving.connections import LARGE_BYTES
from serving.http import Health, answer_at_once, base_app, json_response, read_body

PATH: Final = "/prioritize"
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


class _Calls:
    """Answer prioritize calls, and record their results and durations."""

    def __init__(
        self, view: View, clock: Clock, metrics: Metrics, *, certificate_required: bool
    ) -> None:
        self._view, self._clock, self._metrics = view, clock, metrics
        self._certificate_required = certificate_required
        self._limiter = PerPeerLimiter(clock)
        self._scored, self._neutral, self._refused = (
            metrics.prioritize.labels(result) for result in ("scored", "neutral", "refused")
        )

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a prioritize call as soon as the limiter allows its peer to call."""
        try:
            answer, known = await self._answer(request)
        # kube-scheduler does not report missing scores, so they are counted here. A call is
        # cancelled when kube-scheduler closes the connection.
        except (Exception, asyncio.CancelledError):
            self.count_refused()
            raise
        (self._scored if known else self._neutral).inc()
        return json_response(answer)

    async def _answer(self, request: web.Request) -> tuple[bytes, bool]:
        if self._certificate_required and not request.get_extra_info("peercert"):
            raise web.HTTPForbidden(text="a client certificate is required")
        body = await read_body(request, wire.BODY_BYTES_MAX)
        self._metrics.last_prioritize.set(self._clock.unix_seconds())
        with self._metrics.prioritize_seconds.time():
            async with self._limiter.turn(request.remote):
                return self._view.answer(body, self._clock.monotonic_seconds())

    def answer_now(self, body: bytes, peer: str, transport: asyncio.BaseTransport) -> bytes | None:
        """Return the answer to a prioritize call; None if only `handle` can answer it.

        None: the peer must wait or present a client certificate, or the answer has more than
        LARGE_BYTES.
        """
        if self._certificate_required and not transport.get_extra_info("peercert"):
            return None
        with self._limiter.turn_now(peer) as allowed:
            if not allowed:
                return None
            self._metrics.last_prioritize.set(self._clock.unix_seconds())
            began = self._clock.monotonic_seconds()
            try:
                answer, known = self._view.answer(body, began)
            except Exception:
                self._count(self._refused, began)
                raise
            if len(answer) > LARGE_BYTES:
                return None
            self._count(self._scored if known else self._neutral, began)
            return answer

    def _count(self, result: Counter, began: float) -> None:
        result.inc()
        self._metrics.prioritize_seconds.observe(self._clock.monotonic_seconds() - began)

    def count_refused(self) -> None:
        """Count a prioritize call that got no scores."""
        self._refused.inc()


def make_app(
    view: View,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    *,
    certificate_required: bool = False,
) -> web.Application:
    """Return the application of the extender: POST /prioritize, health checks and metrics.

    *certificate_required*: prioritize calls need a client certificate. Health checks do not,
    because kubelets have none.
    """
    health.checks["view"] = lambda: view.why_neutral(clock.monotonic_seconds())
    app = base_app(health, clock, metrics)
    calls = _Calls(view, clock, metrics, certificate_required=certificate_required)
    app.router.add_post(PATH, calls.handle)
    answer_at_once(app, PATH, wire.BODY_BYTES_MAX, calls.answer_now, calls.count_refused)
    return app
