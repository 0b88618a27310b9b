"""The Deployment and ReplicaSet controllers of a simulated cluster.

Rolling updates use the default of 25 % for maxSurge (rounded up) and maxUnavailable (rounded
down). Source: kube-controller-manager's NewRSNewReplicas and reconcileOldReplicaSets, 1.36.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from core.model.constraints import NO_DISRUPTION_FACTS
from core.model.pod import Pod
from core.model.workload import REPLICA_SET
from sim.cluster import State
from sim.replicas import Replica, first_deleted
from sim.workload import Deployment

QUARTER: Final = 4
"""maxSurge and maxUnavailable are the replicas divided by this number."""


class World(Protocol):
    """The operations of the simulator that the controllers use."""

    state: State

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

    of: Deployment
    wanted: int = 0
    revision: int = 1
    made: int = 0
    pods: dict[str, tuple[int, Replica]] = field(default_factory=dict)

    def of_revision(self, revision: int) -> list[Replica]:
        """Return the pods of one ReplicaSet."""
        return [one for number, one in self.pods.values() if number == revision]

    def ready(self) -> int:
        """Return the number of Ready pods."""
        return sum(one.ready_ms is not None for _, one in self.pods.values())


class Deployments:
    """Both controllers, for all Deployments of a workload."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._chance = world, random.Random(seed)
        self._owner: dict[str, _Rolling] = {}

    def begin(self, deployment: Deployment) -> None:
        """Schedule all changes of a Deployment: replicas, rollouts and restarts."""
        one, after = _Rolling(deployment), self._world.after
        for at_ms, wanted in one.of.replicas:
            after(at_ms, lambda wanted=wanted: self._scale(one, wanted))  # type: ignore[misc]
        for at_ms in one.of.rollouts:
            after(at_ms, lambda: self._roll_out(one))
        for at_ms in one.of.restarts:
            after(at_ms, lambda: self._restart(one))

    def _scale(self, one: _Rolling, wanted: int) -> None:
        one.wanted = wanted
        self._sync(one)

    def _roll_out(self, one: _Rolling) -> None:
        one.revision += 1
        self._sync(one)

    def _restart(self, one: _Rolling) -> None:
        ready = [each for _, each in one.pods.values() if each.ready_ms is not None]
        if ready:
            oldest = min(ready, key=lambda each: (each.created_ms, each.pod.uid))
            self._delete(one, [oldest])
            self._sync(one)

    def bound(self, pod: Pod) -> None:
        """Handle a binding: the pod becomes Ready after the startup time."""
        one, now_ms = self._owner[pod.key], self._world.now_ms()
        _, replica = one.pods[pod.key]
        # What is bound at the beginning has run since it was created, wherever that was.
        ready_ms = one.of.startup_ms + (now_ms or replica.created_ms)
        delay_ms = max(ready_ms - now_ms, 0)
        self._world.after(delay_ms, lambda: self._ready(one, pod.key, ready_ms))

    def _ready(self, one: _Rolling, key: str, ready_ms: int) -> None:
        if key not in one.pods:
            return  # deleted meanwhile
        revision, replica = one.pods[key]
        one.pods[key] = revision, replace(replica, ready_ms=ready_ms)
        self._sync(one)

    def gone(self, key: str) -> None:
        """Handle a deletion by another component: a new pod replaces the deleted one."""
        one = self._owner.pop(key)
        del one.pods[key]
        self._sync(one)

    def owns(self, key: str) -> bool:
        """Return whether the pod belongs to a Deployment."""
        return key in self._owner

    def _sync(self, one: _Rolling) -> None:
        """Create and delete pods until only the readiness of pods can allow further steps."""
        changed = True
        while changed:
            before = set(one.pods)
            self._sync_new(one)
            if len(one.of_revision(one.revision)) < len(one.pods):
                self._sync_old(one)
            changed = before != one.pods.keys()

    def _sync_new(self, one: _Rolling) -> None:
        new = one.of_revision(one.revision)
        missing = one.wanted - len(new)
        if len(new) < len(one.pods):
            surge = -(-one.wanted // QUARTER)
            missing = min(missing, max(one.wanted + surge - len(one.pods), 0))
        if missing < 0:
            self._delete(one, self._first(one, new)[:-missing])
        for _ in range(missing):
            self._create(one)

    def _sync_old(self, one: _Rolling) -> None:
        """Delete pods of old ReplicaSets that the new one can replace, unready pods first."""
        new = one.of_revision(one.revision)
        unready = sum(each.ready_ms is None for each in new)
        least = one.wanted - one.wanted // QUARTER
        most = max(len(one.pods) - least - unready, 0)
        old = [each for number, each in one.pods.values() if number != one.revision]
        failing = [each for each in old if each.ready_ms is None][:most]
        self._delete(one, failing)
        for number in sorted({number for number, _ in one.pods.values()} - {one.revision}):
            spare = max(one.ready() - least, 0)
            self._delete(one, self._first(one, one.of_revision(number))[:spare])

    def _first(self, one: _Rolling, replicas: Iterable[Replica]) -> list[Replica]:
        current = [self._seen(each) for each in replicas]
        related = [self._seen(each) for _, each in one.pods.values()]
        return first_deleted(current, related, self._world.now_ms())

    def _seen(self, replica: Replica) -> Replica:
        """Return the replica with its current pod: its binding and its deletion cost."""
        return replace(replica, pod=self._world.state.pods[replica.pod.key])

    def _create(self, one: _Rolling) -> None:
        age_ms = next(iter(one.of.ages_ms[one.made :]), 0)
        one.made += 1
        name = f"{one.of.name}-{one.revision}-{one.made:05}"
        pod = Pod(
            namespace="work",
            name=name,
            uid=f"{self._chance.getrandbits(64):016x}",
            requests=one.of.requests,
            placing=one.of.placing,
            ties=one.of.ties or NO_DISRUPTION_FACTS,
            owner_kind=REPLICA_SET,
            owner_name=f"{one.of.name}-{one.revision}",
        )
        one.pods[pod.key] = one.revision, Replica(pod, self._world.now_ms() - age_ms)
        self._owner[pod.key] = one
        self._world.create(pod)

    def _delete(self, one: _Rolling, replicas: Iterable[Replica]) -> None:
        keys = [each.pod.key for each in replicas]
        for key in keys:
            del one.pods[key], self._owner[key]
        self._world.delete(keys)
