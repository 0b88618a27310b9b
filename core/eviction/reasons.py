"""Define reasons why Ebb does not evict a pod.

Further reasons are in core.eligibility.drainability.
"""

from typing import Final

from core.eligibility.drainability import SAFE_TO_EVICT
from core.model.reason import Reason

OWN: Final = Reason(
    "evict-own",
    "The pod runs in Ebb's own namespace. Ebb does not evict its own pods.",
    "drain the node yourself: kubectl drain {node} --ignore-daemonsets",
    "the pod is recreated on another node",
)
INTERRUPTED: Final = Reason(
    "evict-interrupted",
    "Ebb stopped evicting pods of the node, because the cluster needs the node again.",
    "none needed; to see why the node is needed: ebb explain node {node}",
    "the node is removable again",
)
COMES_BACK: Final = Reason(
    "evict-comes-back",
    "The pod or its replacement can run on the node in spite of the NoSchedule mark, so it could "
    "return to the node after an eviction.",
    "remove the toleration of {key}, or `nodeName`, from the pod template",
    "the NoSchedule mark keeps the pods of this template off the node",
)
NOT_NO_SCHEDULE: Final = Reason(
    "evict-needs-no-schedule",
    "The node does not have a NoSchedule mark and taint, so new pods could still be scheduled to "
    "it.",
    "wait: Ebb sets the mark and the taint within seconds; if the node does not get them, check "
    "the log of ebb-controller, and the label and taints of the node: kubectl get node {node} "
    "-o yaml",
    "the mark and the taint of the node are NoSchedule",
)
OF_JOB: Final = Reason(
    "evict-job",
    "The pod belongs to a Job. An eviction would count as a failure, so Ebb waits until the pod "
    "has completed.",
    f'none needed; to allow evictions, set the annotation {SAFE_TO_EVICT}: "true" in the pod '
    "template",
    "the pod has completed",
)
COMPLETES: Final = Reason(
    "evict-completes",
    "The Pod runs to completion (restartPolicy Never or OnFailure) and must not be evicted: no "
    "controller that Ebb knows would recreate it, or it belongs to a group of Pods. So Ebb waits "
    "until the Pod has completed.",
    "none needed; if the Pod is not needed, delete it: kubectl -n {namespace} delete pod {name}",
    "the Pod has completed",
)
TWO_BUDGETS: Final = Reason(
    "evict-two-budgets",
    "More than one PodDisruptionBudget selects the pod. The API server rejects such evictions.",
    "change the selectors so that one PodDisruptionBudget selects the pod: kubectl -n {namespace} "
    "get pdb",
    "at most one PodDisruptionBudget selects the pod",
)
BUDGET_TOO_LARGE: Final = Reason(
    "evict-budget-too-large",
    "The selector of a PodDisruptionBudget in the namespace is larger than Ebb evaluates. Ebb "
    "evicts no pod of the namespace.",
    "shorten the selector of the PodDisruptionBudget: kubectl -n {namespace} get pdb",
    "Ebb evaluates the selectors of all PodDisruptionBudgets in the namespace",
)
NEVER_ALLOWED: Final = Reason(
    "evict-budget-never",
    "The PodDisruptionBudget of the pod requires all replicas to be Ready, so it can never allow "
    "an eviction.",
    "set `maxUnavailable: 1` in the PodDisruptionBudget, or add a replica",
    "the PodDisruptionBudget requires fewer pods than there are replicas",
)
NOT_NOW: Final = Reason(
    "evict-budget",
    "The PodDisruptionBudget of the pod currently allows no disruption.",
    "check which pods are not Ready: kubectl -n {namespace} get pdb,pods",
    "the PodDisruptionBudget allows a disruption",
)
NO_PLACE: Final = Reason(
    "evict-no-place",
    "No other node has room for the pod in Ebb's plan.",
    "see why: ebb explain pod {namespace}/{name}",
    "another node has room for the pod in Ebb's plan",
)
REFUSED: Final = Reason(
    "evict-refused",
    "The API server rejected the eviction of the pod. Ebb retries with an increasing backoff.",
    "check the PodDisruptionBudgets: kubectl -n {namespace} get pdb",
    "the API server accepts the eviction, or the pod is gone",
)
UNSETTLED: Final = Reason(
    "evict-unsettled",
    "Another pod of the same controller is starting, terminating or not Ready.",
    "check which pods of the controller are not Ready: kubectl -n {namespace} get pods",
    "all other pods of the same controller (such as a ReplicaSet) are Ready",
)
NOT_REPLACED: Final = Reason(
    "evict-not-replaced",
    "The pod was evicted, and its replacement is not Ready yet. Until then Ebb evicts no other "
    "pod.",
    "check why the replacement is not Ready: kubectl -n {namespace} get pods",
    "the controller has as many Ready pods as before the eviction",
)
TURN: Final = Reason(
    "evict-turn",
    "As many pods are being evicted as `eviction.maxAtOnce` or Ebb's limits for one node (5) and "
    "one namespace (3) allow.",
    "none needed; to evict more pods at once, raise `eviction.maxAtOnce` in the configuration",
    "pods that were evicted earlier have been replaced",
)
NODE_SHARE: Final = Reason(
    "evict-node-share",
    "Within 10 minutes, a node has got as many replacements of evicted pods as Ebb allows, or "
    "would have if kube-scheduler chose it for the next replacements. The limit keeps a node that "
    "claims too much capacity from getting the pods of all other nodes.",
    "wait; if the node in the message should not get so many pods, check its allocatable capacity",
    "the node has got fewer replacements within the last 10 minutes",
)
REASONS: Final = (
    INTERRUPTED,
    OWN,
    COMES_BACK,
    NOT_NO_SCHEDULE,
    OF_JOB,
    COMPLETES,
    BUDGET_TOO_LARGE,
    TWO_BUDGETS,
    NEVER_ALLOWED,
    NOT_NOW,
    NO_PLACE,
    REFUSED,
    UNSETTLED,
    NOT_REPLACED,
    TURN,
    NODE_SHARE,
)
