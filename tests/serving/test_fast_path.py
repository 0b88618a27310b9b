"""Requests that are answered before aiohttp processes them, over a real socket."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import pytest
from aiohttp import web

from core.model.errors import InvalidInputError
from serving import http
from serving.connections import CHUNK_BYTES
from serving.fast_path import FastPath
from serving.intake import Intake
from tests.support.clock import FakeClock

BODY_BYTES_MAX = 1_000_000
INTAKE = Intake(BODY_BYTES_MAX)
PATH = "/echo"
HEAD = b"POST /echo HTTP/1.1\r\nHost: a:1\r\nUser-Agent: Go-http-client/1.1\r\n"
USUAL = HEAD + b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%b"
UNUSUAL = HEAD + b"X-Other: 1\r\nContent-Length: %d\r\n\r\n%b"
WAIT, INVALID = b'"wait"', b"invalid"


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def fast(self) -> bool:
        """Return whether the fast path answered: only aiohttp writes its name."""
        return "Server" not in self.headers


class Echo:
    """A server that returns each body, and a connection to it."""

    def __init__(self) -> None:
        self.abandoned, self.handling, self.go_on = (asyncio.Event() for _ in range(3))
        self.go_on.set()
        self._app = http.base_app(http.Health(), FakeClock())
        self._app.router.add_post(PATH, self._handle)
        http.answer_at_once(self._app, PATH, INTAKE, self._answer_now, self.abandoned.set)

    @staticmethod
    def _echo(body: bytes) -> bytes:
        if body == INVALID:
            raise InvalidInputError("body", "is invalid")
        return body

    async def _handle(self, request: web.Request) -> web.Response:
        body = await http.read_body(request, INTAKE)
        self.handling.set()
        await self.go_on.wait()
        return http.json_response(self._echo(body))

    def _answer_now(self, body: bytes, address: str) -> bytes | None:
        assert address == "127.0.0.1"
        return None if body.startswith(WAIT) else self._echo(body)

    async def start(self) -> None:
        self._server = http.Server(self._app, "127.0.0.1:0")
        await self._server.start()
        self._reader, self.writer = await asyncio.open_connection("127.0.0.1", self._server.port)

    def held_bytes(self) -> int:
        """Return the bytes that count toward the memory limit of the server."""
        assert self._server._limiter is not None
        return self._server._limiter._held_bytes

    async def stop(self) -> None:
        self.writer.close()
        await self._server.stop()

    async def receive(self) -> Response:
        """Read a response."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:-2])
        body = await self._reader.readexactly(int(headers["Content-Length"]))
        return Response(int(head[0].split()[1]), headers, body)

    async def ask(self, request: bytes) -> Response:
        self.writer.write(request)
        return await self.receive()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    made = Echo()
    await made.start()
    yield made
    await made.stop()


def usual(body: bytes) -> bytes:
    return USUAL % (len(body), body)


def unusual(body: bytes) -> bytes:
    return UNUSUAL % (len(body), body)


@pytest.mark.parametrize(
    ("head", "begins"),
    [
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", True),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nAccept-Encoding: gzip\r\n\r\n", True),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 1000001\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 00000000003\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: +3\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Encoding: gzip\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\n b\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nHost: \xff\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\nContent-Length: 3\n\n", False),
        (b"POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST /echo?a HTTP/1.1\r\nContent-Length: 3\r\n\r\n", False),
        (b"GET /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\n", False),
        (b" POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\n", False),
    ],
)
def test_request_takes_fast_path_when_its_head_is_usual(head: bytes, *, begins: bool) -> None:
    fast_path = FastPath(PATH, INTAKE, lambda *_: None, lambda: None)
    assert (fast_path.begin(head + b"abc", None) is not None) is begins


@pytest.mark.parametrize("body", [b"", b"abc", b"a" * BODY_BYTES_MAX, INVALID])
async def test_fast_path_answers_like_aiohttp(echo: Echo, body: bytes) -> None:
    fast = await echo.ask(usual(body))
    slow = await echo.ask(unusual(body))
    assert (fast.fast, slow.fast) == (True, False)
    assert (fast.status, fast.body) == (slow.status, slow.body)
    assert fast.status == (400 if body == INVALID else 200)
    del slow.headers["Server"]
    for one in (fast, slow):  # a second may begin in between, so they are only parsed
        parsedate_to_datetime(one.headers.pop("Date"))
    assert fast.headers == slow.headers


