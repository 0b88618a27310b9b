"""Reconcile once: make a plan for the cluster, then write; keep the leader's state in between."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from controller.deletion_costs import DeletionCosts
from controller.evictor import EVICTED, Evictor, PlannedEvictions
from controller.figures.day import Happened
from controller.figures.figures import Figures
from controller.metrics import Metrics
from controller.writers import (
    EVENT_REASONS,
    NO_LIVE_VIEW,
    LiveView,
    RecordEvent,
    Writers,
    makes_schedulable,
)
from core.config.settings import Config, Mode
from core.engine.leader_state import LeaderState, arrivals_to_store
from core.engine.maintenance_gate import ALWAYS, Refusal, RefusedWrite
from core.engine.planner import unlimited_time
from core.engine.reconcile import ReconcileResult, reconcile
from core.eviction.context import EvictionInput
from core.eviction.planner import NOTHING
from core.history.today import Today
from core.marks.mark import Mark
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.now import Now
from core.writes.costs import NO_COSTS, CostDecision, decide_costs
from core.writes.nodes import LeaderObservations, decide
from core.writes.write import Write, WriteKind, prefer_no_schedule_writes, split
from kube.stores.objects import Objects
from runtime.logs import fields

ObserveWrites = Callable[[Iterable[tuple[str, str, str]]], None]
"""Takes the writes on Nodes (name, reason of the Event, note) that are only reported."""

ORDER_SECONDS: Final = 60
"""Time after which ReplicaSets are put in order of scale-ins again.

