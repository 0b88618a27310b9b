"""Measure running programs: `python -m tests.bench.bench_running [SECONDS [NODES]]`.

It takes five minutes. Controller, webhook and a fake API server with 5,000 nodes and 150,000 pods
are separate processes. The controller runs a pass every 10 s: without events, with 50 pod events a
second, and with webhook reviews in addition. A pass is one reconciliation. Passes run in a worker
thread, so the processor time of threads shows which reviews overlap a pass. Webhook and an empty
server are called in turns: delays that both have come from the machine. The API server has the
lowest priority.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import math
import multiprocessing
import os
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Channel
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from controller.names import HISTORY, TODAY
from kube.client import PAGE_OBJECTS
from kube.decode.kinds import PODS, Kind
from kube.target import NAMESPACE
from serving import tls
from serving.tls_contexts import client_context
from tests.bench import programs, serving
from tests.bench.bench_kube import PODS_PER_NODE, pod_object
from tests.bench.bench_webhook import a_review
from tests.bench.machine import factor, show
from tests.bench.programs import Running, running
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import Json, event, key_of
from webhook.app import MUTATE_PATH

NODES: Final = 5000
EVENTS_A_SECOND: Final = 50
REVIEWS_A_SECOND: Final = 100
"""Rate for each server; reviews are sequential."""
PHASE_SECONDS: Final = 100
SETTLE_SECONDS: Final = 25
"""Wait after the first pass, whose memory and garbage differ from later passes."""
SEEN_SECONDS: Final = 20
"""Time for which a new leader observes arrivals; meanwhile it skips no pass."""
NODE_BYTES: Final = 12_000
"""Size of a Node; a review contains the new and the old Node, 24 kB."""
MEMORY_REVIEWS: Final = 10_000
MEMORY_CONNECTIONS: Final = 8
MADE: Final = "2020-01-01T00:00:00Z"
"""Creation time of the nodes, so that no cooldown applies."""
NICEST: Final = 19
SAMPLE_SECONDS: Final = 0.01
BUSY_SHARE: Final = 0.05
"""Processor share of worker threads above which a sample belongs to a pass."""
BUDGET_PERCENT: Final = {0: 1.0, EVENTS_A_SECOND: 5.0}
"""Budget in percent of a core, times K, by events per second."""
BUDGET_P99_MS: Final = 2.0
"""Budget from the last byte of a review to its response during a pass, times K."""
BUDGET_MB: Final = {"controller": 200 * 2**20 / 1e6, "webhook": 95.0}
"""Budget of resident memory."""
ZONES: Final = "abc"
WEBHOOK, NOTHING = "webhook", "empty server"
DURING, OUTSIDE = "during a pass of the controller", "between passes"


def a_node(number: int) -> Json:
    """Return a Node of 20 CPU, of which its pods request three quarters."""
    name = f"node-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
    }
    room = {"cpu": "20", "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": MADE},
        "spec": {},
        "status": {"allocatable": room, "conditions": [ready]},
    }


class Cluster(FakeApi):
    """A fake API server whose pods are encoded pages; only events change pods."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        for number in range(nodes):
            self.put("nodes", a_node(number))
        for name in (TODAY, HISTORY):  # the leader stores its figures there
            self.put("configmaps", {"metadata": {"name": name, "namespace": NAMESPACE}})
        self.pods = count = nodes * PODS_PER_NODE
        pods = (pod_object(number, number + 1) for number in range(count))
        items = sorted((key_of(pod), orjson.dumps(pod)) for pod in pods)  # in the order of etcd
        self._pods = [
            b",".join(item for _, item in items[start : start + PAGE_OBJECTS])
            for start in range(0, count, PAGE_OBJECTS)
        ]
        self.version += count
        self._listed = str(self.version)

    def _list(self, kind: Kind[Any, Any], request: web.Request) -> web.Response:
        if kind is not PODS:
            return super()._list(kind, request)
        number = int(request.query.get("continue") or 0)
        meta = {"resourceVersion": self._listed}
        if number + 1 < len(self._pods):
            meta["continue"] = str(number + 1)
        body = b'{"metadata":%b,"items":[%b]}' % (orjson.dumps(meta), self._pods[number])
        return web.Response(body=body, content_type="application/json")

    def changes(self) -> Iterator[bytes]:
        """Yield events of an endless rollout: a status update, then one pod replaces another."""
        for turn in itertools.count():
            old, new = turn % self.pods, self.pods + turn
            yield self._event("MODIFIED", pod_object((turn * 7 + 3) % self.pods, 1))
            coming = self._at_home(pod_object(new, 1), old)
            home = coming["spec"].pop("nodeName")
            yield self._event("ADDED", coming)
            coming["spec"]["nodeName"] = home
            yield self._event("MODIFIED", coming)
            gone = old if turn < self.pods else new - self.pods
            yield self._event("DELETED", self._at_home(pod_object(gone, 1), old))

    @staticmethod
    def _at_home(pod: Json, old: int) -> Json:
        pod["spec"]["nodeName"] = f"node-{old // PODS_PER_NODE}"
        return pod

    def _event(self, kind: str, pod: Json) -> bytes:
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        return event(kind, pod)

    def send(self, line: bytes) -> None:
        for stream in self.streams:
            if stream.resource == "pods":
                stream.queue.put_nowait(line)


