"""The rows of a trace as a history in which all nodes exist all the time."""

from pathlib import Path

from core.model.node import Node
from core.model.pod import Pod
from core.model.workload import JOB
from sim import trace
from sim.history.cluster_history import ClusterHistory, NodeLifetime, PodLifetime, check


def read(folder: str) -> ClusterHistory:
    """Read both files. Raises: InvalidInputError with file and line."""
    pods = trace.rows(Path(folder))
    begins_ms = min(row.created_ms for row in pods)
    ends_ms = max(row.created_ms + row.life_ms for row in pods)
    node_lifetimes = (
        NodeLifetime(node=Node(name=name, allocatable=shape), begins_ms=begins_ms, ends_ms=ends_ms)
        for name, shape in trace.nodes(Path(folder))
    )
    pod_lifetimes = (
        PodLifetime(
            pod=Pod(
                namespace="work",
                name=row.name,
                requests=row.requests,
                owner_kind=JOB,
                owner_name=row.name,
            ),
            begins_ms=row.created_ms,
            bound_ms=row.created_ms,
            ends_ms=row.created_ms + row.life_ms,
        )
        for row in pods
    )
    return check(
        ClusterHistory(
            source=folder,
            begins_ms=begins_ms,
            ends_ms=ends_ms,
            node_lifetimes=tuple(node_lifetimes),
            pod_lifetimes=tuple(pod_lifetimes),
        )
    )