async def test_aiohttp_answers_one_request_when_fast_path_cannot(echo: Echo) -> None:
    assert [(await echo.ask(usual(body))).fast for body in (b"a", WAIT, b"b")] == [
        True,
        False,
        True,
    ]


async def test_aiohttp_answers_all_requests_after_one_with_unusual_head(echo: Echo) -> None:
    requests = (usual(b"a"), unusual(b"b"), usual(b"c"))
    assert [(await echo.ask(request)).fast for request in requests] == [True, False, False]


async def test_requests_sent_together_are_answered_in_order(echo: Echo) -> None:
    bodies = [b"a", WAIT, b"b", INVALID, b"c"]
    echo.writer.write(b"".join(map(usual, bodies)))
    found = [await echo.receive() for _ in bodies]
    assert [one.body for one in found if one.status == 200] == [b"a", WAIT, b"b", b"c"]
    assert [one.status for one in found] == [200, 200, 200, 400, 200]


async def test_request_is_answered_in_order_when_it_arrives_during_another(echo: Echo) -> None:
    echo.writer.write(usual(WAIT))
    await asyncio.sleep(0)
    echo.writer.write(usual(b"a"))
    assert [(await echo.receive()).body for _ in range(2)] == [WAIT, b"a"]


async def test_call_is_abandoned_when_connection_is_lost_in_its_body(echo: Echo) -> None:
    assert (await echo.ask(usual(b"a"))).body == b"a"
    echo.writer.write(usual(b"abc")[:-1])
    await echo.writer.drain()
    echo.writer.close()
    async with asyncio.timeout(10):
        await echo.abandoned.wait()


@pytest.mark.parametrize("make", [usual, unusual])
@pytest.mark.parametrize("size", [10, 100_000, 900_000])
async def test_bytes_of_body_are_counted_while_handler_waits(
    echo: Echo, make: Callable[[bytes], bytes], size: int
) -> None:
    """A large body arrives in several pieces, a small one with the headers."""
    body = WAIT + b"a" * size
    echo.go_on.clear()
    echo.writer.write(make(body))
    async with asyncio.timeout(10):
        await echo.handling.wait()
    assert len(body) <= echo.held_bytes() < 1.1 * len(body) + 2 * CHUNK_BYTES, "counted once"
    echo.go_on.set()
    assert (await echo.receive()).body == body
    assert echo.held_bytes() == 0
    assert (await echo.ask(make(b"b" * size))).body == b"b" * size
    assert echo.held_bytes() == 0


@pytest.mark.parametrize("make", [usual, unusual])
@pytest.mark.parametrize("complete", [True, False])
async def test_body_leaves_memory_when_connection_is_lost(
    echo: Echo, make: Callable[[bytes], bytes], *, complete: bool
) -> None:
    """A lost connection is a cycle of references until the next garbage collection."""
    body = WAIT + b"a" * 900_000
    echo.go_on.clear()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        request = make(body)
        echo.writer.write(request if complete else request[:-1])
        async with asyncio.timeout(10):
            while echo.held_bytes() < len(body) - 1:  # noqa: ASYNC110 the server has no event for this
                await asyncio.sleep(0)
            if complete:
                await echo.handling.wait()
            echo.writer.transport.abort()
            while echo.held_bytes():  # noqa: ASYNC110 as above
                await asyncio.sleep(0)
        del request
        for _ in range(5):
            await asyncio.sleep(0)
        now, _ = tracemalloc.get_traced_memory()
        assert now < 1.5 * len(body), "the body of this test itself"
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_other_bytes_are_a_request_when_they_follow_a_body_that_waits(echo: Echo) -> None:
    echo.writer.write(usual(WAIT + b"a" * 900_000) + usual(b"b") + unusual(b"c"))
    assert [len((await echo.receive()).body) for _ in range(3)] == [900_006, 1, 1]


async def test_aiohttp_rejects_request_without_host_when_it_must_wait(echo: Echo) -> None:
    head = b"POST /echo HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b"
    assert (await echo.ask(head % (3, b"abc"))).body == b"abc"
    assert (await echo.ask(head % (len(WAIT), WAIT))).status == 400
    assert echo.held_bytes() == 0
