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
    """Operations of the simulator that the Deployment and ReplicaSet controllers use."""

    state: ClusterState

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds."""

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Call *act* after a delay of virtual time."""

    def create(self, pod: Pod) -> None:
        """Create a pod that runs until it is deleted."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the pods with these keys, bound or Pending."""


@dataclass(slots=True)
class _Rolling:
    """State of a simulated Deployment: desired replicas, and pods by key with their revisions."""

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
        """Return the pods of the ReplicaSet for a revision of the Deployment."""
        return [replica for number, replica in self.pods.values() if number == revision]

    def ready(self) -> int:
        return sum(replica.ready_ms is not None for _, replica in self.pods.values())

    def missing(self) -> int:
        return max(self.desired - self.extra - self.ready(), 0)

    def count(self, now_ms: int) -> None:
        """Add the Ready pods that were missing since the last call to the totals.

        Call it before each change of the replicas or pods.
        """
        missing = self.missing()
        self.complete = self.complete or (self.desired > 0 and not missing)
        if self.complete:
            self.below_desired_ms += missing * (now_ms - self.counted_ms)
            evicted = min(missing, len(self.replacements))
            self.below_by_eviction_ms += evicted * (now_ms - self.counted_ms)
        self.counted_ms = now_ms


class Deployments:
    """The Deployment controller and the ReplicaSet controller, for all Deployments of a load."""

    def __init__(
        self, simulator: DeploymentOperations, seed: int, order: ScaleInOrder | None = None
    ) -> None:
        """Create the controllers without Deployments.

        *order*: scale-ins follow the pod deletion costs of this other tool, which are always up to
        date; None: they follow the costs that the pods have. *seed*: for the random UIDs of pods.
        """
        self._simulator, self._chance, self._order = simulator, random.Random(seed), order
        self._owner: dict[str, _Rolling] = {}
        self._rolling: dict[str, _Rolling] = {}

    def begin(self, deployment: Deployment) -> None:
        """Schedule all changes of a new Deployment: replicas, rollouts and restarts."""
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
        """Return how many Ready pods all Deployments lacked until now, times milliseconds.

        The result is (all, part of it in which replacements of evicted pods were not Ready yet).
        """
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
        """Return (desired replicas, number of Ready pods) of a Deployment."""
        return self._rolling[name].desired, self._rolling[name].ready()

    def scale(self, name: str, replicas: int, manager: str) -> None:
        """Set the replicas of a Deployment; *manager*: field manager of the write."""
        self._scale(self._rolling[name], replicas, manager)

    def surge(self, name: str, replicas: int, extra: int) -> None:
        """Set the replicas of a Deployment for a surge move.

        *extra*: how many of the *replicas* the move has added.
        """
        rolling = self._rolling[name]
        rolling.count(self._simulator.now_ms())
        rolling.generation += 1
        rolling.desired, rolling.manager, rolling.extra = replicas, MANAGER, extra
        self._sync(rolling)

    def missing_by_moves(self, name: str, calm_ms: int) -> int:
        """Return how many Ready pods a Deployment lacks because of surge moves.

        It is 0 if anything else has changed the Deployment within the last *calm_ms* milliseconds.
        """
        rolling = self._rolling[name]
        calm = self._simulator.now_ms() - rolling.disturbed_ms > calm_ms
        return rolling.missing() if calm else 0

    def observed(self, name: str) -> ObservedDeployment:
        """Return the Deployment in the form in which Ebb reads it from the API server."""
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
        """Return all pods of a Deployment, those of old ReplicaSets included."""
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
        """Schedule the readiness of a pod that was bound: it is Ready after its startup time."""
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
        """Replace the evicted pod *key*: remove it from its Deployment, and create a new pod."""
        rolling = self._owner.pop(key)
        self._disturb(rolling)
        del rolling.pods[key]
        rolling.replacements.discard(key)
        before = set(rolling.pods)
        self._sync(rolling)
        rolling.replacements |= rolling.pods.keys() - before

    def owns(self, key: str) -> bool:
        """Return whether the pod with this key belongs to a Deployment."""
        return key in self._owner

    def _sync(self, rolling: _Rolling) -> None:
        """Create and delete pods until the next step must wait for the readiness of a pod."""
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
        """Delete as many pods of old ReplicaSets as maxUnavailable allows, unready pods first."""
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
        """Return the replica with its pod as it is now: its node and its pod deletion cost."""
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
