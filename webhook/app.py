"""The webhook's routes: read, ask, write."""

from typing import Final

from aiohttp import web

from core.edge.clock import Clock
from core.edge.http import Health, json_response, read_body
from core.edge.http import base_app as make_bones
from core.edge.turns import Turns
from core.model.errors import InvalidInputError
from webhook import wire
from webhook.metrics import Metrics

MUTATE_PATH: Final = "/mutate-node"
REVIEW_BYTES_MAX: Final = 3 * 1024**2
"""As much as the API server takes of anybody.

An update's review holds the Node twice, as `object` and as `oldObject`: where it is larger than
half of this, the engine sets the taint.
"""


def make_app(metrics: Metrics, health: Health, clock: Clock, taint_key: str) -> web.Application:
    """Return the application: POST /mutate-node, and health.

    Anybody may reach it: what *metrics* tell of the cluster is served elsewhere.
    """
    app = make_bones(health, clock)
    turns = Turns(clock)

    async def mutate_node(request: web.Request) -> web.Response:
        body = await read_body(request, REVIEW_BYTES_MAX)
        with metrics.review_seconds.time():
            try:
                # An API server is one address and sends thousands of reviews at once, so no
                # address has a rate limit.
                async with turns.turn(request.remote):
                    answer = wire.review(body, taint_key)
            except InvalidInputError:
                metrics.reviews.labels("refused").inc()
                raise
        metrics.reviews.labels("patched" if answer.patched else "unchanged").inc()
        return json_response(answer.body)

    app.router.add_post(MUTATE_PATH, mutate_node)
    return app
