"""Read a resource of a pod through a port-forward, over a real WebSocket."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from core.model.errors import UnavailableError
from kube import port_forward
from kube.client import ApiError, Client
from kube.port_forward import HEAD_BYTES_MAX
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG
from tests.support.forwards import OPENED, Forward, http_answer

BODY = b'{"kind": "LeaderReport"}'


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        yield made


async def read(api: FakeApi, folder: Path, bytes_max: int = 1000) -> bytes:
    file = folder / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    async with await Client.connect(str(file)) as client:
        return await port_forward.get(
            client, "ns", "pod", "report", "/report", bytes_max=bytes_max
        )


@pytest.mark.parametrize(
    "frames",
    [
        [*OPENED, b"\0" + http_answer(BODY)],
        [*OPENED, *(b"\0" + bytes([byte]) for byte in http_answer(BODY))],
        [*OPENED, b"", b"\x01", b"\x07other", b"\0" + http_answer(BODY) + b"more"],
    ],
)
async def test_body_is_read_from_data_channel(
    api: FakeApi, tmp_path: Path, frames: Sequence[bytes]
) -> None:
    forward = Forward(frames)
    api.serve("ns/pod", "report", 9000, forward)
    assert await read(api, tmp_path) == BODY
    assert (
        forward.request == b"GET /report HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    assert forward.ports == ["9000"]
    assert forward.headers["Authorization"] == "Bearer a-token"


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([*OPENED, b"\x01lost connection\nto pod"], "lost connection to pod"),
        ([*OPENED], "the connection ended before the answer was complete"),
        ([*OPENED, b"\0" + http_answer(BODY)[:-1]], "the connection ended before"),
        ([*OPENED, b"\0" + b"x" * (HEAD_BYTES_MAX + 1)], "the answer is not HTTP"),
        ([*OPENED, b"\0SSH-2.0\r\n\r\n"], "the answer is not HTTP, or has no Content-Length"),
        (
            [*OPENED, b"\0HTTP/1.1 200 OK\r\n\r\n"],
            "the answer is not HTTP, or has no Content-Length",
        ),
        ([*OPENED, b"\0" + http_answer(b"gone", 404)], "status 404: gone"),
        (
            [*OPENED, b"\0" + http_answer(b"x" * 1001)],
            "the HTTP response is larger than 1000 bytes",
        ),
    ],
)
async def test_invalid_answer_is_reported_in_one_line(
    api: FakeApi, tmp_path: Path, frames: Sequence[bytes], problem: str
) -> None:
    api.serve("ns/pod", "report", 8082, Forward(frames))
    with pytest.raises(UnavailableError, match=f"^port-forward: {problem}") as fault:
        await read(api, tmp_path)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("status", [403, 404])
async def test_rejected_port_forward_raises_status(
    api: FakeApi, tmp_path: Path, status: int
) -> None:
    if status == 403:
        api.serve("ns/pod", "report", 8082, Forward([]))
        api.denied.add("pods/portforward")
    with pytest.raises(ApiError) as fault:
        await read(api, tmp_path)
    assert fault.value.status == status
