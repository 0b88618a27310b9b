"""HTTP servers with fixed responses, and a TCP proxy that can be cut."""

import contextlib
import http.server
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator

from tests.e2e.pki import Signed
from tests.e2e.plane import LOOPBACK, free_port


@contextlib.contextmanager
def answering(
    body: bytes, *, status: int = 200, delay: float = 0, serving: Signed | None = None
) -> Iterator[int]:
    """Respond to every POST with the same bytes; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(delay)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    if serving is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(serving.certificate, serving.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with served(server):
        yield server.server_address[1]


@contextlib.contextmanager
def served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class Wire:
    """A TCP proxy to a server that can be cut and restored."""

    def __init__(self, target: int) -> None:
        self._target = (LOOPBACK, target)
        self.port = free_port()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.mend()

    def mend(self) -> None:
        """Accept connections."""
        self._listener = socket.create_server((LOOPBACK, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Close all connections and accept none."""
        assert self._listener is not None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in list(self._open):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                thread = threading.Thread(target=self._copy, args=(one, other), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for line in (source, target):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        source.close()  # the thread of the other direction closes the target
        self._open.discard(source)
