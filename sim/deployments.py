"""The Deployment and ReplicaSet controllers of a simulated cluster.

Rolling updates use the default of 25 % for maxSurge (rounded up) and maxUnavailable (rounded
down). Source: kube-controller-manager's NewRSNewReplicas and reconcileOldReplicaSets, 1.36.

A pod may be detached: without the label of its ReplicaSet it goes on running, and neither the
ReplicaSet nor the status of the Deployment counts it. Source: syncReplicaSet and
getIndirectlyRelatedPods, 1.37.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple, Protocol

from core.model.constraints import NO_DISRUPTION_FACTS
from core.model.pod import REPLICA_SET, TEMPLATE_LABEL, Pod
from core.moves.objects import ObservedDeployment
from sim.cluster import ClusterState, Place
from sim.replicas import Replica, first_deleted
from sim.simulated_load import Deployment

NAMESPACE: Final = "work"
APP_LABEL: Final = "app"
QUARTER: Final = 4
"""maxSurge and maxUnavailable are the replicas divided by this number."""


DeletionCosts = Callable[[Iterable[Place]], Mapping[str, int]]
"""Type of a function from all nodes to the pod deletion costs of their pods, by key."""


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


class Scaled(NamedTuple):
    """The numbers of a Deployment that an HPA uses."""

    replicas: int
    """Desired replicas, as in `spec.replicas`."""
    pods: int
    """Pods that the selector of the Deployment matches, detached ones included."""
    ready: int
    """Those of the pods that are Ready."""


class Shortfall(NamedTuple):
    """Pods that all Deployments lacked, times milliseconds."""

    below_desired_ms: int
    """Ready pods, detached ones included."""
    below_by_eviction_ms: int
    """The part of them in which replacements of evicted pods were not Ready yet."""
    unavailable_by_moves_ms: int
    """Time in which only detached pods kept `status.availableReplicas` below `spec.replicas`.

    A millisecond counts once for each such Deployment.
    """


@dataclass(slots=True)
class _Rolling:
    """State of a simulated Deployment: desired replicas, and pods by key with their revisions."""

    deployment: Deployment
    desired: int = 0
    revision: int = 1
    created: int = 0
    generation: int = 1
    disturbed_ms: int = 0
    """Time of the last change that something other than a surge move has made."""
    complete: bool = False
    """As many pods as the Deployment wants have been Ready at the same time, at least once."""
    counted_ms: int = 0
    below_desired_ms: int = 0
    """Missing Ready pods, times milliseconds, until `counted_ms`."""
    below_by_eviction_ms: int = 0
    """The part of `below_desired_ms` in which replacements of evicted pods were not Ready yet."""
    unavailable_by_moves_ms: int = 0
    """Time in which only detached pods kept `status.availableReplicas` below `spec.replicas`."""
    replacements: set[str] = field(default_factory=set)
    """Pods that replace evicted pods and are not Ready yet."""
    pods: dict[str, tuple[int, Replica]] = field(default_factory=dict)
    """Pods that ReplicaSets of the Deployment control."""
    detached: dict[str, tuple[int, Replica]] = field(default_factory=dict)
    """Pods that run without being counted by their ReplicaSets."""
    available: set[str] = field(default_factory=set)
    """Pods, also detached ones, that have been Ready for `minReadySeconds`."""
    labels: dict[int, dict[str, str]] = field(default_factory=dict)
    """Labels of the pods by revision; pods share them."""

    def labels_of(self, revision: int) -> dict[str, str]:
        """Return the labels of the pods of the ReplicaSet for a revision of the Deployment."""
        made = {APP_LABEL: self.deployment.name, TEMPLATE_LABEL: str(revision)}
        return self.labels.setdefault(revision, made)

    def of_revision(self, revision: int) -> list[Replica]:
        """Return the pods of the ReplicaSet for a revision of the Deployment."""
        return [replica for number, replica in self.pods.values() if number == revision]

    def selected(self) -> list[Replica]:
        """Return the pods that the selector of the Deployment matches: detached ones, too."""
        return [replica for _, replica in chain(self.pods.values(), self.detached.values())]

    def ready(self) -> int:
        return sum(replica.ready_ms is not None for replica in self.selected())

    def missing(self) -> int:
        return max(self.desired - self.ready(), 0)

    def unavailable_by_moves(self) -> bool:
        """Return whether detached pods lower the available replicas below the desired ones."""
        by_moves = not self.available.isdisjoint(self.detached)
        return by_moves and len(self.available & self.pods.keys()) < self.desired

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
            if self.unavailable_by_moves():
                self.unavailable_by_moves_ms += now_ms - self.counted_ms
        self.counted_ms = now_ms


class Deployments:
    """The Deployment controller and the ReplicaSet controller, for all Deployments of a load."""

    def __init__(
        self, simulator: DeploymentOperations, seed: int, costs: DeletionCosts | None = None
    ) -> None:
        """Create the controllers without Deployments.

        *costs*: scale-ins follow the pod deletion costs that this function returns, always up to
        date; None: they follow the costs that the pods have. *seed*: for the random UIDs of pods.
        """
        self._simulator, self._chance, self._costs = simulator, random.Random(seed), costs
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

    def _scale(self, rolling: _Rolling, desired: int) -> None:
        self._disturb(rolling)
        rolling.generation += 1
        rolling.desired = desired
        self._sync(rolling)

    def _disturb(self, rolling: _Rolling) -> None:
        rolling.count(self._simulator.now_ms())
        rolling.disturbed_ms = self._simulator.now_ms()

    def _roll_out(self, rolling: _Rolling) -> None:
        self._disturb(rolling)
        rolling.generation += 1
        rolling.revision += 1
        self._sync(rolling)

    def shortfall(self) -> Shortfall:
        """Return which pods the Deployments lacked until now."""
        every = self._rolling.values()
        for rolling in every:
            rolling.count(self._simulator.now_ms())
        return Shortfall(
            sum(rolling.below_desired_ms for rolling in every),
            sum(rolling.below_by_eviction_ms for rolling in every),
            sum(rolling.unavailable_by_moves_ms for rolling in every),
        )

    # For surge moves and simulated HPAs

    def names(self) -> Iterable[str]:
        """Return the names of all Deployments."""
        return self._rolling.keys()

    def scaled(self, name: str) -> Scaled:
        """Return the numbers of a Deployment that its HPA uses."""
        rolling = self._rolling[name]
        return Scaled(rolling.desired, len(rolling.selected()), rolling.ready())

    def scale(self, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment."""
        self._scale(self._rolling[name], replicas)

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
            replicas=rolling.desired,
            max_surge=-(-rolling.desired // QUARTER),
            generation=rolling.generation,
            observed_generation=rolling.generation,
            pods=len(rolling.pods),
            updated=sum(revision == rolling.revision for revision, _ in rolling.pods.values()),
            available=len(rolling.available & rolling.pods.keys()),
            min_ready_seconds=rolling.deployment.min_ready_ms // 1000,
            replica_set=f"{name}-{rolling.revision}",
        )

    def replica_sets(self, name: str) -> set[str]:
        """Return the names of the ReplicaSets that the pods of a Deployment have."""
        return {replica.pod.owner_name for replica in self._rolling[name].selected()}

    def pods(self, name: str) -> list[Pod]:
        """Return all pods of a Deployment, those of old ReplicaSets and detached ones included."""
        pods = self._simulator.state.pods
        return [pods[replica.pod.key] for replica in self._rolling[name].selected()]

    def detach(self, key: str) -> None:
        """Play the controllers after the label of its ReplicaSet was removed from a pod.

        The pod goes on running, and its ReplicaSet creates another one.
        """
        rolling = self._owner[key]
        rolling.count(self._simulator.now_ms())
        revision, _ = rolling.detached[key] = rolling.pods.pop(key)
        self._create(rolling, revision)
        self._sync(rolling)

    def attach(self, key: str) -> None:
        """Play the controllers after a detached pod was given back the label of its ReplicaSet.

        The ReplicaSet adopts the pod, counts one too many, and deletes one.
        """
        rolling = self._owner[key]
        rolling.count(self._simulator.now_ms())
        revision, _ = rolling.pods[key] = rolling.detached.pop(key)
        self._delete(rolling, self._first(rolling, rolling.of_revision(revision))[:1])
        self._sync(rolling)

    def _restart(self, rolling: _Rolling) -> None:
        self._disturb(rolling)
        ready = [replica for replica in rolling.selected() if replica.ready_ms is not None]
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
        if key not in self._owner:
            return  # deleted meanwhile
        now_ms = self._simulator.now_ms()
        rolling.count(now_ms)
        rolling.replacements.discard(key)
        pods = rolling.pods if key in rolling.pods else rolling.detached
        revision, replica = pods[key]
        pods[key] = revision, replace(replica, ready_ms=ready_ms)
        pod = self._simulator.state.pods[key]
        pod = replace(pod, ready=True, ready_seconds=ready_ms // 1000)
        self._simulator.state.replace_pod(pod)
        wait_ms = ready_ms + rolling.deployment.min_ready_ms - now_ms
        if wait_ms > 0:
            self._simulator.after(wait_ms, lambda: self._available(rolling, key))
        else:
            self._available(rolling, key)

    def _available(self, rolling: _Rolling, key: str) -> None:
        if key not in self._owner:
            return  # deleted meanwhile
        rolling.count(self._simulator.now_ms())
        rolling.available.add(key)
        self._sync(rolling)

    def replaced(self, key: str) -> None:
        """Replace the evicted pod *key*: remove it from its Deployment, and create a new pod."""
        rolling = self._owner.pop(key)
        self._disturb(rolling)
        rolling.available.discard(key)
        rolling.replacements.discard(key)
        if rolling.detached.pop(key, None) is not None:
            return  # no ReplicaSet counted it
        del rolling.pods[key]
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
            self._create(rolling, rolling.revision)

    def _sync_old(self, rolling: _Rolling) -> None:
        """Delete as many pods of old ReplicaSets as maxUnavailable allows.

        Pods that are not available are deleted first.
        """
        new = rolling.of_revision(rolling.revision)
        starting = sum(replica.pod.key not in rolling.available for replica in new)
        least = rolling.desired - rolling.desired // QUARTER
        most = max(len(rolling.pods) - least - starting, 0)
        old = [replica for number, replica in rolling.pods.values() if number != rolling.revision]
        starting_old = [one for one in old if one.pod.key not in rolling.available][:most]
        self._delete(rolling, starting_old)
        for number in sorted({number for number, _ in rolling.pods.values()} - {rolling.revision}):
            spare = max(len(rolling.available & rolling.pods.keys()) - least, 0)
            self._delete(rolling, self._first(rolling, rolling.of_revision(number))[:spare])

    def _first(self, rolling: _Rolling, replicas: Iterable[Replica]) -> list[Replica]:
        current = [self._current(replica) for replica in replicas]
        related = [self._current(replica) for _, replica in rolling.pods.values()]
        if self._costs is not None:
            costs = self._costs(self._simulator.state.places.values())
            current = [_with_cost(replica, costs) for replica in current]
        return first_deleted(current, related, self._simulator.now_ms())

    def _current(self, replica: Replica) -> Replica:
        """Return the replica with its pod as it is now: its node and its pod deletion cost."""
        return replace(replica, pod=self._simulator.state.pods[replica.pod.key])

    def _create(self, rolling: _Rolling, revision: int) -> None:
        age_ms = next(iter(rolling.deployment.ages_ms[rolling.created :]), 0)
        rolling.created += 1
        name = f"{rolling.deployment.name}-{revision}-{rolling.created:05}"
        pod = Pod(
            namespace=NAMESPACE,
            name=name,
            uid=f"{self._chance.getrandbits(64):016x}",
            created_seconds=(self._simulator.now_ms() - age_ms) // 1000,
            labels=rolling.labels_of(revision),
            requests=rolling.deployment.requests,
            node_constraints=rolling.deployment.node_constraints,
            pod_constraints=rolling.deployment.pod_constraints,
            disruption_facts=rolling.deployment.disruption_facts or NO_DISRUPTION_FACTS,
            owner_kind=REPLICA_SET,
            owner_name=f"{rolling.deployment.name}-{revision}",
        )
        rolling.pods[pod.key] = revision, Replica(pod, self._simulator.now_ms() - age_ms)
        self._owner[pod.key] = rolling
        self._simulator.create(pod)

    def _delete(self, rolling: _Rolling, replicas: Iterable[Replica]) -> None:
        keys = [replica.pod.key for replica in replicas]
        rolling.count(self._simulator.now_ms())
        rolling.replacements.difference_update(keys)
        rolling.available.difference_update(keys)
        for key in keys:
            del self._owner[key]
            del (rolling.pods if key in rolling.pods else rolling.detached)[key]
        self._simulator.delete(keys)


def _with_cost(replica: Replica, costs: Mapping[str, int]) -> Replica:
    cost = costs.get(replica.pod.key)  # Pending pods have none
    return replace(
        replica, pod=replace(replica.pod, deletion_cost=None if cost is None else str(cost))
    )
