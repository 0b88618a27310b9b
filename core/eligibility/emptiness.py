"""Count the pods that keep nodes from being empty, as each node's autoscaler counts them; pure.

Cluster Autoscaler applies its drainability rules. Karpenter applies IsReschedulable: it knows
neither expendable priorities nor the annotation that makes a pod a DaemonSet pod, and counts a pod
of a StatefulSet until it is deleted. By its ValidatePodsDisruptable any pod with the annotation
do-not-disrupt keeps its node from being removed, permanently or, since 1.12, for some time.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from fractions import Fraction

from core.eligibility.drainability import do_not_disrupt
from core.marks.mark import mark_of, protection_of
from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.cost import gpus
from core.model.node import Node
from core.model.now import Now
from core.model.pod import DAEMON_SET, DEVICES_FIELD, STATEFUL_SET, Pod


def occupying(
    cluster: Cluster, now: Now | None, names: Collection[str] | None = None
) -> Iterator[tuple[str, Pod]]:
    """Yield each pod that keeps its node from being empty, after the name of its node.

    *now*: None means that no deadline has passed. *names*: only pods on these nodes; None: on all.
    """
    if names is not None and not names:
        return
    karpenters = {node.name for node in cluster.nodes if KARPENTER_LABEL in node.labels}
    for pod in cluster.pods:
        name = pod.node
        if name is None or (names is not None and name not in names):
            continue
        rule = occupies_karpenter_node if name in karpenters else occupies_node
        if rule(pod, now):
            yield name, pod


def occupants(
    cluster: Cluster, now: Now | None, names: Collection[str] | None = None
) -> Counter[str]:
    """Return the number of pods that keep a node from being empty, by node name.

    Empty nodes are absent. *now*: None means that no deadline has passed. *names*: only pods on
    these nodes; None: on all.
    """
    return Counter(name for name, _ in occupying(cluster, now, names))


def holds(pod: Pod, node: Node, now: Now | None) -> bool:
    """Return whether the autoscaler of the node does not consider it empty because of the pod.

    *now*: None means that no deadline has passed.
    """
    rule = occupies_karpenter_node if KARPENTER_LABEL in node.labels else occupies_node
    return rule(pod, now)


def holds_karpenters_alone(pod: Pod) -> bool:
    """Return whether the pod keeps a node from being empty only if Karpenter created the node.

    For example, Cluster Autoscaler ignores pods with an expendable priority, and Karpenter does
    not.
    """
    return not pod.occupies and occupies_karpenter_node(pod, None)


def occupies_node(pod: Pod, now: Now | None) -> bool:
    """Return whether the pod keeps a node of Cluster Autoscaler from being empty.

    *now*: None means that no deadline has passed.
    """
    return pod.occupies and not pod.overdue(now)


def occupies_karpenter_node(pod: Pod, now: Now | None) -> bool:
    """Return whether the pod keeps a node of Karpenter from being empty.

    *now*: None means that no deadline has passed.
    """
    # Karpenter ignores terminating pods, except those of a StatefulSet. Ebb counts them until they
    # should have ended, so that the node stays protected meanwhile.
    if pod.overdue(now):
        return pod.owner_kind == STATEFUL_SET
    ends_with_node = pod.mirror or pod.owner_kind == DAEMON_SET
    return not ends_with_node or do_not_disrupt(pod, now) is not None


def busy(cluster: Cluster, share: Fraction, now: Now) -> frozenset[str]:
    """Return the names of nodes that Cluster Autoscaler does not remove because they are too busy.

    Only unmarked nodes under Ebb's scale-down protection are considered, and no nodes with GPUs or
    with pods that use resource claims.

    *share*: Cluster Autoscaler's threshold for the utilization of a node. Source: its
    CalculateUtilizationOfResource, which ignores pods that should have ended long ago.
    """
    # Karpenter has no utilization threshold. On nodes with GPUs or with resource claims Cluster
    # Autoscaler compares these devices only.
    protected = [
        node
        for node in cluster.nodes
        if mark_of(node.labels) is None
        and protection_of(node)
        and KARPENTER_LABEL not in node.labels
        if not gpus(node.allocatable)
    ]
    if not protected:
        return frozenset()
    claiming = {pod.node for pod in cluster.pods if DEVICES_FIELD in pod.unsupported}
    counted = tuple(pod for pod in cluster.pods if not pod.overdue(now))
    used = replace(cluster, pods=counted).used()
    return frozenset(
        node.name
        for node in protected
        if node.name not in claiming
        for have, whole in (
            (used[node.name].cpu_millis, node.allocatable.cpu_millis),
            (used[node.name].memory_bytes, node.allocatable.memory_bytes),
        )
        if whole > 0 and have * share.denominator > share.numerator * whole
    )
