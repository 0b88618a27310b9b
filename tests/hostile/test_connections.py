"""Hostile peers: slow, idle or too many, on the ports of all three programs."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Self

import pytest
from aiohttp import web

from controller.metrics import Metrics as ControllerMetrics
from kube.target import NAMESPACE
from runtime.clock import SystemClock
from serving import http, tls, tls_contexts
from serving.intake import Intake
from serving.limits import PortLimits
from tests.support.clock import FakeClock
from webhook.metrics import Metrics as WebhookMetrics

PAIR = tls.make_pair(["localhost", "127.0.0.1"], SystemClock().unix_seconds())
PATIENCE_SECONDS = 20.0
"""Timeout of a failing test."""
NEVER = 1e6
BODY_BYTES_MAX = 2_000_000
LONG = PortLimits(
    connections=8,
    held_bytes=4_000_000,
    grace_seconds=0.0,
    handshake_seconds=NEVER,
    headers_seconds=NEVER,
    body_seconds=NEVER,
    answer_seconds=NEVER,
    keepalive_seconds=NEVER,
    sweep_seconds=0.01,
)
"""Limits without effective timeouts; each test shortens the timeout that it tests."""
GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Peer]]


class Port:
    """A server with limits, and the peers that connect to it."""

    def __init__(self, *, secure: bool, at_once: bool = False, busy: bool = False) -> None:
        """Create a port.

        *at_once*: POST requests are received, and answered unless *busy*, ahead of aiohttp.
        """
        self.secure, self.at_once, self.busy = secure, at_once, busy
        self.asked, self.gone = asyncio.Event(), asyncio.Event()
        """Set when the handler of /never has begun, and when it was cancelled."""
        self._stack = contextlib.AsyncExitStack()
        self._port = 0
        self._server: http.Server | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def listen(self, limits: PortLimits) -> None:
        metrics = WebhookMetrics() if self.secure else ControllerMetrics(NAMESPACE)
        app = http.base_app(http.Health(), FakeClock(), metrics)

        intake = Intake(BODY_BYTES_MAX)

        async def length(request: web.Request) -> web.Response:
            body = await http.read_body(request, intake)
            return http.json_response(b"%d" % len(body))

        async def large(_: web.Request) -> web.Response:
            return http.json_response(b" " * 50_000_000)

        async def never(_: web.Request) -> web.Response:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.gone.set()
            raise AssertionError

        app.router.add_get("/never", never)
        app.router.add_post("/length", length)
        app.router.add_get("/large", large)
        if self.at_once:
            http.answer_at_once(
                app,
                "/length",
                intake,
                lambda body, _: None if self.busy else b"%d" % len(body),
                lambda: None,
            )
        context = tls_contexts.server_context(PAIR) if self.secure else None
        server = http.Server(app, "127.0.0.1:0", context, limits)
        await server.start()
        self._stack.push_async_callback(server.stop)
        self._port = server.port
        self._server = server

    def lines(self) -> int:
        """Return the number of connections of the server."""
        assert self._server is not None
        assert self._server._limiter is not None
        return len(self._server._limiter._connections)

    async def connect(self, *, secure: bool | None = None, at: str = "127.0.0.1") -> Peer:
        """Connect from a local address."""
        context: ssl.SSLContext | None = None
        if self.secure if secure is None else secure:
            context = tls_contexts.client_context(PAIR.ca)
        host = "localhost" if context else None
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=context, server_hostname=host, local_addr=(at, 0)
            )
        self._stack.callback(_abort, writer)
        return reader, writer


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.fixture(
    params=[
        (False, False, False),
        (True, False, False),
        (False, True, False),
        (True, True, False),
        (False, True, True),
    ],
    ids=["controller-plain", "webhook-tls", "extender-plain", "extender-tls", "extender-busy"],
)
async def port(request: pytest.FixtureRequest) -> AsyncIterator[Port]:
    secure, at_once, busy = request.param
    async with Port(secure=secure, at_once=at_once, busy=busy) as made:
        yield made


async def closed(peer: Peer) -> bytes:
    """Wait until the server has closed the connection; return what it sent before."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            return await peer[0].read()
        except (ConnectionError, ssl.SSLError):
            return b""


