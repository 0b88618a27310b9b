"""Carry out surge moves: make the patches that core.moves decides on, while this replica leads.

A surge move detaches a pod on a marked node from its ReplicaSet, waits until the new pod of the
ReplicaSet is available, and gives the old one back, to be deleted. A turn ends moves as soon as an
object changes or a step is due. After each reconciliation it also begins new moves. Moves that
another leader has begun are undone. A failed write delays only its own move.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from controller.handovers import Handovers
from controller.hourly_moves import HourlyMoves
from controller.metrics import Metrics, WriteResult
from controller.pause_log import PauseLog
from controller.view import ClusterView
from controller.writers import for_each
from core.config.settings import Config, Mode
from core.engine.maintenance_gate import RefusedWrite
from core.engine.node_share import WINDOW_SECONDS, Placement, first_placed
from core.engine.reconcile import ReconcileResult
from core.engine.unschedulable import round_robin
from core.model.cluster import NO_SURGE, Cluster
from core.model.errors import ConflictError, EbbError, UnavailableError
from core.model.humanize import timestamp
from core.model.now import Now
from core.model.pod import Pod, detached_pods
from core.model.reason import Blocker
from core.moves.facts import AddMoves, ReplicaSetKey, with_moves
from core.moves.move import Move, found_move, new_pods
from core.moves.note import OVERDUE_SECONDS
from core.moves.outcomes import FAILED, MEANINGS, SETTLE_SECONDS, MoveOutcome, note_after
from core.moves.own import leader_to_replace
from core.moves.patches import PodMetadata, attach_patch, detach_patch
from core.moves.planner import MoveMemory, MovePlan, NewMove, SurgeContext, SurgeInput, plan_moves
from core.moves.reasons import NODE_SHARE, NOT_DETACHED, OWNER_REFERENCES
from core.moves.selecting import SelectingObjects, selecting_blockers
from core.moves.steps import End, MoveView, Wait, leaving_nodes, marked_nodes, next_step
from core.writes.costs import UNDO_COST, cost_write
from kube.client import ApiError, PolicyRefusedError
from kube.decode.kinds import DEPLOYMENTS
from kube.stores.access_review import AccessReview
from kube.stores.events import EventType, Regarding
from kube.stores.objects import Objects, write_as_decided
from kube.stores.pod_moves import Decide, refuses_owner_references
from runtime.clock import Clock
from runtime.logs import fields

CALLS_MAX: Final = 4
"""Maximum number of moves that are continued at the same time."""
FOUND_MAX: Final = 50
"""Maximum number of moves of others that one turn undoes."""
PAUSE_SECONDS: Final = 0.5
"""Minimum pause between two turns, so that changes that arrive together share a turn."""
ROUND_SECONDS: Final = 10.0
"""Maximum pause between two turns."""
RETRY_SECONDS: Final = 5
"""Pause after a failed write of a move."""
SEEN_SECONDS_MAX: Final = 30
"""Time after which the watch must have reported a patch of a pod; then the pod is read."""
REFUSED_SECONDS: Final = 600
"""Time for which the pods of a ReplicaSet are not tried again after they could not be detached."""
HOUR_SECONDS: Final = 3600
MOVED_NODES_MAX: Final = 1000
"""Maximum number of nodes for which moved pods are counted. Pods moved from further nodes are
missing in the metric `ebb_surge_moved_pods_per_removed_node`."""
BEGAN: Final = "SurgeMoveBegan"
MOVED: Final = "SurgeMoved"
ENDED: Final = "SurgeMoveEnded"
HANDED_OVER: Final = "LeaseHandedOver"
FORBIDDEN: Final = "SurgeForbidden"
FORBIDDEN_PODS: Final = (
    "surge moves are enabled, but RBAC does not allow reading and patching pods, so no pod is "
    "moved; manifests/components/surge grants the permission"
)
FORBIDDEN_LISTS: Final = (
    "surge moves are enabled, but RBAC does not allow listing the objects that select pods, so no "
    "pod is moved; manifests/components/surge grants the permission"
)
FORBIDDEN_OWNERS: Final = (
    "surge moves are enabled, but the API server (OwnerReferencesPermissionEnforcement) lets only "
    "those who may delete a pod change its owner reference, so no pod is moved; "
    "manifests/components/surge-delete grants the permission"
)

log = logging.getLogger("ebb.mover")


class Reconciliations(Protocol):
    """Provides the configuration in use and the result of the last reconciliation."""

    config: Config
    reconciled: asyncio.Event
    """Set after the writes of every reconciliation."""

    @property
    def last(self) -> ReconcileResult | None:
        """Return the result of the last reconciliation since this replica leads, or None."""


class PatchPods(Protocol):
    """Reads and patches the pods of moves."""

    async def read(self, key: str) -> PodMetadata | None:
        """Return the metadata of the pod namespace/name; None if there is none.

        Raises: UnavailableError.
        """

    async def patch(self, key: str, decide: Decide) -> bool:
        """Read the pod namespace/name, and make the patch that *decide* returns.

        Returns whether it was made. Raises: ConflictError, UnavailableError.
        """


@dataclass(frozen=True, kw_only=True)
class MoveStores:
    """The stores that surge moves read and write."""

    moves: PatchPods
    pods: Objects[Pod]
    """For the deletion cost of a new pod."""
    hourly: HourlyMoves
    handovers: Handovers
    selecting: Callable[[str], Awaitable[SelectingObjects]]
    """Lists the objects of a namespace that select pods."""


@dataclass(frozen=True, kw_only=True)
class MoverDependencies:
    """Functions and permissions of the program that the mover uses."""

    namespace: str
    """Namespace in which Ebb is installed."""
    leading: Callable[[], bool]
    """Returns whether this replica leads."""
    why_unknown: Callable[[], str | None]
    """Returns why the objects that moves depend on are unknown or outdated, or None."""
    pod_access: AccessReview
    leader_pod: str = ""
    """Pod of this replica as namespace/name."""
    hand_over: Callable[[], None] = lambda: None
    """Ends the leading of this replica soon, and lets another one lead."""
    refused_write: Callable[[], RefusedWrite | None] = lambda: None
    """Returns a write to a Node or Pod that a policy for Ebb's own accounts refused recently."""
    record_event: Callable[[Regarding, str, str, EventType], None] = lambda *_: None
    """Writes an Event with a reason and a note."""
    report_forbidden: Callable[[str, str], None] = lambda *_: None
    """Writes an Event about Ebb's namespace."""
    count_moved_pod: Callable[[str], None] = lambda _: None
    """Counts a pod that was moved from the node with this name."""