It is shorter than the 300 s for which an HPA waits by default before it scales in."""

HAPPENED_MAX: Final = 10_000
"""Maximum number of writes that the next reconciliation counts; the last ones are kept."""

log = logging.getLogger("ebb.reconciler")


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """The plan and all writes of one reconciliation, and the number of writes that failed."""

    config: Config
    """Configuration of the decisions; a reload may replace it before they are carried out."""
    result: ReconcileResult
    writes: tuple[Write[Node], ...]
    """Writes to Nodes. In mode observe, marks among them are only reported."""
    failed: int
    """Number of failed writes; 0 before the writes."""
    costs: CostDecision = NO_COSTS
    """Pod deletion costs."""
    planned_evictions: PlannedEvictions | None = None
    """Evictions; None if this replica has no evictor."""


class Reconciler:
    """Make a plan for the cluster and write the changes to Nodes and pods.

    The state of the leader is in memory. All other state is on the Nodes.
    """

    def __init__(
        self,
        config: Config,
        nodes: Objects[Node],
        *,
        owner: str,
        metrics: Metrics,
        record_event: RecordEvent = lambda *_: None,
        observe_writes: ObserveWrites = lambda _: None,
        deletion_costs: DeletionCosts | None = None,
        evictor: Evictor | None = None,
        refused_write: Callable[[], RefusedWrite | None] = lambda: None,
        may_publish: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take the configuration and the parts that write.

        *owner*: name of this replica, which the details of a mark contain. *observe_writes*:
        called after each evaluation with the writes that are only reported. *deletion_costs*: None
        if Ebb writes no pod deletion costs. *evictor*: None if Ebb evicts no pods.
        *refused_write*: returns a write to a Node that a policy for Ebb's own accounts refused
        recently, or None. *may_publish*: returns whether RBAC allows Ebb to write CapacityBuffers;
        False while that is unknown.
        """
        self.config = config
        """Configuration for the next reconciliation."""
        self.evaluated = asyncio.Event()
        """Set after each evaluation, before its writes; the task that waits for it clears it."""
        self.reconciled = asyncio.Event()
        """Set after the writes of each evaluation; the task that waits for it clears it."""
        self._writers = Writers(nodes, metrics, record_event, self._record_unmark)
        self._record_event = record_event
        self._owner, self._metrics, self._observe_writes = owner, metrics, observe_writes
        self._deletion_costs, self._evictor = deletion_costs, evictor
        self._refused_write, self._may_publish = refused_write, may_publish
        self.figures = Figures()
        """Figures for operators, such as savings, from the reconciliations of this replica."""
        # Appended in the event loop, and emptied in the thread of a reconciliation.
        self._happened: deque[Happened] = deque(maxlen=HAPPENED_MAX)
        self.begin()

    def begin(self) -> None:
        """Forget earlier reconciliations when this replica starts leading."""
        # Another leader may have changed the cluster since.
        self._last: ReconcileResult | None = None
        self.figures = self.figures.restarted()
        self._stored: Today | None = None
        """What a leader has stored and the next reconciliation continues."""
        self._last_costs = NO_COSTS
        self._ordered_at: int | None = None
        """Unix second at which ReplicaSets were last put in order of scale-ins."""
        self._nodes: set[str] = set()
        """Marked nodes and scale-in targets at the last decision on pod deletion costs."""
        self._unspread = 0
        """ReplicaSets whose scale-ins may break a topology spread constraint."""
        self._failed_writes: set[str] = set()
        """Nodes whose mark could not be written, or whose NoSchedule mark could not be removed."""
        if self._evictor:
            self._evictor.begin()
        self.marks_may_block_pods = False
        """True if NoSchedule marks exist while pods are Pending for which the plan has room."""

    @property
    def last(self) -> ReconcileResult | None:
        """Return the result of the last reconciliation since this replica leads, or None."""
        return self._last

    @property
    def to_store(self) -> Today | None:
        """Return what the next leader needs to continue the figures of the day and the reserve.

        None before the first reconciliation, and until it has continued the stored figures.
        """
        last, today = self._last, self.figures.to_store
        if self._stored is not None or last is None or today is None:
            return None
        return replace(today, arrivals=arrivals_to_store(last.state))

    def restore(self, stored: Today) -> None:
        """Continue what a leader has stored, with the next reconciliation."""
        self._stored = stored

    def count_moved_pod(self, node: str) -> None:
        """Count a pod that Ebb has moved from the node with this name."""
        self._happened.append(Happened(node))

    def _record_unmark(self, node: str, code: str) -> None:
        self._happened.append(Happened(node, code))

    def _record_eviction(self, node: Node, action: str, note: str) -> None:
        if action == EVICTED:
            self.count_moved_pod(node.name)
        self._record_event(node, action, note)

    @property
    def opens_at(self) -> int | None:
        """Return the Unix second at which marks and evictions may begin again.

        None if they may begin now, or if no such time is known.
        """
        beginning = self._last.rate_limits.beginning if self._last else ALWAYS
        return beginning.until if isinstance(beginning, Refusal) else None

    async def reconcile(self, cluster: Cluster, now_seconds: int) -> ReconcileReport:
        """Make a plan for the cluster, write the changes, and return a report of both.

        *now_seconds*: Unix time.
        """
        return await self.carry_out(self.evaluate(cluster, now_seconds))

    def evaluate(
        self, cluster: Cluster, now_seconds: int, in_time: Callable[[], bool] = unlimited_time
    ) -> ReconcileReport:
        """Make a plan and decide on all writes, without I/O, so that it can run in another thread.

        `carry_out` makes the writes of the returned report. *now_seconds*: Unix time. *in_time*:
        returns whether there is time to evaluate another node.
        """
        config = self.config
        failed_writes, self._failed_writes = self._failed_writes, set()
        last, stored = self._last, self._stored
        state = (last.state if last else LeaderState()).with_failed_writes(
            frozenset(failed_writes),
            Now(now_seconds),
            unneeded_time_seconds=config.unneeded_time_seconds,
        )
        if (refused_write := self._refused_write()) != state.refused_write:
            state = replace(state, refused_write=refused_write)
        if (may_publish := self._may_publish()) is not state.may_publish:
            state = replace(state, may_publish=may_publish)
        if stored and stored.arrivals:
            state = replace(state, stored_arrivals=stored.arrivals)
        self._last = result = reconcile(
            cluster, config, state, now_seconds, in_time=in_time, last=last
        )
        no_schedule = any(mark.mark is Mark.NO_SCHEDULE for mark in result.snapshot.marks.values())
        self.marks_may_block_pods = no_schedule and bool(result.state.pending_since)
        planned_evictions = self._plan_evictions(cluster, config, result)
        evictions = planned_evictions.decision if planned_evictions else NOTHING
        observations = LeaderObservations(
            result.watched_seconds,
            result.no_schedule_blockers,
            evictions.no_schedule,
            evictions.state.failed,
            result.state.last_protected.at,
            result.state.last_reserved.at,
            result.state.refused_write,
        )
        writes = decide(
            cluster,
            result.plan,
            config,
            now_seconds=now_seconds,
            owner=self._owner,
            watch=observations,
        )
        self._metrics.reconciles.labels("skipped" if result.skipped else "evaluated").inc()
        if not result.skipped:
            self._metrics.reconciliation_gauges.report(result)
        self._count(result, stored)
        costs = self._costs(cluster, config, result, now_seconds)
        return ReconcileReport(config, result, writes, 0, costs, planned_evictions)

    def _count(self, result: ReconcileResult, stored: Today | None) -> None:
        before = self.figures
        figures = before if stored is None else before.restored(stored, result.at)
        happened = [self._happened.popleft() for _ in range(len(self._happened))]
        self.figures = figures.observe(result, happened)
        if stored is self._stored:
            self._stored = None
        self._metrics.report_figures(before, self.figures, changed=not result.skipped)

    def _costs(
        self, cluster: Cluster, config: Config, result: ReconcileResult, now_seconds: int
    ) -> CostDecision:
        """Return the writes of pod deletion costs; none if Ebb must not write any now."""
        enabled = (
            self._deletion_costs.enabled(config.pod_deletion_cost)
            if self._deletion_costs
            else None
        )
        if enabled is None:
            return NO_COSTS
        # To compare all pods takes time, so an order that was complete is checked every minute.
        at = self._ordered_at
        reorder = at is None or not at <= now_seconds < at + ORDER_SECONDS
        targets = result.state.scale_in_targets
        nodes = result.snapshot.marks.keys() | targets.keys()
        reorder = reorder or nodes != self._nodes or self._last_costs.to_order > 0
        decision = decide_costs(
            cluster,
            TAINT_KEY,
            targets,
            self._last_costs.orders,
            enabled=enabled,
            keep_orders=config.mode is Mode.ENFORCE,
            reorder=reorder,
        )
        self._last_costs, self._nodes = decision, nodes
        self._ordered_at = now_seconds if reorder else at
        return decision

    def _plan_evictions(
        self, cluster: Cluster, config: Config, result: ReconcileResult
    ) -> PlannedEvictions | None:
        if self._evictor is None:
            return None
        return self._evictor.plan(
            EvictionInput(
                cluster=cluster,
                plan=result.plan,
                config=config,
                no_schedule_blockers=result.no_schedule_blockers,
                watched_seconds=result.watched_seconds,
                now_seconds=result.at,
                own_namespace=self._evictor.own_namespace,
                refused_write=result.state.refused_write,
            )
        )

    async def carry_out(
        self, report: ReconcileReport, live_view: LiveView = NO_LIVE_VIEW
    ) -> ReconcileReport:
        """Write the changes of the report, then evict pods; return the report with `failed` set.

        `failed` is the number of failed writes. In mode observe, new marks are only logged. All
        other writes then remove what mode enforce has left.
        """
        self.evaluated.set()
        mode = report.config.mode
        wanted, reported = split(report.writes, mode)
        for write in reported:
            log.info("would write", extra=fields(node=write.key, reason=write.note))
        self._observe_writes(
            (write.key, EVENT_REASONS[write.kind], write.note) for write in reported
        )
        unschedulable = report.result.snapshot.unschedulable_nodes
        batch = await self._writers.carry_out(wanted, TAINT_KEY, live_view, unschedulable)
        # The plan depends on these writes: a node that cannot be marked is left out of the next
        # plans, and a node that stays NoSchedule has no room for pods.
        self._failed_writes.update(
            write.key
            for write in batch.refused
            if write.kind is WriteKind.MARK or makes_schedulable(write)
        )
        failed = len(batch.failed)
        if report.costs.unspread != self._unspread:
            self._unspread = report.costs.unspread
            log.info(
                "ReplicaSets whose scale-ins may break topology spread constraints",
                extra=fields(replica_sets=self._unspread),
            )
        if self._deletion_costs:
            failed += await self._deletion_costs.carry_out(
                report.costs.writes, mode, batch.why_halted
            )
        if self._evictor and report.planned_evictions:

            def why_not_evicted() -> str | None:
                refused = self._refused_write()
                return (
                    batch.why_halted() if refused is None else f"{refused.policy} refuses writes"
                )

            await self._evictor.carry_out(
                report.planned_evictions, report.config, why_not_evicted, self._record_eviction
            )
        self.reconciled.set()
        if self._deletion_costs:  # after all writes, which must not wait for the answer
            await self._deletion_costs.refresh_access(report.config.pod_deletion_cost)
        return replace(report, failed=failed)

    async def set_prefer_no_schedule(self, nodes: Iterable[Node]) -> None:
        """Change every NoSchedule mark to PreferNoSchedule while Ebb cannot reconcile.

        Without reconciliations, nothing notices pods that stay Pending because of the marks.
        """
        writes = prefer_no_schedule_writes(nodes, "Ebb cannot evaluate the cluster")
        await self._writers.carry_out(writes, TAINT_KEY, NO_LIVE_VIEW)
        if self._evictor:
            self._evictor.restart_evictions()
