"""A Deployment with its ReplicaSet, and leaders that move its pod and may die at any write."""

from dataclasses import dataclass, field, replace

from core.model.now import Now
from core.model.pod import Pod
from core.moves.deployments import why_unsettled
from core.moves.objects import MANAGER, ObservedDeployment
from core.moves.pauses import ended
from core.moves.records import MoveOutcome, MoveRecord, MoveRecords, decode, encode
from core.moves.steps import (
    EndMove,
    MoveView,
    PutRecord,
    SetCost,
    SetReplicas,
    Wait,
    next_step,
)
from sim.replicas import Replica, first_deleted
from tests.support.surge import NOW, deployment, make_pod, make_record

STEPS_MAX = 20


@dataclass
class MoveWorld:
    """Two nodes, of which the node `m` is marked; each leader sees all objects as they are."""

    wanted: int = 3
    """Replicas that others than Ebb have set."""
    max_surge: int = 1
    now_seconds: int = NOW
    allowed: bool = True
    marked: bool = True
    exists: bool = True
    has_autoscaler: bool = False
    leader: str = "a"
    data: dict[str, str] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    outcomes: list[MoveOutcome] = field(default_factory=list)
    replicas: int = 3
    manager: str = "kubectl"
    version: int = 1
    created: int = 0
    available: set[str] = field(default_factory=set)
    """Pods that have been Ready for minReadySeconds."""

    def __post_init__(self) -> None:
        self.replicas = self.wanted
        self.controller()
        self.become_ready()
        self.become_available()

    # The ReplicaSet controller

    def controller(self) -> None:
        """Create and delete pods as the ReplicaSet controller does."""
        wanted = self.replicas if self.exists else 0
        while len(self.pods) < wanted:
            name = f"web-{self.created}"
            node = "m" if not self.created else "n"
            self.pods[name] = make_pod(name, node, ready=False, created_seconds=self.now_seconds)
            self.created += 1
        replicas = [
            Replica(
                pod, 1000 * (pod.created_seconds or 0), self.now_seconds if pod.ready else None
            )
            for pod in self.pods.values()
        ]
        order = first_deleted(replicas, replicas, 1000 * self.now_seconds)
        for one in order[: max(len(self.pods) - wanted, 0)]:
            del self.pods[one.pod.name]
        self.available &= self.pods.keys()
        assert len(self.pods) <= max(self.wanted + self.max_surge, 0)

    def ready(self, name: str) -> None:
        self.pods[name] = replace(self.pods[name], ready=True)

    def ready_count(self) -> int:
        return sum(pod.ready for pod in self.pods.values())

    # Others

    def scale(self, replicas: int, manager: str) -> None:
        """Set the replicas as a person, a GitOps tool or an HPA does."""
        if replicas == self.replicas:
            return  # the API server stores no change, so nobody can see it
        self.manager, self.version = manager, self.version + 1
        self.wanted = self.replicas = replicas
        self.controller()

    def delete_pod(self) -> None:
        for name in sorted(self.pods)[:1]:
            del self.pods[name]
        self.controller()

    def delete(self) -> None:
        """Delete the Deployment."""
        self.exists = False
        self.controller()

    def pass_time(self, seconds: int) -> None:
        self.now_seconds += seconds

    def become_ready(self) -> None:
        for name in self.pods:
            self.ready(name)

    def become_available(self) -> None:
        self.available |= {pod.name for pod in self.pods.values() if pod.ready}

    def become_unready(self) -> None:
        """Fail the readiness probe of the newest pod."""
        name = max(self.pods, default=None)
        if name is not None:
            self.pods[name] = replace(self.pods[name], ready=False)
            self.available.discard(name)

    # Ebb

    def observed(self) -> ObservedDeployment | None:
        if not self.exists:
            return None
        many = len(self.pods)
        return deployment(
            replicas=self.replicas,
            replicas_manager=self.manager,
            version=str(self.version),
            max_surge=self.max_surge,
            pods=many,
            updated=many,
            available=len(self.available),
        )

    def view(self) -> MoveView:
        return MoveView(
            deployment=self.observed(),
            pods=tuple(self.pods.values()),
            has_autoscaler=self.has_autoscaler,
            marked={"m"} if self.marked else set(),
            allowed=self.allowed,
            leader=self.leader,
        )

    def records(self) -> MoveRecords:
        return decode(self.data).records

    def begin(self) -> bool:
        """Write the record of a move of the pod on the marked node, if it may be moved."""
        found, records = self.observed(), self.records()
        pods = [pod for pod in self.pods.values() if pod.node == "m"]
        if found is None or why_unsettled(found) is not None or not pods:
            return False
        pause = records.pauses.get(found.uid)
        paused = pause is not None and self.now_seconds < pause.until
        if records.moves or paused or not (self.allowed and self.marked):
            return False
        record = make_record(
            pod=pods[0].name,
            pod_uid=pods[0].uid,
            original=self.replicas,
            raised=self.replicas + 1,
            leader=self.leader,
            begun=self.now_seconds,
            deadline=self.now_seconds + 600,
        )
        self.data = encode(records.with_move(record))
        return True

    def lead(self, writes_max: int = STEPS_MAX) -> None:
        """Make at most so many writes; then the leader waits, or dies."""
        for _ in range(writes_max):
            moves = self.records().moves.values()
            if not sum(self.step(move) for move in moves):
                return

    def step(self, move: MoveRecord) -> bool:
        """Make one write; return False if there is nothing to do."""
        now = Now(self.now_seconds)
        match next_step(move, self.view(), now):
            case Wait():
                return False
            case PutRecord(changed):
                self.data = encode(self.records().with_move(changed))
            case SetCost(pod, cost):
                self.pods[pod.name] = replace(
                    pod, deletion_cost=str(cost), deletion_cost_ours=str(cost)
                )
            case SetReplicas(seen, replicas):
                self.set_replicas(seen, replicas)
            case EndMove() as end:
                self.outcomes.append(end.outcome)
                self.data = encode(ended(self.records(), move, end, 0, now))
        return True

    def set_replicas(self, seen: ObservedDeployment, replicas: int) -> None:
        """Write `scale` for Ebb; a version that is not current is a conflict."""
        assert seen.version == str(self.version)
        assert replicas - self.wanted in (0, 1)
        ready, available = self.ready_count(), len(self.available)
        self.replicas, self.manager, self.version = replicas, MANAGER, self.version + 1
        self.controller()
        assert self.ready_count() >= min(ready, self.wanted)
        assert len(self.available) >= min(available, self.wanted)