@dataclass(slots=True)
class _Memory:
    """What this leader knows of moves since it leads; see core.moves.planner.MoveMemory."""

    own: dict[str, Move] = field(default_factory=dict)
    """Moves in progress that this leader has begun, by UID of the pod."""
    seen: set[str] = field(default_factory=set)
    """UIDs of their pods that the watch has reported as detached."""
    attached: dict[str, int] = field(default_factory=dict)
    """Unix second of the attach by UID of each pod that the watch may still report as detached."""
    ended: dict[ReplicaSetKey, int] = field(default_factory=dict)
    failed: dict[str, deque[int]] = field(default_factory=dict)
    """Unix seconds of the failed moves within the last hour, by namespace."""
    refused: dict[ReplicaSetKey, tuple[int, Sequence[Blocker]]] = field(default_factory=dict)
    """Unix second until which, and why, the pods of a ReplicaSet are not tried again."""
    placed: dict[str, Placement] = field(default_factory=dict)
    """See MoveMemory."""

    def forget(self, now: int) -> None:
        """Forget what does not matter any more at the Unix second *now*."""
        self.seen &= self.own.keys()
        self.attached = {
            uid: at for uid, at in self.attached.items() if now < at + SEEN_SECONDS_MAX
        }
        self.ended = {key: at for key, at in self.ended.items() if now < at + SETTLE_SECONDS}
        self.refused = {key: one for key, one in self.refused.items() if now < one[0]}
        self.placed = {
            uid: one
            for uid, one in self.placed.items()
            if uid in self.own or now < one.at + WINDOW_SECONDS
        }
        for namespace, failed in list(self.failed.items()):
            while failed and failed[0] + HOUR_SECONDS <= now:
                failed.popleft()
            if not failed:
                del self.failed[namespace]


