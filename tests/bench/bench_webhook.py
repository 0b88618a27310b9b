"""A review of a 12 kB Node over TLS, beside a handler of the same server that does nothing.

    python -m tests.bench.bench_webhook

Prints ratios: times of a shared machine mean little by themselves. Client and server share one
process and one core, so that the client's own work is in both columns and the ratio is flattered;
the row "answer alone" has the review's work without any server.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web

from core.edge import http, tls
from core.edge.metrics import Metrics
from webhook import wire
from webhook.app import make_app

REVIEWS = 2000
WARM_UP = 200
ROUNDS = 4
NODE_BYTES = 12_000
MESSAGE = Path(__file__).parents[1] / "webhook" / "messages" / "mark_added_foreign_taints.json"


def a_review() -> bytes:
    """Return a review whose object and oldObject are Nodes of about NODE_BYTES each."""
    review = orjson.loads(MESSAGE.read_bytes())
    for which in ("object", "oldObject"):
        node = review["request"][which]
        image = node["status"]["images"][0]
        while len(orjson.dumps(node)) < NODE_BYTES:
            node["status"]["images"].append(image)
    return orjson.dumps(review)


async def nothing(request: web.Request) -> web.Response:
    await request.read()
    return http.json_response(b"{}")


async def over_tls(session: aiohttp.ClientSession, url: str, body: bytes) -> list[float]:
    """Return the seconds of each request, on one kept connection."""
    taken = []
    for number in range(WARM_UP + REVIEWS):
        start = time.perf_counter()
        async with session.post(url, data=body) as response:
            assert response.status == 200
            await response.read()
        if number >= WARM_UP:
            taken.append(time.perf_counter() - start)
    return taken


def alone(call: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(REVIEWS):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


async def measure(body: bytes) -> dict[str, list[float]]:
    """Take the handlers in turns, so that a slow moment of the machine hits both."""
    app = make_app(Metrics(), http.Health())
    app.router.add_post("/nothing", nothing)
    pair = tls.make_pair(["localhost"], int(time.time()))
    server = http.Server(app, "127.0.0.1:0", tls.serving(pair))
    await server.start()
    taken: dict[str, list[float]] = {"/nothing": [], "/mutate-node": []}
    connector = aiohttp.TCPConnector(ssl=tls.trusting(pair.ca), limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(ROUNDS):
            for path in taken:
                url = f"https://localhost:{server.port}{path}"
                taken[path] += await over_tls(session, url, body)
    await server.stop()
    return taken


def row(name: str, taken: list[float], floor: list[float]) -> str:
    def p99(values: list[float]) -> float:
        return statistics.quantiles(values, n=100)[98]

    p50, p50_floor = statistics.median(taken), statistics.median(floor)
    return (
        f"{name:<28}{p50 * 1e6:>10.0f}{p99(taken) * 1e6:>10.0f}"
        f"{p50 / p50_floor:>14.2f}{p99(taken) / p99(floor):>14.2f}"
    )


def main() -> None:
    body = a_review()
    taken = asyncio.run(measure(body))
    floor, reviewed = taken["/nothing"], taken["/mutate-node"]
    print(f"{len(body)} bytes a review, {len(reviewed)} reviews, 1 connection, TLS 1.3")
    print(f"{'':<28}{'p50 us':>10}{'p99 us':>10}{'p50 : no-op':>14}{'p99 : no-op':>14}")
    print(row("no-op handler", floor, floor))
    print(row("review", reviewed, floor))
    print(row("answer alone, no server", alone(lambda: wire.review(body)), floor))


if __name__ == "__main__":
    main()
