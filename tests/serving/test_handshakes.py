"""Failed TLS handshakes over real sockets: how they are counted, and how often logged."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable

import pytest

from runtime.clock import SystemClock
from runtime.logs import LOG_INTERVAL_SECONDS
from runtime.metrics import TlsMetrics
from serving import http, tls, tls_contexts
from serving.handshakes import Failure, Handshakes, classify
from tests.support.clock import FakeClock

NOW = SystemClock().unix_seconds()
PAIR, ANOTHER = (tls.make_pair(["localhost"], NOW) for _ in range(2))


class Bench:
    """A TLS server, its metrics and its failed handshakes."""

    def __init__(self) -> None:
        self.metrics, self.clock = TlsMetrics(), FakeClock()
        self.faults: asyncio.Queue[OSError] = asyncio.Queue()
        self._handshakes = Handshakes(self.metrics, self.clock)
        app = http.base_app(http.Health(), self.clock)
        context = tls_contexts.server_context(PAIR)
        self.server = http.Server(app, "127.0.0.1:0", context, failed=self._failed)

    def _failed(self, fault: OSError) -> None:
        self._handshakes.failed(fault)
        self.faults.put_nowait(fault)

    def connect(self, context: ssl.SSLContext) -> None:
        """Complete a handshake; on failure send a TLS alert, as clients in Go do."""
        plain = socket.create_connection(("127.0.0.1", self.server.port))
        with plain, context.wrap_socket(plain, server_hostname="localhost"):
            pass

    def counts(self) -> dict[str, float]:
        found = (
            (
                one.value,
                self.metrics.registry.get_sample_value(
                    "ebb_tls_handshake_failures_total", {"reason": one.value}
                ),
            )
            for one in Failure
        )
        return {name: value for name, value in found if value is not None}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.server.start()
    yield made
    await made.server.stop()


def distrust_certificate(bench: Bench) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        bench.connect(tls_contexts.client_context(ANOTHER.ca))


def offer_no_common_cipher(bench: Bench) -> None:
    context = tls_contexts.client_context(PAIR.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("PSK-AES128-CBC-SHA256")
    with pytest.raises(ssl.SSLError):
        bench.connect(context)


def send_plain_http(bench: Bench) -> None:
    with socket.create_connection(("127.0.0.1", bench.server.port)) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        plain.recv(1)


def close_connection(bench: Bench) -> None:
    socket.create_connection(("127.0.0.1", bench.server.port)).close()


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        (distrust_certificate, Failure.CERTIFICATE),
        (offer_no_common_cipher, Failure.PROTOCOL),
        (send_plain_http, Failure.PROTOCOL),
        (close_connection, Failure.CONNECTION),
    ],
)
async def test_failed_handshake_is_counted_by_reason(
    connect: Callable[[Bench], None], reason: Failure, bench: Bench
) -> None:
    await asyncio.to_thread(connect, bench)
    await bench.faults.get()
    assert bench.counts() == {reason.value: 1}
    await asyncio.to_thread(bench.connect, tls_contexts.client_context(PAIR.ca))
    assert bench.counts() == {reason.value: 1}


def test_reason_is_certificate_when_client_certificate_is_missing() -> None:
    fault = ssl.SSLError()
    fault.reason = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    assert classify(fault) is Failure.CERTIFICATE
    fault.reason = "TLSV1_ALERT_UNKNOWN_CA"
    assert classify(fault) is Failure.CERTIFICATE


def test_failed_handshakes_are_logged_once_per_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics, clock = TlsMetrics(), FakeClock()
    handshakes = Handshakes(metrics, clock)
    with caplog.at_level(logging.WARNING, "ebb.http"):
        for seconds in (0, 0, LOG_INTERVAL_SECONDS - 1, 1, LOG_INTERVAL_SECONDS):
            clock.seconds += seconds
            handshakes.failed(ConnectionResetError("it went"))
    counts = [record.__dict__["ebb_fields"]["since_last"] for record in caplog.records]
    assert counts == [1, 3, 1]
