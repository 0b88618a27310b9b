"""Decide whether a Deployment may get an additional pod now.

A surge move needs an additional pod: it replaces a pod on a marked node before that pod is
deleted.
"""

from collections.abc import Iterator

from core.marks.wellknown import KEEP_ANNOTATION
from core.model.pod import Pod
from core.model.reason import Blocker
from core.moves.objects import (
    HPA_SYNC_SECONDS,
    ROLLING_UPDATE,
    ObservedDeployment,
    SurgeObjects,
)
from core.moves.reasons import (
    HPA,
    KEEP,
    MIN_READY,
    PAUSED,
    QUOTA,
    ROLLOUT,
    STRATEGY,
    UNAVAILABLE,
)


def deployment_blockers(
    deployment: ObservedDeployment,
    pod: Pod,
    objects: SurgeObjects,
) -> Iterator[Blocker]:
    """Yield every reason why a pod like *pod* must not be added to the Deployment now.

    Yields nothing if it may be added. *objects* has the HorizontalPodAutoscalers and
    ResourceQuotas.
    """
    name, key = deployment.name, pod.key
    yield from (why._replace(pod=key) for why in why_never(deployment, objects))
    if (why := why_unsettled(deployment)) is not None:
        yield why._replace(pod=key)
    if (refused := _why_no_quota(deployment, pod, objects)) is not None:
        yield Blocker(QUOTA, refused, key, name)


def consents(deployment: ObservedDeployment, objects: SurgeObjects) -> bool:
    """Return whether the Deployment is not paused and has no lasting reason against moves."""
    return not deployment.paused and next(why_never(deployment, objects), None) is None


def why_never(deployment: ObservedDeployment, objects: SurgeObjects) -> Iterator[Blocker]:
    """Yield every reason against moves that lies in the Deployment's own settings or its HPA.

    These reasons rarely end. *objects* has the HorizontalPodAutoscalers.
    """
    name, ready_seconds = deployment.name, deployment.min_ready_seconds
    if deployment.strategy != ROLLING_UPDATE:
        message = f"Deployment {name} has the strategy {deployment.strategy}"
        yield Blocker(STRATEGY, message, about=name)
    elif deployment.max_surge < 1:
        yield Blocker(STRATEGY, f"maxSurge of Deployment {name} is 0", about=name)
    if deployment.keep:
        yield Blocker(
            KEEP,
            f"the annotation {KEEP_ANNOTATION} of Deployment {name} or its pod template forbids "
            "moves",
            about=name,
        )
    if ready_seconds >= deployment.deadline_seconds:
        message = (
            f"minReadySeconds of Deployment {name} is {ready_seconds} s, and a move may take "
            f"{deployment.deadline_seconds} s"
        )
        yield Blocker(MIN_READY, message, about=name)
    hpa = objects.autoscalers.get(deployment.key) if ready_seconds >= HPA_SYNC_SECONDS else None
    if hpa is not None:
        message = (
            f"HorizontalPodAutoscaler {hpa.name} scales Deployment {name}, whose "
            f"minReadySeconds is {ready_seconds} s"
        )
        yield Blocker(HPA, message, about=name)


def why_unsettled(deployment: ObservedDeployment) -> Blocker | None:
    """Return why the Deployment is paused, rolling out or lacks available pods; otherwise None."""
    name, wanted = deployment.name, deployment.replicas
    if deployment.paused:
        return Blocker(PAUSED, f"Deployment {name} is paused", about=name)
    if deployment.outdated:
        message = f"the newest spec of Deployment {name} has not been processed yet"
        return Blocker(ROLLOUT, message, about=name)
    if not deployment.updated == deployment.pods == wanted:
        message = (
            f"Deployment {name} has {deployment.pods} pods, {deployment.updated} of them in its "
            f"current ReplicaSet, and wants {wanted}"
        )
        return Blocker(ROLLOUT, message, about=name)
    if deployment.available < wanted:
        message = f"{deployment.available} of {wanted} pods of Deployment {name} are available"
        return Blocker(UNAVAILABLE, message, about=name)
    return None


def _why_no_quota(deployment: ObservedDeployment, pod: Pod, objects: SurgeObjects) -> str | None:
    if deployment.replica_failure:
        return f"the API server rejected a pod: {deployment.replica_failure:.200}"
    for quota in objects.quotas.get(deployment.namespace, ()):
        if refused := quota.why_refused(pod):
            return refused
    return None