class Mover:
    """Replace pods on marked nodes by surge moves while this replica leads."""

    def __init__(
        self,
        source: Reconciliations,
        view: ClusterView,
        stores: MoveStores,
        clock: Clock,
        metrics: Metrics,
        surroundings: MoverDependencies,
    ) -> None:
        self._source, self._view, self._stores = source, view, stores
        self._clock, self._metrics, self._its = clock, metrics, surroundings
        metrics.surge_forbidden.set_function(
            lambda: metrics.is_leading() and surroundings.pod_access.allowed is False
        )
        metrics.surge_moves_in_progress.set_function(
            lambda: len(self._memory.own) if metrics.is_leading() else 0
        )
        metrics.surge_overdue_pods.set_function(
            lambda: self._count_overdue() if metrics.is_leading() else 0
        )
        self._begin_leading()

    def _begin_leading(self) -> None:
        self._memory, self._facts = _Memory(), NO_SURGE
        self._moved_from: dict[str, int] = {}
        """Number of moved pods by node, until the node is removed."""
        self._pods_pending = False
        self._pauses = PauseLog(log, "further surge moves wait", NODE_SHARE)
        self._due = 0
        self._complained: str = ""

    @property
    def moves(self) -> Collection[Move]:
        """Return the surge moves in progress."""
        own = self._memory.own
        found = (found_move(pod) for pod in self._found())
        return (*own.values(), *found)

    @property
    def refused(self) -> Mapping[str, int]:
        """Return the number of ReplicaSets whose pods cannot be detached now, by reason code."""
        return Counter(blockers[0].reason.code for _, blockers in self._memory.refused.values())

    @property
    def needs_objects(self) -> bool:
        """Return whether to watch the kinds that only surge moves need, such as Deployments."""
        return self._source.config.surges

    def _found(self) -> list[Pod]:
        """Return the detached pods whose moves this leader has not begun."""
        known = self._memory.own.keys() | self._memory.attached.keys()
        return [pod for pod in self._view.detached.values() if pod.uid not in known]

    def _count_overdue(self) -> int:
        now = self._clock.unix_seconds()
        deadlines = (found_move(pod).note.deadline for pod in self._view.detached.values())
        return sum(deadline + OVERDUE_SECONDS < now for deadline in deadlines)

    async def run(self, why_stale: Callable[[], str | None]) -> None:
        """Carry out surge moves until cancelled.

        *why_stale*: returns why the information about the cluster is outdated, or None.
        """
        self._begin_leading()
        while True:
            self._view.surge_changed.clear()
            try:
                await self.turn(why_stale)
            except EbbError as fault:
                log.warning("surge moves failed; Ebb tries again", extra=fields(reason=str(fault)))
            except Exception:
                self._metrics.reconcile_errors.inc()
                log.exception("surge moves failed; Ebb tries again")
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
            await self._until_due()

    async def _until_due(self) -> None:
        """Wait until an object of a move changes, a step is due, or a reconciliation ends."""
        seconds = min(max(self._due - self._clock.unix_seconds(), 0), ROUND_SECONDS)
        waits = [
            asyncio.create_task(event.wait())
            for event in (self._view.surge_changed, self._source.reconciled)
        ]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            # Not `await wait` in turn: its CancelledError would be confused with that of `run`,
            # which then would never end.
            await asyncio.gather(*waits, return_exceptions=True)

    def capture(self) -> AddMoves:
        """Return a function that adds the state of surge moves, which plans need, to a Cluster.

        The function may run in any thread. It uses the objects at the time of this call.
        """
        if not self._source.config.surges:
            self._facts = NO_SURGE
            return lambda cluster: cluster
        if self._its.why_unknown() is not None:
            return lambda cluster: replace(cluster, surge=self._facts)
        objects, own = self._view.surge_snapshot(), self._its.namespace
        before, refused = self._facts.moving, frozenset(self._memory.refused)

        def add(cluster: Cluster) -> Cluster:
            found = with_moves(cluster, objects(), own, moving_before=before, refused=refused)
            moving = {(pod.namespace, pod.owner_name) for pod in detached_pods(cluster.pods)}
            self._facts = found.surge._replace(moving=frozenset(moving))
            return found

        return add

    # A turn

    async def turn(self, why_stale: Callable[[], str | None] = lambda: None) -> None:
        """End the surge moves that are due, and begin new ones after a reconciliation.

        *why_stale*: returns why the information about the cluster is outdated, or None; no move
        continues then. Raises: UnavailableError if the moves of the last hour cannot be counted.
        """
        now = self._clock.unix_seconds()
        self._due = now + HOUR_SECONDS
        reconciled = self._source.reconciled.is_set()
        self._source.reconciled.clear()
        config = self._source.config
        self._memory.forget(now)
        self._count_removed_nodes()
        await self._review_access(config)
        if why_stale() is not None:
            self._due = now + 1
            return
        await self._continue(config)
        last = self._source.last
        if (
            reconciled
            and last is not None
            and config.surges
            and config.mode is Mode.ENFORCE
            and self._its.pod_access.allowed
            and self._its.why_unknown() is None
        ):
            await self._begin_moves(config, last)

    async def _review_access(self, config: Config) -> None:
        access = self._its.pod_access
        if not config.surges:
            access.forget()
        elif await access.refresh() and access.allowed is False:
            self._complain(FORBIDDEN_PODS)

    def _complain(self, note: str) -> None:
        if note != self._complained:
            self._complained = note
            log.error(note)
            self._its.report_forbidden(FORBIDDEN, note)

    def _count_removed_nodes(self) -> None:
        for name in [name for name in self._moved_from if name not in self._view.nodes]:
            self._metrics.surge_moved_pods_per_node.observe(self._moved_from.pop(name))

    # Moves in progress

    async def _continue(self, config: Config) -> None:
        own = list(self._memory.own.values())
        # Whoever may write pods can cause moves to undo, and must not delay those of others.
        found = round_robin(self._found(), lambda pod: pod.namespace)[:FOUND_MAX]
        moves = own + [found_move(pod) for pod in found]
        if moves:
            nodes = self._view.nodes.values()
            view = MoveView(
                unknown=not config.surges or self._its.why_unknown() is not None,
                marked=marked_nodes(nodes),
                leaving=leaving_nodes(nodes),
                pods_pending=self._pods_pending,
                allowed=config.surges and config.mode is Mode.ENFORCE,
            )
            await for_each(moves, CALLS_MAX, partial(self._continue_one, view))

    async def _continue_one(self, shared: MoveView, move: Move) -> None:
        """Let a move wait, or end it. *shared*: the parts of the view that all moves share."""
        if not self._its.leading():
            return
        now = Now(self._clock.unix_seconds())
        try:
            pod = self._view.pods.get(move.key)
            detached = pod is not None and pod.uid == move.uid and bool(pod.detached)
            if not detached or pod is None:
                await self._find_out(move, now)
                return
            self._memory.seen.add(move.uid)
            if pod.owner_name != move.replica_set:
                # Its ReplicaSet was deleted without its pods. The next one adopts it by its hash.
                await self._end(move, End(MoveOutcome.GONE), now)
                return
            listed = self._view.of(DEPLOYMENTS).get(move.deployment_key)
            view = replace(
                shared,
                deployment=listed.observed if listed is not None else None,
                pods=list(self._view.pods_beside(pod)),
            )
            self._note_placement(move, view.pods, now)
            match next_step(move, view, now):
                case Wait(until):
                    self._due = min(self._due, until)
                case End() as end:
                    await self._end(move, end, now)
        except UnavailableError as fault:
            self._note_failure(fault, move.key)

    def _note_placement(self, move: Move, pods: Iterable[Pod], now: Now) -> None:
        """Remember where the new pod of an own move was first seen. *pods*: of its ReplicaSet."""
        # Anybody can label a pod as detached, so moves of others do not count.
        if move.others is not None and move.uid not in self._memory.placed:
            first = first_placed(new_pods(move, pods), now)
            if first is not None:
                self._memory.placed[move.uid] = first

    async def _find_out(self, move: Move, now: Now) -> None:
        """Find out what has become of a move whose pod the watch does not report as detached.

        The watch may be late, or somebody has given the pod back, or the pod is gone.
        Raises: UnavailableError.
        """
        if move.uid not in self._memory.seen and now.before(move.note.begun + SEEN_SECONDS_MAX):
            self._due = min(self._due, move.note.begun + SEEN_SECONDS_MAX)
            return
        # A finished pod is not watched: it stays detached, but the ReplicaSet does not adopt it.
        known = self._view.pods.get(move.key)
        gone = known is None or known.uid != move.uid
        outcome = MoveOutcome.POD_GONE if gone else MoveOutcome.STOPPED
        await self._end(move, End(outcome), now)

    def _note_failure(self, fault: UnavailableError, key: str) -> None:
        """Count and log a failed write of a surge move, and retry soon.

        *key*: namespace/name of the pod, for the log.
        """
        self._due = min(self._due, self._clock.unix_seconds() + RETRY_SECONDS)
        self._metrics.surge_write_errors.labels(WriteResult.of(fault)).inc()
        if not isinstance(fault, PolicyRefusedError):  # logged once by controller.refusals
            log.warning(
                "cannot write a step of a surge move; retrying",
                extra=fields(pod=key, reason=str(fault)),
            )

    async def _end(self, move: Move, end: End, now: Now) -> None:
        """Give the pod of a move back to its ReplicaSet. Raises: UnavailableError."""
        if end.lower_first is not None and await self._is_detached(move):
            await self._lower_cost(end.lower_first)
        note = note_after(move.note, end.outcome, now)
        keep_cost = end.outcome is MoveOutcome.MOVED
        await self._stores.moves.patch(
            move.key, lambda pod: attach_patch(pod, move.uid, note, keep_cost=keep_cost)
        )
        self._memory.attached[move.uid] = now.seconds
        self._memory.own.pop(move.uid, None)
        self._memory.ended[move.owner] = now.seconds
        self._watch_own_deployments()
        if end.outcome in FAILED:
            self._memory.failed.setdefault(move.namespace, deque()).append(now.seconds)
        self._report_end(move, end.outcome, now)

    async def _is_detached(self, move: Move) -> bool:
        # The watch may be late: the pod may have been given back already, to be deleted.
        pod = await self._stores.moves.read(move.key)
        return pod is not None and pod.uid == move.uid and bool(pod.detached) and not pod.hash

    async def _lower_cost(self, pod: Pod) -> None:
        """Give the new pod of an undone move the lowest deletion cost.

        If the API server refuses it, the new pod may remain in place of the old one; it is Ready.
        Raises: UnavailableError if a retry may succeed.
        """
        write = cost_write(pod, UNDO_COST)
        try:
            await write_as_decided(self._stores.pods, pod.key, write.if_unchanged)
        except ApiError as fault:
            if not _is_refusal(fault):
                raise
            self._note_failure(fault, pod.key)

    def _report_end(self, move: Move, outcome: MoveOutcome, now: Now) -> None:
        self._metrics.surge_moves.labels(outcome.value).inc()
        if move.others is not None:  # Anybody may have written when another move began.
            self._metrics.surge_move_seconds.observe(max(now.seconds - move.note.begun, 0))
        log.info(
            "a surge move ended",
            extra=fields(
                deployment=move.deployment_key,
                pod=move.pod,
                node=move.node,
                outcome=outcome.value,
            ),
        )
        if outcome is MoveOutcome.MOVED:
            note = f"moved pod {move.pod} from node {move.node}: another pod replaced it"
            self._its.record_event(_regarding(move), MOVED, note, EventType.NORMAL)
            self._its.count_moved_pod(move.node)
            if move.node in self._moved_from or len(self._moved_from) < MOVED_NODES_MAX:
                self._moved_from[move.node] = self._moved_from.get(move.node, 0) + 1
            return
        note = f"the move of pod {move.pod} from node {move.node} ended: {MEANINGS[outcome]}"
        self._its.record_event(_regarding(move), ENDED, note, EventType.NORMAL)

    # New moves

    async def _begin_moves(self, config: Config, last: ReconcileResult) -> None:
        """Choose new surge moves, and detach their pods. Raises: UnavailableError.

        *last*: the last reconciliation, whose plan says where the moved pods find room.
        """
        moment = Now(self._clock.unix_seconds())
        memory, refused_write = await self._captured_memory(moment), self._its.refused_write()
        cluster, objects = self._view.snapshot(config.read_options), self._view.surge_snapshot()

        def plan() -> tuple[MovePlan, bool, Pod | None]:
            of, own = objects(), self._its.namespace
            context = SurgeContext(
                SurgeInput(
                    cluster=with_moves(cluster(), of, own, refused=frozenset(memory.refused)),
                    plan=last.plan,
                    config=config,
                    objects=of,
                    memory=memory,
                    own_namespace=own,
                    leader_pod=self._its.leader_pod,
                    now_seconds=moment.seconds,
                    refused_write=refused_write,
                )
            )
            return plan_moves(context), context.pods_pending, leader_to_replace(context)

        chosen, self._pods_pending, leader = await asyncio.to_thread(plan)
        self._pauses.decided(chosen.waits)
        if leader is not None and not chosen.begin:
            await self._hand_over(leader)
            return
        begin = await self._not_selected_by_others(chosen.begin)
        now = Now(self._clock.unix_seconds())
        begin = [one for one in begin if one.permit.is_valid(now)]
        if not begin or not self._its.leading():
            return
        await self._stores.hourly.add(len(begin), now)
        await for_each(begin, CALLS_MAX, self._begin)

    async def _hand_over(self, leader: Pod) -> None:
        """Let another replica lead, which then moves the pod of this one.

        Nothing happens if a leader has handed the Lease over within a day. Raises:
        UnavailableError.
        """
        now = Now(self._clock.unix_seconds())
        if not self._its.leading() or not await self._stores.handovers.record(now):
            return
        log.info("handing the Lease over", extra=fields(pod=leader.name, node=leader.node or ""))
        note = (
            f"the leader, pod {leader.name}, is the last pod on node {leader.node}, which is "
            "being emptied: it hands its Lease over, so that another replica moves the pod"
        )
        regarding = {"apiVersion": "v1", "kind": "Pod", "name": leader.name}
        regarding |= {"namespace": leader.namespace, "uid": leader.uid}
        self._its.record_event(regarding, HANDED_OVER, note, EventType.NORMAL)
        self._its.hand_over()

    async def _captured_memory(self, now: Now) -> MoveMemory:
        """Return what this leader knows of moves, for a thread. Raises: UnavailableError."""
        memory = self._memory
        return MoveMemory(
            own=dict(memory.own),
            begun_within_hour=await self._stores.hourly.count(now),
            ended=dict(memory.ended),
            failures={namespace: len(failed) for namespace, failed in memory.failed.items()},
            refused={key: blockers for key, (_, blockers) in memory.refused.items()},
            placed=dict(memory.placed),
        )

    async def _not_selected_by_others(self, begin: Sequence[NewMove]) -> list[NewMove]:
        """Return the moves whose pods no other object selects; remember why not for the others."""
        by_namespace: dict[str, list[NewMove]] = {}
        for one in begin:
            by_namespace.setdefault(one.move.namespace, []).append(one)
        left: set[str] = set()
        # At the same time: moves in progress end only after these lists.
        await for_each([*by_namespace.values()], CALLS_MAX, partial(self._add_unselected, left))
        return [one for one in begin if one.move.uid in left]

    async def _add_unselected(self, left: set[str], moves: Sequence[NewMove]) -> None:
        """Add the UIDs of the pods that no other object selects; *moves*: all of one namespace."""
        try:
            objects = await self._stores.selecting(moves[0].move.namespace)
        except UnavailableError as fault:
            if isinstance(fault, ApiError) and fault.forbidden:
                self._complain(FORBIDDEN_LISTS)
            else:
                self._note_failure(fault, moves[0].move.key)
            return
        for one in moves:
            if blockers := tuple(selecting_blockers(one.pod, objects)):
                self._refuse(one.move, blockers)
            else:
                left.add(one.move.uid)

    def _refuse(self, move: Move, blockers: Sequence[Blocker]) -> None:
        until = self._clock.unix_seconds() + REFUSED_SECONDS
        self._memory.refused[move.owner] = until, blockers
        log.info(
            "a pod cannot be moved",
            extra=fields(pod=move.key, reason=blockers[0].message),
        )

    async def _begin(self, new: NewMove) -> None:
        """Detach the pod of a new move."""
        move = new.move
        now = Now(self._clock.unix_seconds())
        permitted = new.permit.is_valid(now) and self._its.refused_write() is None
        if not self._its.leading() or not permitted:
            return
        # Before the patch: its answer may be lost.
        self._memory.own[move.uid] = move
        self._watch_own_deployments()
        try:
            made = await self._stores.moves.patch(
                move.key, lambda pod: detach_patch(pod, move.uid, move.replica_set, move.note)
            )
        except ApiError as fault:
            self._forget(move)
            self._note_failure(fault, move.key)
            self._note_refusal(move, fault)
            return
        except ConflictError as fault:
            self._forget(move)
            self._note_failure(fault, move.key)
            return
        except UnavailableError as fault:
            self._note_failure(fault, move.key)
            return
        if made:
            self._report_begin(move)
        else:
            self._forget(move)

    def _note_refusal(self, move: Move, fault: ApiError) -> None:
        """Remember why the API server refused to detach a pod."""
        if refuses_owner_references(fault):
            self._complain(FORBIDDEN_OWNERS)
            self._refuse(move, [Blocker(OWNER_REFERENCES, f"{fault}", about=move.deployment)])
        # A policy for Ebb's own accounts refuses the writes to other pods too.
        elif _is_refusal(fault) and not isinstance(fault, PolicyRefusedError):
            until = self._clock.unix_seconds() + REFUSED_SECONDS
            message = f"Ebb does not try again before {timestamp(until)}: {fault}"
            self._refuse(move, [Blocker(NOT_DETACHED, message, about=move.deployment)])

    def _forget(self, move: Move) -> None:
        self._memory.own.pop(move.uid, None)
        self._watch_own_deployments()

    def _watch_own_deployments(self) -> None:
        self._view.moving_deployments = frozenset(
            move.deployment_key for move in self._memory.own.values()
        )

    def _report_begin(self, move: Move) -> None:
        log.info(
            "a surge move begins",
            extra=fields(deployment=move.deployment_key, pod=move.pod, node=move.node),
        )
        note = (
            f"moving pod {move.pod} from node {move.node}, which is being emptied: the pod is "
            "detached from its ReplicaSet until another pod is available"
        )
        self._its.record_event(_regarding(move), BEGAN, note, EventType.NORMAL)


def _is_refusal(fault: ApiError) -> bool:
    return 400 <= fault.status < 500 and fault.status != 429


def _regarding(move: Move) -> Regarding:
    """Return the Deployment of a move, or its pod if another leader has begun the move."""
    if move.deployment:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "namespace": move.namespace,
            "name": move.deployment,
            "uid": move.deployment_uid,
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": move.namespace,
        "name": move.pod,
        "uid": move.uid,
    }
