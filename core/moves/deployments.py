"""Decide whether a Deployment may get an additional pod now.

A surge move needs an additional pod: it replaces a pod on a marked node before that pod is
deleted.
"""

from collections.abc import Iterator

from core.model.pod import Pod
from core.model.reason import Blocker
from core.moves.objects import ROLLING_UPDATE, ObservedDeployment, SurgeObjects
from core.moves.reasons import (
    HPA_MAXIMUM,
    KEEP,
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
    if deployment.strategy != ROLLING_UPDATE:
        message = f"Deployment {name} has the strategy {deployment.strategy}"
        yield Blocker(STRATEGY, message, key, name)
    elif deployment.max_surge < 1:
        yield Blocker(STRATEGY, f"maxSurge of Deployment {name} is 0", key, name)
    if deployment.keep:
        yield Blocker(KEEP, f"an annotation of Deployment {name} forbids it", key, name)
    if (why := why_unsettled(deployment)) is not None:
        yield why._replace(pod=key)
    hpa = objects.autoscalers.get(deployment.key)
    if hpa is not None and deployment.replicas >= hpa.replicas_max:
        message = f"HorizontalPodAutoscaler {hpa.name} allows {hpa.replicas_max} replicas"
        yield Blocker(HPA_MAXIMUM, message, key, name)
    if (refused := _why_no_quota(deployment, pod, objects)) is not None:
        yield Blocker(QUOTA, refused, key, name)


def why_unsettled(deployment: ObservedDeployment) -> Blocker | None:
    """Return why the Deployment is paused, rolling out or lacks available pods; otherwise None."""
    name, wanted = deployment.name, deployment.replicas
    if deployment.paused:
        return Blocker(PAUSED, f"Deployment {name} is paused", about=name)
    if deployment.outdated:
        message = f"the status of Deployment {name} describes an earlier spec"
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
        if name := quota.missing(pod.requests):
            return f"ResourceQuota {quota.name} has no room for {name}"
    return None
