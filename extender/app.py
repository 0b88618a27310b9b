"""The extender's HTTP routes: prioritize, health and metrics."""

import asyncio
from collections.abc import Generator
from typing import Final, cast

from aiohttp import web
from prometheus_client import Counter

from extender import wire
from extender.metrics import Metrics
from extender.view import View
from runtime.clock import Clock
from serving.connections import LARGE_BYTES
from serving.http import Health, answer_at_once, base_app, json_response, read_body
from serving.intake import Intake, PerPeerLimiter

PATH: Final = "/prioritize"


class _Calls:
    """Answer prioritize calls, and record their results and durations."""

    def __init__(self, view: View, clock: Clock, metrics: Metrics, intake: Intake) -> None:
        self._view, self._clock, self._metrics, self._intake = view, clock, metrics, intake
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
        calling = wire.calling(await read_body(request, self._intake))
        self._metrics.last_prioritize.set(self._clock.unix_seconds())
        try:
            with self._metrics.prioritize_seconds.time():
                async with self._intake.turn(request.remote):
                    call = await _in_pieces(calling)
                    return self._view.scored(call, self._clock.monotonic_seconds())
        finally:
            calling.close()  # else a cancelled call keeps its body until a garbage collection

    def answer_now(self, body: bytes, peer: str) -> bytes | None:
        """Return the answer to a prioritize call; None if only `handle` can answer it.

        None: the peer must wait, the body is nested too deeply to be decoded without a pause, or
        the answer has more than LARGE_BYTES.
        """
        with self._intake.turn_now(peer) as allowed:
            if not allowed:
                return None
            self._metrics.last_prioritize.set(self._clock.unix_seconds())
            began = self._clock.monotonic_seconds()
            try:
                call = wire.call_at_once(body)
                if call is None:
                    return None
                answer, known = self._view.scored(call, began)
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
    intake = Intake(
        wire.BODY_BYTES_MAX,
        certificate_required=certificate_required,
        turns=PerPeerLimiter(clock),
    )
    calls = _Calls(view, clock, metrics, intake)
    app.router.add_post(PATH, calls.handle)
    answer_at_once(app, PATH, intake, calls.answer_now, calls.count_refused)
    return app


async def _in_pieces(calling: Generator[None, None, wire.Call]) -> wire.Call:
    """Return the decoded call; let other peers call during each pause."""
    while True:
        try:
            next(calling)
        except StopIteration as end:
            return cast("wire.Call", end.value)
        await asyncio.sleep(0)
