"""Read the openb trace (sim.trace) as a history in which every node exists from start to end."""

from pathlib import Path

from core.model.node import Node
from core.model.pod import JOB, Pod
from sim import trace
from sim.history.cluster_history import ClusterHistory, NodeLifetime, PodLifetime, check


def read(folder: str) -> ClusterHistory:
    """Read the two CSV files of a trace. Raises: InvalidInputError with file and line."""
    pods = trace.pods(Path(folder))
    begins_ms = min(pod.created_ms for pod in pods)
    ends_ms = max(pod.created_ms + pod.life_ms for pod in pods)
    node_lifetimes = (
        NodeLifetime(node=Node(name=name, allocatable=shape), begins_ms=begins_ms, ends_ms=ends_ms)
        for name, shape in trace.nodes(Path(folder))
    )
    pod_lifetimes = (
        PodLifetime(
            pod=Pod(
                namespace="work",
                name=pod.name,
                requests=pod.requests,
                owner_kind=JOB,
                owner_name=pod.name,
            ),
            begins_ms=pod.created_ms,
            bound_ms=pod.created_ms,
            ends_ms=pod.created_ms + pod.life_ms,
        )
        for pod in pods
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
