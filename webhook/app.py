"""The webhook's route: read a review, ask the wire, write the answer."""

from aiohttp import web

from core.config import Config
from core.edge.http import Health, json_response
from core.edge.http import make_app as make_bones
from core.edge.metrics import Metrics
from core.errors import InvalidInputError
from webhook import wire

PATH = "/mutate-node"


def make_app(config: Config, metrics: Metrics, health: Health) -> web.Application:
    """Return the application: POST /mutate-node, health and metrics."""
    app = make_bones(health, metrics)

    async def mutate(request: web.Request) -> web.Response:
        body = await _body(request)
        with metrics.review_seconds.time():
            try:
                answer = wire.answer(wire.decode_review(body), config.taint_key)
            except InvalidInputError:
                metrics.reviews.labels("refused").inc()
                raise
        metrics.reviews.labels("patched" if answer.mutated else "unchanged").inc()
        return json_response(answer.body)

    app.router.add_post(PATH, mutate)
    return app


async def _body(request: web.Request) -> bytes:
    length = request.content_length
    if length is not None and length > wire.REVIEW_BYTES_MAX:
        raise web.HTTPRequestEntityTooLarge(wire.REVIEW_BYTES_MAX, length)
    return await request.read()
