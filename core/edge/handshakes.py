"""TLS handshakes that fail: counted by why, and told in the log now and then."""

import logging
import ssl
from enum import StrEnum

from core.edge.clock import Clock
from core.edge.logs import RateLimitedLog
from core.edge.metrics import TlsMetrics

log = logging.getLogger("ebb.http")


class Why(StrEnum):
    """Why a handshake failed; a metric's label."""

    CERTIFICATE = "certificate"
    """One side does not take the other's: another CA, name or time, or one that is missing."""
    PROTOCOL = "protocol"
    """No common version or cipher, or what came is no TLS."""
    CONNECTION = "connection"
    """The peer went, or took too long."""


def why(fault: OSError) -> Why:
    """Say which of them it is, by the words of OpenSSL."""
    if not isinstance(fault, ssl.SSLError):
        return Why.CONNECTION
    told = fault.reason or ""
    if "CERTIFICATE" in told or "UNKNOWN_CA" in told:
        return Why.CERTIFICATE
    return Why.CONNECTION if isinstance(fault, ssl.SSLEOFError) else Why.PROTOCOL


class Handshakes:
    """Those of one program that have failed."""

    def __init__(self, metrics: TlsMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._seldom = RateLimitedLog(log, "a TLS handshake failed", clock.monotonic_seconds)

    def failed(self, fault: OSError) -> None:
        """Hear of one more."""
        found = why(fault)
        self._metrics.handshake_failures.labels(found.value).inc()
        self._seldom.warn(why=found.value, reason=str(fault))
