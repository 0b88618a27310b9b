"""The extender's routes: read, ask the view, write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from aiohttp import web

from core.edge.clock import Clock
from core.edge.http import Health, json_response, read_body
from core.edge.http import base_app as make_bones
from extender import wire
from extender.metrics import Metrics
from extender.view import View


class PerPeerLimiter:
    """One call of a peer at a time, and as long a pause after it as it took.

    All calls are answered by one event loop: so no peer has more than half of its time, and who
    else calls waits for one call of each. There are at most as many as connections.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of: WeakValueDictionary[str | None, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, peer: str | None) -> AsyncIterator[None]:
        """Wait for a peer's turn; it ends with the pause."""
        turn = self._of.setdefault(peer, asyncio.Lock())
        await turn.acquire()
        began = self._clock.monotonic_seconds()
        try:
            yield
        finally:
            took = self._clock.monotonic_seconds() - began
            asyncio.get_running_loop().call_later(took, turn.release)


def make_app(
    view: View,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    *,
    certificate_asked: bool = False,
) -> web.Application:
    """Return the application: POST /prioritize, health and metrics.

    *certificate_asked*: prioritize is answered only to callers that have shown a certificate;
    kubelets, which ask for health, have none.
    """
    health.checks["view"] = lambda: view.why_neutral(clock.monotonic_seconds())
    app = make_bones(health, clock, metrics)
    turns = PerPeerLimiter(clock)

    async def answered(request: web.Request) -> tuple[bytes, bool]:
        if certificate_asked and not request.get_extra_info("peercert"):
            raise web.HTTPForbidden(text="a client certificate is asked for")
        body = await read_body(request, wire.BODY_BYTES_MAX)
        with metrics.prioritize_seconds.time():
            async with turns.of(request.remote):
                return view.answer(body, clock.monotonic_seconds())

    async def prioritize(request: web.Request) -> web.Response:
        try:
            answer, known = await answered(request)
        # kube-scheduler tells nobody that it got no scores; cancelled: it has gone meanwhile.
        except (Exception, asyncio.CancelledError):
            metrics.prioritize.labels("refused").inc()
            raise
        metrics.prioritize.labels("scored" if known else "neutral").inc()
        return json_response(answer)

    app.router.add_post("/prioritize", prioritize)
    return app
