"""Labels, taints and annotations that Ebb reads and writes on Nodes, Pods and CapacityBuffers."""

from typing import Final

MARK_LABEL: Final = "kube-ebb.node-restriction.kubernetes.io/mark"
"""Label with the mark; every other part of a mark is derived from it.

NodeRestriction forbids kubelets to write labels with this prefix."""
TAINT_KEY: Final = "status-taint.cluster-autoscaler.kubernetes.io/kube-ebb"
"""Taint of marked nodes.

The prefix keeps Cluster Autoscaler from copying the taint into node templates."""
DETAILS_ANNOTATION: Final = "kube-ebb.io/mark"
SCALE_DOWN_DISABLED_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
PROTECTION_ANNOTATION: Final = "kube-ebb.io/protection"
OLD_PROTECTION_ANNOTATION: Final = "kube-ebb.io/guard"
"""Annotation that development versions wrote instead of PROTECTION_ANNOTATION. It still says that
the protection is Ebb's, and no person's opt-out."""
COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of a Pod: the ReplicaSet controller deletes pods of the lowest cost first."""
COST_OURS_ANNOTATION: Final = "kube-ebb.io/deletion-cost"
"""Annotation of a Pod: the cost that Ebb has written; any other cost belongs to someone else."""
MOVE_ANNOTATION: Final = "kube-ebb.io/move"
"""Annotation of a Pod: its move in progress, or why its last move failed (core.moves.note)."""
BUFFER_OURS_LABEL: Final = "kube-ebb.io/reserve"
"""Label of a CapacityBuffer or PodTemplate that Ebb has written."""
RESERVE_ANNOTATION: Final = "kube-ebb.io/reserve"
"""Annotation of an empty Node: the pods for which Ebb began to reserve it."""
KEEP_ANNOTATION: Final = "kube-ebb.io/keep"
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""Scale-down protection on Karpenter's nodes; Karpenter ignores Cluster Autoscaler's."""
KARPENTER_LABEL: Final = "karpenter.sh/nodepool"
"""Label of every Node that Karpenter has created."""
REMOVAL_DISABLED: Final = "autoscaling.cast.ai/removal-disabled"
"""Annotation or label that keeps CAST AI from removing a Node, or the Node of a Pod."""
PROTECTION_KEYS: Final = (SCALE_DOWN_DISABLED_ANNOTATION, DO_NOT_DISRUPT_ANNOTATION)
"""Annotations that keep an autoscaler from removing a Node."""
BACKOFF_ANNOTATION: Final = "kube-ebb.io/backoff"
"""Annotation of a Node: how often it missed its deadline, and until when it is not marked
again."""
OUR_ANNOTATIONS: Final = (
    DETAILS_ANNOTATION,
    PROTECTION_ANNOTATION,
    OLD_PROTECTION_ANNOTATION,
    BACKOFF_ANNOTATION,
    RESERVE_ANNOTATION,
)
"""Annotations of a Node that only Ebb writes; Ebb may also have set one of PROTECTION_KEYS."""
OUR_PREFIXES: Final = ("kube-ebb.io/", "kube-ebb.node-restriction.kubernetes.io/")
"""Prefixes of all labels and annotations that Ebb has ever written on Nodes. People write
KEEP_ANNOTATION, which has one of them too."""
