"""Why a soft mark does not become hard: a part of the table in core.explain.reasons."""

from typing import Final

from core.guards.pod_reasons import Reason

SOFT: Final = (
    Reason(
        "hard-daemonset",
        "A DaemonSet of the node does not tolerate the taint, so its pod would not come back "
        "there once it ends, or after an update.",
        "add a toleration for the key in the message to the DaemonSet of pod {name} in "
        "{namespace}; or leave the mark soft",
        "all DaemonSets with a pod on the node tolerate the taint",
    ),
    Reason(
        "hard-spread",
        "Pods that must be spread evenly would count the node's domain although none of them "
        "could enter it, and others of them would wait.",
        "set `nodeTaintsPolicy: Honor` in those topologySpreadConstraints; or leave the mark soft",
        "the domain has a node without a mark, or all such constraints honor taints",
    ),
    Reason(
        "hard-waiting",
        "A pod waits that a hard mark may be keeping from the node: Ebb cannot judge all that the "
        "pod asks for, or found it a place that the scheduler does not give it. The mark stays "
        "soft while the pod waits, and five minutes longer.",
        "see why the scheduler refuses it: kubectl -n {namespace} describe pod {name}",
        "no such pod has waited for five minutes",
    ),
    Reason(
        "hard-preemption",
        "A pod like the largest of its kind would find no room on the nodes without a mark. As "
        "its priority is above the lowest, the scheduler would evict others for it, because it "
        "does not look at a node with a hard mark, be it empty.",
        "leave the mark soft; or let fewer nodes go (`thresholds`, `maxMarked`), so that unmarked "
        "ones have room for a pod like {name} in {namespace}",
        "an unmarked node that admits such a pod has had room for it for five minutes",
    ),
)
"""Why the mark of a node that goes does not become hard."""
