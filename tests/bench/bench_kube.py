"""Measure the first sync of 150,000 pods, and one watch event.

`python -m tests.bench.bench_kube [PODS]` measures the views of controller and extender, each in
its own process. The server is another process, so that its time and memory do not count. Pods have
5 kB, like real pods with managedFields.
"""

import asyncio
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from controller.metrics import Metrics as ControllerMetrics
from controller.view import ClusterView
from core.config.programs import ExtenderConfig
from core.marks.wellknown import TAINT_KEY
from extender.metrics import Metrics as ExtenderMetrics
from extender.view import View
from kube.client import PAGE_OBJECTS, Client
from kube.client import client as package  # type: ignore[attr-defined]  # without the rest of it
from kube.decode.kinds import NODES, PODS, Kind
from kube.freshness import Freshness, WatchSink
from kube.inventory import Inventory
from kube.listing import WHOLE
from kube.target import NAMESPACE
from kube.watch import _Watcher, watch_objects
from runtime.clock import SystemClock
from runtime.metrics import WatchMetrics
from tests.support.fake_objects import Json, event, node_object

PODS_COUNT = 150_000
PODS_PER_NODE = 30
POD_BYTES = 5_000
EVENTS = 20_000
LOOPS = 1_000_000
LOOP_SECONDS = 0.009
"""Duration of a million empty loops on the reference machine, for K."""


def machine_factor() -> float:
    """Return K, how much slower this machine is, as the best of five runs."""

    def loop() -> float:
        start = time.perf_counter()
        for _ in range(LOOPS):
            pass
        return time.perf_counter() - start

    return min(loop() for _ in range(5)) / LOOP_SECONDS


def pod_object(number: int, version: int) -> Json:
    """Return a pod of a Deployment with status and managedFields, about 5 kB."""
    app = f"app-{number % 300}"
    node = f"node-{number // PODS_PER_NODE}"
    found: Json = {
        "metadata": {
            "name": f"{app}-5d9c7b8f6d-{number:06d}",
            "namespace": f"team-{number % 40}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(version),
            "labels": {"app": app, "pod-template-hash": "5d9c7b8f6d"},
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": f"{app}-5d9c7b8f6d", "controller": True}
            ],
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example/{app}:1",
                    "env": [{"name": f"SETTING_{n}", "value": f"value {n}"} for n in range(12)],
                    "resources": {"requests": {"cpu": f"{number % 9 + 1}00m", "memory": "256Mi"}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0}],
        },
    }
    fill = max(0, POD_BYTES - len(orjson.dumps(found)) - 60) // 20
    fields: Json = {f"f:field-{n:04d}": {} for n in range(fill)}
    found["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": fields}]
    return found


def page_of(start: int, end: int) -> bytes:
    """Return the items of a page as JSON."""
    return b",".join(orjson.dumps(pod_object(number, number + 1)) for number in range(start, end))


