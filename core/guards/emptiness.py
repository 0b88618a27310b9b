"""Which nodes are empty, and which are used enough, as their autoscalers count; pure.

Source: Cluster Autoscaler's drainability rules; Karpenter's IsReschedulable, which knows neither
expendable priorities nor the annotation that makes a pod a DaemonSet's, and its
ValidatePodsDisruptable, by which any pod that asks not to be disrupted holds its node.
"""

from collections import Counter
from collections.abc import Collection
from fractions import Fraction

from core.marks.keys import KARPENTER_KEEP_ANNOTATION, KARPENTER_LABEL
from core.marks.mark import guard_of, mark_of
from core.model.cluster import Cluster
from core.model.cost import gpus
from core.model.pod import Pod
from core.model.workload import DAEMON_SET


def occupants(
    cluster: Cluster, now_seconds: int | None, asked: Collection[str] | None = None
) -> Counter[str]:
    """Count by node the pods that keep it from being empty at a unix time; None: at no time.

    *asked*: of these nodes alone.
    """
    karpenters = {node.name for node in cluster.nodes if KARPENTER_LABEL in node.labels}
    return Counter(
        pod.node
        for pod in cluster.pods
        if pod.node is not None
        and (asked is None or pod.node in asked)
        and not pod.overdue(now_seconds)
        and (pod.occupies or (pod.node in karpenters and _holds_karpenter(pod)))
    )


def _holds_karpenter(pod: Pod) -> bool:
    goes_along = pod.mirror or pod.owner_kind == DAEMON_SET
    return not goes_along or dict(pod.ties.notes).get(KARPENTER_KEEP_ANNOTATION) == "true"


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
