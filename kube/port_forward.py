"""Read a resource of a pod over HTTP, through a port-forward of the API server.

A port-forward is a WebSocket with the subprotocol v4.channel.k8s.io. The first byte of each
message is its channel: 0 has the bytes of the connection, 1 an error as text. The first message of
each channel repeats the port in two bytes. Source: k8s.io/kubelet/pkg/cri/streaming/portforward.
"""

import asyncio
import re
from contextlib import suppress
from typing import Final

import aiohttp
import msgspec

from core.model.errors import UnavailableError
from kube.client import Client, answered, one_line
from kube.decode.objects import Struct

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
ERROR: Final = 1
PORT_BYTES: Final = 2
"""Size of the first message of each channel, without the channel."""
SECONDS_MAX: Final = 10.0
"""Maximum time from the request to the end of its answer."""
MESSAGE_BYTES_MAX: Final = 1024**2
HEAD_BYTES_MAX: Final = 16 * 1024
"""Maximum size of the status line and the headers."""
END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_LENGTH: Final = re.compile(rb"\r\nContent-Length: *(\d{1,18})\r\n", re.IGNORECASE)


class _Port(Struct):
    container_port: int
    name: str = ""


class _Container(Struct):
    ports: list[_Port] | None = None


class _PodSpec(Struct):
    containers: list[_Container]


class _Pod(Struct):
    spec: _PodSpec


_POD: Final = msgspec.json.Decoder(_Pod)


async def get(
    client: Client, namespace: str, pod: str, port_name: str, path: str, *, bytes_max: int
) -> bytes:
    """Send GET *path* to a port of a pod, and return the body of the answer.

    *port_name*: name of the container port. The pod may serve it on loopback only. Raises:
    ApiError if the API server does not return the pod or does not open the port-forward;
    UnavailableError if the pod has no such port, or does not answer in time with status 200 and a
    complete body of at most *bytes_max* bytes.
    """
    where = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    raw = await client.ask("GET", where, seconds_max=SECONDS_MAX, tries_max=1)
    port = _port(answered(_POD, raw), port_name)
    if port is None:
        problem = f"no container has a port with the name {port_name}"
        raise UnavailableError(problem)
    socket = await client.web_socket(
        f"{where}/portforward", {"ports": str(port)}, PROTOCOL, message_bytes_max=MESSAGE_BYTES_MAX
    )
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await socket.send_bytes(bytes([DATA]) + request.encode())
            return await _body(socket, bytes_max)
    except _InvalidError as fault:
        raise UnavailableError(f"port-forward: {fault}") from fault
    except (TimeoutError, aiohttp.ClientError, OSError) as fault:
        problem = "no answer in time" if isinstance(fault, TimeoutError) else one_line(str(fault))
        raise UnavailableError(f"port-forward: {problem}") from fault
    finally:
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            await socket.close()


def _port(pod: _Pod, name: str) -> int | None:
    for container in pod.spec.containers:
        for port in container.ports or ():
            if port.name == name:
                return port.container_port
    return None


class _InvalidError(Exception):
    """The answer is an error, incomplete, or not HTTP."""


async def _body(socket: aiohttp.ClientWebSocketResponse, bytes_max: int) -> bytes:
    received, opened = bytearray(), set[int]()
    head_length = body_length = 0
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, content = message.data[0], message.data[1:]
        if channel not in opened and len(content) == PORT_BYTES:
            opened.add(channel)
            continue
        if channel == ERROR and content:
            raise _InvalidError(one_line(content.decode(errors="replace")))
        if channel != DATA:
            continue
        received += content
        if not head_length:
            head_length, body_length = _lengths(bytes(received), bytes_max)
        if head_length and len(received) >= head_length + body_length:
            return bytes(received[head_length : head_length + body_length])
    raise _InvalidError("the connection ended before the answer was complete")


def _lengths(received: bytes, bytes_max: int) -> tuple[int, int]:
    """Return the lengths of the HTTP head and the body in bytes; (0, 0) for an incomplete head.

    *received*: all bytes of the answer so far. Raises: _InvalidError, also if the body is longer
    than *bytes_max*.
    """
    head, end, body = received.partition(END)
    if not end:
        if len(received) > HEAD_BYTES_MAX:
            raise _InvalidError("the answer is not HTTP")
        return 0, 0
    status, length = _HEAD.match(head), _LENGTH.search(head + b"\r\n")
    if status is None or length is None:
        raise _InvalidError("the answer is not HTTP, or has no Content-Length")
    if status[1] != b"200":
        raise _InvalidError(f"status {status[1].decode()}: {one_line(body.decode('latin-1'))}")
    if int(length[1]) > bytes_max:
        raise _InvalidError(f"the HTTP response is larger than {bytes_max} bytes")
    return len(head) + len(END), int(length[1])
