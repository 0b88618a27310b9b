"""A Deployment with its controllers, and leaders that move its pod and may die at any write.

It shares with Ebb the code under test only: patches, steps and notes. The ReplicaSet controller is
written here once more, as simple as possible.
"""

from dataclasses import dataclass, field, replace

from core.model.now import Now
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL, Pod
from core.moves.move import Move, found_move
from core.moves.note import MoveNote, note_of
from core.moves.objects import ObservedDeployment
from core.moves.outcomes import MoveOutcome, note_after
from core.moves.patches import Patch, PodMetadata, attach_patch, detach_patch
from core.moves.steps import End, MoveView, next_step
from core.writes.costs import UNDO_COST, cost_write
from tests.support.surge import NOW, deployment, make_pod

COST, OURS = "controller.kubernetes.io/pod-deletion-cost", "kube-ebb.io/deletion-cost"
NOTE = "kube-ebb.io/move"
RS = "web-1"
DEADLINE_SECONDS = 600


class LeaderDiedError(Exception):
    """The leader ended just before a write."""


@dataclass
class StoredPod:
    """A pod as the API server stores it."""

    name: str
    created: int
    node: str | None = None
    labels: dict[str, str] = field(default_factory=lambda: {"app": "web", TEMPLATE_LABEL: "1"})
    annotations: dict[str, str] = field(default_factory=dict)
    controlled: bool = True
    """The owner reference says `controller: true`."""
    ready_since: int | None = None
    unschedulable: bool = False

    @property
    def detached(self) -> bool:
        return TEMPLATE_LABEL not in self.labels

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Return the rank among the pods to delete; the lowest is deleted first.

        The order of equal pods depends on their nodes, ages and UIDs: any may be deleted.
        """
        cost = int(self.annotations.get(COST, "0"))
        return self.node is not None, self.ready_since is not None, cost

    def as_pod(self) -> Pod:
        """Return what the decoder makes of it."""
        return replace(
            make_pod(self.name, self.node, of=RS),
            labels=dict(self.labels),
            created_seconds=self.created,
            ready=self.ready_since is not None,
            ready_seconds=self.ready_since,
            unschedulable=self.unschedulable,
            move=self.annotations.get(NOTE),
            deletion_cost=self.annotations.get(COST),
            deletion_cost_ours=self.annotations.get(OURS),
        )

    def metadata(self) -> PodMetadata:
        """Return what a read of its metadata gives."""
        return PodMetadata(
            uid=f"uid-{self.name}",
            version="1",
            hash=self.labels.get(TEMPLATE_LABEL, ""),
            detached=self.labels.get(DETACHED_LABEL, ""),
            controller=("ReplicaSet", RS, "uid-rs") if self.controlled else ("", "", ""),
            cost=self.annotations.get(COST),
            cost_ours=self.annotations.get(OURS),
            move=self.annotations.get(NOTE),
        )

    def apply(self, patch: Patch) -> None:
        """Merge a patch of the metadata, as the API server does."""
        (meta,) = patch.values()
        for target, name in ((self.labels, "labels"), (self.annotations, "annotations")):
            for key, value in meta.get(name, {}).items():
                target.pop(key, None)
                if value is not None:
                    target[key] = value
        for owner in meta.get("ownerReferences", ()):
            self.controlled = owner["controller"]


@dataclass
class MoveWorld:
    """Two nodes, of which the node `m` is marked; each leader sees all objects as they are."""

    wanted: int = 3
    min_ready_seconds: int = 0
    now_seconds: int = NOW
    generation: int = 1
    allowed: bool = True
    marked: bool = True
    cordoned: bool = False
    exists: bool = True
    current: bool = True
    """The ReplicaSet is the current one of its Deployment; no rollout has replaced it."""
    elsewhere: int = 0
    """Number of available pods of a newer ReplicaSet."""
    controllers_run: bool = True
    """The controller manager runs."""
    pods: dict[str, StoredPod] = field(default_factory=dict)
    own: dict[str, Move] = field(default_factory=dict)
    outcomes: list[MoveOutcome] = field(default_factory=list)
    before_move: set[str] = field(default_factory=set)
    """Names of the pods that existed when the last move began."""
    generation_before_move: int = 1
    created: int = 0
    writes_left: int = 0

    def __post_init__(self) -> None:
        self.reconcile()
        for pod in self.pods.values():
            pod.node, pod.created = ("m" if pod.name == "web-000" else "n"), NOW - 3600
            pod.ready_since = NOW - 3600

    # The ReplicaSet controller

    def reconcile(self) -> None:
        """Adopt, create and delete pods as the ReplicaSet controller does."""
        if not self.controllers_run:
            return
        for pod in self.pods.values():
            # It releases pods without its label, and adopts those with it.
            assert not (pod.controlled and pod.detached), "released, so nothing would collect it"
            pod.controlled = not pod.detached
        mine = [pod for pod in self.pods.values() if pod.controlled]
        wanted = self.wanted if self.exists and self.current else 0
        for _ in range(wanted - len(mine)):
            name = f"web-{self.created:03}"
            self.pods[name] = StoredPod(name, self.now_seconds)
            self.created += 1
        # Of equal pods the oldest first: it may be the one that Ebb wants to keep.
        mine.sort(key=lambda pod: (pod.rank, pod.created, pod.name))
        for pod in mine[: max(len(mine) - wanted, 0)]:
            del self.pods[pod.name]

    # What happens in the cluster

    def start(self) -> None:
        """Let all Pending pods be scheduled, and pods that are not Ready become Ready."""
        for pod in self.pods.values():
            pod.node, pod.unschedulable = pod.node or "n", False
            if pod.ready_since is None:
                pod.ready_since = self.now_seconds

    def find_no_node(self) -> None:
        for pod in self.pods.values():
            pod.unschedulable = pod.node is None

    def fail_probe(self, number: int) -> None:
        """Let a pod be no longer Ready; 0 is the oldest."""
        for name in sorted(self.pods)[number : number + 1]:
            self.pods[name].ready_since = None

    def restart(self, number: int) -> None:
        """Let a Ready pod be not Ready for a moment."""
        for name in sorted(self.pods)[number : number + 1]:
            pod = self.pods[name]
            if pod.ready_since is not None:
                pod.ready_since = self.now_seconds

    def lose_pod(self, number: int) -> None:
        """Delete a pod; 0 is the oldest."""
        for name in sorted(self.pods)[number : number + 1]:
            del self.pods[name]

    def scale(self, replicas: int) -> None:
        if self.exists and replicas != self.wanted:
            self.wanted, self.generation = replicas, self.generation + 1
            self.elsewhere = 0 if self.current else replicas

    def roll_out(self) -> None:
        """Replace the ReplicaSet by a newer one, which is kept for a rollback."""
        if self.exists and self.current and self.controllers_run:
            self.current, self.elsewhere = False, self.wanted
            self.generation += 1

    def delete(self) -> None:
        """Delete the Deployment: the garbage collector deletes all that its ReplicaSet owns."""
        if self.exists and self.controllers_run:
            self.exists, self.pods, self.elsewhere = False, {}, 0

    def garble(self, text: str) -> None:
        """Replace the note of each detached pod."""
        for pod in self.pods.values():
            if pod.detached:
                pod.annotations[NOTE] = text

    def ready_count(self) -> int:
        return self.elsewhere + sum(pod.ready_since is not None for pod in self.pods.values())

    def available_count(self, *, of_before: bool = False) -> int:
        """Return the number of available pods, or of those that existed before the move."""
        since = self.now_seconds - self.min_ready_seconds
        pods = [pod for pod in self.pods.values() if not of_before or pod.name in self.before_move]
        times = (pod.ready_since for pod in pods)
        return self.elsewhere + sum(at is not None and at <= since for at in times)

    # Ebb

    def observed(self) -> ObservedDeployment | None:
        """Return the Deployment, whose status is never brought up to date."""
        if not self.exists:
            return None
        return deployment(
            replicas=self.wanted,
            generation=self.generation,
            min_ready_seconds=self.min_ready_seconds,
            replica_set=RS if self.current else "web-2",
        )

    def view(self) -> MoveView:
        return MoveView(
            deployment=self.observed(),
            pods=tuple(pod.as_pod() for pod in self.pods.values()),
            marked={"m"} if self.marked else set(),
            leaving={"m"} if self.cordoned else set(),
            allowed=self.allowed,
        )

    def detached(self) -> list[StoredPod]:
        return [pod for pod in self.pods.values() if pod.detached]

    def elect(self) -> None:
        """Let a new leader lead, which knows nothing of earlier moves."""
        self.own = {}

    def lead(self, writes_max: int = 99, *, begin: bool = True) -> None:
        """Let the leader take a turn; it dies before the write after so many, if it makes more."""
        self.writes_left = writes_max
        try:
            for pod in self.detached():
                self._continue(pod)
            if begin and not self.detached():
                self._begin()
        except LeaderDiedError:
            self.elect()

    def _write(self, pod: StoredPod, patch: Patch | None, *, undoes: bool = False) -> None:
        """Make a patch, after which as many pods are Ready and available as the owner wants.

        *undoes*: the new pod is deleted, perhaps while another one is not yet available again.
        """
        if not self.writes_left:
            raise LeaderDiedError
        self.writes_left -= 1
        if patch is None:
            return
        assert patch.keys() == {"metadata"}, "nothing else of the pod is written"
        self.reconcile()  # what others have caused
        pod.apply(patch)
        ready, available = self.ready_count(), self.available_count(of_before=undoes)
        self.reconcile()
        assert self.ready_count() >= min(ready, self.wanted)
        # After a scale-in by others, the ReplicaSet controller may keep a Ready pod in place of an
        # available one.
        if self.generation == self.generation_before_move:
            assert self.available_count() >= min(available, self.wanted)

    def _begin(self) -> None:
        """Detach the pod on the marked node, if its Deployment is settled."""
        found, now = self.observed(), Now(self.now_seconds)
        mine = [pod for pod in self.pods.values() if pod.controlled]
        notes = [note_of(pod.as_pod(), now) for pod in mine]
        settled = found is not None and self.current and self.controllers_run
        settled = settled and len(mine) == self.available_count() == self.wanted
        paused = any(note is not None and self.now_seconds < note.until for note in notes)
        on_marked = [pod for pod in mine if pod.node == "m"]
        if not settled or paused or not on_marked or not self.marked:
            return
        if self.cordoned or not self.allowed:
            return
        pod = on_marked[0].as_pod()
        failures = max((note.failures for note in notes if note is not None), default=0)
        note = MoveNote(self.now_seconds, self.now_seconds + DEADLINE_SECONDS, failures)
        self.own[pod.uid] = replace(
            found_move(pod),
            hash="1",
            note=note,
            deployment="web",
            deployment_uid="uid-web",
            generation=self.generation,
            others=frozenset(one.as_pod().uid for one in mine),
        )
        self.before_move, self.generation_before_move = set(self.pods), self.generation
        self._write(on_marked[0], detach_patch(on_marked[0].metadata(), pod.uid, RS, note))

    def _continue(self, stored: StoredPod) -> None:
        pod, now = stored.as_pod(), Now(self.now_seconds)
        move = self.own.get(pod.uid) or found_move(pod)
        end = next_step(move, self.view(), now)
        if not isinstance(end, End):
            return
        if end.lower_first is not None:
            write = cost_write(end.lower_first, UNDO_COST)
            self._write(self.pods[end.lower_first.name], write.merge_patch("1"))
        note = note_after(move.note, end.outcome, now)
        keep_cost = end.outcome is MoveOutcome.MOVED
        patch = attach_patch(stored.metadata(), pod.uid, note, keep_cost=keep_cost)
        self._write(stored, patch, undoes=not keep_cost)
        self.own.pop(pod.uid, None)
        self.outcomes.append(end.outcome)
