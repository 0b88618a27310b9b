"""Define the Deployments, HorizontalPodAutoscalers and ResourceQuotas that surge moves depend on.

Source: k8s.io/api apps/v1, autoscaling/v2 and core/v1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model.pod import REPLICA_SET, Pod
from core.model.resources import Resources
from core.moves.note import DEADLINE_SECONDS_MAX, DEADLINE_SECONDS_MIN

ROLLING_UPDATE: Final = "RollingUpdate"
HPA_WINDOW_SECONDS: Final = 300
"""Default of `--horizontal-pod-autoscaler-downscale-stabilization`."""
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
    def unavailable(self) -> int:
        """Return the number of unavailable pods; a pod that is missing counts too."""
        return max(self.pods, self.replicas) - self.available

    @property
    def deadline_seconds(self) -> int:
        """Return the time in which the new pod of a move must become available."""
        seconds = max(self.progress_deadline_seconds, DEADLINE_SECONDS_MIN)
        return min(seconds, DEADLINE_SECONDS_MAX)

    @property
    def outdated(self) -> bool:
        """Return whether the status of the Deployment describes an earlier generation of it."""
        return self.observed_generation < self.generation


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
    """The Deployment, the minimum and the scale-in window of a HorizontalPodAutoscaler."""

    namespace: str
    name: str
    target: str
    """Name of the Deployment that it scales."""
    replicas_min: int = 1
    window_seconds: int = HPA_WINDOW_SECONDS
    """Its stabilization window for scale-ins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """The limits and the usage of a ResourceQuota, by the name of the resource.

    Amounts are in millicores, bytes or units.
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]

    def missing(self, requests: Resources) -> str:
        """Return the first resource, by name, of which the quota has too little for another pod.

        Empty if the quota has room for a pod with these *requests*. Quotas on container limits are
        not checked. If such a quota is exceeded, the ReplicaSet controller reports it in the
        condition ReplicaFailure.
        """
        for name, amount in sorted(_counted(requests).items()):
            if amount and name in self.hard and self.used.get(name, 0) + amount > self.hard[name]:
                return name
        return ""


def _counted(requests: Resources) -> dict[str, int]:
    """Return how much of each resource of a ResourceQuota a pod with these requests uses.

    A resource has an entry for each name that a quota can give it, such as `cpu` and
    `requests.cpu`. In millicores, bytes or units.
    """
    amounts = {"pods": 1, "count/pods": 1}
    for name, amount in (
        ("cpu", requests.cpu_millis),
        ("memory", requests.memory_bytes),
        ("ephemeral-storage", requests.ephemeral_bytes),
    ):
        amounts |= {name: amount, f"requests.{name}": amount}
    return amounts | {f"requests.{name}": units for name, units in requests.extended}


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
