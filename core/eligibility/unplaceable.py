"""Define why Ebb cannot place a pod elsewhere, such as constraints that it cannot evaluate."""

from typing import Final

from core.model.pod import CLAIMS_FIELD, DEVICES_FIELD, TOPOLOGY_FIELD, VOLUMES_FIELD, Pod
from core.model.reason import Blocker, Reason

POD_UNREADABLE: Final = Reason(
    "pod-unreadable",
    "A pod on the node cannot be read, so its requests and constraints are unknown. Ebb does not "
    "move the pod and places no pods on its node.",
    "inspect the field in the message: kubectl -n {namespace} get pod {name} -o yaml; then "
    "replace the pod",
    "the pod is gone, or the field in the message has a valid value",
)
ASKS_TOO_MUCH: Final = Reason(
    "asks-too-much",
    "A pod has more constraints, labels or volumes than Ebb evaluates: more than the limits for "
    "one pod, or more than the evaluation budget of its namespace covers for all its pods. Ebb "
    "does not move the pod, and ignores the pod's affinity and spread constraints when it places "
    "other pods.",
    "as the message says, remove constraints, volume claims or labels from the pod template, or "
    "give more pods of the namespace equal constraints. Or delete the pod, so that it is "
    "recreated: kubectl -n {namespace} delete pod {name}",
    "the pod has finished, runs on another node, or is within the limits",
)
POD_RESOURCE_CLAIMS: Final = Reason(
    "pod-resource-claims",
    "A pod uses devices through resource claims (DRA). Ebb cannot find another node for such a "
    "pod.",
    "delete the pod when that is harmless, so that it is recreated: kubectl -n {namespace} "
    "delete pod {name}",
    "the pod has finished or runs on another node",
)
POD_KUEUE: Final = Reason(
    "pod-kueue-topology",
    "Kueue chose the node of the Pod (topology-aware scheduling), and only Kueue can choose "
    "another. Ebb does not move the Pod, and a mark cannot keep such Pods off the node.",
    "none needed; to let Ebb move such Pods, admit their workload without Kueue's topology "
    "annotations",
    "the Pod has finished",
)
POD_UNSUPPORTED: Final = Reason(
    "pod-unsupported",
    "A pod uses fields that Ebb cannot evaluate. Ebb does not guess whether another node is "
    "feasible, so it does not move the pod.",
    "remove the fields from the pod template. For spec.schedulerName, add the scheduler to the "
    "setting `schedulers` instead, if it uses the filters of kube-scheduler. Or delete the pod, "
    "so that it is recreated: kubectl -n {namespace} delete pod {name}",
    "the pod has finished, runs on another node, does not use the fields any more, or its "
    "scheduler is in the setting `schedulers`",
)
POD_VOLUMES: Final = Reason(
    "pod-volumes",
    "A pod uses a volume about which Ebb knows too little: the volume of a claim, the nodes that "
    "can access it, the attach limits of nodes, or whether other pods write to the disk. Ebb does "
    "not move the pod.",
    "check Volumes: kubectl -n {namespace} describe pod {name}; if Ebb reads the cluster from a "
    "file (`--from-file`), add pv, pvc and csinodes to the file",
    "every claim of the pod is bound to a volume of a known type, or the pod has finished or runs "
    "on another node",
)
NOMINATED: Final = Reason(
    "pod-nominated",
    "A pod is Pending, and the scheduler keeps this node for it (status.nominatedNodeName) until "
    "the pods that it preempts have terminated.",
    "wait until the pod runs",
    "the pod runs, or the scheduler has nominated another node",
)
REASONS: Final = (
    POD_UNREADABLE,
    ASKS_TOO_MUCH,
    POD_RESOURCE_CLAIMS,
    POD_KUEUE,
    POD_UNSUPPORTED,
    POD_VOLUMES,
    NOMINATED,
)


def pod_blockers(pod: Pod) -> list[Blocker]:
    """Return every reason why Ebb cannot place the pod on another node; empty if it can.

    Ebb does not guess: a constraint that it cannot evaluate blocks the removal of the pod's node.
    """
    blockers = []
    if pod.unreadable:
        message = f"cannot be read: {pod.unreadable}"
        blockers.append(Blocker(POD_UNREADABLE, message, pod.key))
    if pod.too_much:
        message = f"exceeds a limit of Ebb: {pod.too_much}"
        blockers.append(Blocker(ASKS_TOO_MUCH, message, pod.key))
    if DEVICES_FIELD in pod.unsupported:
        message = "uses devices through resource claims (DRA), which Ebb cannot place"
        blockers.append(Blocker(POD_RESOURCE_CLAIMS, message, pod.key))
    if TOPOLOGY_FIELD in pod.unsupported:
        message = "runs where Kueue's topology-aware scheduling has put it"
        blockers.append(Blocker(POD_KUEUE, message, pod.key))
    others = [DEVICES_FIELD, CLAIMS_FIELD, TOPOLOGY_FIELD]
    if CLAIMS_FIELD in pod.unsupported or pod.disruption_facts.faults:
        faults = pod.disruption_facts.faults or (
            "the volumes of its claims have not been looked up",
        )
        blockers += (Blocker(POD_VOLUMES, fault, pod.key) for fault in faults)
        others.append(VOLUMES_FIELD)
    if fields := [field for field in pod.unsupported if field not in others]:
        message = f"uses fields that Ebb cannot evaluate: {', '.join(fields)}"
        blockers.append(Blocker(POD_UNSUPPORTED, message, pod.key))
    if pod.nominated:
        message = "is Pending, and the scheduler keeps this node for it"
        blockers.append(Blocker(NOMINATED, message, pod.key))
    return blockers
