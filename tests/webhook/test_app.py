"""The webhook's HTTPS server on the loopback interface, with a self-made certificate."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from runtime.clock import SystemClock
from serving import http, tls
from serving.tls_contexts import (
    ServingCertificate,
    ServingCertificateFiles,
    client_context,
    server_context,
)
from tests.support.admission import patch_of
from tests.support.clock import FakeClock
from webhook.app import make_app
from webhook.metrics import Metrics

MESSAGES = Path(__file__).parent / "messages"
NOW = SystemClock().unix_seconds()
PAIR = tls.make_pair(["localhost", "127.0.0.1"], NOW)


class Served:
    def __init__(self, port: int, metrics: Metrics, session: aiohttp.ClientSession) -> None:
        self.url = f"https://localhost:{port}"
        self.metrics = metrics
        self.session = session


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    metrics = Metrics()
    app = make_app(metrics, http.Health(), FakeClock(), TAINT_KEY)
    server = http.Server(app, "127.0.0.1:0", server_context(PAIR))
    await server.start()
    connector = aiohttp.TCPConnector(ssl=client_context(PAIR.ca))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Served(server.port, metrics, session)
    await server.stop()


async def test_review_of_marked_node_is_answered_with_patch(served: Served) -> None:
    body = (MESSAGES / "mark_added_foreign_taints.json").read_bytes()
    async with served.session.post(f"{served.url}/mutate-node?timeout=2s", data=body) as response:
        answer = await response.read()
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("application/json")
        assert response.headers["Content-Length"] == str(len(answer))
    patch = patch_of(answer)
    assert patch is not None
    assert [operation["path"] for operation in patch] == ["/spec/taints"]
    assert b'ebb_webhook_reviews_total{result="patched"} 1.0' in served.metrics.text()


async def test_review_is_answered_without_patch_when_nothing_changes(served: Served) -> None:
    body = (MESSAGES / "kubelet_update.json").read_bytes()
    async with served.session.post(f"{served.url}/mutate-node", data=body) as response:
        assert patch_of(await response.read()) is None
    assert b'ebb_webhook_reviews_total{result="unchanged"} 1.0' in served.metrics.text()


@pytest.mark.parametrize("body", [b"", b"{}", b"[1,2", b'{"kind":"AdmissionReview"}'])
async def test_invalid_review_is_rejected_with_400_and_reason(served: Served, body: bytes) -> None:
    async with served.session.post(f"{served.url}/mutate-node", data=body) as response:
        assert response.status == 400
        assert "AdmissionReview" in orjson.loads(await response.read())["error"]
    assert b'ebb_webhook_reviews_total{result="refused"} 1.0' in served.metrics.text()


async def test_health_endpoints_are_served(served: Served) -> None:
    for path in ("/livez", "/readyz"):
        async with served.session.get(served.url + path) as response:
            assert response.status == 200


async def test_metrics_are_not_served_on_webhook_port(served: Served) -> None:
    """The webhook's port is open to all peers, the metrics port is not (networkpolicy.yaml)."""
    async with served.session.get(f"{served.url}/metrics") as response:
        assert response.status == 404


async def test_client_rejects_certificate_of_other_ca(served: Served) -> None:
    other = tls.make_pair(["localhost"], SystemClock().unix_seconds())
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await served.session.get(f"{served.url}/livez", ssl=client_context(other.ca))


async def test_client_rejects_certificate_without_host_name() -> None:
    pair = tls.make_pair(["elsewhere.example"], SystemClock().unix_seconds())
    server = http.Server(
        make_app(Metrics(), http.Health(), FakeClock(), TAINT_KEY),
        "127.0.0.1:0",
        server_context(pair),
    )
    await server.start()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(
                f"https://localhost:{server.port}/livez", ssl=client_context(pair.ca)
            )
    await server.stop()


async def test_certificate_is_served_from_files(tmp_path: Path) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(PAIR.certificate)
    key.write_bytes(PAIR.key)
    found = ServingCertificate()
    found.load_files(str(cert), str(key), NOW)
    server = http.Server(
        make_app(Metrics(), http.Health(), FakeClock(), TAINT_KEY), "127.0.0.1:0", found.context
    )
    await server.start()
    async with aiohttp.ClientSession() as session:
        url = f"https://localhost:{server.port}/livez"
        async with session.get(url, ssl=client_context(PAIR.ca)) as response:
            assert response.status == 200
    await server.stop()


async def test_certificate_and_client_ca_are_reloaded_when_files_change(tmp_path: Path) -> None:
    """Files may change between the first load and the start of `run`."""
    cert, key, ca = tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca"
    cert.write_bytes(PAIR.certificate)
    key.write_bytes(PAIR.key)
    ca.write_bytes(PAIR.ca)
    loaded = asyncio.Event()

    class Loading(ServingCertificate):
        def load_files(self, certificate: str, key: str, unix_seconds: int) -> None:
            super().load_files(certificate, key, unix_seconds)
            loaded.set()

    pair = ServingCertificateFiles(Loading(str(ca)), str(tmp_path), SystemClock())
    before = pair.serving.valid_until
    loaded.clear()
    later = tls.make_pair(["localhost"], NOW + 1)
    cert.write_bytes(later.certificate)
    key.write_bytes(later.key)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(pair.run(every_seconds=0.001))
        await loaded.wait()
        assert pair.serving.valid_until == before + 1
        loaded.clear()
        ca.write_bytes(later.ca)
        await loaded.wait()
        task.cancel()


@pytest.mark.parametrize("content", [b"", b"no PEM", PAIR.ca])
def test_invalid_certificate_file_is_rejected_with_its_name(
    tmp_path: Path, content: bytes
) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(content)
    key.write_bytes(PAIR.key)
    with pytest.raises(InvalidInputError, match=r"tls\.crt"):
        ServingCertificate().load_files(str(cert), str(key), NOW)
    with pytest.raises(InvalidInputError, match="missing"):
        ServingCertificate().load_files(str(tmp_path / "missing"), str(key), NOW)
