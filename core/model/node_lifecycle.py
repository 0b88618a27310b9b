"""Recognize leaving nodes and transient taints: the one table of the taint keys of other tools.

Controllers and people write these taints. NodeRestriction lets a kubelet set taints when it
registers its node, but not change them later. A false taint affects that node only.

Sources: Cluster Autoscaler utils/taints, Karpenter apis/v1 and v1beta1 taints.go, k8s.io/api
core/v1 well_known_taints.go, k8s.io/cloud-provider/api, aws-node-termination-handler pkg/node,
GoogleCloudPlatform/k8s-node-termination-handler, AKS node auto-drain.
"""

from typing import Final

from core.model.node import Effect, Node
from core.model.startup_taints import says_starting

DELETING_TAINTS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",  # before Karpenter 1.0
    }
)
"""Taints of nodes that an autoscaler is deleting; it may still remove the taint and stop."""
LEAVING_TAINTS: Final = DELETING_TAINTS | {
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
    "remediator.aks.microsoft.com/unschedulable",  # its name before
}
"""Taints of leaving nodes: an autoscaler deletes them, or their machine stops or has stopped."""
_TRANSIENT_TAINTS: Final = LEAVING_TAINTS | {
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "DeletionCandidateOfClusterAutoscaler",
}
_REPORTED_ELSEWHERE: Final = LEAVING_TAINTS | {
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure",
}
"""Taints for which `why_unready` gives no reason.

Leaving and cordoned nodes have reasons of their own. The admission controller lets every pod with
a memory request tolerate memory pressure."""


def is_transient_taint(key: str) -> bool:
    """Return whether a taint with this key describes a temporary state, not the node's purpose."""
    return key in _TRANSIENT_TAINTS or says_starting(key)


def others_taint(node: Node) -> str | None:
    """Return the key of the first taint that dedicates the node to some pods, or None.

    *node* must not carry Ebb's own taint.
    """
    return next((taint.key for taint in node.taints if not is_transient_taint(taint.key)), None)


def why_unready(node: Node) -> str | None:
    """Return why a node accepts no pods for now, or None; ignores leaving and cordoned nodes."""
    if not node.ready:
        return "the node is not Ready"
    keys = (
        taint.key
        for taint in node.taints
        if taint.effect in (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)
        and is_transient_taint(taint.key)
        and taint.key not in _REPORTED_ELSEWHERE
    )
    key = next(keys, None)
    return f"taint {key} temporarily keeps pods off the node" if key else None


def being_deleted(node: Node) -> bool:
    """Return whether the Node object is being deleted, or an autoscaler is about to delete it."""
    return node.deleting or any(taint.key in DELETING_TAINTS for taint in node.taints)


def why_leaving(node: Node) -> str | None:
    """Return how the node shows that it is leaving, or None if it is not."""
    if node.deleting:
        return "the Node object is being deleted (it has a deletionTimestamp)"
    key = next((taint.key for taint in node.taints if taint.key in LEAVING_TAINTS), None)
    return f"taint {key} announces that the node will be removed" if key else None


def is_terminating(node: Node) -> bool:
    """Return whether the node is leaving; its capacity does not count then."""
    return why_leaving(node) is not None
