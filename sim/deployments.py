"""The Deployment and ReplicaSet controllers of a simulated cluster.

Rolling updates use the default of 25 % for maxSurge (rounded up) and maxUnavailable (rounded
down). Source: kube-controller-manager's NewRSNewReplicas and reconcileOldReplicaSets, 1.36.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from core.model.constraints import NO_DISRUPTION_FACTS
from core.model.pod import REPLICA_SET, Pod
from core.moves.objects import HPA_MANAGER, MANAGER, ObservedDeployment
from sim.cluster import ClusterState
from sim.replicas import Replica, first_deleted
from sim.scale_in import ScaleInOrder, deletion_costs
from sim.simulated_load import Deployment

NAMESPACE: Final = "work"
APP_LABEL: Final = "app"
QUARTER: Final = 4
"""maxSurge and maxUnavailable are the replicas divided by this number."""


class DeploymentOperations(Protocol):
    """The operations of the simulator that the controllers use."""

    state: ClusterState

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds."""

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Schedule an action after a delay."""

    def create(self, pod: Pod) -> None:
        """Create a pod that runs until it is deleted."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete pods, bound or Pending."""


@dataclass(slots=True)
class _Rolling:
    """One Deployment with its desired replicas, and its pods by key, each with its revision."""

    deployment: Deployment
    desired: int = 0
    revision: int = 1
    created: int = 0
    generation: int = 1
    manager: str = ""
    """Field manager that last set the replicas."""
    extra: int = 0
    """Replicas that a surge move has added."""
    disturbed_ms: int = 0
    """Time of the last change that something other than a surge move has made."""
    complete: bool = False
    """As many pods as the Deployment wants have been Ready at the same time, at least once."""
    counted_ms: int = 0
    below_desired_ms: int = 0
    """Missing Ready pods, times milliseconds, until `counted_ms`."""
    below_by_eviction_ms: int = 0
    """The part of `below_desired_ms` in which replacements of evicted pods were not Ready yet."""
    replacements: set[str] = field(default_factory=set)
    """Pods that replace evicted pods and are not Ready yet."""
    pods: dict[str, tuple[int, Replica]] = field(default_factory=dict)
    labels: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = {APP_LABEL: self.deployment.name}

    def of_revision(self, revision: int) -> list[Replica]:
        """Return the pods of one ReplicaSet."""
        return [replica for number, replica in self.pods.values() if number == revision]

    def ready(self) -> int:
        return sum(replica.ready_ms is not None for _, replica in self.pods.values())

    def missing(self) -> int:
        return max(self.desired - self.extra - self.ready(), 0)

    def count(self, now_ms: int) -> None:
        """Count the missing pods until now; call it before each change."""
        missing = self.missing()
        self.complete = self.complete or (self.desired > 0 and not missing)
        if self.complete:
            self.below_desired_ms += missing * (now_ms - self.counted_ms)
            evicted = min(missing, len(self.replacements))
            self.below_by_eviction_ms += evicted * (now_ms - self.counted_ms)
        self.counted_ms = now_ms


