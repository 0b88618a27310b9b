"""Port-forwards of the fake API server, as an API server sends them over a WebSocket."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"
PORT = (8082).to_bytes(2, "little")
OPENED = (b"\0" + PORT, b"\x01" + PORT)
"""The first message of each channel."""


def http_answer(body: bytes, status: int = 200) -> bytes:
    """Return an HTTP answer."""
    head = f"HTTP/1.1 {status} OK\r\ncontent-length: {len(body)}\r\nServer: it\r\n\r\n"
    return head.encode() + body


@dataclass(eq=False)
class Forward:
    """The answer of a pod: messages of the WebSocket, sent after the request has arrived."""

    frames: Sequence[bytes]
    request: bytes = b""
    ports: list[str] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.WebSocketResponse:
        """Answer one port-forward, and close it."""
        self.ports, self.headers = request.query.getall("ports"), request.headers
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        message = await socket.receive()
        assert message.type is WSMsgType.BINARY
        assert message.data[:1] == b"\0"
        self.request = message.data[1:]
        for frame in self.frames:
            if socket.closed:
                break
            await socket.send_bytes(frame)
        await socket.close()
        return socket


def reporting(report: Callable[[], bytes] | bytes) -> Forward:
    """Return a pod that answers with a report."""
    body = report if isinstance(report, bytes) else report()
    return Forward([*OPENED, b"\0" + http_answer(body)])
