"""A proxy between a program and the API server that can simulate failures."""

import contextlib
import http.client
import http.server
import json
import socket
import ssl
import threading
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.plane import LOOPBACK, Plane
from tests.e2e.stub import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK: Final = 65536
SLOW_SECONDS: Final = 0.5
UPSTREAM_SECONDS: Final = 330
"""Read timeout; a watch may be silent for its whole duration."""
HOP_BY_HOP: Final = ("connection", "content-length", "transfer-encoding")


class State(StrEnum):
    """The state of the proxy."""

    WHOLE = "whole"
    CUT = "connections are closed, and new connections are rejected"
    HANGING = "requests and responses are delayed until the state ends"
    SLOW = "each call is delayed"
    THROTTLED = "the server answers 429"
    BROKEN = "the server answers 500"


class Line:
    """An HTTPS proxy on loopback in front of the API server."""

    def __init__(self, plane: Plane, name: str) -> None:
        serving = plane.authority.sign(name, name, hosts=(LOOPBACK,))
        self._target = (LOOPBACK, plane.port)
        self._trust = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self._changed = threading.Condition()
        self._state = State.WHOLE
        self.retry_after = "1"
        """Value of Retry-After, in seconds."""
        self.loses: Callable[[str, str, bytes], bool] = lambda *_: False
        """Decides by method, path and body of a request whether its response is lost: the API
        server has carried it out, but the connection is closed."""
        self._open: set[socket.socket] = set()
        self._server = _Server(self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(serving.certificate, serving.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._ended = contextlib.ExitStack()
        self._ended.enter_context(served(self._server))
        self.url = f"https://{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def state(self) -> State:
        """Return the current state."""
        return self._state

    @contextlib.contextmanager
    def be(self, state: State) -> "Iterator[None]":
        """Set the state of the proxy inside of the context."""
        self._become(state)
        try:
            yield
        finally:
            self._become(State.WHOLE)

    def end(self) -> None:
        """Close all connections and end the proxy."""
        self._become(State.CUT)
        self._ended.close()

    def _become(self, state: State) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()
            cut = list(self._open) if state is State.CUT else []
        for line in cut:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def opened(self, line: socket.socket) -> None:
        """Register a connection. Raises: ConnectionError in state CUT."""
        with self._changed:
            if self._state is State.CUT:
                raise ConnectionResetError
            self._open.add(line)

    def closed(self, line: socket.socket) -> None:
        """Remove a connection."""
        with self._changed:
            self._open.discard(line)

    def wait(self) -> State:
        """Wait while HANGING; return the state. Raises: ConnectionError in state CUT."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not State.HANGING)
            if self._state is State.CUT:
                raise ConnectionResetError
            return self._state

    def upstream(self) -> http.client.HTTPSConnection:
        """Return a new connection to the API server."""
        host, port = self._target
        return http.client.HTTPSConnection(
            host, port, context=self._trust, timeout=UPSTREAM_SECONDS
        )


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, line: Line) -> None:
        self.line = line
        super().__init__((LOOPBACK, 0), _Handler)

    def handle_error(self, *_: Any) -> None:
        """Ignore errors of connections that end early."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle(self) -> None:
        line, connection = self.server.line, self.connection
        self._upstream = line.upstream()
        with contextlib.suppress(OSError, http.client.HTTPException):
            line.opened(connection)
            super().handle()
        line.closed(connection)
        self._upstream.close()

    def _call(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state = self.server.line.wait()
        if state is State.SLOW:
            time.sleep(SLOW_SECONDS)
        if state in (State.THROTTLED, State.BROKEN):
            self._refuse(429 if state is State.THROTTLED else 500)
            return
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP
        }
        self._upstream.request(self.command, self.path, body or None, headers)
        answer = self._upstream.getresponse()
        if self.server.line.loses(self.command, self.path, body):
            answer.read()
            raise ConnectionResetError
        self._answer(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _call  # noqa: N815 the library's names

    def _refuse(self, status: int) -> None:
        body = json.dumps({"kind": "Status", "code": status, "message": "rejected by the proxy"})
        self.send_response(status)
        self.send_header("Retry-After", self.server.line.retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := answer.read1(CHUNK):
            self.server.line.wait()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")
        answer.close()  # read completely, so that the connection can be reused

    def log_message(self, *_: object) -> None:
        """Suppress the log."""
