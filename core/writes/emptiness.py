"""Which nodes are empty, and which are used enough, as Cluster Autoscaler counts; pure."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from core.marks.mark import mark_of
from core.marks.optouts import guarded_by_us
from core.model.cluster import Cluster
from core.model.pod import Pod

EXPENDABLE_PRIORITY: Final = -10
"""Pods below this are none to Cluster Autoscaler."""


def occupied(pods: Iterable[Pod]) -> frozenset[str]:
    """Return the nodes that are not empty, as Cluster Autoscaler counts."""
    return frozenset(
        pod.node
        for pod in pods
        if pod.node is not None and not pod.stays_with_node and pod.priority >= EXPENDABLE_PRIORITY
    )


def busy(cluster: Cluster, share: Fraction) -> frozenset[str]:
    """Return the released nodes that their autoscaler would not take for underutilized."""
    released = [
        node for node in cluster.nodes if mark_of(node.labels) is None and guarded_by_us(node)
    ]
    if not released:
        return frozenset()
    used = cluster.used()
    return frozenset(
        node.name
        for node in released
        for have, whole in (
            (used[node.name].cpu_millis, node.allocatable.cpu_millis),
            (used[node.name].memory_bytes, node.allocatable.memory_bytes),
        )
        if have * share.denominator > share.numerator * whole
    )