def serve(channel: Connection, count: int) -> None:
    """Serve the list of pods in pages that are encoded in advance."""
    pages = [
        page_of(start, min(start + PAGE_OBJECTS, count)) for start in range(0, count, PAGE_OBJECTS)
    ]

    async def answer(request: web.Request) -> web.Response:
        if request.query.get("watch"):
            await asyncio.Event().wait()
        index = int(request.query.get("continue") or 0)
        meta = {"resourceVersion": "1000000"}
        if index + 1 < len(pages):
            meta["continue"] = str(index + 1)
        body = b'{"metadata":%b,"items":[%b]}' % (orjson.dumps(meta), pages[index])
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        channel.send((runner.addresses[0][1], sum(map(len, pages))))
        await asyncio.Event().wait()

    asyncio.run(run())


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak_mb() -> float:
    """Return the peak memory of this process; ru_maxrss would include the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmHWM"))
    return int(found.split()[1]) * 1024 / 1e6


class Views(NamedTuple):
    """The view of a program, with its freshness and metrics."""

    inventory: Inventory
    freshness: Freshness
    metrics: WatchMetrics

    def feed(self, kind: Kind[Any, Any]) -> WatchSink:
        """Return the WatchSink of a kind."""
        return WatchSink(self.inventory, kind, self.freshness, SystemClock(), self.metrics)


def of_controller() -> Views:
    view = ClusterView()
    return Views(view, view.freshness, ControllerMetrics(NAMESPACE))


def of_extender() -> Views:
    view = View(ExtenderConfig(score="pack"), TAINT_KEY)
    return Views(view, view.freshness, ExtenderMetrics())


PROGRAMS: Final[Mapping[str, Callable[[], Views]]] = {
    "controller": of_controller,
    "extender": of_extender,
}


class Synced(WatchSink):
    """A WatchSink of pods with an event for the end of the list."""

    def __init__(self, views: Views) -> None:
        super().__init__(views.inventory, PODS, views.freshness, SystemClock(), views.metrics)
        self.done = asyncio.Event()

    def alive(self) -> None:
        super().alive()
        self.done.set()


async def first_sync(client: Client, feed: Synced) -> tuple[float, float]:
    """Return wall and processor seconds from the first request to the complete view."""
    wall, used = time.perf_counter(), time.process_time()
    task = asyncio.create_task(watch_objects(client, PODS, feed))
    await feed.done.wait()
    taken = time.perf_counter() - wall, time.process_time() - used
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return taken


def per_event_micros(tell: Callable[[bytes], None], lines: Iterable[bytes]) -> float:
    """Return the microseconds per event, the best of three runs."""
    given = list(lines)

    def turn() -> float:
        start = time.perf_counter()
        for line in given:
            tell(line)
        return time.perf_counter() - start

    return min(turn() for _ in range(3)) / len(given) * 1e6


Rows = list[tuple[str, str, str]]


def measured(channel: Connection, port: int, program: str) -> None:
    """Measure the view of a program in this process; send the rows through *channel*."""
    channel.send(asyncio.run(measure(port, PROGRAMS[program]())))


async def measure(port: int, views: Views) -> Rows:
    k = machine_factor()
    rows = [("K", f"{k:.2f}", "")]
    before = resident_mb()
    nodes = views.feed(NODES)
    nodes.replaced([])
    feed = Synced(views)
    settings = package.Configuration(host=f"http://127.0.0.1:{port}")
    async with Client(package.ApiClient(settings)) as client:
        wall, used = await first_sync(client, feed)
        rows += [
            ("first sync, wall", f"{wall:.2f} s", f"{wall / k:.2f} s x K, budget 2"),
            ("first sync, processor", f"{used:.2f} s", f"{used / k:.2f} s x K"),
            ("memory before the sync", f"{before:.0f} MB", ""),
            ("memory after the sync", f"{resident_mb():.0f} MB", "budget 250"),
            ("memory, peak", f"{peak_mb():.0f} MB", "budget 250"),
        ]
        cases: dict[str, tuple[Kind[Any, Any], WatchSink, list[bytes]]] = {
            "one pod event": (PODS, feed, [event("MODIFIED", o) for o in changed_pods()]),
            "one node event": (
                NODES,
                nodes,
                [event("MODIFIED", node_object(f"node-{n % 5000}")) for n in range(EVENTS)],
            ),
        }
        for name, (kind, handler, lines) in cases.items():
            micros = per_event_micros(_Watcher(client, kind, handler, WHOLE)._event, lines)
            note = f"{micros / k:.1f} us x K, budget 15"
            rows.append((f"{name}, decoded and indexed", f"{micros:.1f} us", note))
    return rows


def changed_pods() -> Iterable[Json]:
    return (pod_object(number * 7, 2_000_000 + number) for number in range(EVENTS))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PODS_COUNT
    spawning = multiprocessing.get_context("spawn")
    channel, far = spawning.Pipe()
    server = spawning.Process(target=serve, args=(far, count), daemon=True)
    server.start()
    port, sent = channel.recv()
    print(f"{count:,} pods, {sent / 1e6:.0f} MB of JSON, pages of {PAGE_OBJECTS}")
    for program in PROGRAMS:
        process = spawning.Process(target=measured, args=(far, port, program), daemon=True)
        process.start()
        rows: Rows = channel.recv()
        process.join()
        print(f"\n{program}")
        for name, value, note in rows:
            print(f"{name:<42}{value:>12}   {note}")
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
