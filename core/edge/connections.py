"""Connections of one listening port, with bounds on how many, how long and how much.

Whoever reaches the port may open connections, send half a request, and not read the answer.
aiohttp bounds what it parses and how long a connection is idle; here are the rest: the time for
a handshake, a request and an answer, the number of connections, the bytes of bodies and answers
that are held at once. What has to go to make room is what has waited longest for its peer, of the
address that has too many connections if there is one.
"""

import asyncio
import contextlib
import io
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from core.edge.limits import Limits
from core.model.errors import InvalidInputError

BACKLOG: Final = 512
"""Connections that the system holds until there is room."""
PIECE_BYTES: Final = 64 * 1024
"""Of an answer, that wait to be sent; more, and its writer waits."""
LARGE_BYTES: Final = 512 * 1024
"""Answers up to this go out at once: that of five thousand names has about 200 kB."""
CHUNK_BYTES: Final = 64
"""What a piece of a body takes beside its bytes."""
PAUSE_SECONDS: Final = 0.1
"""After the system had no socket for us."""
EVERY_ADDRESS: Final = "::"
"""The host that is every address of the machine, of IPv4 too."""

log = logging.getLogger("ebb.http")


class TooMuchError(Exception):
    """There is no room for a body among those that are under way."""


class Connection(web.RequestHandler):
    """One connection: since when it waits for its peer, until when it may, what it holds."""

    __slots__ = (
        "_asked",
        "_door",
        "_limits",
        "_now",
        "_wire",
        "address",
        "held_bytes",
        "since",
        "until",
    )

    def __init__(self, door: "ConnectionLimiter", server: web.Server, address: str) -> None:
        """*address*: its peer's, without the port."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which is how it is turned off
            keepalive_timeout=door.limits.keepalive_seconds,
            lingering_time=door.limits.linger_seconds,
            auto_decompress=False,
        )
        self._door, self._limits, self._now = door, door.limits, door.now
        self._wire: asyncio.Transport | asyncio.Task[None] | None = None
        self._asked = False
        self.address = address
        self.held_bytes = 0
        self.since = self.until = 0.0

    def wait(self, seconds: float) -> None:
        """Wait for the peer from now on, and no longer than that."""
        self.since = self._now()
        self.until = self.since + seconds

    def entering(self, task: "asyncio.Task[None]") -> None:
        """Note who brings the connection up."""
        self._wire = task

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if isinstance(self._wire, asyncio.Transport):
            self._wire.abort()
        elif self._wire is not None:
            self._wire.cancel()
        self._door.leave(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: TLS stands."""
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(PIECE_BYTES)
        super().connection_made(transport)
        self.wait(self._limits.keepalive_seconds)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._door.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first ones after an answer begin a request."""
        if not self._asked and data:
            self._asked = True
            self.wait(self._limits.headers_seconds)
        super().data_received(data)

    def log_exception(self, *args: Any, **kw: Any) -> None:  # noqa: ANN401 as it is there
        """Log what is our fault: what is no HTTP is the peer's, and it has been told."""
        if not isinstance(kw.get("exc_info"), HttpProcessingError):
            super().log_exception(*args, **kw)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Answer, within bounds; then wait for the next request."""
        if self.held_bytes:
            self._door.release(self)
        body = resp.body if isinstance(resp, web.Response) else None
        if isinstance(body, bytes) and len(body) > LARGE_BYTES:
            self.wait(self._limits.answer_seconds)
            resp = self._large(cast("web.Response", resp), body)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if self.held_bytes:
                self._door.release(self)
            self._asked = False
            self.wait(self._limits.keepalive_seconds)

    def _large(self, answer: web.Response, body: bytes) -> web.Response:
        """Return it such that it goes out in pieces: of TLS, one write would be taken whole."""
        if not self._door.hold(self, len(body)):
            answer = web.Response(status=503, text="too many answers are under way")
            answer.force_close()
            return answer
        answer.body = io.BytesIO(body)
        return answer

    async def body(self, request: web.BaseRequest, most_bytes: int) -> bytes:
        """Return a request's body.

        Raises: InvalidInputError for what is no body, HTTPRequestEntityTooLarge, TooMuchError.
        """
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise InvalidInputError("Content-Encoding", "is not taken; allowed: identity")
        try:
            if not request.content.is_eof():
                return await self._incoming(request, most_bytes)
            whole = request.content.read_nowait()
        # RuntimeError: the peer had gone before we began to read.
        except (web.RequestPayloadError, ConnectionError, RuntimeError) as fault:
            raise InvalidInputError("body", str(fault)) from fault
        if len(whole) > most_bytes:
            raise web.HTTPRequestEntityTooLarge(most_bytes, len(whole))
        return whole

    async def _incoming(self, request: web.BaseRequest, most_bytes: int) -> bytes:
        """Wait for a body's bytes, and hold what has come."""
        if (request.content_length or 0) > most_bytes:
            raise web.HTTPRequestEntityTooLarge(most_bytes, request.content_length or 0)
        self.wait(self._limits.body_seconds)
        chunks: list[bytes] = []
        length = 0
        try:
            while chunk := await request.content.readany():
                if not self._door.hold(self, len(chunk) + CHUNK_BYTES):
                    raise TooMuchError("too many requests are under way")
                chunks.append(chunk)
                length += len(chunk)
                if length > most_bytes:
                    raise web.HTTPRequestEntityTooLarge(most_bytes, length)
            return b"".join(chunks)
        finally:
            chunks.clear()  # or the trace of a fault would hold them until garbage is collected