def serve(channel: Channel, nodes: int) -> None:
    """Serve the cluster; *channel* receives the number of events per second."""
    os.nice(NICEST)

    async def run() -> None:
        logging.disable()  # watches end with errors when the benchmark stops
        async with Cluster(nodes) as api:
            rate, changes = 0, api.changes()
            channel.send(api.url)
            for tick in itertools.count(1):
                while channel.poll():
                    rate = channel.recv()
                for line in itertools.islice(changes, rate // 10):
                    api.send(line)
                if tick % 200 == 0:
                    api.bookmark()
                await asyncio.sleep(0.1)

    asyncio.run(run())


class Server(NamedTuple):
    """A server that answers reviews."""

    port: int
    pid: int
    """Process id; the first thread runs the event loop."""


class Review(NamedTuple):
    """An answered review; times in seconds."""

    begun: float
    seconds: float
    """Time from the first byte of the request to the response."""
    answering: float
    """Time from the last written byte of the request to the response."""
    waited: float
    """Time for which the client or the event loop waited for a core."""


class Reviewer:
    """A client with one connection to a server."""

    def __init__(self, server: Server, ca: bytes) -> None:
        body = a_review(NODE_BYTES)
        self._connection = serving.Connection(server.port, MUTATE_PATH, body, client_context(ca))
        self._tasks = [Path(f"/proc/{pid}/schedstat") for pid in (os.getpid(), server.pid)]

    def _waited(self) -> float:
        return sum(int(task.read_text().split()[1]) for task in self._tasks) / 1e9

    def ask(self) -> Review:
        before = self._waited()
        self._connection.send()
        sent = time.perf_counter()
        self._connection.receive()
        end, begun = time.perf_counter(), self._connection.started
        return Review(begun, end - begun, end - sent, self._waited() - before)


def ask(channel: Channel, servers: Mapping[str, Server], ca: bytes, seconds: float) -> None:
    """Send reviews to the servers in turns at a low rate, and send the results to *channel*."""
    reviewers = {who: Reviewer(server, ca) for who, server in servers.items()}
    found: dict[str, list[Review]] = {who: [] for who in servers}
    end, due = time.perf_counter() + seconds, time.perf_counter()
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        for who, reviewer in reviewers.items():
            found[who].append(reviewer.ask())
        due = max(due, time.perf_counter()) + 1 / REVIEWS_A_SECOND
    channel.send(found)


@dataclass
class Watched:
    """The worker threads of a program, sampled from /proc."""

    program: Running
    busy: list[tuple[float, float]] = field(default_factory=list)
    """Intervals in which worker threads ran, in order."""

    def follow(self, stop: Event) -> None:
        """Sample until *stop*."""
        before, at = self._beside(), time.perf_counter()
        while not stop.wait(SAMPLE_SECONDS):
            now, ran = time.perf_counter(), self._beside()
            if ran - before > BUSY_SHARE * (now - at):
                begun = at
                if self.busy and self.busy[-1][1] >= at:
                    begun = self.busy.pop()[0]
                self.busy.append((begun, now))
            before, at = ran, now

    def _beside(self) -> float:
        total = 0
        for task in Path(f"/proc/{self.program.pid}/task").iterdir():
            if task.name != str(self.program.pid):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def within(self, begun: float, seconds: float) -> bool:
        """Return whether a pass ran in this interval."""
        place = bisect_left(self.busy, (begun + seconds, math.inf))
        return place > 0 and self.busy[place - 1][1] > begun


@contextlib.contextmanager
def following(program: Running) -> Iterator[Watched]:
    """Sample the threads of a program inside of the context."""
    watched, stop = Watched(program), Event()
    sampler = Thread(target=watched.follow, args=(stop,), daemon=True)
    sampler.start()
    try:
        yield watched
    finally:
        stop.set()
        sampler.join()


@dataclass(frozen=True)
class Phase:
    """Processor time and passes of one phase of the run."""

    name: str
    events: int
    percent: float
    passes: Sequence[float]
    """Durations of passes in seconds, without very short ones."""


def phase(name: str, events: int, watched: Watched, seconds: float) -> Phase:
    """Measure the program for *seconds*."""
    watched.busy.clear()
    begun, used = time.perf_counter(), watched.program.seconds()
    time.sleep(seconds)
    share = (watched.program.seconds() - used) / (time.perf_counter() - begun)
    passes = [end - start for start, end in watched.busy if end - start > 2 * SAMPLE_SECONDS]
    return Phase(name, events, share * 100, passes)


def has_judged(controller: Running) -> bool:
    """Return whether the controller has finished its first pass."""
    return controller.metric("ebb_reconcile_duration_seconds_count") > 0


@contextlib.contextmanager
def nothing(folder: Path, pair: tls.Pair) -> Iterator[Server]:
    """Run an empty server in its own process."""
    pem = folder / "pair.pem"
    pem.write_bytes(pair.certificate + pair.key)
    spawning = multiprocessing.get_context("spawn")
    channel, far = spawning.Pipe()
    make_app = functools.partial(serving.nothing_app, b"{}", MUTATE_PATH)
    process = spawning.Process(target=serving.serve, args=(far, make_app, pem), daemon=True)
    process.start()
    try:
        yield Server(channel.recv(), process.pid or 0)
    finally:
        process.terminate()
        process.join()


Asked = Mapping[tuple[str, str], Sequence[Review]]
"""Reviews by server, and by whether a pass ran."""


def reviews(
    watched: Watched, servers: Mapping[str, Server], pair: tls.Pair, seconds: float
) -> Asked:
    """Send reviews for *seconds* from another process."""
    spawning = multiprocessing.get_context("spawn")
    channel, far = spawning.Pipe()
    asking = spawning.Process(target=ask, args=(far, servers, pair.ca, seconds), daemon=True)
    watched.busy.clear()
    asking.start()
    asked: dict[str, list[Review]] = channel.recv()
    asking.join()
    found: dict[tuple[str, str], list[Review]] = {
        (who, where): [] for where in (DURING, OUTSIDE) for who in servers
    }
    for who, answered in asked.items():
        for one in answered:
            where = DURING if watched.within(one.begun, one.seconds) else OUTSIDE
            found[who, where].append(one)
    return found


class Memory(NamedTuple):
    """Memory of a program in MB."""

    program: str
    when: str
    now: float
    most: float

    @classmethod
    def of(cls, program: str, when: str, running: Running) -> "Memory":
        """Read the current memory."""
        now, most = (running.mib(key) * 2**20 / 1e6 for key in ("VmRSS", "VmHWM"))
        return cls(program, when, now, most)


def many_reviews(port: int, ca: bytes) -> None:
    """Send the reviews after which the webhook's memory is measured."""
    body, trust = a_review(NODE_BYTES), client_context(ca)
    lines = [serving.Connection(port, MUTATE_PATH, body, trust) for _ in range(MEMORY_CONNECTIONS)]
    serving.measure({WEBHOOK: lines}, 1, MEMORY_REVIEWS)


@contextlib.contextmanager
def api_server(nodes: int) -> Iterator[tuple[Channel, str]]:
    """Run the API server; yield the channel for the event rate, and the URL."""
    spawning = multiprocessing.get_context("spawn")
    channel, far = spawning.Pipe()
    server = spawning.Process(target=serve, args=(far, nodes), daemon=True)
    server.start()
    try:
        yield channel, channel.recv()
    finally:
        server.terminate()
        server.join()


@dataclass
class Found:
    """All results."""

    phases: list[Phase]
    memory: list[Memory]
    asked: Asked


def measure(folder: Path, nodes: int, seconds: float) -> Found:
    """Run the programs and measure them, each phase for *seconds*."""
    pair = tls.make_pair(["localhost"], int(time.time()))
    # The pods of this API server are encoded once, so patches of them have no effect. Each pass
    # would write the same 200 deletion costs again, which a real cluster needs once.
    how = {
        "mode": "enforce",
        "podDeletionCost": "disabled",
        "reserve": {"window": f"{SEEN_SECONDS}s"},
    }
    with (
        api_server(nodes) as (events, url),
        running("controller", folder, {}, url, **how) as controller,
        programs.webhook(folder, pair) as (webhook, port),
    ):
        controller.wait(has_judged)
        with following(controller) as watched:
            time.sleep(SETTLE_SECONDS)
            phases = [phase("no events", 0, watched, seconds)]
            events.send(EVENTS_A_SECOND)
            phases.append(phase("with events", EVENTS_A_SECOND, watched, seconds))
            memory = [
                Memory.of("controller", f"{nodes * PODS_PER_NODE:,} pods", controller),
                Memory.of(WEBHOOK, "no review", webhook),
            ]
            with nothing(folder, pair) as idle:
                servers = {WEBHOOK: Server(port, webhook.pid), NOTHING: idle}
                asked = reviews(watched, servers, pair, seconds)
        many_reviews(port, pair.ca)
        words = f"{MEMORY_REVIEWS:,} reviews, {MEMORY_CONNECTIONS} connections"
        memory.append(Memory.of(WEBHOOK, words, webhook))
    return Found(phases, memory, asked)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else PHASE_SECONDS
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else NODES
    k = factor()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), nodes, seconds)
    report(nodes, k, found.phases)
    report_memory(found.memory)
    report_reviews(k, found.asked)


