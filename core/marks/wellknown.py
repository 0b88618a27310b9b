"""The keys under which Ebb writes on Nodes and Pods; the one place that knows them."""

from typing import Final

MARK_LABEL: Final = "kube-ebb.node-restriction.kubernetes.io/drain"
"""The truth. Kubelets may not write labels under this prefix (NodeRestriction)."""
TAINT_KEY: Final = "status-taint.cluster-autoscaler.kubernetes.io/kube-ebb"
"""The prefix keeps Cluster Autoscaler from copying the taint into templates of new nodes."""
DETAILS_ANNOTATION: Final = "kube-ebb.io/drain"
GUARD_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
GUARD_OURS_ANNOTATION: Final = "kube-ebb.io/guard"
COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""On a pod: the ReplicaSet controller deletes the pods of the lowest cost first."""
COST_OURS_ANNOTATION: Final = "kube-ebb.io/deletion-cost"
"""On a pod: the cost that Ebb has written; a cost that differs is somebody else's."""
BUFFER_OURS_LABEL: Final = "kube-ebb.io/reserve"
"""On a CapacityBuffer and its PodTemplate: Ebb has written it; it is nobody else's room."""
RESERVE_ANNOTATION: Final = "kube-ebb.io/reserve"
"""For which pods an empty node is kept, as it was when that began."""
KEEP_ANNOTATION: Final = "kube-ebb.io/keep"
KARPENTER_KEEP_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""The guard where a node is Karpenter's, which does not read Cluster Autoscaler's."""
KARPENTER_LABEL: Final = "karpenter.sh/nodepool"
"""On every Node that Karpenter has made."""
GUARDS: Final = (GUARD_ANNOTATION, KARPENTER_KEEP_ANNOTATION)
"""What keeps an autoscaler from a Node."""
BACKOFF_ANNOTATION: Final = "kube-ebb.io/backoff"
"""How often the node did not empty before its deadline, and until when it is left alone."""
OUR_ANNOTATIONS: Final = (
    DETAILS_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    BACKOFF_ANNOTATION,
    RESERVE_ANNOTATION,
)
"""On a Node: nobody else's; one of GUARDS beside them may be ours too."""
