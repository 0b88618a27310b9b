"""A cluster's past: which nodes it had, which pods came when and ended when. Unix milliseconds."""

from dataclasses import dataclass
from typing import Final

from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from sim.workload import DAY_MS, HOUR_MS

DAYS_MAX: Final = 60
PODS_MAX: Final = 2_000_000
"""Pods of a history, finished ones too; each takes about 1 kB."""
NODES_MAX: Final = 15_000
FILES_MAX: Final = 10_000
"""Files of a history, in one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLifetime:
    """A pod, and when it was there."""

    pod: Pod
    begins_ms: int
    """It was created."""
    bound_ms: int
    """It began to run, as far as that is known; else as `begins_ms`."""
    ends_ms: int | None = None
    """None: it was still there at the end."""
    slack_ms: int = 0
    """So far from its end, at most, it may have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifetime:
    """A node, and when it was there."""

    node: Node
    begins_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """All of it, and what was found odd."""

    source: str
    begins_ms: int
    ends_ms: int
    stays: tuple[NodeLifetime, ...]
    lives: tuple[PodLifetime, ...]
    notes: tuple[str, ...] = ()

    @property
    def duration_ms(self) -> int:
        """Return how long it is."""
        return self.ends_ms - self.begins_ms


def check(past: ClusterHistory) -> ClusterHistory:
    """Refuse what cannot be played. Raises: InvalidInputError."""
    if past.duration_ms < HOUR_MS // 60:
        told = f"tells of {max(past.duration_ms, 0) // 1000} s; allowed: a minute or more"
        raise InvalidInputError(past.source, told)
    if past.duration_ms > DAYS_MAX * DAY_MS:
        days = past.duration_ms // DAY_MS
        told = f"tells of {days:,} days; allowed: up to {DAYS_MAX}, in one folder"
        raise InvalidInputError(past.source, told)
    check_sizes(past.source, nodes=len(past.stays), pods=len(past.lives))
    if not any(stay.begins_ms <= past.begins_ms for stay in past.stays):
        raise InvalidInputError(past.source, "has no node at its beginning that can be read")
    if not any(not life.pod.stays_with_node for life in past.lives):
        raise InvalidInputError(past.source, "has no pods but those that go with their nodes")
    return past


def check_sizes(source: str, *, nodes: int, pods: int) -> None:
    """Refuse what is too large while it is read. Raises: InvalidInputError."""
    for what, count, most in (("nodes", nodes, NODES_MAX), ("pods", pods, PODS_MAX)):
        if count > most:
            raise InvalidInputError(source, f"more than {most:,} {what}; allowed: up to {most:,}")
