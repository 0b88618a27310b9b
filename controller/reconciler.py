"""One pass of the engine: look, judge, write; and what a leader remembers between passes."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from controller.deletion_costs import DeletionCosts
from controller.evictor import Evictor, PlannedDrain
from controller.metrics import Metrics
from controller.writers import BLIND, LiveView, Tell, Writers, makes_schedulable
from core.config.settings import Config
from core.drain.context import DrainInput
from core.drain.planner import NOTHING
from core.edge.kube.stores.objects import Objects
from core.edge.logs import fields
from core.engine.leader_state import LeaderState
from core.engine.planner import unlimited_time
from core.engine.reconcile import PassResult, reconcile
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.writes.costs import decide_costs
from core.writes.nodes import LeaderObservations, decide
from core.writes.write import Write, WriteKind, prefer_no_schedule_writes, split

log = logging.getLogger("ebb.reconciler")


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass found and did."""

    config: Config
    """By which it was decided: it may be another one by the time that this is carried out."""
    found: PassResult
    writes: tuple[Write[Node], ...]
    """In observe mode marks are among them that are only told."""
    failed: int
    costs: tuple[Write[Pod], ...] = ()
    looked: PlannedDrain | None = None
    """What is to be evicted; None: nobody evicts."""


class OnPods(NamedTuple):
    """What is done to the pods of marked nodes, each only where it is configured."""

    deletion_costs: DeletionCosts | None = None
    evictor: Evictor | None = None


class Reconciler:
    """Keeps what this leader has seen; everything else that lasts stands on the Nodes."""

    def __init__(
        self,
        config: Config,
        nodes: Objects[Node],
        *,
        owner: str,
        metrics: Metrics,
        tell: Tell = lambda *_: None,
        on_pods: OnPods | None = None,
    ) -> None:
        self.config = config
        """In use; another one holds from the next pass on."""
        self.judged = asyncio.Event()
        """Set when there is another pass, before it is carried out; who waits for it clears it."""
        self._writers, self._tell = Writers(nodes, metrics, tell), tell
        self._owner, self._metrics = owner, metrics
        self._deletion_costs, self._evictor = on_pods or OnPods()
        self.begin()

    def begin(self) -> None:
        """Lead anew: what was seen before, others may have changed meanwhile."""
        self._last: PassResult | None = None
        self._refusing: set[str] = set()
        """Nodes whose mark could not be written, or a hard one not be taken away."""
        if self._evictor:
            self._evictor.begin()
        self.doubts = False
        """Pods wait for which there was a place, and hard marks may be what keeps them."""

    @property
    def last(self) -> PassResult | None:
        """Return the last pass of this lead; None: there was none."""
        return self._last

    async def tick(self, cluster: Cluster, now_seconds: int) -> PassReport:
        """Judge the cluster as it stands at *now_seconds* (unix) and act on it."""
        return await self.carry_out(self.judge(cluster, now_seconds))

    def judge(
        self, cluster: Cluster, now_seconds: int, in_time: Callable[[], bool] = unlimited_time
    ) -> PassReport:
        """Decide what to write; no I/O, so that a thread can do it beside the event loop."""
        config = self.config
        refusing, self._refusing = self._refusing, set()
        last = self._last
        memory = (last.state if last else LeaderState()).with_failed_writes(
            frozenset(refusing),
            Now(now_seconds),
            unneeded_time_seconds=config.unneeded_time_seconds,
            max_seconds=config.budgets.backoff.max_seconds,
        )
        self._last = found = reconcile(
            cluster, config, memory, now_seconds, in_time=in_time, last=last
        )
        hard = any(one.mark is Mark.HARD for one in found.snapshot.marks.values())
        self.doubts = hard and bool(found.state.pending_since)
        looked = self._looked(cluster, config, found)
        drain = looked.drain if looked else NOTHING
        watch = LeaderObservations(
            found.watched_seconds,
            found.no_schedule_blockers,
            drain.hard,
            drain.memory.failed,
            found.state.last_protected.at,
            found.state.last_reserved.at,
        )
        writes = decide(
            cluster, found.plan, config, now_seconds=now_seconds, owner=self._owner, watch=watch
        )
        self._metrics.reconciles.labels("skipped" if found.skipped else "evaluated").inc()
        if not found.skipped:
            self._metrics.pass_gauges.report(found)
        costs = self._costs(cluster, config, found.state.scale_in_targets)
        return PassReport(config, found, writes, 0, costs, looked)

    def _costs(
        self, cluster: Cluster, config: Config, next_in_line: Mapping[str, int]
    ) -> tuple[Write[Pod], ...]:
        """Decide which deletion costs come and go."""
        enabled = (
            self._deletion_costs.enabled(config.pod_deletion_cost)
            if self._deletion_costs
            else None
        )
        if enabled is None:
            return ()
        return decide_costs(cluster, config.taint_key, next_in_line, enabled=enabled)

    def _looked(self, cluster: Cluster, config: Config, found: PassResult) -> PlannedDrain | None:
        """Decide what to evict."""
        if self._evictor is None:
            return None
        return self._evictor.look(
            DrainInput(
                cluster=cluster,
                plan=found.plan,
                config=config,
                against_hard=found.no_schedule_blockers,
                watched_seconds=found.watched_seconds,
                now_seconds=found.at,
                own_namespace=self._evictor.own_namespace,
            )
        )

    async def carry_out(self, report: PassReport, sight: LiveView = BLIND) -> PassReport:
        """Write; what fails or is dropped is decided anew by the next pass.

        In mode observe no node is marked: all other writes take away what another mode has left.
        """
        self.judged.set()
        mode = report.config.mode
        wanted, told = split(report.writes, mode)
        for write in told:
            log.info("would write", extra=fields(node=write.key, reason=write.note))
        closed = report.found.snapshot.unschedulable_nodes
        batch = await self._writers.carry_out(wanted, report.config.taint_key, sight, closed)
        refused = (
            one for one in batch.refused if one.kind is WriteKind.MARK or makes_schedulable(one)
        )
        self._refusing.update(write.key for write in refused)
        failed = len(batch.failed)
        if self._deletion_costs:
            failed += await self._deletion_costs.carry_out(report.costs, mode, batch.why_halted)
        if self._evictor and report.looked:
            await self._evictor.carry_out(
                report.looked, report.config, batch.why_halted, self._tell
            )
        if self._deletion_costs:  # last: no write waits for the answer
            await self._deletion_costs.look_up(report.config.pod_deletion_cost)
        return replace(report, failed=failed)

    async def set_prefer_no_schedule(self, nodes: Iterable[Node]) -> None:
        """Let no hard mark stand while nobody can tell what it does."""
        writes = prefer_no_schedule_writes(nodes, "no pass can be made")
        await self._writers.carry_out(writes, self.config.taint_key, BLIND)
        if self._evictor:
            self._evictor.begin_drain()
