"""Define the objects that surge moves depend on, such as Deployments.

Source: k8s.io/api apps/v1 and autoscaling/v2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model.pod import REPLICA_SET, Pod
from core.moves.note import DEADLINE_SECONDS_MAX, DEADLINE_SECONDS_MIN
from core.moves.quotas import ResourceQuota

ROLLING_UPDATE: Final = "RollingUpdate"
CONTROLLER: Final = "ebb-controller"
"""Name of the Deployment of Ebb's controller, as in manifests/."""
HPA_SYNC_SECONDS: Final = 15
"""Default of `--horizontal-pod-autoscaler-sync-period`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDeployment:
    """The spec and status of a Deployment, and the name of its current ReplicaSet."""

    namespace: str
    name: str
    uid: str
    replicas: int
    strategy: str = ROLLING_UPDATE
    max_surge: int = 1
    """Number of pods beyond the replicas that the strategy allows (`resolved_surge`)."""
    paused: bool = False
    keep: bool = False
    """The Deployment or its pod template has the annotation kube-ebb.io/keep: "true"."""
    generation: int = 1
    """Number that each change of the spec raises."""
    observed_generation: int = 1
    """Generation that the status describes."""
    pods: int
    """Number of pods of all its ReplicaSets (status.replicas)."""
    updated: int
    """Number of pods of the current ReplicaSet."""
    available: int
    """Number of pods that have been Ready for at least minReadySeconds."""
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 600
    replica_set: str
    """Name of the current ReplicaSet."""
    replica_failure: str = ""
    """Message of the condition ReplicaFailure; empty if it is not true."""

    @property
    def key(self) -> str:
        """Return namespace/name of the Deployment."""
        return f"{self.namespace}/{self.name}"

    @property
    def deadline_seconds(self) -> int:
        """Return the time in which the new pod of a move must become available."""
        seconds = max(self.progress_deadline_seconds, DEADLINE_SECONDS_MIN)
        return min(seconds, DEADLINE_SECONDS_MAX)

    @property
    def outdated(self) -> bool:
        """Return whether the status of the Deployment describes an earlier generation of it."""
        return self.observed_generation < self.generation


def is_controller(deployment: ObservedDeployment, own_namespace: str) -> bool:
    """Return whether it is the Deployment of Ebb's controller, one of whose pods is the leader."""
    return (deployment.namespace, deployment.name) == (own_namespace, CONTROLLER)


def resolved_surge(max_surge: int | str, replicas: int) -> int:
    """Return maxSurge as a number of pods.

    A percentage of *replicas* is rounded up, as Kubernetes does. An invalid value gives 0.
    """
    if isinstance(max_surge, int):
        return max(max_surge, 0)
    digits = max_surge.removesuffix("%")
    if digits == max_surge or not digits.isdecimal() or len(digits) > 9:
        return 0
    return -(-int(digits) * replicas // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizontalAutoscaler:
    """A HorizontalPodAutoscaler, and the Deployment that it scales."""

    namespace: str
    name: str
    target: str
    """Name of the Deployment that it scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeObjects:
    """The Deployments, HorizontalPodAutoscalers and ResourceQuotas that surge moves depend on."""

    deployments: Mapping[str, ObservedDeployment] = field(default_factory=dict)
    """Deployments by namespace/name."""
    owners: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Key of the Deployment by namespace and name of each of its ReplicaSets, also old ones."""
    autoscalers: Mapping[str, HorizontalAutoscaler] = field(default_factory=dict)
    """HorizontalPodAutoscalers by the key of the Deployment that they scale."""
    quotas: Mapping[str, Sequence[ResourceQuota]] = field(default_factory=dict)
    """ResourceQuotas by namespace."""

    def deployment_of(self, pod: Pod) -> ObservedDeployment | None:
        """Return the Deployment of the pod, or None if no ReplicaSet of a known one owns it."""
        if pod.owner_kind != REPLICA_SET:
            return None
        return self.deployments.get(self.owners.get((pod.namespace, pod.owner_name), ""))
