"""Which pods the engine cannot place: it never guesses."""

from typing import Final

from core.model.pod import DEVICES_FIELD, Pod
from core.model.reason import Blocker, Reason
from core.model.volumes import CLAIMS_FIELD

POD_UNREADABLE: Final = Reason(
    "pod-unreadable",
    "A pod of the node could not be read, so nobody knows what it asks for: it does not move, "
    "and its node takes nothing.",
    "kubectl -n {namespace} get pod {name} -o yaml (the field is in the message); replace it",
    "the pod is gone, or the field in the message is what the API says it must be",
)
ASKS_TOO_MUCH: Final = Reason(
    "asks-too-much",
    "A pod has more constraints, labels or volumes than Ebb evaluates for one pod, or the pods of "
    "its namespace together have more than the namespace's evaluation budget covers; so the pod "
    "counts as not movable, and its constraints on other pods are ignored.",
    "see which limit the message names; remove node selectors, affinity terms, host ports, volume "
    "claims or labels from the pod's owner, or give more pods of the namespace equal constraints; "
    "or move the pod yourself: kubectl -n {namespace} delete pod {name}",
    "the pod has finished, runs elsewhere, or stays within the limit",
)
POD_RESOURCE_CLAIMS: Final = Reason(
    "pod-resource-claims",
    "A pod holds devices by resource claims (DRA), whose place Ebb cannot choose.",
    "kubectl -n {namespace} delete pod {name}, at a time when that does no harm",
    "the pod has finished, or runs elsewhere",
)
POD_UNSUPPORTED: Final = Reason(
    "pod-unsupported",
    "A pod asks for something that Ebb cannot evaluate, so it counts as not movable: "
    "Ebb never guesses.",
    "change the fields that the message names in the pod's owner; for spec.schedulerName, if that "
    "scheduler's filters are kube-scheduler's own, name it in the setting schedulers; or move the "
    "pod yourself: "
    "kubectl -n {namespace} delete pod {name}",
    "the pod has finished, runs elsewhere, does not use the fields any more, or has a scheduler "
    "that is named",
)
POD_VOLUMES: Final = Reason(
    "pod-volumes",
    "A pod uses a claim of which Ebb does not know enough: which volume it is bound to, which "
    "nodes reach that, or how many volumes they take; so it counts as not movable.",
    "kubectl -n {namespace} describe pod {name} (see Volumes); a dump needs pv, pvc and "
    "csinodes too",
    "every claim of the pod is bound to a volume of a known kind, or the pod has finished or "
    "runs elsewhere",
)
REASONS: Final = (POD_UNREADABLE, ASKS_TOO_MUCH, POD_RESOURCE_CLAIMS, POD_UNSUPPORTED, POD_VOLUMES)


def pod_blockers(pod: Pod) -> list[Blocker]:
    """Return every reason why the pod cannot be placed by the engine.

    The engine never guesses: a constraint that it cannot evaluate blocks.
    """
    found = []
    if pod.unreadable:
        message = f"could not be read: {pod.unreadable}"
        found.append(Blocker(POD_UNREADABLE, message, pod.key))
    if pod.too_much:
        found.append(Blocker(ASKS_TOO_MUCH, f"asks for {pod.too_much}", pod.key))
    if DEVICES_FIELD in pod.unsupported:
        message = "it holds devices by resource claims (DRA), which Ebb cannot place"
        found.append(Blocker(POD_RESOURCE_CLAIMS, message, pod.key))
    if CLAIMS_FIELD in pod.unsupported:
        faults = pod.ties.faults or ("what stands behind its claims has not been looked up",)
        found += (Blocker(POD_VOLUMES, fault, pod.key) for fault in faults)
    others = (DEVICES_FIELD, CLAIMS_FIELD)
    if fields := [field for field in pod.unsupported if field not in others]:
        message = f"asks what Ebb cannot evaluate: {', '.join(fields)}"
        found.append(Blocker(POD_UNSUPPORTED, message, pod.key))
    return found
