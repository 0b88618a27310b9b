"""Which pods are never evicted, which end by themselves, and who brings back the others."""

from typing import Final, NamedTuple

from core.drain.reasons import OF_JOB, OWN
from core.guards import drainability
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.workload import JOB

NEVER: Final = frozenset(
    {
        drainability.MIRROR,
        drainability.DAEMON,
        drainability.LONG_TERMINATING,
        drainability.EXPENDABLE,
        drainability.NOT_TO_DISRUPT,
        drainability.PREFERS_NO_EVICTION,
        drainability.BARE,
        drainability.CUSTOM_CONTROLLER,
        drainability.SYSTEM,
        drainability.NOT_SAFE_TO_EVICT,
        drainability.LOCAL_STORAGE,
    }
)
"""A pod of which one of these is true is not evicted, whatever else is."""


class Owner(NamedTuple):
    """Whose pod it is: the controller that brings another one."""

    namespace: str
    kind: str
    name: str


def owner_of(pod: Pod) -> Owner:
    """Return the pod's controller."""
    return Owner(pod.namespace, pod.owner_kind, pod.owner_name)


def why_never(pod: Pod, own_namespace: str, now: Now) -> Blocker | None:
    """Say why the pod must not be evicted, or None.

    A pod that is being deleted, or whose end is waited for, is asked about nothing else. Anyone
    may write the annotations that protect a pod, and so keep its node; never another one.
    """
    if pod.namespace == own_namespace:
        return Blocker(OWN, f"is in {own_namespace}", pod.key)
    found = (blocker for _, blocker in drainability.findings(pod, now))
    return next((one for one in found if one.reason in NEVER), None)


def why_waited_for(pod: Pod, now: Now) -> Blocker | None:
    """Say why the pod's own end is waited for, or None."""
    found = [blocker for _, blocker in drainability.findings(pod, now)]
    if any(one.reason is drainability.ON_COMPLETION for one in found):
        return found[0]
    if pod.owner_kind != JOB or any(one.reason is drainability.SAFE for one in found):
        return None
    return Blocker(OF_JOB, f"Job {pod.owner_name} waits for it", pod.key)


def leaves(pod: Pod, now: Now) -> bool:
    """Say whether the pod is being deleted, and may still need the time for it."""
    return pod.terminating and not pod.overdue(now)
