"""Run servers as processes, and measure all of them with the same client.

The servers share a core and are called in turns; the client uses another core. Requests are
encoded once and responses are not decoded, so that mainly the server is measured.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import re
import selectors
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Channel
from pathlib import Path
from typing import Final

from aiohttp import web

from extender import wire
from serving import http

GO_MODULE: Final = Path(__file__).parent / "go"
LOOPBACK: Final = "127.0.0.1"
ANY_PORT: Final = f"{LOOPBACK}:0"
CORES: Final = sorted(os.sched_getaffinity(0))
WARM_UP_SHARE: Final = 5
"""The warm-up has the calls of a turn divided by this."""
ANSWER_BYTES_MAX: Final = 2**20
PAGE_BYTES: Final = 2**22
"""Size of a page of a list, which the programs read from the API server when they start."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


@contextlib.contextmanager
def on_server_core() -> Iterator[None]:
    """Run processes that are started inside on one core, and this process on the others."""
    os.sched_setaffinity(0, CORES[-1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES[:-1] or CORES)


@contextlib.contextmanager
def python_server(
    make_app: Callable[[], web.Application], pem: Path | None = None
) -> Iterator[int]:
    """Run an application in its own process, with TLS if given a *pem*; yield its port."""
    spawning = multiprocessing.get_context("spawn")
    channel, far = spawning.Pipe()
    process = spawning.Process(target=serve, args=(far, make_app, pem), daemon=True)
    with on_server_core():
        process.start()
    try:
        yield channel.recv()
    finally:
        process.terminate()
        process.join()


def serve(channel: Channel, make_app: Callable[[], web.Application], pem: Path | None) -> None:
    """Serve until the process is terminated; send the port through the channel."""
    context = None
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)

    async def run() -> None:
        server = http.Server(make_app(), ANY_PORT, context)
        await server.start()
        gc.collect()
        gc.freeze()  # like the programs after their first list
        bytes(PAGE_BYTES)  # from then on, malloc does not return freed memory after each answer
        channel.send(server.port)
        await asyncio.Event().wait()

    asyncio.run(run())


def nothing_app(body: bytes, path: str) -> web.Application:
    """Return the minimal aiohttp application: read the request, return a constant."""

    async def nothing(request: web.Request) -> web.Response:
        await request.read()
        return http.json_response(body)

    app = web.Application(client_max_size=wire.BODY_BYTES_MAX)
    app.router.add_post(path, nothing)
    return app


@dataclass(frozen=True, slots=True)
class Peer:
    """Ebb's handlers on Go's net/http."""

    program: Path
    version: str

    @contextlib.contextmanager
    def serve(self, *arguments: str) -> Iterator[int]:
        """Run one of its servers on a free port; yield the port."""
        with on_server_core():
            process = subprocess.Popen(
                [self.program, *arguments], stdout=subprocess.PIPE, text=True
            )
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split()[1])
        finally:
            process.terminate()
            process.wait()


def build_peer(folder: Path) -> Peer | None:
    """Build the Go program into *folder*; return None and print a line if this is not possible.

    The faster encoding/json v2 is the default from Go 1.27 on; older versions need an experiment.
    """
    go = shutil.which("go")
    if go is None:
        print("Go is not on the PATH: its columns are omitted", file=sys.stderr)
        return None
    command = [go, "build", "-trimpath", "-o", str(folder / "peer"), "."]
    made = None
    for setting, json in (({"GOEXPERIMENT": "jsonv2"}, ", JSON v2"), ({}, "")):
        environment = os.environ | {"GOTOOLCHAIN": "local"} | setting
        made = subprocess.run(
            command, cwd=GO_MODULE, env=environment, capture_output=True, text=True, check=False
        )
        if made.returncode == 0:
            version = subprocess.check_output([go, "env", "GOVERSION"], text=True).strip()
            return Peer(folder / "peer", f"{version}{json}")
    why = made.stderr.strip().splitlines()[-1:] if made else []
    print("Go cannot build the peer:", *why, "- its columns are omitted", file=sys.stderr)
    return None


class Connection:
    """A persistent connection that sends the same request repeatedly.

    Without a body the request is a GET.
    """

    def __init__(
        self, port: int, path: str, body: bytes = b"", context: ssl.SSLContext | None = None
    ) -> None:
        plain = socket.create_connection((LOOPBACK, port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        method = "POST" if body else "GET"
        self._request = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._buffer = bytearray(ANSWER_BYTES_MAX)
        self.started = 0.0

    def send(self) -> None:
        """Send the request."""
        self.started = time.perf_counter()
        self.socket.sendall(self._request)

    def receive(self) -> memoryview:
        """Return the body of the response, valid until the next call; the status must be 200."""
        view = memoryview(self._buffer)
        have, end, body = 0, 0, 0
        while not end or have < end:
            got = self.socket.recv_into(view[have:])
            assert got, "closed by the server"
            have += got
            if not end and (body := self._buffer.find(b"\r\n\r\n", 0, have) + 4) > 3:
                assert self._buffer.startswith(b"HTTP/1.1 200 "), bytes(view[:have])
                length = _LENGTH.search(self._buffer, 0, body)
                assert length, "no Content-Length"
                end = body + int(length[1])
        assert have == end, "more than one answer"
        return view[body:end]


def call(port: int, path: str, body: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Send one request on a new connection; return the body of the response."""
    connection = Connection(port, path, body, context)
    with connection.socket:
        connection.send()
        return bytes(connection.receive())


@dataclass(slots=True)
class Taken:
    """Durations of calls over all turns."""

    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0

    def ms(self, percent: int) -> float:
        """Return a percentile of the calls, in milliseconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] * 1000

    def per_second(self) -> float:
        """Return the calls per second."""
        return len(self.seconds) / self.elapsed


def measure(lines: Mapping[str, Sequence[Connection]], turns: int, calls: int) -> dict[str, Taken]:
    """Measure the servers in turns, so that slow moments of the machine affect all of them."""
    taken = {name: Taken() for name in lines}
    for connections in lines.values():
        _turn(connections, calls // WARM_UP_SHARE, Taken())
    for _ in range(turns):
        for name, connections in lines.items():
            _turn(connections, calls, taken[name])
    for connections in lines.values():
        for connection in connections:
            connection.socket.close()
    return taken


def _turn(connections: Sequence[Connection], calls: int, taken: Taken) -> None:
    begin = time.perf_counter()
    if len(connections) == 1:
        for _ in range(calls):
            _once(connections[0], taken)
    else:
        _all_at_once(connections, calls, taken)
    taken.elapsed += time.perf_counter() - begin


def _once(connection: Connection, taken: Taken) -> None:
    connection.send()
    connection.receive()
    taken.seconds.append(time.perf_counter() - connection.started)


def _all_at_once(connections: Sequence[Connection], calls: int, taken: Taken) -> None:
    """Keep a request in progress on each connection until *calls* are sent."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        unsent, unanswered = calls - len(connections), calls
        while unanswered:
            for key, _ in selector.select():
                connection = key.data
                connection.receive()
                taken.seconds.append(time.perf_counter() - connection.started)
                unanswered -= 1
                if unsent:
                    connection.send()
                    unsent -= 1
