"""Carry out surge moves: write the steps that core.moves decides on, while this replica leads.

A surge move adds a pod to a Deployment, and then deletes another pod of it on a marked node. A
turn continues the moves in progress, as soon as an object changes or a step is due. After each
reconciliation it also begins new moves. Each write is followed by the next decision. A failed
write delays only its own move.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from controller.metrics import Metrics, WriteResult
from controller.move_book import MoveRecordCache
from controller.view import ClusterView
from controller.writers import for_each
from core.config.settings import Config, Mode, PodDeletionCost
from core.engine.reconcile import ReconcileResult
from core.model.cluster import NO_SURGE, Cluster
from core.model.errors import EbbError, UnavailableError
from core.model.now import Now
from core.model.pod import Pod
from core.moves.facts import AddMoves, with_moves
from core.moves.objects import MANAGER, ObservedDeployment, SurgeObjects
from core.moves.pauses import ended
from core.moves.planner import MovePlan, SurgeContext, SurgeInput, plan_moves
from core.moves.records import MoveOutcome, MoveRecord, MoveRecords
from core.moves.steps import (
    EndMove,
    MoveView,
    PutRecord,
    SetCost,
    SetReplicas,
    Wait,
    marked_nodes,
    next_step,
)
from core.writes.costs import UNDO_COST, cost_write, has_cost
from kube.client import ApiError
from kube.stores.access_review import AccessReview
from kube.stores.events import EventType, Regarding
from kube.stores.objects import Objects, write_as_decided
from kube.stores.scales import Scale
from runtime.clock import Clock
from runtime.logs import fields

CALLS_MAX: Final = 4
"""Maximum number of moves that are continued at the same time."""
STEPS_MAX: Final = 16
"""Maximum number of steps of a move in one turn; a move has seven."""
PAUSE_SECONDS: Final = 0.5
"""Minimum pause between two turns, so that changes that arrive together share a turn."""
ROUND_SECONDS: Final = 10.0
"""Maximum pause between two turns."""
RETRY_SECONDS: Final = 5
"""Pause after a failed write of a move."""
RELOAD_SECONDS: Final = 60
"""Pause after the ConfigMap was missing or could not be read."""
MOVED_NODES_MAX: Final = 1000
"""Maximum number of nodes for which moved pods are counted. Pods moved from further nodes are
missing in the metric `ebb_surge_moved_pods_per_removed_node`."""
BEGAN: Final = "SurgeMoveBegan"
MOVED: Final = "SurgeMoved"
ENDED: Final = "SurgeMoveEnded"
FORBIDDEN: Final = "SurgeForbidden"
FORBIDDEN_SCALE: Final = (
    "surge moves are enabled, but RBAC does not allow patching deployments/scale, so no pod is "
    "moved; manifests/components/surge grants the permission"
)
FORBIDDEN_COSTS: Final = (
    "surge moves are enabled, but RBAC does not allow patching pods, so no pod is moved; "
    "manifests/components/pod-deletion-cost grants the permission"
)
NO_RECORDS: Final = (
    "surge moves are enabled, but the ConfigMap for their records does not exist or must not be "
    "read, so no pod is moved; manifests/components/surge creates it"
)

log = logging.getLogger("ebb.mover")


class Reconciliations(Protocol):
    """Provides the configuration in use and the result of the last reconciliation."""

    config: Config
    reconciled: asyncio.Event
    """Set after the writes of every reconciliation."""
    moving_pods: frozenset[str] | None
    """UIDs of the pods that moves replace; None if they are unknown yet."""

    @property
    def last(self) -> ReconcileResult | None:
        """Return the result of the last reconciliation since this replica leads, or None."""


class Scales(Protocol):
    """Writes the subresource `scale` of Deployments."""

    async def write(self, namespace: str, name: str, version: str, replicas: int) -> Scale:
        """Set the replicas of a Deployment, unless it has changed since *version*.

        *version*: its resourceVersion. Returns the scale as stored. Raises: ConflictError if it
        has changed, UnavailableError.
        """


@dataclass(frozen=True, kw_only=True)
class MoveStores:
    """The stores to which surge moves write: their records, scales of Deployments, and pods."""

    book: MoveRecordCache
    scales: Scales
    pods: Objects[Pod]


@dataclass(frozen=True, kw_only=True)
class MoverDependencies:
    """Functions and permissions of the program that the mover uses."""

    leader: str
    """Identity of this replica, unique for each start of the program."""
    namespace: str
    """Namespace in which Ebb is installed."""
    leading: Callable[[], bool]
    """Returns whether this replica leads."""
    why_unknown: Callable[[], str | None]
    """Returns why the objects that moves depend on are unknown or outdated, or None."""
    scale_access: AccessReview
    cost_access: AccessReview
    record_access: AccessReview
    """Access to read the ConfigMap; asked for only while surge moves are disabled."""
    record_event: Callable[[Regarding, str, str, EventType], None] = lambda *_: None
    """Writes an Event with a reason and a note."""
    report_forbidden: Callable[[str, str], None] = lambda *_: None
    """Writes an Event about Ebb's namespace."""