class Deployments:
    """Both controllers, for all Deployments of a load."""

    def __init__(
        self, simulator: DeploymentOperations, seed: int, order: ScaleInOrder | None = None
    ) -> None:
        """*order*: another tool, whose pod deletion costs are always up to date."""
        self._simulator, self._chance, self._order = simulator, random.Random(seed), order
        self._owner: dict[str, _Rolling] = {}
        self._rolling: dict[str, _Rolling] = {}

    def begin(self, deployment: Deployment) -> None:
        """Schedule all changes of a Deployment: replicas, rollouts and restarts."""
        rolling, after = _Rolling(deployment), self._simulator.after
        self._rolling[deployment.name] = rolling
        for at_ms, desired in rolling.deployment.replicas:
            after(at_ms, lambda desired=desired: self._scale(rolling, desired))  # type: ignore[misc]
        for at_ms in rolling.deployment.rollouts:
            after(at_ms, lambda: self._roll_out(rolling))
        for at_ms in rolling.deployment.restarts:
            after(at_ms, lambda: self._restart(rolling))

    def _scale(self, rolling: _Rolling, desired: int, manager: str = HPA_MANAGER) -> None:
        self._disturb(rolling)
        rolling.generation += 1
        rolling.desired, rolling.manager, rolling.extra = desired, manager, 0
        self._sync(rolling)

    def _disturb(self, rolling: _Rolling) -> None:
        rolling.count(self._simulator.now_ms())
        rolling.disturbed_ms = self._simulator.now_ms()

    def _roll_out(self, rolling: _Rolling) -> None:
        self._disturb(rolling)
        rolling.generation += 1
        rolling.revision += 1
        self._sync(rolling)

    def below_desired_ms(self) -> tuple[int, int]:
        """Return the Ready pods that were missing, times milliseconds: all, and by evictions."""
        every = self._rolling.values()
        for rolling in every:
            rolling.count(self._simulator.now_ms())
        return sum(rolling.below_desired_ms for rolling in every), sum(
            rolling.below_by_eviction_ms for rolling in every
        )

    # For surge moves and simulated HPAs

    def names(self) -> Iterable[str]:
        """Return the names of all Deployments."""
        return self._rolling.keys()

    def replicas(self, name: str) -> tuple[int, int]:
        """Return the desired replicas, and the number of Ready pods."""
        return self._rolling[name].desired, self._rolling[name].ready()

    def scale(self, name: str, replicas: int, manager: str) -> None:
        """Set the replicas of a Deployment."""
        self._scale(self._rolling[name], replicas, manager)

    def surge(self, name: str, replicas: int, extra: int) -> None:
        """Set the replicas of a Deployment, of which a surge move has added *extra*."""
        rolling = self._rolling[name]
        rolling.count(self._simulator.now_ms())
        rolling.generation += 1
        rolling.desired, rolling.manager, rolling.extra = replicas, MANAGER, extra
        self._sync(rolling)

    def missing_by_moves(self, name: str, calm_ms: int) -> int:
        """Return the Ready pods that are missing although only surge moves changed anything.

        *calm_ms*: time after another change in which its effects may last.
        """
        rolling = self._rolling[name]
        calm = self._simulator.now_ms() - rolling.disturbed_ms > calm_ms
        return rolling.missing() if calm else 0

    def observed(self, name: str) -> ObservedDeployment:
        """Return the Deployment as the API server has it."""
        rolling = self._rolling[name]
        return ObservedDeployment(
            namespace=NAMESPACE,
            name=name,
            uid=name,
            version=str(rolling.generation),
            replicas=rolling.desired,
            replicas_manager=rolling.manager,
            max_surge=-(-rolling.desired // QUARTER),
            generation=rolling.generation,
            observed_generation=rolling.generation,
            pods=len(rolling.pods),
            updated=len(rolling.of_revision(rolling.revision)),
            available=rolling.ready(),
            replica_set=f"{name}-{rolling.revision}",
        )

    def pods(self, name: str) -> list[Pod]:
        """Return all pods of a Deployment."""
        pods = self._simulator.state.pods
        return [pods[key] for key in self._rolling[name].pods]

    def _restart(self, rolling: _Rolling) -> None:
        self._disturb(rolling)
        ready = [replica for _, replica in rolling.pods.values() if replica.ready_ms is not None]
        if ready:
            oldest = min(ready, key=lambda replica: (replica.created_ms, replica.pod.uid))
            self._delete(rolling, [oldest])
            self._sync(rolling)

    def bound(self, pod: Pod) -> None:
        """Handle a binding: the pod becomes Ready after the startup time."""
        rolling, now_ms = self._owner[pod.key], self._simulator.now_ms()
        _, replica = rolling.pods[pod.key]
        # Pods that are bound at the start have been running since their creation.
        ready_ms = rolling.deployment.startup_ms + (now_ms or replica.created_ms)
        delay_ms = max(ready_ms - now_ms, 0)
        self._simulator.after(delay_ms, lambda: self._ready(rolling, pod.key, ready_ms))

    def _ready(self, rolling: _Rolling, key: str, ready_ms: int) -> None:
        if key not in rolling.pods:
            return  # deleted meanwhile
        revision, replica = rolling.pods[key]
        rolling.count(self._simulator.now_ms())
        rolling.replacements.discard(key)
        rolling.pods[key] = revision, replace(replica, ready_ms=ready_ms)
        self._simulator.state.replace_pod(replace(self._simulator.state.pods[key], ready=True))
        self._sync(rolling)

    def replaced(self, key: str) -> None:
        """Handle a deletion by another component: a new pod replaces the deleted one."""
        rolling = self._owner.pop(key)
        self._disturb(rolling)
        del rolling.pods[key]
        rolling.replacements.discard(key)
        before = set(rolling.pods)
        self._sync(rolling)
        rolling.replacements |= rolling.pods.keys() - before

    def owns(self, key: str) -> bool:
        """Return whether the pod belongs to a Deployment."""
        return key in self._owner

    def _sync(self, rolling: _Rolling) -> None:
        """Create and delete pods until only the readiness of pods can allow further steps."""
        changed = True
        while changed:
            before = set(rolling.pods)
            self._sync_new(rolling)
            if len(rolling.of_revision(rolling.revision)) < len(rolling.pods):
                self._sync_old(rolling)
            changed = before != rolling.pods.keys()

    def _sync_new(self, rolling: _Rolling) -> None:
        new = rolling.of_revision(rolling.revision)
        missing = rolling.desired - len(new)
        if len(new) < len(rolling.pods):
            surge = -(-rolling.desired // QUARTER)
            missing = min(missing, max(rolling.desired + surge - len(rolling.pods), 0))
        if missing < 0:
            self._delete(rolling, self._first(rolling, new)[:-missing])
        for _ in range(missing):
            self._create(rolling)

    def _sync_old(self, rolling: _Rolling) -> None:
        """Delete pods of old ReplicaSets that the new one can replace, unready pods first."""
        new = rolling.of_revision(rolling.revision)
        unready = sum(replica.ready_ms is None for replica in new)
        least = rolling.desired - rolling.desired // QUARTER
        most = max(len(rolling.pods) - least - unready, 0)
        old = [replica for number, replica in rolling.pods.values() if number != rolling.revision]
        unready_old = [replica for replica in old if replica.ready_ms is None][:most]
        self._delete(rolling, unready_old)
        for number in sorted({number for number, _ in rolling.pods.values()} - {rolling.revision}):
            spare = max(rolling.ready() - least, 0)
            self._delete(rolling, self._first(rolling, rolling.of_revision(number))[:spare])

    def _first(self, rolling: _Rolling, replicas: Iterable[Replica]) -> list[Replica]:
        current = [self._current(replica) for replica in replicas]
        related = [self._current(replica) for _, replica in rolling.pods.values()]
        if self._order is not None:
            costs = deletion_costs(self._order, self._simulator.state.places.values())
            current = [_with_cost(replica, costs) for replica in current]
        return first_deleted(current, related, self._simulator.now_ms())

    def _current(self, replica: Replica) -> Replica:
        """Return the replica with the current state of its pod: its node and deletion cost."""
        return replace(replica, pod=self._simulator.state.pods[replica.pod.key])

    def _create(self, rolling: _Rolling) -> None:
        age_ms = next(iter(rolling.deployment.ages_ms[rolling.created :]), 0)
        rolling.created += 1
        name = f"{rolling.deployment.name}-{rolling.revision}-{rolling.created:05}"
        pod = Pod(
            namespace=NAMESPACE,
            name=name,
            uid=f"{self._chance.getrandbits(64):016x}",
            created_seconds=(self._simulator.now_ms() - age_ms) // 1000,
            labels=rolling.labels,
            requests=rolling.deployment.requests,
            node_constraints=rolling.deployment.node_constraints,
            pod_constraints=rolling.deployment.pod_constraints,
            disruption_facts=rolling.deployment.disruption_facts or NO_DISRUPTION_FACTS,
            owner_kind=REPLICA_SET,
            owner_name=f"{rolling.deployment.name}-{rolling.revision}",
        )
        rolling.pods[pod.key] = rolling.revision, Replica(pod, self._simulator.now_ms() - age_ms)
        self._owner[pod.key] = rolling
        self._simulator.create(pod)

    def _delete(self, rolling: _Rolling, replicas: Iterable[Replica]) -> None:
        keys = [replica.pod.key for replica in replicas]
        rolling.count(self._simulator.now_ms())
        rolling.replacements.difference_update(keys)
        for key in keys:
            del rolling.pods[key], self._owner[key]
        self._simulator.delete(keys)


def _with_cost(replica: Replica, costs: Mapping[str, int]) -> Replica:
    cost = costs.get(replica.pod.key)  # Pending pods have none
    return replace(
        replica, pod=replace(replica.pod, deletion_cost=None if cost is None else str(cost))
    )
