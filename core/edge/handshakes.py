"""TLS handshakes that fail: counted by why, and told in the log now and then.

Whoever reaches the port may let as many fail as it likes, so not each has a line of its own.
"""

import logging
import math
import ssl
from enum import StrEnum
from typing import Final

from core.edge.clock import Clock
from core.edge.logs import fields
from core.edge.metrics import Metrics

LOG_SECONDS: Final = 60.0
"""From one line to the next."""

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

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._told = -math.inf
        self._untold = 0

    def failed(self, fault: OSError) -> None:
        """Hear of one more."""
        found = why(fault)
        self._metrics.handshake_failures.labels(found.value).inc()
        now = self._clock.monotonic_seconds()
        self._untold += 1
        if now - self._told >= LOG_SECONDS:
            told = fields(why=found.value, reason=str(fault), since_last=self._untold)
            log.warning("a TLS handshake failed", extra=told)
            self._told, self._untold = now, 0
