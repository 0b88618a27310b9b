"""Count failed TLS handshakes by reason, and log them at a limited rate."""

import logging
import ssl
from enum import StrEnum

from runtime.clock import Clock
from runtime.logs import RateLimitedLog
from runtime.metrics import TlsMetrics

log = logging.getLogger("ebb.http")


class Failure(StrEnum):
    """The reason for a failed TLS handshake, as the value of a metric label."""

    CERTIFICATE = "certificate"
    """One side rejects the certificate of the other: CA, name, validity, or no certificate."""
    PROTOCOL = "protocol"
    """No common version or cipher, or the peer does not speak TLS."""
    CONNECTION = "connection"
    """The peer closed the connection, or the handshake timed out."""


def classify(fault: OSError) -> Failure:
    """Return the reason for a failed TLS handshake, from the type or the text of its exception."""
    if not isinstance(fault, ssl.SSLError):
        return Failure.CONNECTION
    message = fault.reason or ""
    if "CERTIFICATE" in message or "UNKNOWN_CA" in message:
        return Failure.CERTIFICATE
    return Failure.CONNECTION if isinstance(fault, ssl.SSLEOFError) else Failure.PROTOCOL


class Handshakes:
    """Count and log the failed handshakes of a program."""

    def __init__(self, metrics: TlsMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._warnings = RateLimitedLog(log, "a TLS handshake failed", clock.monotonic_seconds)

    def failed(self, fault: OSError) -> None:
        """Count a failed handshake by its reason, and log it at a limited rate."""
        reason = classify(fault)
        self._metrics.handshake_failures.labels(reason.value).inc()
        self._warnings.warn(why=reason.value, reason=str(fault))
