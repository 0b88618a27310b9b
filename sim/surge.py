"""Surge moves in a simulated cluster: the real decisions of core.moves, on simulated Deployments.

A surge move detaches a pod from its ReplicaSet, which creates a new one. When the new one is
available, the move gives the old one back, and the ReplicaSet deletes it. Each patch succeeds at
once, and no other controller selects the pods. HPAs measure the detached pod, too.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from core.config.settings import Config
from core.engine.plan import Plan
from core.model.now import Now
from core.model.pod import DETACHED_LABEL, REPLICA_SET, TEMPLATE_LABEL, Pod
from core.moves.facts import with_moves
from core.moves.hourly import HOUR_SECONDS, Begun, begun_within_hour, with_begun
from core.moves.move import Move
from core.moves.objects import HorizontalAutoscaler, SurgeObjects
from core.moves.outcomes import FAILED, SETTLE_SECONDS, MoveOutcome, note_after
from core.moves.patches import Patch, PodMetadata, attach_patch, detach_patch
from core.moves.planner import MoveMemory, SurgeContext, SurgeInput, plan_moves
from core.moves.steps import End, MoveView, leaving_nodes, marked_nodes, next_step
from core.writes.costs import UNDO_COST, cost_write
from sim.autoscaler import ScaleDown
from sim.cluster import ClusterState
from sim.deployments import NAMESPACE, Deployments
from sim.ebb import Ebb, annotated
from sim.hpa import HorizontalPodAutoscaler
from sim.simulated_load import SimulatedLoad
from sim.simulator import Result, Simulator, SimulatorOptions
from sim.waves import SYNC_MS

SECOND_MS: Final = 1000
SAMPLE_MS: Final = 5000
"""Interval of the check that moves take no Ready pod."""
AFTER_MS: Final = 60_000
"""Time after a move in which this is checked."""


class PodWriter(Protocol):
    """The parts of Ebb that surge moves use."""

    @property
    def config(self) -> Config:
        """Return the configuration."""

    def store_pod(self, pod: Pod) -> None:
        """Store a changed Pod."""


class SimulatedMoves:
    """The part of Ebb's controller that makes surge moves, with what it knows of them."""

    def __init__(
        self,
        ebb: PodWriter,
        state: ClusterState,
        deployments: Deployments,
        autoscaled: Iterable[str],
    ) -> None:
        """Start without moves; *autoscaled*: names of the Deployments that an HPA scales."""
        self._ebb, self._state, self._deployments = ebb, state, deployments
        self._autoscalers = {
            f"{NAMESPACE}/{name}": HorizontalAutoscaler(
                namespace=NAMESPACE, name=name, target=name
            )
            for name in autoscaled
        }
        self._own: dict[str, Move] = {}
        """Moves in progress by the UID of their pod."""
        self._before: frozenset[tuple[str, str]] = frozenset()
        """ReplicaSets with a move at the last reconciliation."""
        self._moving_before = self._before
        """ReplicaSets with a move at the reconciliation before the last one."""
        self._begun: Begun = {}
        self._ended: dict[tuple[str, str], int] = {}
        """Unix second of the end of the last move by UID of the Deployment."""
        self._failed: list[int] = []
        """Unix seconds at which moves failed, within the last hour."""
        self._pods_pending = False
        self.ended_ms: dict[str, int] = {}
        """End of the last move by Deployment."""

    def prepare_reconciliation(self) -> None:
        """Tell the next reconciliation which surge moves are in progress or have just ended."""
        self._moving_before = self._before
        self._before = frozenset(move.owner for move in self._own.values())
        self._show_moves(self._objects())

    def _show_moves(self, objects: SurgeObjects) -> None:
        """Add the surge moves that *objects* allow to the next snapshots of the cluster."""
        before = self._moving_before
        self._state.add_moves = lambda cluster: with_moves(
            cluster, objects, own_namespace="", moving_before=before
        )

    def run(self, plan: Plan, result: Result, now_ms: int) -> None:
        """End the surge moves that are due, and begin new ones for nodes that *plan* removes.

        Moves that end are counted in *result*.
        """
        self.advance(result, now_ms)
        if not any(True for _ in self._state.marked()):
            return
        context = self._context(plan, Now(now_ms // 1000))
        self._pods_pending = context.pods_pending
        for new in plan_moves(context).begin:
            self.begin(new.move, context.now)

    def advance(self, result: Result, now_ms: int) -> None:
        """End the surge moves that are due; moves that end are counted in *result*."""
        if not self._own:
            return
        nodes = [place.node for place in self._state.places.values()]
        shared = MoveView(
            marked=marked_nodes(nodes),
            leaving=leaving_nodes(nodes),
            pods_pending=self._pods_pending,
        )
        now = Now(now_ms // 1000)
        for move in list(self._own.values()):
            end = self._end_of(move, shared, now)
            if end is not None:
                self._end(move, end, now)
                self.ended_ms[move.deployment] = now_ms
                result.moves[end.outcome.value] += 1
                result.moved += end.outcome is MoveOutcome.MOVED

    def in_progress(self) -> list[str]:
        """Return the names of the Deployments that have a surge move in progress."""
        return [move.deployment for move in self._own.values()]

    def begin(self, move: Move, now: Now) -> None:
        """Detach the pod of a new move."""
        self._begun = with_begun(self._begun, 1, now)
        pod = self._state.pods[move.key]
        patch = detach_patch(_metadata(pod), move.uid, move.replica_set, move.note)
        if patch is not None:
            self._own[move.uid] = move
            self._ebb.store_pod(_patched(pod, patch))
            self._deployments.detach(move.key)

    def _end_of(self, move: Move, shared: MoveView, now: Now) -> End | None:
        """Return how a move ends now, or None if it waits."""
        if move.key not in self._state.pods:
            return End(MoveOutcome.POD_GONE)
        pods = self._deployments.pods(move.deployment)
        view = replace(
            shared,
            deployment=self._deployments.observed(move.deployment),
            pods=[pod for pod in pods if pod.owner_name == move.replica_set],
        )
        step = next_step(move, view, now)
        return step if isinstance(step, End) else None

    def _end(self, move: Move, end: End, now: Now) -> None:
        """Give the pod of a move back to its ReplicaSet."""
        del self._own[move.uid]
        self._ended[move.owner] = now.seconds
        if end.outcome in FAILED:
            self._failed.append(now.seconds)
        pod = self._state.pods.get(move.key)
        if pod is None:
            return
        if (new := end.lower_first) is not None:
            self._ebb.store_pod(annotated(new, cost_write(new, UNDO_COST).annotations))
        patch = attach_patch(
            _metadata(pod),
            move.uid,
            note_after(move.note, end.outcome, now),
            keep_cost=end.outcome is MoveOutcome.MOVED,
        )
        if patch is not None:
            self._ebb.store_pod(_patched(pod, patch))
            self._deployments.attach(move.key)

    def _context(self, plan: Plan, now: Now) -> SurgeContext:
        self._failed = [at for at in self._failed if now.before(at + HOUR_SECONDS)]
        self._ended = {
            owner: at for owner, at in self._ended.items() if now.before(at + SETTLE_SECONDS)
        }
        memory = MoveMemory(
            own=self._own,
            begun_within_hour=begun_within_hour(self._begun, now),
            ended=self._ended,
            failures={NAMESPACE: len(self._failed)},
        )
        objects = self._objects()
        self._show_moves(objects)
        return SurgeContext(
            SurgeInput(
                cluster=self._state.snapshot(),
                own_namespace="",
                plan=plan,
                config=self._ebb.config,
                objects=objects,
                memory=memory,
                now_seconds=now.seconds,
            )
        )

    def _objects(self) -> SurgeObjects:
        deployments = [self._deployments.observed(name) for name in self._deployments.names()]
        owners = {
            (NAMESPACE, replica_set): f"{NAMESPACE}/{name}"
            for name in self._deployments.names()
            for replica_set in self._deployments.replica_sets(name)
        }
        return SurgeObjects(
            deployments={one.key: one for one in deployments},
            owners=owners,
            autoscalers=self._autoscalers,
        )


def _metadata(pod: Pod) -> PodMetadata:
    """Return the metadata of a simulated pod as Ebb reads it from the API server."""
    is_controlled = not pod.detached
    return PodMetadata(
        uid=pod.uid,
        version="1",
        hash=pod.labels.get(TEMPLATE_LABEL, ""),
        detached=pod.labels.get(DETACHED_LABEL, ""),
        controller=(REPLICA_SET, pod.owner_name, pod.owner_name)
        if is_controlled
        else ("", "", ""),
        cost=pod.deletion_cost,
        cost_ours=pod.deletion_cost_ours,
        move=pod.move,
    )


def _patched(pod: Pod, patch: Patch) -> Pod:
    """Return a pod as the API server stores it after a patch of its metadata."""
    changed: Mapping[str, str | None] = {**pod.labels, **patch["metadata"]["labels"]}
    labels = {key: value for key, value in changed.items() if value is not None}
    return annotated(replace(pod, labels=labels), patch["metadata"]["annotations"])


class SurgeSimulator(Simulator):
    """A simulator in which Ebb also makes surge moves, and HPAs measure the detached pods."""

    def __init__(
        self,
        load: SimulatedLoad,
        scale_down: ScaleDown,
        ebb: Ebb,
        seed: int,
        options: SimulatorOptions,
    ) -> None:
        super().__init__(_without_later_replicas(load), scale_down, ebb, seed, options)
        self._ebb = ebb
        self._hpas = {
            one.name: HorizontalPodAutoscaler(one.wave_mean, one.replicas[0][1])
            for one in load.deployments
            if one.wave_mean is not None
        }
        self._startup_ms = {one.name: one.startup_ms for one in load.deployments}
        # Changes of the replicas in a recorded history count as those of an HPA.
        scaled = (one.name for one in load.deployments if len(one.replicas) > 1)
        autoscaled = dict.fromkeys((*self._hpas, *scaled))
        self._moves = SimulatedMoves(ebb, self.state, self._deployments, autoscaled)

    def run(self, progress: Callable[[int], None] = lambda _: None) -> Result:
        """Run the load to its end; return the totals.

        *progress* is called every simulated hour with the number of simulated hours.
        """
        self._every(SYNC_MS, self._sync_hpas)
        self._every(SAMPLE_MS, self._check_ready_pods)
        self._every(SECOND_MS, self._advance_moves)
        return super().run(progress)

    def _sync_hpas(self) -> None:
        for name, hpa in self._hpas.items():
            scaled = self._deployments.scaled(name)
            wanted = hpa.sync(scaled, self.now_ms())
            if wanted != scaled.replicas:
                self._deployments.scale(name, wanted)

    def _check_ready_pods(self) -> None:
        """Add the Ready pods that Deployments lack because of a surge move to the result.

        They count as pods times milliseconds since the last check.
        """
        now_ms, ended_ms = self.now_ms(), self._moves.ended_ms
        recent = (name for name, at_ms in ended_ms.items() if now_ms - at_ms <= AFTER_MS)
        for name in {*self._moves.in_progress(), *recent}:
            calm_ms = 2 * self._startup_ms[name] + AFTER_MS
            missing = self._deployments.missing_by_moves(name, calm_ms)
            self.result.below_by_moves_ms += missing * SAMPLE_MS

    def _advance_moves(self) -> None:
        """Advance the surge moves in progress, as watch events do in a real cluster.

        The simulator calls this every second.
        """
        self._moves.advance(self.result, self.now_ms())

    def _reconcile(self) -> None:
        self._moves.prepare_reconciliation()
        super()._reconcile()
        if (last := self._ebb.last) is not None:
            self._moves.run(last.plan, self.result, self.now_ms())
            self._schedule_pending()


def _without_later_replicas(load: SimulatedLoad) -> SimulatedLoad:
    """Return the load without changes of replicas over time in Deployments that have an HPA.

    The simulated HPA sets their replicas instead.
    """
    return replace(
        load,
        deployments=tuple(
            one if one.wave_mean is None else replace(one, replicas=one.replicas[:1])
            for one in load.deployments
        ),
    )