class ConnectionLimiter:
    """The listening sockets of one port, and its lines."""

    def __init__(
        self,
        server: web.Server,
        tls: ssl.SSLContext | None,
        limits: Limits,
        failed: Callable[[OSError], None],
    ) -> None:
        """*failed* hears of each connection that did not come up."""
        self._server, self._tls, self.limits, self._failed = server, tls, limits, failed
        self.now = asyncio.get_running_loop().time
        self._lines: dict[Connection, None] = {}  # in the order in which they came
        self._left = asyncio.Event()
        self._held_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []

    async def open(self, host: str, port: int) -> int:
        """Listen. Returns: the port that is bound. Raises: OSError when the address is taken."""
        if host == EVERY_ADDRESS:
            self._listeners = [everywhere(port, ipv6=socket.has_dualstack_ipv6())]
        else:
            self._listeners = await _at(host, port)
        for listener in self._listeners:
            listener.listen(BACKLOG)
            self._start(self._accept(listener))
        self._start(self._sweep())
        return int(self._listeners[0].getsockname()[1])

    async def close(self) -> None:
        """Take no more connections; those that are up stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    def abort(self) -> None:
        """Close what is still up."""
        for line in list(self._lines):
            line.abort()

    def leave(self, line: Connection) -> None:
        """Forget a line."""
        self.release(line)
        self._lines.pop(line, None)
        self._left.set()

    def hold(self, line: Connection, count: int) -> bool:
        """Let a line hold more bytes; False: there is no room, and nobody to make some."""
        while self._held_bytes + count > self.limits.held_bytes:
            holders = (one for one in self._lines if one.held_bytes and one is not line)
            oldest = min(holders, key=_since, default=None)
            if oldest is None or self._age(oldest) < self.limits.grace_seconds:
                return False
            oldest.abort()
        line.held_bytes += count
        self._held_bytes += count
        return True

    def release(self, line: Connection) -> None:
        """Let go of all bytes that a line holds."""
        self._held_bytes -= line.held_bytes
        line.held_bytes = 0

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                plain, peer = await loop.sock_accept(listener)
            except OSError as fault:  # no file descriptor left, or the peer has gone already
                log.warning("no connection accepted: %s", fault)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            try:
                await self._room()
            except asyncio.CancelledError:
                plain.close()
                raise
            line = Connection(self, self._server, peer[0])
            self._lines[line] = None
            line.entering(self._start(self._enter(plain, line)))
            line.wait(self.limits.handshake_seconds)

    async def _room(self) -> None:
        """Wait until a connection may come in; the one that waits longest may have to go."""
        while len(self._lines) >= self.limits.connections:
            crowd = self._crowd()
            oldest = min(crowd or self._lines, key=_since)
            left = self.limits.grace_seconds - self._age(oldest)
            if crowd or left <= 0:
                oldest.abort()
                return
            self._left.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), left)

    def _crowd(self) -> list[Connection]:
        """Return the lines of the address that has most, if these are too many for one."""
        address, many = Counter(line.address for line in self._lines).most_common(1)[0]
        if many <= self.limits.crowd:
            return []
        return [line for line in self._lines if line.address == address]

    async def _enter(self, plain: socket.socket, line: Connection) -> None:
        times = {} if self._tls is None else {
            "ssl_handshake_timeout": self.limits.handshake_seconds,
            "ssl_shutdown_timeout": self.limits.close_seconds,
        }  # fmt: skip
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: line, plain, ssl=self._tls, **times
            )
        except (OSError, asyncio.CancelledError) as fault:
            plain.close()
            self.leave(line)
            if not isinstance(fault, OSError):
                raise
            self._failed(fault)  # of TLS, of time, of the network: the peer's

    async def _sweep(self) -> None:
        """Close what has waited too long."""
        while True:
            await asyncio.sleep(self.limits.sweep_seconds)
            now = self.now()
            for line in [line for line in self._lines if line.until < now]:
                line.abort()

    def _age(self, line: Connection) -> float:
        return self.now() - line.since


def everywhere(port: int, *, ipv6: bool) -> socket.socket:
    """Bind a port at every address, of both families in one socket.

    *ipv6*: whether the system has it; without it, at every address of IPv4. Raises: OSError.
    """
    if ipv6:
        bound = socket.create_server(
            (EVERY_ADDRESS, port), family=socket.AF_INET6, dualstack_ipv6=True
        )
    else:
        bound = socket.create_server(("", port))
    bound.settimeout(0)  # or the event loop would wait in it
    return bound


async def _at(host: str, port: int) -> list[socket.socket]:
    """Bind a port at each address of a host; `::` would be of IPv6 alone. Raises: OSError."""
    loop = asyncio.get_running_loop()
    bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    listeners = [shared.dup() for shared in bound.sockets]
    bound.close()
    return listeners


def _since(line: Connection) -> float:
    return line.since
