"""Find pods that must not be evicted or terminate by themselves, and the controllers of pods."""

from typing import Final, NamedTuple

from core.eligibility import drainability
from core.eviction.reasons import COMPLETES, OF_JOB, OWN
from core.model.now import Now
from core.model.pod import JOB, Pod
from core.model.reason import Blocker

NEVER: Final = frozenset(
    {
        drainability.MIRROR,
        drainability.DAEMON,
        drainability.LONG_TERMINATING,
        drainability.EXPENDABLE,
        drainability.NOT_TO_DISRUPT,
        drainability.NOT_TO_REMOVE,
        drainability.PREFERS_NO_EVICTION,
        drainability.GANG,
        drainability.BARE,
        drainability.CUSTOM_CONTROLLER,
        drainability.SYSTEM,
        drainability.NOT_SAFE_TO_EVICT,
        drainability.LOCAL_STORAGE,
    }
)
"""Findings that forbid an eviction."""
AWAITED: Final = drainability.UNKNOWN_OWNER | {drainability.GANG}
"""Findings that forbid an eviction. If the pod runs to completion, the drain waits for it."""


class Owner(NamedTuple):
    """The controller that replaces a pod."""

    namespace: str
    kind: str
    name: str


def owner_of(pod: Pod) -> Owner:
    """Return the controller of the pod."""
    return Owner(pod.namespace, pod.owner_kind, pod.owner_name)


def why_never(pod: Pod, own_namespace: str, now: Now) -> Blocker | None:
    """Return why the pod must not be evicted, or None.

    Pods that terminate, or whose completion Ebb waits for, are not evicted anyway. Users can set
    annotations that protect a pod and thereby its node, but no other node.
    """
    if pod.namespace == own_namespace:
        return Blocker(OWN, f"runs in Ebb's own namespace, {own_namespace}", pod.key)
    found = (blocker for _, blocker in drainability.findings(pod, now))
    never = NEVER - AWAITED if pod.disruption_facts.completes else NEVER
    return next((one for one in found if one.reason in never), None)


def why_waited_for(pod: Pod, now: Now) -> Blocker | None:
    """Return why Ebb waits for the pod to terminate by itself, or None."""
    found = [blocker for _, blocker in drainability.findings(pod, now)]
    if any(one.reason is drainability.ON_COMPLETION for one in found):
        return found[0]
    if pod.disruption_facts.completes and any(one.reason in AWAITED for one in found):
        # Even an annotation that allows evictions does not bring the pod back, and an eviction
        # ends one member of a gang.
        return Blocker(COMPLETES, "runs to completion, and Ebb waits for that", pod.key)
    if pod.owner_kind != JOB or any(one.reason is drainability.SAFE for one in found):
        return None
    message = f"belongs to Job {pod.owner_name}, and Ebb waits for its completion"
    return Blocker(OF_JOB, message, pod.key)


def leaves(pod: Pod, now: Now) -> bool:
    """Return whether the pod is terminating and still within its grace period."""
    return pod.terminating and not pod.overdue(now)
