"""The engine loop: look, judge, write, check what was written."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from core import engine
from core.brakes import Memory, Pace, pace, remember
from core.config import Config, Mode
from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.errors import ConflictError, UnavailableError
from core.leaving import being_deleted
from core.marks import desired_taints, mark_of, traces
from core.model import Cluster, Node, Taint
from core.plan import Plan
from core.scalein import CostWrite
from webhook.decide import Write, WriteKind, decide
from webhook.scalein import ScaleIn

TRIES_MAX: Final = 5
"""How often one write is tried on a Node that others change at the same time."""

EVENT_REASONS: Final[Mapping[WriteKind, str]] = {
    WriteKind.MARK: "DrainMarked",
    WriteKind.HARDEN: "DrainHardened",
    WriteKind.SOFTEN: "DrainSoftened",
    WriteKind.RELEASE: "DrainReleased",
    WriteKind.GUARD: "ScaleDownGuarded",
    WriteKind.UNGUARD: "ScaleDownAllowed",
    WriteKind.REPAIR: "TaintsRepaired",
    WriteKind.FORGET: "BackoffEnded",
}

Tell = Callable[[Node, str, str], None]
"""Takes a Node, an Event's reason and a note for people."""

log = logging.getLogger("ebb.controller")


class NodeWriter(Protocol):
    """How the loop writes; the API server, or a simulated one."""

    async def patch_node(self, name: str, patch: Mapping[str, Any]) -> tuple[Node, str]:
        """Merge-patch a Node; return it as stored, and its resourceVersion."""

    async def get_node(self, name: str) -> tuple[Node, str]:
        """Return a Node as stored, and its resourceVersion."""

    async def replace_taints(
        self, name: str, taints: Sequence[Taint], resource_version: str
    ) -> tuple[Node, str]:
        """Write the whole list of taints. Raises: ConflictError when the Node has changed."""


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one pass found and did."""

    config: Config
    """By which it was decided: it may be another one by the time that this is carried out."""
    plan: Plan
    candidates: Mapping[str, int]
    pace: Pace
    writes: tuple[Write, ...]
    """In observe mode marks are among them that are only told."""
    failed: int
    costs: tuple[CostWrite, ...] = ()


class Controller:
    """Keeps the candidates' timers; everything else that lasts stands on the Nodes."""

    def __init__(
        self,
        config: Config,
        writer: NodeWriter,
        *,
        owner: str,
        metrics: Metrics,
        tell: Tell = lambda *_: None,
        scale_in: ScaleIn | None = None,
    ) -> None:
        self.config = config
        """In use; swapped by `configure` alone."""
        self._writer, self._tell = writer, tell
        self._owner, self._metrics, self._scale_in = owner, metrics, scale_in
        self._candidates: Mapping[str, int] = {}
        self._memory = Memory()

    def configure(self, config: Config) -> None:
        """Go on with another configuration from the next pass on."""
        self.config = config
        if self._scale_in:
            self._scale_in.configure(config)

    async def tick(self, cluster: Cluster, now_seconds: int) -> TickReport:
        """Judge the cluster as it stands at *now_seconds* (unix) and act on it."""
        return await self.carry_out(self.judge(cluster, now_seconds))

    def judge(self, cluster: Cluster, now_seconds: int) -> TickReport:
        """Decide what to write; no I/O, so that a thread can do it while reviews are served."""
        config = self.config
        self._candidates = engine.update_candidates(cluster, config, self._candidates, now_seconds)
        ready = engine.due(self._candidates, config.delay_seconds, now_seconds)
        self._memory = remember(self._memory, cluster, config, now_seconds)
        held = pace(self._memory, cluster, config, now_seconds)
        plan = engine.plan(cluster, config, due=ready, pace=held)
        writes = decide(cluster, plan, config, now_seconds=now_seconds, owner=self._owner)
        self._measure(cluster, plan)
        costs = self._scale_in.judge(cluster) if self._scale_in else ()
        return TickReport(config, plan, self._candidates, held, writes, 0, costs)

    async def carry_out(self, report: TickReport) -> TickReport:
        """Write; a write that fails is counted, the next pass decides anew.

        In mode observe no node is marked: all other writes take away what another mode has left.
        """
        failed = 0
        for write in report.writes:
            told_only = report.config.mode is Mode.OBSERVE and write.kind is WriteKind.MARK
            told = fields(kind=write.kind.value, node=write.node, reason=write.note)
            log.info("would write" if told_only else "writing", extra=told)
            if not told_only:
                failed += not await self._carry_out(write)
        if self._scale_in:
            failed += await self._scale_in.carry_out(report.costs)
        return replace(report, failed=failed)

    async def _carry_out(self, write: Write) -> bool:
        try:
            await self._write_as_seen(write)
        except UnavailableError as fault:
            self._metrics.writes.labels("failed").inc()
            log.warning("a write failed", extra=fields(node=write.node, reason=str(fault)))
            return False
        return True

    async def _write_as_seen(self, write: Write) -> None:
        """Write if the Node still is as it was when this was decided; else the next pass will."""
        for _ in range(TRIES_MAX):
            node, version = await self._writer.get_node(write.node)
            if traces(node) != write.seen:
                log.info("not as it was", extra=fields(kind=write.kind.value, node=node.name))
                self._metrics.writes.labels("outdated").inc()
                return
            try:
                await self._write(write, node, version)
            except ConflictError:
                continue
            return
        raise UnavailableError(f"node {write.node}: it changed {TRIES_MAX} times")

    async def _write(self, write: Write, node: Node, version: str) -> None:
        """Write what is wanted, then the taints that the answer lacks if no webhook was there.

        Each on the version that was read, so that nothing is decided on what has changed, and
        the list of taints whole, so that nobody else's is lost. Raises: ConflictError.
        """
        if write.kind is not WriteKind.REPAIR:
            patch = write.merge_patch(version)
            node, version = await self._writer.patch_node(write.node, patch)
            self._metrics.writes.labels(write.kind.value).inc()
            self._tell(node, EVENT_REASONS[write.kind], write.note)
        await self._repair(node, version)

    async def _repair(self, node: Node, version: str) -> None:
        for _ in range(TRIES_MAX):
            wanted = desired_taints(node, self.config.taint_key)
            if wanted == node.taints or being_deleted(node):
                return
            try:
                await self._writer.replace_taints(node.name, wanted, version)
            except ConflictError:
                node, version = await self._writer.get_node(node.name)
            else:
                self._metrics.writes.labels(WriteKind.REPAIR.value).inc()
                note = "the webhook had not set them"
                self._tell(node, EVENT_REASONS[WriteKind.REPAIR], note)
                return
        raise UnavailableError(f"node {node.name}: its taints changed {TRIES_MAX} times")

    def _measure(self, cluster: Cluster, plan: Plan) -> None:
        marked = sum(mark_of(node.labels) is not None for node in cluster.nodes)
        self._metrics.marked_nodes.set(marked)
        self._metrics.removable_nodes.set(len(plan.removals))
        reasons: dict[str, int] = {}
        for kept in plan.kept:
            for code in {blocker.code for blocker in kept.blockers}:
                reasons[code] = reasons.get(code, 0) + 1
        self._metrics.kept_nodes.clear()
        for code, count in reasons.items():
            self._metrics.kept_nodes.labels(code).set(count)