def report(nodes: int, k: float, phases: Sequence[Phase]) -> None:
    columns = ["", "events/s", "% of a core", "/ K", "budget", "passes", "longest s"]
    rows = [
        [
            one.name,
            str(one.events),
            f"{one.percent:.2f}",
            f"{one.percent / k:.2f}",
            f"{BUDGET_PERCENT[one.events]}",
            str(len(one.passes)),
            f"{max(one.passes, default=0):.2f}",
        ]
        for one in phases
    ]
    title = f"running controller, {nodes:,} nodes, {nodes * PODS_PER_NODE:,} pods, K = {k:.2f}"
    show(title, columns, rows)


def report_memory(memory: Sequence[Memory]) -> None:
    rows = [
        [
            one.program,
            one.when,
            f"{one.now:.0f}",
            f"{one.now * 1e6 / 2**20:.0f}",
            f"{one.most:.0f}",
            f"{BUDGET_MB[one.program]:.0f}",
        ]
        for one in memory
    ]
    show("memory", ["", "after", "MB", "MiB", "peak MB", "budget MB"], rows)


def report_reviews(k: float, asked: Asked) -> None:
    rows = []
    for (who, where), answered in asked.items():
        if answered:
            whole, answering = (
                serving.Taken([getattr(one, part) for one in answered])
                for part in ("seconds", "answering")
            )
            own = serving.Taken([one.seconds - one.waited for one in answered])
            rows.append(
                [
                    f"{who}, {where}",
                    f"{len(answered):,}",
                    *(f"{answering.ms(percent):.2f}" for percent in (50, 99, 100)),
                    f"{answering.ms(99) / k:.2f}",
                    f"{BUDGET_P99_MS}" if (who, where) == (WEBHOOK, DURING) else "",
                    *(f"{whole.ms(percent):.2f}" for percent in (50, 99)),
                    *(f"{own.ms(percent):.2f}" for percent in (50, 99)),
                ]
            )
    columns = ["", "calls", "p50", "p99", "longest", "p99 / K", "budget"]
    columns += ["whole p50", "whole p99", "own p50", "own p99"]
    title = (
        "review of 24 kB, ms from its last byte to the response; whole: from its first byte; "
        "own: whole without the waits of client and event loop for a core"
    )
    show(title, columns, rows)


if __name__ == "__main__":
    main()
