"""Which nodes are empty, and which are used enough, as their autoscalers count; pure.

Source: Cluster Autoscaler's drainability rules; Karpenter's IsReschedulable, which knows neither
expendable priorities nor the annotation that makes a pod a DaemonSet's, and counts a StatefulSet's
pod until it is gone; its ValidatePodsDisruptable, by which any pod that asks not to be disrupted
holds its node, for good or, since 1.12, for a time.

Karpenter counts no other pod that is being deleted; here those count until they should have ended,
so that a node keeps its guard while they end.
"""

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace
from fractions import Fraction

from core.guards.drainability import do_not_disrupt
from core.marks.mark import guard_of, mark_of
from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.cost import gpus
from core.model.node import Node
from core.model.now import Now
from core.model.pod import DEVICES_FIELD, Pod
from core.model.workload import DAEMON_SET, STATEFUL_SET


def occupying(
    cluster: Cluster, now: Now | None, asked: Container[str] | None = None
) -> Iterator[tuple[str, Pod]]:
    """Yield the pods that keep their nodes from being empty, each with the name of its node.

    *now*: None: no time has passed. *asked*: only pods on these nodes.
    """
    karpenters = {node.name for node in cluster.nodes if KARPENTER_LABEL in node.labels}
    for pod in cluster.pods:
        name = pod.node
        if name is None or (asked is not None and name not in asked):
            continue
        rule = _holds_karpenter if name in karpenters else _holds_cluster_autoscaler
        if rule(pod, now):
            yield name, pod


def occupants(
    cluster: Cluster, now: Now | None, asked: Container[str] | None = None
) -> Counter[str]:
    """Return how many pods keep each node from being empty; see `occupying`."""
    return Counter(name for name, _ in occupying(cluster, now, asked))


def holds(pod: Pod, node: Node, now: Now | None) -> bool:
    """Return whether the pod keeps the node from being empty; None: no time has passed."""
    rule = _holds_karpenter if KARPENTER_LABEL in node.labels else _holds_cluster_autoscaler
    return rule(pod, now)


def holds_karpenters_alone(pod: Pod) -> bool:
    """Say whether the pod would keep nodes of Karpenter's from being empty, and no others."""
    return not pod.occupies and _holds_karpenter(pod, None)


def _holds_cluster_autoscaler(pod: Pod, now: Now | None) -> bool:
    return pod.occupies and not pod.overdue(now)


def _holds_karpenter(pod: Pod, now: Now | None) -> bool:
    if pod.overdue(now):
        return pod.owner_kind == STATEFUL_SET
    goes_along = pod.mirror or pod.owner_kind == DAEMON_SET
    return not goes_along or do_not_disrupt(pod, now) is not None


def busy(cluster: Cluster, share: Fraction, now: Now) -> frozenset[str]:
    """Return the released nodes that their autoscaler would not take for underutilized.

    Source: Cluster Autoscaler's CalculateUtilizationOfResource, which leaves out pods that should
    have ended long ago.

    Of none with devices can that be said: it judges those by GPUs, or by what is claimed of them,
    alone. Nor of Karpenter's, which knows no threshold.
    """
    released = [
        node
        for node in cluster.nodes
        if mark_of(node.labels) is None and guard_of(node) and KARPENTER_LABEL not in node.labels
        if not gpus(node.allocatable)
    ]
    if not released:
        return frozenset()
    claiming = {pod.node for pod in cluster.pods if DEVICES_FIELD in pod.unsupported}
    lasting = tuple(pod for pod in cluster.pods if not pod.overdue(now))
    used = replace(cluster, pods=lasting).used()
    return frozenset(
        node.name
        for node in released
        if node.name not in claiming
        for have, whole in (
            (used[node.name].cpu_millis, node.allocatable.cpu_millis),
            (used[node.name].memory_bytes, node.allocatable.memory_bytes),
        )
        if whole > 0 and have * share.denominator > share.numerator * whole
    )
