"""Find pods that Ebb never evicts, pods whose end it waits for, and the controllers of pods."""

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
        drainability.KEPT,
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
"""Findings that forbid an eviction. If the pod runs to completion, Ebb waits for its end."""


class Owner(NamedTuple):
    """The controller that owns a pod, such as a ReplicaSet, and creates its replacement."""

    namespace: str
    kind: str
    name: str


def owner_of(pod: Pod) -> Owner:
    """Return the controller of the pod; kind and name are empty if it has none."""
    return Owner(pod.namespace, pod.owner_kind, pod.owner_name)


def why_never(pod: Pod, own_namespace: str, now: Now) -> Blocker | None:
    """Return why Ebb must never evict the pod; None if it may at some time.

    None also for some pods that `why_waited_for` covers, because Ebb does not evict them anyway.
    Users can set annotations that protect a pod and thereby its node, but no other node.
    *own_namespace*: Ebb's namespace, whose pods are never evicted.
    """
    if pod.namespace == own_namespace:
        return Blocker(OWN, f"runs in Ebb's own namespace, {own_namespace}", pod.key)
    blockers = (blocker for _, blocker in drainability.findings(pod, now))
    never = NEVER - AWAITED if pod.disruption_facts.completes else NEVER
    return next((blocker for blocker in blockers if blocker.reason in never), None)


def why_waited_for(pod: Pod, now: Now) -> Blocker | None:
    """Return why Ebb waits until the pod terminates by itself; None if it does not wait."""
    blockers = [blocker for _, blocker in drainability.findings(pod, now)]
    reasons = [blocker.reason for blocker in blockers]
    if drainability.ON_COMPLETION in reasons:
        return blockers[0]
    if pod.disruption_facts.completes and any(reason in AWAITED for reason in reasons):
        # Even an annotation that allows evictions does not bring the pod back, and an eviction
        # ends one member of a gang.
        return Blocker(COMPLETES, "runs to completion, and Ebb waits for its completion", pod.key)
    if pod.owner_kind != JOB or drainability.SAFE in reasons:
        return None
    message = f"belongs to Job {pod.owner_name}, and Ebb waits for its completion"
    return Blocker(OF_JOB, message, pod.key)


def leaves(pod: Pod, now: Now) -> bool:
    """Return whether the pod is terminating and still within its grace period."""
    return pod.terminating and not pod.overdue(now)
