"""The extender's prioritize over HTTP on loopback: `python -m tests.bench.bench_extender`.

p50 and p99 beside a handler that does nothing, in the same run; the server has a thread and an
event loop of its own, the client is a blocking connection that is kept open, as the scheduler's.
"""

import asyncio
import gc
import http.client
import threading
import time

import orjson
from aiohttp import web

from core.config import ExtenderConfig
from core.edge import http as bones
from core.edge.metrics import Metrics
from core.marks import MARK_LABEL
from extender import wire
from extender.app import make_app
from extender.view import View
from tests.bench.machine import factor, show
from tests.support.builders import node
from tests.support.clock import FakeClock

CALLS = 1500
NAMES = (100, 500, 1000, 5000)
FULL_NODES = 500
BUDGET_MS = {500: 0.2, 1000: 0.3, 5000: 0.8}
POD = orjson.dumps({"metadata": {"name": "p", "annotations": {"filler": "x" * 2800}}})


def main() -> None:
    view = View(ExtenderConfig())
    names = [f"gke-cluster-1-default-pool-7f3b2a1c-{number:05}" for number in range(max(NAMES))]
    view.replace_nodes(
        node(name, labels={MARK_LABEL: "soft"} if at % 10 == 0 else {})
        for at, name in enumerate(names)
    )
    view.alive("nodes", 0.0)
    app = make_app(view, FakeClock(), Metrics(), bones.Health())
    app.router.add_post("/nothing", nothing)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    server = bones.Server(app, "127.0.0.1:0")
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    gc.collect()
    gc.freeze()
    k = factor()
    bodies = {str(count): wire.names_body(names[:count], POD) for count in NAMES}
    bodies[f"{FULL_NODES} full nodes"] = full_nodes(names[:FULL_NODES])
    rows = []
    for label, body in bodies.items():
        calls = CALLS if len(body) < 10**6 else CALLS // 10
        floor = timed(server.port, "/nothing", body, calls)
        ours = timed(server.port, "/prioritize", body, calls)
        budget = BUDGET_MS.get(int(label)) if label.isdecimal() else None
        rows.append(
            [
                label,
                f"{len(body) / 1000:,.0f} kB",
                *(f"{ms:.3f}" for ms in (*ours, ours[0] / k)),
                f"{budget:.1f}" if budget else "",
                f"{floor[0]:.3f}",
                f"{ours[0] / floor[0]:.2f}",
            ]
        )
    columns = ["names", "body", "p50 ms", "p99 ms", "p50 / K", "budget", "no-op p50", "ratio"]
    show(f"extender prioritize over HTTP, {CALLS:,} calls, K = {k:.2f}", columns, rows)


async def nothing(request: web.Request) -> web.Response:
    """Read the body and answer as shortly as can be."""
    await request.read()
    return web.Response(body=b"[]", content_type="application/json")


def full_nodes(names: list[str]) -> bytes:
    """Write a call with whole Nodes of about 8 kB each."""
    items = [
        {
            "metadata": {"name": name, "labels": {f"label-{n}": "value" for n in range(20)}},
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {
                "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                "images": [{"names": ["i" * 120], "sizeBytes": 12345678} for _ in range(40)],
            },
        }
        for name in names
    ]
    return orjson.dumps({"Pod": {}, "Nodes": {"items": items}, "NodeNames": None})


def timed(port: int, path: str, body: bytes, calls: int) -> tuple[float, float]:
    """Return p50 and p99 of one connection's calls, in ms."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    taken = []
    for _ in range(calls):
        start = time.perf_counter()
        connection.request("POST", path, body)
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - start) * 1000)
        assert answer.status == 200
    connection.close()
    taken.sort()
    return taken[len(taken) // 2], taken[len(taken) * 99 // 100]


if __name__ == "__main__":
    main()
