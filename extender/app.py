"""The extender's routes: read, ask the view, write."""

from aiohttp import web

from core.edge.clock import Clock
from core.edge.http import Health, json_response, read_body
from core.edge.http import make_app as make_bones
from extender import wire
from extender.metrics import Metrics
from extender.view import View


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
    app = make_bones(health, metrics)

    async def answered(request: web.Request) -> tuple[bytes, bool]:
        if certificate_asked and not request.get_extra_info("peercert"):
            raise web.HTTPForbidden(text="a client certificate is asked for")
        body = await read_body(request, wire.BODY_BYTES_MAX)
        with metrics.prioritize_seconds.time():
            return view.answer(body, clock.monotonic_seconds())

    async def prioritize(request: web.Request) -> web.Response:
        try:
            answer, known = await answered(request)
        except Exception:  # kube-scheduler tells nobody that it got no scores
            metrics.prioritize.labels("refused").inc()
            raise
        metrics.prioritize.labels("scored" if known else "neutral").inc()
        return json_response(answer)

    app.router.add_post("/prioritize", prioritize)
    return app
