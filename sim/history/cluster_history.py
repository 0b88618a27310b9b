"""History of a cluster: its nodes and pods with start and end, in Unix milliseconds."""

from dataclasses import dataclass
from typing import Final

from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from sim.simulated_load import DAY_MS, HOUR_MS

DAYS_MAX: Final = 60
PODS_MAX: Final = 2_000_000
"""Pods of a history, finished ones included; each takes about 1 kB."""
NODES_MAX: Final = 15_000
FILES_MAX: Final = 10_000
"""Files of a history, in one folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLifetime:
    """A pod with the times of its creation, its binding and its end, in Unix milliseconds."""

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
    """A node with the times of its start and end, in Unix milliseconds."""

    node: Node
    begins_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """All nodes and pods of a recorded cluster over time, and notes on the quality of the data."""

    source: str
    begins_ms: int
    ends_ms: int
    node_lifetimes: tuple[NodeLifetime, ...]
    pod_lifetimes: tuple[PodLifetime, ...]
    notes: tuple[str, ...] = ()
    nodes_recorded: bool = True
    """False if the history had no nodes, so that its nodes are assumed."""

    @property
    def duration_ms(self) -> int:
        """Return the length of the history in milliseconds."""
        return self.ends_ms - self.begins_ms


def check(history: ClusterHistory) -> ClusterHistory:
    """Return the history unchanged if it can be simulated. Raises: InvalidInputError.

    It must have a suitable length and size, a node at its start, and a pod that is neither a
    DaemonSet pod nor a static pod.
    """
    if history.duration_ms < HOUR_MS // 60:
        problem = f"covers {max(history.duration_ms, 0) // 1000} s; allowed: at least a minute"
        raise InvalidInputError(history.source, problem)
    if history.duration_ms > DAYS_MAX * DAY_MS:
        days = history.duration_ms // DAY_MS
        problem = f"covers {days:,} days; allowed: up to {DAYS_MAX} days in one folder"
        raise InvalidInputError(history.source, problem)
    check_sizes(history.source, nodes=len(history.node_lifetimes), pods=len(history.pod_lifetimes))
    if not any(lifetime.begins_ms <= history.begins_ms for lifetime in history.node_lifetimes):
        raise InvalidInputError(history.source, "has no readable node at its start")
    if not any(not lifetime.pod.stays_with_node for lifetime in history.pod_lifetimes):
        raise InvalidInputError(
            history.source, "has only DaemonSet and static pods, which need no scheduling"
        )
    return history


def check_sizes(source: str, *, nodes: int, pods: int) -> None:
    """Reject a history with too many nodes or pods. Raises: InvalidInputError.

    Readers also call this while they read, with the numbers so far. *source*: path, for the error.
    """
    for kind, count, most in (("nodes", nodes, NODES_MAX), ("pods", pods, PODS_MAX)):
        if count > most:
            raise InvalidInputError(source, f"has more than the {most:,} {kind} that are allowed")
