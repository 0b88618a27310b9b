"""Which pods the engine cannot place: it never guesses."""

from typing import Final

from core.model.pod import Pod
from core.model.volumes import CLAIMS_FIELD as VOLUME_CLAIMS_FIELD
from core.reason import Blocker

CLAIMS_FIELD: Final = "spec.resourceClaims"


def pod_blockers(pod: Pod) -> list[Blocker]:
    """Return every reason why the pod cannot be placed by the engine.

    The engine never guesses: a constraint that it cannot evaluate blocks.
    """
    found = []
    if pod.unreadable:
        message = f"could not be read: {pod.unreadable}"
        found.append(Blocker("pod-unreadable", message, pod.key))
    if pod.too_much:
        found.append(Blocker("asks-too-much", f"asks for {pod.too_much}", pod.key))
    if CLAIMS_FIELD in pod.unsupported:
        message = "it holds devices by resource claims (DRA), which Ebb cannot place"
        found.append(Blocker("pod-resource-claims", message, pod.key))
    if VOLUME_CLAIMS_FIELD in pod.unsupported:
        faults = pod.ties.faults or ("what stands behind its claims has not been looked up",)
        found += (Blocker("pod-volumes", fault, pod.key) for fault in faults)
    others = (CLAIMS_FIELD, VOLUME_CLAIMS_FIELD)
    if fields := [field for field in pod.unsupported if field not in others]:
        message = f"asks what Ebb cannot evaluate: {', '.join(fields)}"
        found.append(Blocker("pod-unsupported", message, pod.key))
    return found
