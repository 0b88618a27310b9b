"""The extender's HTTP routes: prioritize, health and metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from aiohttp import web

from core.edge.clock import Clock
from core.edge.http import Health, base_app, json_response, read_body
from extender import wire
from extender.metrics import Metrics
from extender.view import View


class PerPeerLimiter:
    """Allow each peer one call at a time, followed by a pause as long as the call took.

    One event loop answers all calls. The limit leaves at least half of its time to other peers.
    The number of peers is bounded by the number of connections.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: WeakValueDictionary[str | None, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, peer: str | None) -> AsyncIterator[None]:
        """Wait until the peer may call; the pause starts when the context ends."""
        lock = self._locks.setdefault(peer, asyncio.Lock())
        await lock.acquire()
        began = self._clock.monotonic_seconds()
        try:
            yield
        finally:
            took = self._clock.monotonic_seconds() - began
            asyncio.get_running_loop().call_later(took, lock.release)


def make_app(
    view: View,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    *,
    certificate_required: bool = False,
) -> web.Application:
    """Return the application: POST /prioritize, health and metrics.

    With *certificate_required* prioritize calls need a client certificate. Health checks do not,
    because kubelets have none.
    """
    health.checks["view"] = lambda: view.why_neutral(clock.monotonic_seconds())
    app = base_app(health, clock, metrics)
    limiter = PerPeerLimiter(clock)

    async def answered(request: web.Request) -> tuple[bytes, bool]:
        if certificate_required and not request.get_extra_info("peercert"):
            raise web.HTTPForbidden(text="a client certificate is required")
        body = await read_body(request, wire.BODY_BYTES_MAX)
        metrics.last_prioritize.set(clock.unix_seconds())
        with metrics.prioritize_seconds.time():
            async with limiter.turn(request.remote):
                return view.answer(body, clock.monotonic_seconds())

    async def prioritize(request: web.Request) -> web.Response:
        try:
            answer, known = await answered(request)
        # kube-scheduler does not report missing scores, so they are counted here. A call is
        # cancelled when kube-scheduler closes the connection.
        except (Exception, asyncio.CancelledError):
            metrics.prioritize.labels("refused").inc()
            raise
        metrics.prioritize.labels("scored" if known else "neutral").inc()
        return json_response(answer)

    app.router.add_post("/prioritize", prioritize)
    return app
