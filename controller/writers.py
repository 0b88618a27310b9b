"""Send the writes to Nodes that core.writes.nodes decides on, in order, and stop when necessary.

Urgent writes (core.writes.write.URGENT) keep pods from being Pending or evicted, so they are
always sent. All other writes are based on the plan. They are dropped as soon as the plan may be
outdated: after a failed write, or while there is a reason to halt. The next reconciliation decides
again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from controller.metrics import Metrics, WriteResult
from core.marks.mark import Mark, mark_of
from core.model.errors import UnavailableError
from core.model.node import Node
from core.writes.write import URGENT, CostKind, Write, WriteKind, repair
from kube.client import PolicyRefusedError
from kube.stores.objects import (
    Objects,
    Versioned,
    Written,
    is_for_all,
    write_as_decided,
)
from runtime.logs import fields

URGENT_WRITERS_MAX: Final = 32
"""Maximum number of concurrent urgent writes."""
WRITERS_MAX: Final = 4
"""Maximum number of concurrent other writes.

If a mark fails, later marks of the plan may already be in flight, although the plan assumed the
failed mark. The next reconciliation evaluates marked nodes first, and nothing else depends on a
mark before that."""

EVENT_REASONS: Final[Mapping[StrEnum, str]] = {
    WriteKind.MARK: "NodeMarked",
    WriteKind.SET_NO_SCHEDULE: "NoScheduleSet",
    WriteKind.SET_PREFER_NO_SCHEDULE: "PreferNoScheduleSet",
    WriteKind.UNMARK: "NodeUnmarked",
    WriteKind.PROTECT: "ScaleDownProtected",
    WriteKind.PROTECT_UNMARKED: "UnmarkedNodeProtected",
    WriteKind.REMOVE_PROTECTION: "ScaleDownAllowed",
    WriteKind.ALLOW_DRIFT: "DriftAllowed",
    WriteKind.REPAIR_TAINTS: "TaintsRepaired",
    WriteKind.UPDATE_RESERVE: "ReserveChanged",
    WriteKind.REMOVE_BACKOFF: "BackoffEnded",
}
MISSING_TAINTS: Final = "the taints did not match the mark: the admission webhook did not set them"
FAILED: Final = "cannot write a Node; the next reconciliation decides again"

Item = TypeVar("Item")
Latest = Callable[[], Versioned[Node]]
"""Returns the latest known version of a Node."""
RecordEvent = Callable[[Node, str, str], None]
"""Writes an Event about a Node, with a reason and a note."""

log = logging.getLogger("ebb.writers")


class LiveView(NamedTuple):
    """Functions that tell the current state of the cluster while a batch of writes is sent."""

    halted: Callable[[], str | None]
    """Returns why no new write may start now unless it is urgent, or None."""
    latest: Callable[[str], Node | None]
    """Returns the latest version of the Node with this name, or None."""
    occupied: Callable[[str], bool]
    """Returns whether a pod that is not terminating keeps the node with this name from being
    empty."""
    permitted: Callable[[], bool]
    """Returns whether the permission to begin marks is still valid."""


NO_LIVE_VIEW: Final = LiveView(lambda: None, lambda _: None, lambda _: False, lambda: True)


@dataclass(slots=True, eq=False)
class WriteBatch:
    """The writes to Nodes of one reconciliation while they are sent, and their results."""

    taint_key: str
    live_view: LiveView
    unschedulable: Container[str]
    """Nodes on which the plan places no pod."""
    overtaking: bool
    """An earlier batch was still being written when this batch began."""
    failed: list[Write[Node]] = field(default_factory=list)
    """Writes that an exception ended, such as an error of the API server."""
    refused: list[Write[Node]] = field(default_factory=list)
    """Failed writes whose error may be specific to their Node."""
    broken: bool = False
    """The rest of the plan may be wrong after a failed write."""
    dropped: int = 0
    """Number of writes that were not sent."""
    why: str = ""
    """Reason for the last dropped write."""

    def why_dropped(self) -> str | None:
        """Return why no write that is not urgent may start now, or None if it may."""
        return "a write failed" if self.broken else self.why_halted()

    def why_halted(self) -> str | None:
        """Return why no eviction or write of a pod deletion cost may start now, or None if it may.

        They do not depend on the writes of this batch, so a failed write is no reason.
        """
        # The writes that an earlier batch is still making were unknown when this one was decided.
        return (
            "an earlier reconciliation is still writing"
            if self.overtaking
            else self.live_view.halted()
        )

    def why_still_protected(self, write: Write[Node]) -> str | None:
        """Return why to drop a write that allows the scale-down of a marked node; None to send it.

        The reason is a pod that has arrived on the node since the decision. None also for a write
        that does something else.
        """
        # The protection of an unmarked node ends for any reason, not because the node is empty.
        marked = mark_of(write.before.labels) is not None
        allows = write.kind is WriteKind.REMOVE_PROTECTION and marked
        occupied = allows and self.live_view.occupied(write.key)
        return "a pod is now on the node" if occupied else None

    def why_not_begun(self, write: Write[Node]) -> str | None:
        """Return why to drop a write that sets a mark or makes it NoSchedule, or None to send it.

        It is dropped once `schedule` or `pauseUntil` lets no mark begin any more. None also for a
        write that does something else.
        """
        new = write.kind is WriteKind.SET_NO_SCHEDULE or is_new_mark(write)
        if not new or self.live_view.permitted():
            return None
        return "`schedule`, `pauseUntil` or a refused write forbids new marks now"


def is_new_mark(write: Write[Node]) -> bool:
    """Return whether the write marks a node that has no mark yet."""
    return write.kind is WriteKind.MARK and mark_of(write.before.labels) is None


def makes_schedulable(write: Write[Node]) -> bool:
    """Return whether the write ends a NoSchedule mark, so that pods may be placed on the node."""
    opens = write.kind in (WriteKind.UNMARK, WriteKind.SET_PREFER_NO_SCHEDULE)
    return opens and mark_of(write.before.labels) is Mark.NO_SCHEDULE


async def for_each(
    items: Sequence[Item], concurrent_max: int, work: Callable[[Item], Awaitable[None]]
) -> None:
    """Await *work* for each item in order, for at most *concurrent_max* items at the same time."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(concurrent_max, len(items))):
            tasks.create_task(worker())


