"""What a port of ours bears from those who reach it; `connections` holds to it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a port bears. API server and kube-scheduler give us 2 s and 5 s for all of a call."""

    connections: int = 128
    """An API server keeps 25 idle ones, a scheduler one or two; of TLS each takes 0.4 MB."""
    crowd: int = 32
    """Connections of one address; one with more makes room at once, as it can keep all young."""
    held_bytes: int = 96 * 1024**2
    """Of bodies and answers at once: the largest body there is, and half as much again."""
    grace_seconds: float = 1.0
    """What has waited for less does not make room for others: it is likely at work."""
    handshake_seconds: float = 5.0
    headers_seconds: float = 5.0
    """From the first byte of a request to the last of its headers; of one that comes whole, to
    the last of its answer."""
    body_seconds: float = 5.0
    """From the headers to the last byte."""
    answer_seconds: float = 5.0
    """For the other side to take a large answer."""
    linger_seconds: float = 1.0
    """A request that was refused unread is read on for so long, so that the answer is seen."""
    close_seconds: float = 2.0
    """For the other side to end TLS, once we have."""
    keepalive_seconds: float = 180.0
    """API server and kube-scheduler keep idle connections 90 s, and repeat no POST on a closed
    one."""
    sweep_seconds: float = 0.5
    """How often the times are looked at."""


LIMITS: Final = Limits()
