"""Limit the number, the time and the memory of the connections of a listening port.

To make room for a new connection, the limiter closes the connection that has waited longest for
its peer, preferably a connection from an address with too many connections.
"""

# A client may open many connections, send half a request, or not read the answer. aiohttp limits
# only the size of requests and the idle time.

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

from core.model.errors import InvalidInputError
from runtime.logs import fields
from serving.fast_path import FastPath, Incoming
from serving.limits import PortLimits

BACKLOG: Final = 512
"""Connections that the kernel queues."""
PIECE_BYTES: Final = 64 * 1024
"""Bytes of an answer that are buffered for sending; beyond that, the sender waits."""
LARGE_BYTES: Final = 512 * 1024
"""Answers up to this size are sent in one write; scores of 5,000 nodes take about 200 kB."""
CHUNK_BYTES: Final = 64
"""Memory overhead of a chunk of a body, in bytes."""
PAUSE_SECONDS: Final = 0.1
"""Pause after a connection could not be accepted, for example without a free descriptor."""
EVERY_ADDRESS: Final = "::"
"""Host in a listen address that means all addresses of the machine, IPv4 included."""

log = logging.getLogger("ebb.http")


class TooMuchError(Exception):
    """The bodies of requests and answers in memory would exceed `PortLimits.held_bytes`."""


