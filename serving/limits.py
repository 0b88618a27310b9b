"""Limits of a listening port; `connections` enforces them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLimits:
    """Limits on the connections of a listening port, and on the bytes that they hold in memory.

    For comparison: the API server waits 2 s for the webhook (set in manifests/), and
    kube-scheduler waits 5 s for the extender by default.
    """

    connections: int = 128
    """Maximum number of connections; an API server keeps 25 idle ones, a scheduler one or two.

    A TLS connection takes 0.4 MB."""
    crowd: int = 32
    """Number of connections of one address above which the longest waiting one is closed at once,
    if a new connection needs room."""
    held_bytes: int = 96 * 1024**2
    """Maximum bytes of bodies and answers in memory: one and a half times the largest body."""
    grace_seconds: float = 1.0
    """Time for which a waiting connection is not closed to make room for others."""
    handshake_seconds: float = 5.0
    headers_seconds: float = 5.0
    """Time from the first byte of a request to the end of its headers. If the body arrives with
    the headers, the time includes the answer."""
    body_seconds: float = 5.0
    """Time from the headers to the last byte of the body."""
    answer_seconds: float = 5.0
    """Time for the peer to receive a large answer."""
    linger_seconds: float = 1.0
    """Time for which the rest of a rejected request is read, so that the peer sees the answer."""
    close_seconds: float = 2.0
    """Time for the peer to close a TLS connection that the program has closed."""
    keepalive_seconds: float = 180.0
    """Idle time; API server and kube-scheduler keep idle connections for 90 s.

    They do not retry a POST on a closed connection."""
    sweep_seconds: float = 0.5
    """Interval at which connections that have exceeded their time are closed."""


LIMITS: Final = PortLimits()
