"""History of a cluster: its nodes and pods with start and end, in Unix milliseconds."""

from dataclasses import dataclass
from typing import Final

from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from sim.workload import DAY_MS, HOUR_MS

DAYS_MAX: Final = 60
PODS_MAX: Final = 2_000_000
"""Pods of a history, finished ones included; each takes about 1 kB."""
NODES_MAX: Final = 15_000
FILES_MAX: Final = 10_000
"""Files of a history, in one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLifetime:
    """A pod with its start and end."""

    pod: Pod
    begins_ms: int
    """Time of creation."""
    bound_ms: int
    """Time at which the pod started to run; `begins_ms` if unknown."""
    ends_ms: int | None = None
    """Time of the end; None if the pod still existed at the end of the history."""
    slack_ms: int = 0
    """Maximum error of `ends_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifetime:
    """A node with its start and end."""

    node: Node
    begins_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """All nodes and pods of a history, and notes about its quality."""

    source: str
    begins_ms: int
    ends_ms: int
    stays: tuple[NodeLifetime, ...]
    lives: tuple[PodLifetime, ...]
    notes: tuple[str, ...] = ()

    @property
    def duration_ms(self) -> int:
        """Return the length of the history."""
        return self.ends_ms - self.begins_ms


def check(past: ClusterHistory) -> ClusterHistory:
    """Return the history if it can be simulated. Raises: InvalidInputError."""
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
    """Reject a history that is too large, while it is read. Raises: InvalidInputError."""
    for what, count, most in (("nodes", nodes, NODES_MAX), ("pods", pods, PODS_MAX)):
        if count > most:
            raise InvalidInputError(source, f"more than {most:,} {what}; allowed: up to {most:,}")