class Connection(web.RequestHandler):
    """The connection of one client, with its deadline and the bytes that it holds in memory.

    The limiter closes the connection if the client lets it wait beyond the deadline.
    """

    __slots__ = (
        "_body",
        "_fast_path",
        "_limiter",
        "_limits",
        "_now",
        "_request_started",
        "_transport",
        "_unfinished",
        "address",
        "held_bytes",
        "since",
        "until",
    )

    def __init__(self, limiter: "ConnectionLimiter", server: web.Server, address: str) -> None:
        """Create a connection; *address*: IP address of the client, without the port."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which is how it is turned off
            keepalive_timeout=limiter.limits.keepalive_seconds,
            lingering_time=limiter.limits.linger_seconds,
            auto_decompress=False,
        )
        self._limiter, self._limits, self._now = limiter, limiter.limits, limiter.now
        self._transport: asyncio.Transport | asyncio.Task[None] | None = None
        self._request_started = False
        self._fast_path = limiter.fast_path
        """The fast path; None after a request that aiohttp had to delimit."""
        self._unfinished: Incoming | None = None
        """A request of the fast path that has not arrived completely."""
        self._body: bytes | TooMuchError | None = None
        """The body of the request that aiohttp processes, if the fast path has received it."""
        self.address = address
        self.held_bytes = 0
        self.since = self.until = 0.0

    def wait(self, seconds: float) -> None:
        """Set the deadline: the limiter closes the connection *seconds* from now.

        A later call replaces the deadline.
        """
        self.since = self._now()
        self.until = self.since + seconds

    def establishing(self, task: "asyncio.Task[None]") -> None:
        """Store the task that makes the TLS handshake, so that `abort` can cancel it."""
        self._transport = task

    def abort(self) -> None:
        """Close the connection at once."""
        if isinstance(self._transport, asyncio.Transport):
            self._transport.abort()
        elif self._transport is not None:
            self._transport.cancel()
        self._leave()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request, after the TLS handshake if there is one."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(PIECE_BYTES)
        super().connection_made(transport)
        self.wait(self._limits.keepalive_seconds)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the connection from the limiter; report an unfinished request as abandoned."""
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        """Remove the connection from the limiter, and its body from memory."""
        # A lost connection and its request refer to each other until a garbage collection.
        if self._unfinished is not None:
            self._unfinished.drop_body()
            self._unfinished = None
            if self._fast_path is not None:
                self._fast_path.abandoned()
        self._body = None
        self._limiter.leave(self)

    def data_received(self, data: bytes) -> None:
        """Give received bytes to the fast path (`FastPath`) or to aiohttp.

        The first bytes after an answer begin a request, whose headers must arrive within a time
        limit.
        """
        begins = bool(data) and not self._request_started
        if begins:
            self._request_started = True
            self.wait(self._limits.headers_seconds)
        if self._fast_path is None or not data:
            super().data_received(data)
        else:
            self._receive(self._fast_path, data, begins=begins)

    def _receive(self, fast_path: FastPath, data: bytes, *, begins: bool) -> None:
        """Answer the request if it is one of the fast path, else give its bytes to aiohttp.

        *begins*: whether *data* begins a request; if not, *data* continues the unfinished request.
        """
        incoming = self._unfinished
        if begins:
            incoming = fast_path.begin(data, cast("asyncio.Transport", self._transport))
        self._unfinished = None
        if incoming is None:
            # aiohttp may keep a part of these bytes, so it gets all bytes that follow.
            self._fast_path = None
            super().data_received(data)
            return
        if not begins:
            incoming.add(data)
        if incoming.missing > 0 or not begins:
            if not self._limiter.hold(self, len(data) + CHUNK_BYTES):
                self._refuse(incoming)
                return
            if incoming.missing > 0:
                if begins:
                    self.wait(self._limits.body_seconds)
                self._unfinished = incoming
                return
        body, rest = incoming.take_body()
        if rest or self.writing_paused or not self._answer(fast_path, body):
            self._hand_over(incoming, body, rest)

    def _hand_over(self, incoming: Incoming, body: bytes, rest: bytes) -> None:
        """Let aiohttp answer a request that has arrived completely, and the bytes after it.

        The body stays here, and counts, until the request is answered.
        """
        if not self.held_bytes and not self._limiter.hold(self, len(body) + CHUNK_BYTES):
            self._refuse(incoming)
            return
        self._body = body
        super().data_received(incoming.head_without_body())
        if rest:
            self._fast_path = None
            super().data_received(rest)

    def _refuse(self, incoming: Incoming) -> None:
        """Let aiohttp answer that there is no room for a body, and close the connection."""
        incoming.drop_body()
        self._limiter.release(self)
        self._body, self._fast_path = TooMuchError("too many requests are being received"), None
        super().data_received(incoming.head)

    def _answer(self, fast_path: FastPath, body: bytes) -> bool:
        """Send the fast path's answer to a request; return False if aiohttp must answer it."""
        transport = cast("asyncio.Transport", self._transport)
        answer = fast_path.answer(body, self.address)
        if answer is None:
            return False
        if self.held_bytes:
            self._limiter.release(self)
        self.keep_alive(val=True)  # stops aiohttp's timer, which does not know of this request
        transport.write(answer.response())
        self._request_started = False
        paused = self.writing_paused
        self.wait(self._limits.answer_seconds if paused else self._limits.keepalive_seconds)
        return True

    def resume_writing(self) -> None:
        """Begin to wait for the next request, because the client has received the last answer."""
        super().resume_writing()
        if not self._request_started:
            self.wait(self._limits.keepalive_seconds)

    def log_exception(self, *args: Any, **kw: Any) -> None:  # noqa: ANN401 as it is there
        """Log an error of the program; ignore invalid HTTP, whose sender has got an answer."""
        if not isinstance(kw.get("exc_info"), HttpProcessingError):
            super().log_exception(*args, **kw)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer within the limits, then wait for the next request.

        Returns, as aiohttp does: the answer that was sent, and whether the connection was lost
        meanwhile.
        """
        self._body = None
        if self.held_bytes:
            self._limiter.release(self)
        body = resp.body if isinstance(resp, web.Response) else None
        if isinstance(body, bytes) and len(body) > LARGE_BYTES:
            self.wait(self._limits.answer_seconds)
            resp = self._large(cast("web.Response", resp), body)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if self.held_bytes:
                self._limiter.release(self)
            self._request_started = False
            self.wait(self._limits.keepalive_seconds)

    def _large(self, answer: web.Response, body: bytes) -> web.Response:
        """Return the answer, to be sent in chunks; a 503 answer if memory has no room for it."""
        # TLS would buffer a single write as a whole.
        if not self._limiter.hold(self, len(body)):
            answer = web.Response(status=503, text="too many answers are being sent")
            answer.force_close()
            return answer
        answer.body = io.BytesIO(body)
        return answer

    async def body(self, request: web.BaseRequest, bytes_max: int) -> bytes:
        """Receive and return the body of a request.

        Raises: InvalidInputError if the body is encoded or incomplete, HTTPRequestEntityTooLarge
        if it has more than *bytes_max* bytes, TooMuchError if the bodies of all connections need
        too much memory.
        """
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise InvalidInputError("Content-Encoding", "is not supported; allowed: identity")
        if self._body is not None:
            return self._taken()
        try:
            if not request.content.is_eof():
                return await self._receive_body(request, bytes_max)
            whole = request.content.read_nowait()
        # RuntimeError: the peer closed the connection before we began to read.
        except (web.RequestPayloadError, ConnectionError, RuntimeError) as fault:
            raise InvalidInputError("body", str(fault)) from fault
        if len(whole) > bytes_max:
            raise web.HTTPRequestEntityTooLarge(bytes_max, len(whole))
        self._hold(len(whole))
        return whole

    def _taken(self) -> bytes:
        """Return the body that the fast path has received."""
        body, self._body = self._body, None
        if isinstance(body, TooMuchError):
            raise body
        return body or b""

    def _hold(self, count: int) -> None:
        """Count bytes of a body. Raises: TooMuchError if there is no room for them."""
        if not self._limiter.hold(self, count + CHUNK_BYTES):
            raise TooMuchError("too many requests are being received")

    async def _receive_body(self, request: web.BaseRequest, bytes_max: int) -> bytes:
        self.wait(self._limits.body_seconds)
        chunks: list[bytes] = []
        length = 0
        try:
            while chunk := await request.content.readany():
                self._hold(len(chunk))
                chunks.append(chunk)
                length += len(chunk)
                if length > bytes_max:
                    raise web.HTTPRequestEntityTooLarge(bytes_max, length)
            return b"".join(chunks)
        finally:
            chunks.clear()  # a traceback would keep them until the next garbage collection


class ConnectionLimiter:
    """Accept connections on the sockets of one port, and close those that exceed the limits."""

    def __init__(
        self,
        server: web.Server,
        tls: ssl.SSLContext | None,
        limits: PortLimits,
        failed: Callable[[OSError], None],
        fast_path: FastPath | None = None,
    ) -> None:
        """Create a limiter that does not listen yet.

        *server*: aiohttp's server, which handles the requests. *tls*: None for plain HTTP.
        *failed* is called with the error of each accepted connection whose TLS handshake failed.
        *fast_path*: requests that are answered without aiohttp; None for none.
        """
        self._server, self._tls, self.limits, self._failed = server, tls, limits, failed
        self.fast_path = fast_path
        self.now = asyncio.get_running_loop().time
        self._connections: dict[Connection, None] = {}  # in order of arrival
        self._closed = asyncio.Event()
        self._held_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []

    async def open(self, host: str, port: int) -> int:
        """Listen on *host* and *port*. Returns: the bound port, also if *port* is 0.

        Raises: OSError if the address is in use.
        """
        if host == EVERY_ADDRESS:
            self._listeners = [bind_everywhere(port, ipv6=socket.has_dualstack_ipv6())]
        else:
            self._listeners = await _bind(host, port)
        for listener in self._listeners:
            listener.listen(BACKLOG)
            self._start(self._accept(listener))
        self._start(self._sweep())
        return int(self._listeners[0].getsockname()[1])

    async def close(self) -> None:
        """Accept no more connections; existing connections stay open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    def abort(self) -> None:
        """Close all open connections."""
        for connection in list(self._connections):
            connection.abort()

    def leave(self, connection: Connection) -> None:
        """Stop counting a closed connection, so that a new connection has room."""
        self.release(connection)
        self._connections.pop(connection, None)
        self._closed.set()

    def hold(self, connection: Connection, count: int) -> bool:
        """Add *count* to a connection's bytes in memory; return False if the limit forbids it.

        To make room, other connections that hold bytes are closed, the longest waiting first. A
        connection that has waited for less than `PortLimits.grace_seconds` is not closed.
        """
        while self._held_bytes + count > self.limits.held_bytes:
            others = (
                other
                for other in self._connections
                if other.held_bytes and other is not connection
            )
            oldest = min(others, key=_since, default=None)
            if oldest is None or self._age(oldest) < self.limits.grace_seconds:
                return False
            oldest.abort()
        connection.held_bytes += count
        self._held_bytes += count
        return True

    def release(self, connection: Connection) -> None:
        """Set the number of bytes that a connection holds in memory to 0."""
        self._held_bytes -= connection.held_bytes
        connection.held_bytes = 0

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
            except OSError as fault:  # no file descriptor is free, or the peer has closed
                log.warning(
                    "cannot accept a connection; retrying", extra=fields(reason=str(fault))
                )
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            try:
                await self._make_room()
            except asyncio.CancelledError:
                plain.close()
                raise
            connection = Connection(self, self._server, peer[0])
            self._connections[connection] = None
            connection.establishing(self._start(self._enter(plain, connection)))
            connection.wait(self.limits.handshake_seconds)

    async def _make_room(self) -> None:
        """Wait until a new connection has room, or close the longest waiting connection."""
        while len(self._connections) >= self.limits.connections:
            crowd = self._crowd()
            oldest = min(crowd or self._connections, key=_since)
            left = self.limits.grace_seconds - self._age(oldest)
            if crowd or left <= 0:
                oldest.abort()
                return
            self._closed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), left)

    def _crowd(self) -> list[Connection]:
        """Return the connections of the address with the most connections.

        Returns an empty list if the address has no more than `PortLimits.crowd` connections.
        """
        addresses = Counter(connection.address for connection in self._connections)
        address, many = addresses.most_common(1)[0]
        if many <= self.limits.crowd:
            return []
        return [connection for connection in self._connections if connection.address == address]

    async def _enter(self, plain: socket.socket, connection: Connection) -> None:
        times = {} if self._tls is None else {
            "ssl_handshake_timeout": self.limits.handshake_seconds,
            "ssl_shutdown_timeout": self.limits.close_seconds,
        }  # fmt: skip
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, plain, ssl=self._tls, **times
            )
        except (OSError, asyncio.CancelledError) as fault:
            plain.close()
            self.leave(connection)
            if not isinstance(fault, OSError):
                raise
            self._failed(fault)  # a fault of the peer: TLS, timeout or network

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.limits.sweep_seconds)
            now = self.now()
            for connection in list(self._connections):
                if connection.until < now:
                    connection.abort()

    def _age(self, connection: Connection) -> float:
        return self.now() - connection.since


def bind_everywhere(port: int, *, ipv6: bool) -> socket.socket:
    """Return one non-blocking socket that is bound to a port on every IPv4 and IPv6 address.

    *ipv6*: whether the system supports IPv6; if not, only IPv4 is bound. Raises: OSError.
    """
    if ipv6:
        bound = socket.create_server(
            (EVERY_ADDRESS, port), family=socket.AF_INET6, dualstack_ipv6=True
        )
    else:
        bound = socket.create_server(("", port))
    bound.settimeout(0)  # a blocking accept would stop the event loop
    return bound


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Return one bound socket for each address of *host*. Raises: OSError.

    For the host `::` use `bind_everywhere`: here it would mean IPv6 only.
    """
    loop = asyncio.get_running_loop()
    bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    listeners = [shared.dup() for shared in bound.sockets]
    bound.close()
    return listeners


def _since(connection: Connection) -> float:
    return connection.since