class Writers:
    """Send the writes to Nodes, one batch for each reconciliation.

    A new batch does not wait for the previous one, which finishes only the writes that have begun.
    """

    def __init__(
        self,
        nodes: Objects[Node],
        metrics: Metrics,
        record_event: RecordEvent,
        record_unmark: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Take the nodes to write; *record_unmark*: takes an unmarked node and the reason code."""
        self._nodes, self._metrics, self._record_event = nodes, metrics, record_event
        self._record_unmark = record_unmark
        self._batch: WriteBatch | None = None
        self._in_flight: set[str] = set()
        self._refused: set[str] = set()
        """Nodes whose last write failed for a reason that may be specific to the Node."""
        self._slots = asyncio.Semaphore(URGENT_WRITERS_MAX + WRITERS_MAX)

    async def carry_out(
        self,
        writes: Sequence[Write[Node]],
        taint_key: str,
        live_view: LiveView,
        unschedulable: Container[str] = (),
    ) -> WriteBatch:
        """Send the writes, the urgent ones first, and return the batch with their results.

        If an earlier batch is still being written, only urgent writes are sent. *unschedulable*:
        nodes on which the plan places no pod.
        """
        overtaking = bool(self._in_flight)
        batch = WriteBatch(taint_key, live_view, unschedulable, overtaking=overtaking)
        self._batch = batch
        self._refused &= {write.key for write in writes}
        urgent = [write for write in writes if write.kind in URGENT]
        others = [write for write in writes if write.kind not in URGENT]
        work = partial(self._work, batch)
        await for_each(urgent, URGENT_WRITERS_MAX, work)
        await for_each(sorted(others, key=self._rank), WRITERS_MAX, work)
        if batch.dropped:
            log.info(
                "dropped writes to Nodes; the next reconciliation decides again",
                extra=fields(writes=batch.dropped, reason=batch.why),
            )
        return batch

    def _rank(self, write: Write[Node]) -> int:
        """Return the rank of a write that can wait; lower ranks are written first."""
        # New marks keep the order of the plan. A node whose new mark was refused is in no plan for
        # a while, so it is not here.
        if is_new_mark(write):
            return 1
        # A write that was refused may be refused again, and then the writes after it are dropped.
        return 2 if write.key in self._refused else 0

    async def _work(self, batch: WriteBatch, write: Write[Node]) -> None:
        async with self._slots:
            if self._may_write(batch, write):
                await self._carry_out(batch, write)

    def _may_write(self, batch: WriteBatch, write: Write[Node]) -> bool:
        """Return whether the write may be sent now; if not, count it as dropped."""
        why = None
        if batch is not self._batch:
            why = "a later reconciliation has decided again"
        elif write.kind not in URGENT:
            why = (
                batch.why_dropped()
                or batch.why_still_protected(write)
                or batch.why_not_begun(write)
            )
        if why is not None:
            self._drop(batch, write, why)
        return why is None

    def _drop(self, batch: WriteBatch, write: Write[Node], why: str) -> None:
        batch.why, batch.dropped = why, batch.dropped + 1
        self._count(write.kind, WriteResult.DROPPED)

    def _count(self, operation: WriteKind | CostKind, result: WriteResult) -> None:
        self._metrics.node_writes.labels(operation, result).inc()

    async def _carry_out(self, batch: WriteBatch, write: Write[Node]) -> None:
        if write.key in self._in_flight:
            self._drop(batch, write, "an earlier reconciliation is still writing this node")
            return
        operation = write.kind
        log.info(
            "writing a Node",
            extra=fields(operation=operation.value, node=write.key, reason=write.note),
        )
        self._in_flight.add(write.key)
        try:
            if done := await self._write_if_unchanged(batch, write):
                operation = WriteKind.REPAIR_TAINTS
                await self._repair(batch, done)
        except UnavailableError as fault:
            self._count(operation, WriteResult.of(fault))
            self._record_failure(batch, write, refused=not is_for_all(fault))
            if not isinstance(fault, PolicyRefusedError):  # logged once by controller.refusals
                log.warning(
                    FAILED,
                    extra=fields(operation=operation.value, node=write.key, reason=str(fault)),
                )
        except Exception:
            self._count(operation, WriteResult.ERROR)
            self._record_failure(batch, write, refused=True)
            log.exception(FAILED, extra=fields(operation=operation.value, node=write.key))
        finally:
            self._in_flight.discard(write.key)

    def _record_failure(self, batch: WriteBatch, write: Write[Node], *, refused: bool) -> None:
        batch.failed.append(write)
        batch.broken = batch.broken or not self._is_plan_valid_without(batch, write)
        if refused:
            batch.refused.append(write)
            self._refused.add(write.key)

    def _is_plan_valid_without(self, batch: WriteBatch, write: Write[Node]) -> bool:
        """Return whether the rest of the plan is valid although this write failed.

        True only if the write is urgent, the previous write to its Node was refused too, and the
        plan places no pods on the node because of the write.
        """
        # A policy may refuse an urgent write forever, or the kubelet may have filled the
        # annotations of its Node. Such a write must not block the other nodes, unless the plan may
        # place pods on a node that stays NoSchedule without the write.
        again = write.kind in URGENT and write.key in self._refused
        return again and (write.key in batch.unschedulable or not makes_schedulable(write))

    async def _write_if_unchanged(
        self, batch: WriteBatch, write: Write[Node]
    ) -> Written[Node] | None:
        """Write the Node unless it has changed since the decision; return what was written.

        None if nothing was written.
        """

        def decide(current: Node) -> Write[Node] | None:
            if write.if_unchanged(current) is None:
                log.info(
                    "did not write a Node that has changed; the next reconciliation decides again",
                    extra=fields(operation=write.kind.value, node=write.key),
                )
                self._count(write.kind, WriteResult.CONFLICT)
            # After a read, which takes time, the write may not be allowed any more.
            elif current is write.before or self._may_write(batch, write):
                if write.kind is not WriteKind.REPAIR_TAINTS:
                    return write
                return repair(current, batch.taint_key, MISSING_TAINTS)
            return None

        def latest() -> tuple[Node, str]:
            node = batch.live_view.latest(write.key) or write.before
            return node, node.version

        return await self._write(write.key, decide, latest)

    async def _repair(self, batch: WriteBatch, done: Written[Node]) -> None:
        """Write the taints that are missing after a write, because no webhook added them."""
        await self._write(
            done.write.key,
            lambda node: repair(node, batch.taint_key, MISSING_TAINTS),
            lambda: done.stored,
        )

    async def _write(
        self, name: str, decide: Callable[[Node], Write[Node] | None], latest: Latest
    ) -> Written[Node] | None:
        done = await write_as_decided(self._nodes, name, decide, latest)
        if done is not None:
            kind = done.write.kind
            self._count(kind, WriteResult.SUCCESS)
            if done.write.code:
                self._metrics.unmarks.labels(done.write.code).inc()
                self._record_unmark(name, done.write.code)
            self._record_event(done.stored[0], EVENT_REASONS[kind], done.write.note)
        return done