async def answered(peer: Peer, sent: bytes = b"") -> tuple[int, bytes]:
    """Send a request; return status and body of the response."""
    reader, writer = peer
    writer.write(sent)
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = (
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        return int(head.split()[1]), await reader.readexactly(length)


@pytest.mark.parametrize("sent", [b"G", GET[:-2], b"GET / HTTP/1.1\r\nA: " + b"a" * 5000])
async def test_connection_is_closed_when_request_head_is_incomplete(
    port: Port, sent: bytes
) -> None:
    await port.listen(replace(LONG, headers_seconds=0.05))
    peer = await port.connect()
    peer[1].write(sent)
    assert await closed(peer) == b""


async def test_connection_is_closed_when_request_head_arrives_too_slowly(port: Port) -> None:
    await port.listen(replace(LONG, headers_seconds=0.2))
    peer = await port.connect()

    async def drip() -> None:
        peer[1].write(b"GET / HTTP/1.1\r\n")
        while True:
            peer[1].write(b"A: a\r\n")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert await closed(peer) == b""
    dripping.cancel()


async def test_connection_is_closed_when_body_is_incomplete(port: Port) -> None:
    await port.listen(replace(LONG, body_seconds=0.05))
    peer = await port.connect()
    peer[1].write(POST % 1000 + b"a" * 999)
    assert await closed(peer) == b""


async def test_connection_is_closed_when_tls_handshake_is_incomplete() -> None:
    async with Port(secure=True) as port:
        await port.listen(replace(LONG, handshake_seconds=0.05))
        peer = await port.connect(secure=False)
        peer[1].write(b"\x16\x03\x01\x02\x00\x01")
        await closed(peer)


async def test_connection_is_closed_when_peer_does_not_read_response(port: Port) -> None:
    await port.listen(replace(LONG, answer_seconds=0.05, held_bytes=100_000_000))
    peer = await port.connect()
    peer[1].transport.pause_reading()  # type: ignore[attr-defined]
    peer[1].write(GET.replace(b"livez", b"large"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while port.lines():  # noqa: ASYNC110 the server has no event for this
            await asyncio.sleep(0.01)
    peer[1].transport.resume_reading()  # type: ignore[attr-defined]
    assert len(await closed(peer)) < 50_000_000


async def test_idle_connection_is_not_closed_by_request_timeouts(port: Port) -> None:
    short = replace(LONG, headers_seconds=0.02, body_seconds=0.02, answer_seconds=0.02)
    await port.listen(short)
    peer, other = await port.connect(), await port.connect()
    assert await answered(peer, GET) == (200, b"ok")
    other[1].write(b"G")
    await closed(other)  # by now all timeouts have passed
    assert await answered(peer, POST % 3 + b"abc") == (200, b"3")


async def test_idle_connection_is_closed_after_keepalive(port: Port) -> None:
    await port.listen(replace(LONG, keepalive_seconds=0.05))
    new, used = await port.connect(), await port.connect()
    assert await answered(used, GET) == (200, b"ok")
    assert await closed(new) == await closed(used) == b""


@pytest.mark.parametrize("sent", [b"", b"GET /li", POST % 9, GET])
async def test_longest_idle_connections_are_closed_when_port_is_full(
    port: Port, sent: bytes
) -> None:
    await port.listen(LONG)
    crowd = [await port.connect() for _ in range(LONG.connections)]
    for peer in crowd:
        peer[1].write(sent)
    assert await answered(await port.connect(), GET) == (200, b"ok")
    assert await answered(await port.connect(), GET) == (200, b"ok")
    ended = [asyncio.create_task(closed(peer)) for peer in crowd]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(task.done() for task in ended) < 2:
            await asyncio.wait([t for t in ended if not t.done()], return_when="FIRST_COMPLETED")
    for task in ended:
        task.cancel()


async def test_new_connection_is_accepted_when_peers_never_complete_handshake() -> None:
    async with Port(secure=True) as port:
        await port.listen(LONG)
        for _ in range(3 * LONG.connections):
            await port.connect(secure=False)
        assert await answered(await port.connect(), GET) == (200, b"ok")


async def test_new_connection_waits_when_all_connections_are_young(port: Port) -> None:
    await port.listen(replace(LONG, grace_seconds=NEVER, connections=2))
    first, second = await port.connect(), await port.connect()
    assert await answered(first, GET) == (200, b"ok")
    assert await answered(second, GET) == (200, b"ok")
    third = asyncio.create_task(port.connect())
    assert await answered(first, GET) == (200, b"ok")
    second[1].close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await answered(await third, GET) == (200, b"ok")


async def test_other_peers_are_accepted_when_one_address_fills_port(port: Port) -> None:
    """A small request a second on each connection kept all of them too young to close."""
    await port.listen(replace(LONG, grace_seconds=NEVER, crowd=4))
    idle = await port.connect(at="127.0.0.2")
    assert await answered(idle, GET) == (200, b"ok")
    crowd = [await port.connect() for _ in range(LONG.connections - 1)]
    for peer in crowd:
        assert await answered(peer, GET) == (200, b"ok")
    assert await answered(await port.connect(at="127.0.0.3"), GET) == (200, b"ok")
    assert await closed(crowd[0]) == b""
    assert await answered(crowd[1], GET) == (200, b"ok")
    await port.connect()
    assert await closed(crowd[2]) == b"", "nor does it wait itself, with others behind it"
    assert await answered(idle, GET) == (200, b"ok"), "although it has waited longest of all"


async def test_connections_with_buffered_bodies_are_closed_when_memory_is_full(port: Port) -> None:
    await port.listen(LONG)
    crowd = [await port.connect() for _ in range(6)]
    for peer in crowd:  # six times 1.9 MB exceed the limit
        peer[1].write(POST % 1_900_001 + b"a" * 1_900_000)
        await peer[1].drain()
    body = b"b" * 1_900_000
    assert await answered(await port.connect(), POST % len(body) + body) == (200, b"1900000")


async def test_request_is_answered_503_when_no_connection_may_be_closed(port: Port) -> None:
    await port.listen(replace(LONG, grace_seconds=NEVER, held_bytes=1_100_000))
    peer = await port.connect()
    body = b"b" * 1_200_000
    assert (await answered(peer, POST % len(body) + body))[0] == 503
    again = await port.connect()
    assert await answered(again, POST % 1_000_000 + body[:1_000_000]) == (200, b"1000000")


async def test_response_counts_toward_buffered_bytes(port: Port) -> None:
    await port.listen(replace(LONG, grace_seconds=NEVER))
    peer = await port.connect()
    assert (await answered(peer, GET.replace(b"livez", b"large")))[0] == 503


CHUNKED = b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
ENCODED = (
    b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Encoding: %b\r\nContent-Length: 3\r\n\r\nabc"
)
REFUSED = {
    "a length beyond the limit": (POST % 2_000_001, 413),
    "a length of 70 digits": (POST.replace(b"%d", b"9" * 70), 400),
    "a negative length": (POST.replace(b"%d", b"-1"), 400),
    "two lengths": (POST.replace(b"%d", b"1\r\nContent-Length: 2"), 400),
    "a length and chunks": (CHUNKED.replace(b"Host: a", b"Content-Length: 3") + b"3\r\nabc", 400),
    "chunks beyond the limit": (CHUNKED + b"200000\r\n" + b"a" * 0x200000, 413),
    "a chunk without a size": (CHUNKED + b"x\r\nabc\r\n", 400),
    "a chunk longer than its size": (CHUNKED + b"2\r\nabcdef\r\n0\r\n\r\n", 400),
    "a chunk of 2^70": (CHUNKED + b"400000000000000000\r\nabc", 400),
    "gzip": (ENCODED % b"gzip", 400),
    "deflate": (ENCODED % b"deflate", 400),
    "br": (ENCODED % b"br", 400),
    "zstd": (ENCODED % b"zstd", 400),
    "an unknown encoding": (ENCODED % b"\xff\xfe", 400),
    "no HTTP": (b"\x00\xff\r\n\r\n", 400),
    "another version": (b"GET / HTTP/9.9\r\n\r\n", 400),
    "a long line": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 400),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 5000 + b"\r\n", 400),
    "another path": (GET.replace(b"livez", b"%ff/../x"), 404),
    "another method": (GET.replace(b"GET", b"PUT"), 405),
    "an expectation": (GET.replace(b"Host", b"Expect: miracle\r\nHost"), 417),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_invalid_request_is_rejected(port: Port, case: str) -> None:
    sent, status = REFUSED[case]
    await port.listen(LONG)
    assert (await answered(await port.connect(), sent))[0] == status


async def test_handler_is_cancelled_when_peer_disconnects(port: Port) -> None:
    """Otherwise waiting requests would pile up beyond the limits of connections."""
    await port.listen(LONG)
    _, writer = await port.connect()
    writer.write(GET.replace(b"livez", b"never"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await port.asked.wait()
        writer.transport.abort()
        await port.gone.wait()


async def test_shutdown_closes_all_connections(port: Port) -> None:
    await port.listen(LONG)
    peers = [await port.connect() for _ in range(3)]
    peers[0][1].write(GET[:9])
    assert await answered(peers[1], GET) == (200, b"ok")
    await port._stack.aclose()
    for peer in peers:
        await closed(peer)
