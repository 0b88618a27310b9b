"""Nodes that leave, and taints that pass: the keys by which others say so; the one table of them.

Taints are written by controllers and people: NodeRestriction lets a kubelet set them when it
registers its node, and not change them later. Whoever writes one, it is about that node alone.
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
"""An autoscaler is deleting the node. It may still take its taint back."""
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
"""Or its machine has stopped, or is about to."""
_PASSING_TAINTS: Final = LEAVING_TAINTS | {
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "DeletionCandidateOfClusterAutoscaler",
}
_SAID_OTHERWISE: Final = LEAVING_TAINTS | {
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure",
}
"""Of leaving and of cordons is told apart; who asks for memory tolerates pressure (admission)."""


def is_transient_taint(key: str) -> bool:
    """Say whether a taint of this key says how a node is at the moment, not for whom it is."""
    return key in _PASSING_TAINTS or says_starting(key)


def others_taint(node: Node) -> str | None:
    """Return the key of a taint that says for whom the node is; *node* is without Ebb's own."""
    return next((taint.key for taint in node.taints if not is_transient_taint(taint.key)), None)


def why_unready(node: Node) -> str | None:
    """Say why a node that neither leaves nor is cordoned takes no pods at the moment, or None."""
    if not node.ready:
        return "it is not Ready"
    keys = (
        taint.key
        for taint in node.taints
        if taint.effect in (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)
        and is_transient_taint(taint.key)
        and taint.key not in _SAID_OTHERWISE
    )
    key = next(keys, None)
    return f"taint {key} keeps pods away for now" if key else None


def being_deleted(node: Node) -> bool:
    """Say whether somebody is already deleting the Node object, or is about to."""
    return node.deleting or any(taint.key in DELETING_TAINTS for taint in node.taints)


def why_leaving(node: Node) -> str | None:
    """Say by what the node is known to be leaving, or None."""
    if node.deleting:
        return "its Node object is being deleted (deletionTimestamp)"
    key = next((taint.key for taint in node.taints if taint.key in LEAVING_TAINTS), None)
    return f"taint {key} says that it is leaving" if key else None


def is_terminating(node: Node) -> bool:
    """Say whether the node is leaving: it counts as gone."""
    return why_leaving(node) is not None
