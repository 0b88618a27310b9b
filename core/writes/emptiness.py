"""Which nodes are used enough, as Cluster Autoscaler counts; pure."""

from fractions import Fraction

from core.marks.mark import guard_of, mark_of
from core.model.cluster import Cluster
from core.model.cost import gpus


def busy(cluster: Cluster, share: Fraction) -> frozenset[str]:
    """Return the released nodes that their autoscaler would not take for underutilized.

    Of none with GPUs can that be said: it judges them by GPUs alone, and by another threshold.
    """
    released = [node for node in cluster.nodes if mark_of(node.labels) is None and guard_of(node)]
    if not released:
        return frozenset()
    used = cluster.used()
    return frozenset(
        node.name
        for node in released
        if not gpus(node.allocatable)
        for have, whole in (
            (used[node.name].cpu_millis, node.allocatable.cpu_millis),
            (used[node.name].memory_bytes, node.allocatable.memory_bytes),
        )
        if whole > 0 and have * share.denominator > share.numerator * whole
    )
