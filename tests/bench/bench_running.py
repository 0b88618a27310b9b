"""Controller and webhook as they run: `python -m tests.bench.bench_running [SECONDS [NODES]]`.

It takes five minutes. Each program is a process of its own. The controller leads and makes a pass
every 10 s, against an API server of a third process with 5,000 nodes and 150,000 pods: without
events, with 50 pod events a second, and with reviews of the webhook beside those. A pass runs in a
thread other than that of the controller's event loop: this tells which reviews fell into a pass.
A server that does nothing is asked by turns with the webhook: the time that both wait is the
machine's. The API server gets the processor time that no other process wants.
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

from core.edge import tls
from core.edge.decode.kinds import PODS, Kind
from core.edge.kube.client import PAGE_OBJECTS
from core.edge.serving import trusting
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
"""To each server, one at a time."""
PHASE_SECONDS: Final = 100
SETTLE_SECONDS: Final = 25
"""After the first pass: its memory and its garbage are not those of the others."""
SEEN_SECONDS: Final = 20
"""How long a new leader looks on until it knows what comes; as long as that lasts, each pass is
made anew."""
NODE_BYTES: Final = 12_000
"""A review has the new and the old Node: 24 kB."""
MEMORY_REVIEWS: Final = 10_000
MEMORY_CONNECTIONS: Final = 8
MADE: Final = "2020-01-01T00:00:00Z"
"""The nodes: no cool-down counts its seconds."""
NICEST: Final = 19
SAMPLE_SECONDS: Final = 0.01
BUSY_SHARE: Final = 0.05
"""A pass runs in a sample in which the other threads had at least so much of it."""
BUDGET_PERCENT: Final = {0: 1.0, EVENTS_A_SECOND: 10.0}
"""Of a core, times K, by events a second."""
BUDGET_P99_MS: Final = 2.0
"""From the last byte of a review to its answer, while the controller makes a pass; times K."""
BUDGET_MB: Final = {"controller": 224 * 2**20 / 1e6, "webhook": 95.0}
"""Resident memory: of the controller, what the program had that was controller and webhook."""
ZONES: Final = "abc"
WEBHOOK, NOTHING = "webhook", "a server that does nothing"
DURING, OUTSIDE = "during a pass of the controller", "outside"


def a_node(number: int) -> Json:
    """Return a Node of 20 CPU, three quarters of which its pods ask for."""
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
    """The pods are pages that lie there as bytes; they change by events alone."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        for number in range(nodes):
            self.put("nodes", a_node(number))
        self.pods = count = nodes * PODS_PER_NODE
        pods = (pod_object(number, number + 1) for number in range(count))
        items = sorted((key_of(pod), orjson.dumps(pod)) for pod in pods)  # as etcd has them
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
        """Yield a rollout for ever: a status that says nothing new, then one pod for another."""
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
    """Serve the cluster; what comes through *channel* is how many events a second there are."""
    os.nice(NICEST)

    async def run() -> None:
        logging.disable()  # it ends after the webhook, whose watches break off
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
    """One that takes reviews."""

    port: int
    pid: int
    """Its first thread is that of the loop."""


class Review(NamedTuple):
    """One that was answered."""

    begun: float
    seconds: float
    """From its first byte to its answer."""
    answering: float
    """From its last byte, which has been written to the socket then, to its answer."""
    waited: float
    """The part in which the reviewer or the event loop waited for a core."""


class Reviewer:
    """One connection to one server."""

    def __init__(self, server: Server, ca: bytes) -> None:
        body = a_review(NODE_BYTES)
        self._connection = serving.Connection(server.port, MUTATE_PATH, body, trusting(ca))
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
    """Send reviews at a low rate to each by turns, and back what came of them."""
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
    """The threads of a program beside its first one, as /proc tells of them."""

    program: Running
    busy: list[tuple[float, float]] = field(default_factory=list)
    """Stretches in which threads beside the first one ran, in order."""

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
        """Say whether a pass ran in that stretch."""
        place = bisect_left(self.busy, (begun + seconds, math.inf))
        return place > 0 and self.busy[place - 1][1] > begun


@contextlib.contextmanager
def following(program: Running) -> Iterator[Watched]:
    """Sample the threads of a program meanwhile."""
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
    """What one stretch of the run has cost."""

    name: str
    events: int
    percent: float
    passes: Sequence[float]
    """Seconds of those that took at least as long as a sample."""


def phase(name: str, events: int, watched: Watched, seconds: float) -> Phase:
    """Look on for so long."""
    watched.busy.clear()
    begun, used = time.perf_counter(), watched.program.seconds()
    time.sleep(seconds)
    share = (watched.program.seconds() - used) / (time.perf_counter() - begun)
    passes = [end - start for start, end in watched.busy if end - start > 2 * SAMPLE_SECONDS]
    return Phase(name, events, share * 100, passes)


def has_judged(controller: Running) -> bool:
    """Say whether the engine has made its first pass."""
    return controller.metric("ebb_reconcile_duration_seconds_count") > 0


@contextlib.contextmanager
def nothing(folder: Path, pair: tls.Pair) -> Iterator[Server]:
    """Run a server that does nothing, in a process of its own."""
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
"""By server, and whether a pass ran meanwhile."""


def reviews(
    watched: Watched, servers: Mapping[str, Server], pair: tls.Pair, seconds: float
) -> Asked:
    """Ask for so long, from a process of its own."""
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
    """What a program held at a moment, in MB."""

    program: str
    when: str
    now: float
    most: float

    @classmethod
    def of(cls, program: str, when: str, running: Running) -> "Memory":
        """Read it now."""
        now, most = (running.mib(key) * 2**20 / 1e6 for key in ("VmRSS", "VmHWM"))
        return cls(program, when, now, most)


def many_reviews(port: int, ca: bytes) -> None:
    """Send so many reviews as the webhook's memory is measured after."""
    body, trust = a_review(NODE_BYTES), trusting(ca)
    lines = [serving.Connection(port, MUTATE_PATH, body, trust) for _ in range(MEMORY_CONNECTIONS)]
    serving.measure({WEBHOOK: lines}, 1, MEMORY_REVIEWS)


@contextlib.contextmanager
def api_server(nodes: int) -> Iterator[tuple[Channel, str]]:
    """Run the API server. Yields: what takes how many events a second there are, and its URL."""
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
    """All that is measured."""

    phases: list[Phase]
    memory: list[Memory]
    asked: Asked


def measure(folder: Path, nodes: int, seconds: float) -> Found:
    """Run the programs and measure them, each phase for so long."""
    pair = tls.make_pair(["localhost"], int(time.time()))
    how = {"mode": "enforce", "reserve": {"window": f"{SEEN_SECONDS}s"}}
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
    columns = ["", "events a second", "% of a core", "/ K", "budget", "passes", "longest s"]
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
    title = f"the running controller, {nodes:,} nodes, {nodes * PODS_PER_NODE:,} pods, K = {k:.2f}"
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
    show("memory", ["", "after", "MB", "MiB", "at most MB", "budget MB"], rows)


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
        "a review of 24 kB, ms, from its last byte to its answer; whole: from its first byte; "
        "own: whole, without what reviewer and event loop waited for a core"
    )
    show(title, columns, rows)


if __name__ == "__main__":
    main()
