"""Count the pods that keep nodes from being empty, as each node's autoscaler counts them; pure.

Cluster Autoscaler applies its drainability rules. Karpenter applies IsReschedulable: it knows
neither expendable priorities nor the annotation that makes a pod a DaemonSet pod, and counts a pod
of a StatefulSet until it is deleted. By its ValidatePodsDisruptable any pod with the annotation
do-not-disrupt keeps its node from being removed, permanently or, since 1.12, for some time.
"""

from collections import Counter
from collections.abc import Collection, Iterator

from core.eligibility.drainability import do_not_disrupt
from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.now import Now
from core.model.pod import DAEMON_SET, STATEFUL_SET, Pod


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
