"""Define the HTTP routes of the webhook."""

from typing import Final

from aiohttp import web

from core.model.errors import InvalidInputError
from runtime.clock import Clock
from serving.http import Health, base_app, json_response, read_body
from serving.intake import Intake
from webhook import wire
from webhook.fair_queue import FairQueue
from webhook.metrics import Metrics

MUTATE_PATH: Final = "/mutate-node"
REVIEW_BYTES_MAX: Final = 3 * 1024**2
"""Maximum size of a review: the limit of the API server for requests.

The review of an update contains the Node twice, as `object` and `oldObject`. If a Node is larger
than half of this, the review is rejected, and the controller writes the taint."""


def make_app(metrics: Metrics, health: Health, clock: Clock, taint_key: str) -> web.Application:
    """Return the application of the webhook: POST /mutate-node and health checks.

    *metrics* counts and times the reviews. *taint_key*: key of the taint that Ebb sets.
    """
    # Any pod may be able to reach this port. The metrics describe the cluster, so they are served
    # on another port.
    app = base_app(health, clock)
    queue, intake = FairQueue(clock), Intake(REVIEW_BYTES_MAX)

    async def mutate_node(request: web.Request) -> web.Response:
        body = await read_body(request, intake)
        with metrics.review_seconds.time():
            try:
                # An API server is one address and sends thousands of reviews at once, so no
                # address has a rate limit.
                async with queue.turn(request.remote):
                    answer = wire.review(body, taint_key)
            except InvalidInputError:
                metrics.reviews.labels("refused").inc()
                raise
        metrics.reviews.labels("patched" if answer.patched else "unchanged").inc()
        return json_response(answer.body)

    app.router.add_post(MUTATE_PATH, mutate_node)
    return app
