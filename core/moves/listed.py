"""Combine the Deployments, ReplicaSets, HPAs and ResourceQuotas that surge moves depend on.

The API server lists them separately. A Deployment does not name its current ReplicaSet: both have
the same revision. Source: deployment.kubernetes.io/revision of the Deployment controller.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from core.moves.objects import (
    HorizontalAutoscaler,
    ObservedDeployment,
    SurgeObjects,
)
from core.moves.quotas import ResourceQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDeployment:
    """A Deployment as listed, with the revision by which Ebb finds its current ReplicaSet."""

    observed: ObservedDeployment
    """Its `replica_set` is empty."""
    revision: str = ""
    """Revision of the current ReplicaSet; empty if the Deployment controller has set none yet."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the Deployment."""
        return self.observed.namespace

    @property
    def name(self) -> str:
        """Return the name of the Deployment."""
        return self.observed.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedReplicaSet:
    """A ReplicaSet with its revision and its Deployment.

    `surge_objects` uses it to find the Deployment of each pod and the current ReplicaSet of each
    Deployment.
    """

    namespace: str
    name: str
    deployment: str
    """Name of the Deployment that controls it."""
    deployment_uid: str
    revision: str = ""


def surge_objects(
    deployments: Iterable[ListedDeployment],
    replica_sets: Iterable[ListedReplicaSet],
    autoscalers: Iterable[HorizontalAutoscaler] = (),
    quotas: Iterable[ResourceQuota] = (),
) -> SurgeObjects:
    """Combine the listed objects, so that each Deployment has the name of its current ReplicaSet.

    The name is empty if no ReplicaSet has the revision of the Deployment. If several
    HorizontalPodAutoscalers scale a Deployment, the first one by name is returned.
    """
    by_key = {one.observed.key: one for one in deployments}
    owners: dict[tuple[str, str], str] = {}
    current: dict[str, str] = {}
    for one in replica_sets:
        key = f"{one.namespace}/{one.deployment}"
        deployment = by_key.get(key)
        if deployment is None or deployment.observed.uid != one.deployment_uid:
            continue
        owners[one.namespace, one.name] = key
        if one.revision and one.revision == deployment.revision:
            current[key] = one.name
    by_namespace: dict[str, list[ResourceQuota]] = {}
    for quota in quotas:
        by_namespace.setdefault(quota.namespace, []).append(quota)
    return SurgeObjects(
        deployments={
            key: replace(one.observed, replica_set=current.get(key, ""))
            for key, one in by_key.items()
        },
        owners=owners,
        autoscalers={
            f"{one.namespace}/{one.target}": one
            for one in sorted(autoscalers, key=lambda one: one.name, reverse=True)
        },
        quotas=by_namespace,
    )
