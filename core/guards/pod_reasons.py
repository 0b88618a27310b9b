"""What can be known of a pod's leaving, one entry for each code of core.guards.disruption.

It stands beside core.explain.reasons, which has the other codes and says what they are for.
"""

from typing import Final, NamedTuple


class Reason(NamedTuple):
    """What there is to know about a code; {node}, {namespace} and {name} stand for names."""

    code: str
    meaning: str
    """One sentence."""
    fix: str
    """The cheapest thing that a person can do; a command is given as it is typed."""
    lifted: str
    """Completes: it ends when ..."""


_LEAVE_IT = "nothing to do: Ebb evicts nothing, and the pod is waited for"
NATURE: Final = (
    Reason(
        "pod-mirror",
        "The pod is a static pod's image: it lives and goes with its node.",
        "nothing to do",
        "the static pod's file is gone from the node",
    ),
    Reason(
        "pod-daemon",
        "The pod is a DaemonSet's: it lives and goes with its node.",
        "nothing to do",
        "the DaemonSet does not want it on the node any more",
    ),
    Reason(
        "pod-long-terminating",
        "The pod should have ended long ago, so it counts for nothing.",
        "see what holds it: kubectl -n {namespace} get pod {name} -o yaml (finalizers)",
        "the pod is gone",
    ),
    Reason(
        "pod-expendable",
        "The pod's priority is so low that autoscalers take its node without asking.",
        "nothing to do; or give it a higher priority class",
        "its priority is not below the autoscaler's cutoff",
    ),
    Reason(
        "pod-terminating",
        "The pod is being deleted already and leaves by itself.",
        "nothing to do: it is waited for",
        "the pod is gone",
    ),
    Reason(
        "pod-on-completion",
        "The pod's owner asks that its own end be waited for.",
        "nothing to do: it is waited for",
        "the pod has finished, or its annotation is gone",
    ),
    Reason(
        "pod-do-not-disrupt",
        "Karpenter's annotation forbids to disturb the pod, for good or for a time.",
        f"{_LEAVE_IT}; or take the annotation karpenter.sh/do-not-disrupt from its template",
        "the annotation is gone, or its time is over",
    ),
    Reason(
        "pod-prefer-no-eviction",
        "The descheduler's annotation asks not to evict the pod; it leaves as any other.",
        _LEAVE_IT,
        "the annotation is gone",
    ),
    Reason(
        "pod-safe-to-evict",
        "The pod's owner says that it may be evicted, whatever else speaks against it.",
        "nothing to do",
        "the annotation is gone",
    ),
    Reason(
        "pod-bare",
        "No controller owns the pod: nothing would bring it back, and nothing replaces it.",
        f"{_LEAVE_IT}; or delete it if it is not needed: "
        "kubectl -n {namespace} delete pod {name}",
        "the pod has finished, or is gone",
    ),
    Reason(
        "pod-owner-missing",
        "The pod's controller is gone: nothing would bring it back.",
        "kubectl -n {namespace} delete pod {name}, if it is not needed",
        "the pod is gone",
    ),
    Reason(
        "pod-custom-controller",
        "The pod belongs to a controller of which Ebb does not know whether it replaces pods.",
        _LEAVE_IT,
        "the pod has finished, or its controller has replaced it",
    ),
    Reason(
        "pod-stateful-set",
        "A StatefulSet keeps its pods: they leave at updates and scale-downs only.",
        "a rolling update moves it: kubectl -n {namespace} rollout restart statefulset NAME",
        "the pod has been replaced on another node",
    ),
    Reason(
        "pod-system",
        "The pod is of kube-system, or of a system-critical priority class.",
        f"{_LEAVE_IT}; or restart its owner at a quiet time",
        "the pod has been replaced on another node",
    ),
    Reason(
        "pod-not-safe-to-evict",
        "Cluster Autoscaler's annotation says that the pod must not be evicted.",
        f"{_LEAVE_IT}; or take the annotation from its template",
        "the pod is gone, or its annotation does not say so any more",
    ),
    Reason(
        "pod-local-storage",
        "The pod has data on the node itself, which an eviction would lose.",
        "name volumes that may be lost in its template's annotation "
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
        "the pod is gone, or all such volumes are named",
    ),
    Reason(
        "pod-budget",
        "PodDisruptionBudgets do not allow to evict the pod now.",
        "kubectl -n {namespace} get pdb (see ALLOWED DISRUPTIONS); let one budget alone be about "
        "the pod",
        "its one budget allows a disruption",
    ),
)
"""What is known of a pod's leaving: it blocks nothing as long as nothing is evicted."""
