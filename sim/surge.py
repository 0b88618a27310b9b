"""Surge moves in a simulated cluster: the real decisions of core.moves, on simulated Deployments.

A surge move adds a replica to a Deployment, waits until the new pod is available, and removes the
replica again, so that the ReplicaSet deletes a pod on a marked node. Each write succeeds at once.
The records of moves are encoded and decoded, as in Ebb's ConfigMap. HPAs see the additional
replicas.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from core.engine.plan import Plan
from core.model.now import Now
from core.moves.facts import with_moves
from core.moves.objects import HPA_MANAGER, HorizontalAutoscaler, SurgeObjects
from core.moves.pauses import ended
from core.moves.planner import SurgeContext, SurgeInput, plan_moves
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
from core.writes.costs import cost_write
from sim.autoscaler import ScaleDown
from sim.cluster import ClusterState
from sim.deployments import NAMESPACE, Deployments
from sim.ebb import Ebb
from sim.hpa import HorizontalPodAutoscaler
from sim.simulated_load import SimulatedLoad
from sim.simulator import Result, Simulator, SimulatorOptions
from sim.waves import SYNC_MS

LEADER: Final = "simulation"
STEPS_MAX: Final = 16
"""Maximum number of steps of a move in one reconciliation."""
SECOND_MS: Final = 1000
SAMPLE_MS: Final = 5000
"""Interval of the check that moves take no Ready pod."""
AFTER_MS: Final = 60_000
"""Time after a move in which this is checked."""


class SimulatedMoves:
    """The part of Ebb's controller that makes surge moves, with its records of the moves."""

    def __init__(
        self, ebb: Ebb, state: ClusterState, deployments: Deployments, autoscaled: Iterable[str]
    ) -> None:
        """Start without moves; *autoscaled*: names of the Deployments that an HPA scales."""
        self._ebb, self._state, self._deployments = ebb, state, deployments
        self._autoscalers = {
            f"{NAMESPACE}/{name}": HorizontalAutoscaler(
                namespace=NAMESPACE, name=name, target=name
            )
            for name in autoscaled
        }
        self._data: dict[str, str] = {}
        """Content of the ConfigMap."""
        self._before = MoveRecords()
        """Records at the last reconciliation."""
        self.ended_ms: dict[str, int] = {}
        """End of the last move by Deployment."""

    def prepare_reconciliation(self) -> None:
        """Tell the next reconciliation which surge moves are in progress or have just ended.

        It then plans with the pods of the moves, and keeps their pod deletion costs.
        """
        records = decode(self._data).records
        before, self._before = self._before, records
        self._state.add_moves = lambda cluster: with_moves(
            cluster, self._objects(), decode(self._data).records, before, own_namespace=""
        )
        moves = records.moves.values()
        self._ebb.keep_move_costs(frozenset(move.pod_uid for move in moves))

    def run(self, plan: Plan, result: Result, now_ms: int) -> None:
        """Advance the surge moves in progress, and begin new moves for nodes that *plan* removes.

        Moves that end are counted in *result*.
        """
        self.advance(plan, result, now_ms)
        if not any(True for _ in self._state.marked()):
            return
        context = self._context(plan, decode(self._data).records, now_ms)
        begin = [one.record for one in plan_moves(context).begin]
        if begin:
            self._store(decode(self._data).records.with_begun(begin, context.now))
        for move in begin:
            self._advance(context, move, result, now_ms)

    def advance(self, plan: Plan, result: Result, now_ms: int) -> None:
        """Advance the surge moves in progress; moves that end are counted in *result*."""
        records = decode(self._data).records
        if records.moves:
            context = self._context(plan, records, now_ms)
            for move in records.moves.values():
                self._advance(context, move, result, now_ms)

    def in_progress(self) -> list[str]:
        """Return the names of the Deployments that have a surge move in progress."""
        return [move.deployment for move in decode(self._data).records.moves.values()]

    def _advance(
        self, context: SurgeContext, move: MoveRecord, result: Result, now_ms: int
    ) -> None:
        now = Now(now_ms // 1000)
        for _ in range(STEPS_MAX):
            records = decode(self._data).records
            match next_step(move, self._fresh(context.view(move), move), now):
                case Wait():
                    return
                case PutRecord(move):
                    self._store(records.with_move(move))
                case SetCost(pod, cost):
                    self._ebb.write_pod(cost_write(pod, cost))
                case SetReplicas(deployment, replicas):
                    extra = max(replicas - deployment.replicas, 0)
                    self._deployments.surge(deployment.name, replicas, extra)
                case EndMove() as end:
                    hpa = self._autoscalers.get(move.deployment_key)
                    window_seconds = hpa.window_seconds if hpa else 0
                    self._store(ended(records, move, end, window_seconds, now))
                    self.ended_ms[move.deployment] = now_ms
                    result.moves[end.outcome.value] += 1
                    result.moved += end.outcome is MoveOutcome.MOVED
                    return

    def _fresh(self, view: MoveView, move: MoveRecord) -> MoveView:
        """Return the view of a move with its Deployment and pods as they are now."""
        name = move.deployment
        deployment, pods = self._deployments.observed(name), self._deployments.pods(name)
        return replace(view, deployment=deployment, pods=pods)

    def _context(self, plan: Plan, records: MoveRecords, now_ms: int) -> SurgeContext:
        return SurgeContext(
            SurgeInput(
                cluster=self._state.snapshot(),
                own_namespace="",
                plan=plan,
                config=self._ebb.config,
                objects=self._objects(),
                records=records,
                leader=LEADER,
                now_seconds=now_ms // 1000,
            )
        )

    def _objects(self) -> SurgeObjects:
        deployments = [self._deployments.observed(name) for name in self._deployments.names()]
        owners = {
            (NAMESPACE, pod.owner_name): f"{NAMESPACE}/{name}"
            for name in self._deployments.names()
            for pod in self._deployments.pods(name)
        }
        return SurgeObjects(
            deployments={one.key: one for one in deployments},
            owners=owners,
            autoscalers=self._autoscalers,
        )

    def _store(self, records: MoveRecords) -> None:
        self._data = encode(records)


class SurgeSimulator(Simulator):
    """A simulator in which Ebb also makes surge moves, and HPAs see the additional replicas."""

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
            replicas, ready = self._deployments.replicas(name)
            wanted = hpa.sync(replicas, ready, self.now_ms())
            if wanted != replicas:
                self._deployments.scale(name, wanted, HPA_MANAGER)

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
        if (last := self._ebb.last) is not None:
            self._moves.advance(last.plan, self.result, self.now_ms())

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