class _Live(NamedTuple):
    """The objects of the surge moves in progress, as the watches report them."""

    objects: SurgeObjects
    pods: Mapping[str, Sequence[Pod]]
    """Pods by the key of their Deployment."""
    marked: frozenset[str]


@dataclass(slots=True)
class _Written:
    """What this replica has written for surge moves, and the watches may not have reported yet."""

    deployments: dict[str, tuple[str, ObservedDeployment]] = field(default_factory=dict)
    """The resourceVersion of each Deployment that Ebb changed, and the result, by UID."""
    pods: dict[str, tuple[Pod, Pod]] = field(default_factory=dict)
    """Each pod before and after Ebb wrote its deletion cost, by UID."""
    costs_refused: set[str] = field(default_factory=set)
    """UIDs of Deployments whose new pod could not get its deletion cost."""

    def retain(self, deployments: Collection[str], pods: Collection[str]) -> None:
        """Forget what was written for all Deployments and pods except those with these UIDs."""
        for uid in self.deployments.keys() - deployments:
            del self.deployments[uid]
        for uid in self.pods.keys() - pods:
            del self.pods[uid]
        self.costs_refused &= set(deployments)


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
        self._book = stores.book
        self._book.changed = self.note_records
        self._clock, self._metrics, self._its = clock, metrics, surroundings
        metrics.surge_forbidden.set_function(
            lambda: metrics.is_leading() and surroundings.scale_access.allowed is False
        )
        metrics.surge_moves_in_progress.set_function(
            lambda: len(self._book.records.moves) if metrics.is_leading() else 0
        )
        self._begin_leading()

    def _begin_leading(self) -> None:
        self._facts, self._planned_records = NO_SURGE, MoveRecords()
        self._written = _Written()
        self._book.begin()
        self.note_records(self._book.records)
        if self._source.config.surges:
            # The deletion costs of moves must remain until their records have been read.
            self._source.moving_pods = None
        self._loaded, self._load_at = False, 0
        self._moved_from: dict[str, int] = {}
        """Number of moved pods by node, until the node is removed."""
        self._pods_pending = False
        self._due = 0
        self._complained: str = ""
        self._allowed = False
        """Whether RBAC allows all writes of a move."""

    @property
    def moves(self) -> Collection[MoveRecord]:
        """Return the records of the surge moves in progress."""
        return self._book.records.moves.values()

    @property
    def needs_objects(self) -> bool:
        """Return whether to watch the kinds that only surge moves need, such as Deployments."""
        return self._source.config.surges or bool(self._book.records.moves)

    def note_records(self, records: MoveRecords) -> None:
        """Tell the reconciler and the view which pods the surge moves in *records* replace."""
        pods = frozenset(one.pod_uid for one in records.moves.values())
        self._source.moving_pods = pods
        self._written.retain(records.moves.keys(), pods)
        self._view.moving_deployments = frozenset(
            (one.namespace, one.deployment) for one in records.moves.values()
        )

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
                log.warning(
                    "a turn of surge moves failed; retrying", extra=fields(reason=str(fault))
                )
            except Exception:
                self._metrics.reconcile_errors.inc()
                log.exception("a turn of surge moves failed; retrying")
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

        The function may run in any thread. It uses the objects and records at the time of this
        call.
        """
        config = self._source.config
        if not config.surges:
            self._facts = NO_SURGE
            return lambda cluster: cluster
        if self._its.why_unknown() is not None:
            return lambda cluster: replace(cluster, surge=self._facts)
        objects, records = self._view.surge_snapshot(), self._book.records
        before, self._planned_records = self._planned_records, records

        def add(cluster: Cluster) -> Cluster:
            found = with_moves(cluster, objects(), records, before, self._its.namespace)
            self._facts = found.surge
            return found

        return add

    # A turn

    async def turn(self, why_stale: Callable[[], str | None] = lambda: None) -> None:
        """Continue the surge moves in progress, and begin new ones after a reconciliation.

        *why_stale*: returns why the information about the cluster is outdated, or None; no move
        continues then. Raises: UnavailableError if the records cannot be read.
        """
        now = self._clock.unix_seconds()
        self._due = now + 3600
        reconciled = self._source.reconciled.is_set()
        self._source.reconciled.clear()
        config = self._source.config
        await self._load(config, now)
        self._count_removed_nodes()
        if not self.needs_objects:
            self._its.scale_access.forget()
            self._its.cost_access.forget()
            return
        await self._review_access(config)
        if (why_stale() or self._its.why_unknown()) is not None:
            self._due = now + 1
            return
        if self._book.records.moves:
            await self._continue(list(self._book.records.moves.values()), config)
        last = self._source.last
        if reconciled and last is not None and config.surges and config.mode is Mode.ENFORCE:
            await self._begin_moves(config, last)

    async def _load(self, config: Config, now: int) -> None:
        """Read the records of the previous leader once, and again while the ConfigMap is missing.

        *now*: Unix seconds.
        """
        missing = config.surges and not self._book.exists
        if self._loaded and not (missing and now >= self._load_at):
            return
        if not config.surges:
            # Without the component surge, a read would be refused in every installation.
            await self._its.record_access.refresh()
            if self._its.record_access.allowed is None:
                return
        if config.surges or self._its.record_access.allowed:
            self._load_at = now + RELOAD_SECONDS
            await self._read_records()
        if not self._loaded:
            self.note_records(self._book.records)
        self._loaded = True
        if config.surges and not self._book.exists:
            self._complain(NO_RECORDS)

    async def _read_records(self) -> None:
        """Read the records; ignore a missing permission. Raises: UnavailableError."""
        try:
            await self._book.load()
        except ApiError as fault:
            if not fault.forbidden:
                raise

    def _complain(self, note: str) -> None:
        if note != self._complained:
            self._complained = note
            log.error(note)
            self._its.report_forbidden(FORBIDDEN, note)

    async def _review_access(self, config: Config) -> None:
        reviews = [(self._its.scale_access, FORBIDDEN_SCALE)]
        # With `enabled`, Roles of single namespaces may allow the write.
        if config.pod_deletion_cost is not PodDeletionCost.ENABLED:
            reviews.append((self._its.cost_access, FORBIDDEN_COSTS))
        self._allowed = True
        for access, note in reviews:
            if await access.refresh() and access.allowed is False and config.surges:
                self._complain(note)
            self._allowed = self._allowed and access.allowed is True

    def _count_removed_nodes(self) -> None:
        for name in [name for name in self._moved_from if name not in self._view.nodes]:
            self._metrics.surge_moved_pods_per_node.observe(self._moved_from.pop(name))

    # Moves in progress

    async def _continue(self, moves: Sequence[MoveRecord], config: Config) -> None:
        await for_each(moves, CALLS_MAX, partial(self._continue_one, self._live(), config))

    def _live(self) -> _Live:
        moves = self._book.records.moves.values()
        objects = self._view.surge_objects_of(self._view.moving_deployments)
        pods: dict[str, list[Pod]] = {one.deployment_key: [] for one in moves}
        for pod in self._view.moving_pods:
            deployment = objects.deployment_of(pod)
            if deployment is not None and deployment.key in pods:
                pods[deployment.key].append(pod)
        return _Live(objects, pods, marked_nodes(self._view.nodes.values()))

    async def _continue_one(self, live: _Live, config: Config, move: MoveRecord) -> None:
        try:
            await self._steps(live, config, move)
        except UnavailableError as fault:
            self._note_failure(fault, move.deployment_key)

    def _note_failure(self, fault: UnavailableError, key: str) -> None:
        """Count and log a failed write of a surge move, and retry soon.

        *key*: namespace/name of the Deployment or pod, for the log.
        """
        self._retry()
        self._metrics.surge_write_errors.labels(WriteResult.of(fault)).inc()
        log.warning(
            "cannot write a step of a surge move; retrying",
            extra=fields(deployment=key, reason=str(fault)),
        )

    def _retry(self) -> None:
        self._due = min(self._due, self._clock.unix_seconds() + RETRY_SECONDS)

    async def _steps(self, live: _Live, config: Config, move: MoveRecord) -> None:
        """Carry out the steps of a move until one must wait. Raises: UnavailableError."""
        for _ in range(STEPS_MAX):
            if not self._its.leading():
                return
            now = Now(self._clock.unix_seconds())
            match next_step(move, self._view_of(move, live, config), now):
                case Wait(until):
                    self._due = min(self._due, until)
                    return
                case PutRecord(record):
                    if not await self._put(move, record):
                        return
                    move = record
                case SetCost(pod, cost):
                    if not await self._set_cost(move, pod, cost):
                        self._retry()
                        return
                case SetReplicas(deployment, replicas):
                    await self._set_replicas(deployment, replicas)
                case EndMove() as end:
                    await self._end(move, end, live, now)
                    return

    def _view_of(self, move: MoveRecord, live: _Live, config: Config) -> MoveView:
        key = move.deployment_key
        return MoveView(
            deployment=self._latest_deployment(live.objects.deployments.get(key)),
            pods=[self._latest_pod(pod) for pod in live.pods.get(key, ())],
            has_autoscaler=key in live.objects.autoscalers,
            marked=live.marked,
            pods_pending=self._pods_pending,
            allowed=config.surges and config.mode is Mode.ENFORCE,
            leader=self._its.leader,
            cost_refused=move.uid in self._written.costs_refused,
        )

    def _latest_deployment(self, found: ObservedDeployment | None) -> ObservedDeployment | None:
        """Return the Deployment as this replica has written it, or *found* if it is newer.

        *found*: the Deployment as the watch reports it; None if it does not exist.
        """
        if found is None or found.uid not in self._written.deployments:
            return found
        before, after = self._written.deployments[found.uid]
        if found.version == before:
            return after
        del self._written.deployments[found.uid]
        return found

    def _latest_pod(self, found: Pod) -> Pod:
        """Return *found* with the deletion cost that this replica has written to the pod.

        Once the watch has reported a change of the pod, returns *found* unchanged.
        """
        if found.uid not in self._written.pods:
            return found
        before, after = self._written.pods[found.uid]
        if found == before:
            return replace(
                found,
                deletion_cost=after.deletion_cost,
                deletion_cost_ours=after.deletion_cost_ours,
            )
        del self._written.pods[found.uid]
        return found

    async def _put(self, before: MoveRecord, record: MoveRecord) -> bool:
        """Store the changed record of a move, and return whether it was stored.

        It is not stored if another writer has changed or removed the record *before*.
        """

        def decide(records: MoveRecords) -> MoveRecords | None:
            same = records.moves.get(before.uid) == before
            return records.with_move(record) if same else None

        return await self._book.change(decide)

    async def _set_cost(self, move: MoveRecord, pod: Pod, cost: int) -> bool:
        """Write a pod deletion cost for a surge move; return whether the move may continue.

        If the move is being undone, the result is always True. Raises: UnavailableError, unless
        the move is being undone.
        """
        write = cost_write(pod, cost)
        try:
            done = await write_as_decided(self._stores.pods, pod.key, write.if_unchanged)
        except UnavailableError as fault:
            if cost != UNDO_COST:
                raise
            self._note_failure(fault, pod.key)
            done = None
        else:
            result = WriteResult.SUCCESS if done else WriteResult.CONFLICT
            self._metrics.pod_writes.labels(write.kind, result).inc()
        if done and has_cost(done.stored[0], cost):  # an admission webhook may remove it
            self._written.pods[pod.uid] = pod, done.stored[0]
            return True
        if cost != UNDO_COST:
            return False
        self._written.costs_refused.add(move.uid)
        return True

    async def _set_replicas(self, deployment: ObservedDeployment, replicas: int) -> None:
        """Write the replicas of a Deployment, unless it has changed. Raises: UnavailableError."""
        log.info(
            "writing the replicas of a Deployment",
            extra=fields(deployment=deployment.key, replicas=replicas),
        )
        scale = await self._stores.scales.write(
            deployment.namespace, deployment.name, deployment.version, replicas
        )
        after = replace(
            deployment,
            version=scale.version,
            replicas=scale.replicas,
            replicas_manager=MANAGER,
            generation=deployment.generation + 1,
        )
        self._written.deployments[deployment.uid] = deployment.version, after

    async def _end(self, move: MoveRecord, end: EndMove, live: _Live, now: Now) -> None:
        hpa = live.objects.autoscalers.get(move.deployment_key)
        window_seconds = hpa.window_seconds if hpa else 0

        def decide(records: MoveRecords) -> MoveRecords | None:
            same = records.moves.get(move.uid) == move
            return ended(records, move, end, window_seconds, now) if same else None

        if await self._book.change(decide):
            self._report_end(move, end, now)

    def _report_end(self, move: MoveRecord, end: EndMove, now: Now) -> None:
        self._metrics.surge_moves.labels(end.outcome.value).inc()
        self._metrics.surge_move_seconds.observe(max(now.seconds - move.begun, 0))
        log.info(
            "a surge move ended",
            extra=fields(
                deployment=move.deployment_key,
                pod=move.pod,
                node=move.node,
                outcome=end.outcome.value,
                manager=end.manager,
            ),
        )
        if end.outcome is MoveOutcome.MOVED:
            note = f"moved pod {move.pod} from node {move.node}: another pod replaced it"
            self._its.record_event(_regarding(move), MOVED, note, EventType.NORMAL)
            if move.node in self._moved_from or len(self._moved_from) < MOVED_NODES_MAX:
                self._moved_from[move.node] = self._moved_from.get(move.node, 0) + 1
            return
        who = f"; {end.manager} set the replicas" if end.manager else ""
        note = f"the move of pod {move.pod} from node {move.node} ended: {end.outcome.value}{who}"
        self._its.record_event(_regarding(move), ENDED, note, EventType.NORMAL)

    # New moves

    async def _begin_moves(self, config: Config, last: ReconcileResult) -> None:
        """Choose new surge moves, store their records, and carry out their first steps.

        *last*: the last reconciliation, whose plan says where the moved pods find room.
        """
        cluster = self._view.snapshot(config.read_options)
        objects, records = self._view.surge_snapshot(), self._book.records
        now = self._clock.unix_seconds()

        def plan() -> tuple[MovePlan, bool]:
            of, own = objects(), self._its.namespace
            context = SurgeContext(
                SurgeInput(
                    cluster=with_moves(cluster(), of, records, records, own),
                    plan=last.plan,
                    config=config,
                    objects=of,
                    records=records,
                    own_namespace=own,
                    leader=self._its.leader,
                    now_seconds=now,
                )
            )
            return plan_moves(context), context.pods_pending

        chosen, self._pods_pending = await asyncio.to_thread(plan)
        if not chosen.begin or not self._allowed or not self._book.exists:
            return
        begun: list[MoveRecord] = []

        def decide(records: MoveRecords) -> MoveRecords | None:
            moment = Now(self._clock.unix_seconds())
            permitted = (one.record for one in chosen.begin if one.permit.is_valid(moment))
            begun[:] = [one for one in permitted if one.uid not in records.moves]
            if not begun or not self._its.leading():
                return None
            return records.with_begun(begun, moment)

        try:
            stored = await self._book.change(decide)
        except UnavailableError as fault:
            self._note_failure(fault, begun[0].deployment_key)
            return
        if stored and self._book.exists:
            for move in begun:
                self._report_begin(move)
            await self._continue(begun, config)

    def _report_begin(self, move: MoveRecord) -> None:
        log.info(
            "a surge move begins",
            extra=fields(deployment=move.deployment_key, pod=move.pod, node=move.node),
        )
        note = (
            f"moving pod {move.pod} from node {move.node}, which is being emptied: "
            f"{move.raised} replicas until another pod is available"
        )
        self._its.record_event(_regarding(move), BEGAN, note, EventType.NORMAL)


def _regarding(move: MoveRecord) -> Regarding:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": move.namespace,
        "name": move.deployment,
        "uid": move.uid,
    }
