"""Carries out what core.writes.nodes decides: which write first, how many at once, when to stop.

What keeps pods from waiting or from being evicted (core.writes.write.PRESSING) is always written.
The rest of a batch is dropped as soon as a write fails or there is a reason to look again first:
it rests on a plan that may not be true any more, and the next pass decides anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from controller.metrics import Metrics
from core.edge.kube.stores.objects import (
    Objects,
    Versioned,
    Written,
    is_for_all,
    write_as_decided,
)
from core.edge.logs import fields
from core.marks.mark import Mark, mark_of
from core.model.errors import UnavailableError
from core.model.node import Node
from core.writes.write import PRESSING, Write, WriteKind, repair

PRESSING_WRITERS_MAX: Final = 32
"""Nodes that are released, softened, guarded and repaired at once: pods may be waiting."""
WRITERS_MAX: Final = 4
"""Nodes that are marked, hardened and handed over at once. If one of these marks fails, those
after it that were written meanwhile have a gap before them; the next pass judges marked nodes
first, and nothing is made of a mark before that."""

EVENT_REASONS: Final[Mapping[StrEnum, str]] = {
    WriteKind.MARK: "DrainMarked",
    WriteKind.HARDEN: "DrainHardened",
    WriteKind.SOFTEN: "DrainSoftened",
    WriteKind.RELEASE: "DrainReleased",
    WriteKind.GUARD: "ScaleDownGuarded",
    WriteKind.HOLD: "ScaleDownHeld",
    WriteKind.UNGUARD: "ScaleDownAllowed",
    WriteKind.DRIFT: "DriftAllowed",
    WriteKind.REPAIR: "TaintsRepaired",
    WriteKind.TELL: "ReserveChanged",
    WriteKind.FORGET: "BackoffEnded",
}

Item = TypeVar("Item")
Heard = Callable[[], Versioned[Node]]
Tell = Callable[[Node, str, str], None]
"""Takes a Node, an Event's reason and a note for people."""

log = logging.getLogger("ebb.writers")


class LiveView(NamedTuple):
    """What is seen while writes go on."""

    halted: Callable[[], str | None]
    """Says why nothing must be begun that can wait, or None."""
    latest: Callable[[str], Node | None]
    """Returns the Node of that name as it was heard of last, or None."""
    occupied: Callable[[str], bool]
    """Says whether pods that do not end keep the node of that name from being empty, as was heard
    last."""


BLIND: Final = LiveView(lambda: None, lambda _: None, lambda _: False)


@dataclass(slots=True, eq=False)
class WriteBatch:
    """The writes of one pass while they are carried out."""

    taint_key: str
    sight: LiveView
    closed: Container[str]
    """Nodes that the plan has a place on for nobody."""
    overtaking: bool
    """An earlier batch was still writing when this one began."""
    failed: list[Write[Node]] = field(default_factory=list)
    refused: list[Write[Node]] = field(default_factory=list)
    """Of those that failed, the ones by which it is not known that all others would fail too."""
    broken: bool = False
    """One that failed makes what is left of the plan doubtful."""
    dropped: int = 0
    why: str = ""
    """Why the last write was dropped that was."""

    def why_not(self) -> str | None:
        """Say why nothing must be begun that can wait, or None."""
        return "a write failed" if self.broken else self.why_halted()

    def why_halted(self) -> str | None:
        """Say why nothing must be begun that can wait and rests on none of these writes."""
        return "an earlier pass is still writing" if self.overtaking else self.sight.halted()

    def why_no_hand_over(self, write: Write[Node]) -> str | None:
        """Say why the node is not to be handed over any more, or None.

        A marked node is handed over because it is empty; the guard of another goes for any reason.
        """
        hands_over = write.kind is WriteKind.UNGUARD and mark_of(write.before.labels) is not None
        occupied = hands_over and self.sight.occupied(write.key)
        return "a pod has come to the node" if occupied else None


def makes_schedulable(write: Write[Node]) -> bool:
    """Say whether pods come onto the node by this write alone."""
    opening = write.kind in (WriteKind.RELEASE, WriteKind.SOFTEN)
    return opening and mark_of(write.before.labels) is Mark.HARD


async def for_each(
    items: Sequence[Item], most: int, work: Callable[[Item], Awaitable[None]]
) -> None:
    """Do the work with each in turn, with at most so many at once."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(most, len(items))):
            tasks.create_task(worker())


class Writers:
    """Writes to Nodes. A later batch overtakes the one before: what that has begun is finished."""

    def __init__(self, nodes: Objects[Node], metrics: Metrics, tell: Tell) -> None:
        self._nodes, self._metrics, self._tell = nodes, metrics, tell
        self._batch: WriteBatch | None = None
        self._in_flight: set[str] = set()
        self._refused: set[str] = set()
        """Nodes whose last write was refused; they come last, so that they hold nobody up."""
        self._slots = asyncio.Semaphore(PRESSING_WRITERS_MAX + WRITERS_MAX)

    async def carry_out(
        self,
        writes: Sequence[Write[Node]],
        taint_key: str,
        sight: LiveView,
        closed: Container[str] = (),
    ) -> WriteBatch:
        """Write a batch; return what became of it. *closed*: see Batch.

        If an earlier one is still writing, this one was decided without knowing what comes of
        that: only what is pressing is written.
        """
        batch = WriteBatch(taint_key, sight, closed, overtaking=bool(self._in_flight))
        self._batch = batch
        self._refused &= {write.key for write in writes}
        pressing = [write for write in writes if write.kind in PRESSING]
        others = [write for write in writes if write.kind not in PRESSING]
        work = partial(self._work, batch)
        await for_each(pressing, PRESSING_WRITERS_MAX, work)
        await for_each(sorted(others, key=self._late), WRITERS_MAX, work)
        if batch.dropped:
            log.info("dropped", extra=fields(writes=batch.dropped, reason=batch.why))
        return batch

    def _late(self, write: Write[Node]) -> int:
        """Return after how many others the write comes; new marks keep the order of their plan.

        What was refused before comes last: it may be refused again, and what comes after it is
        dropped then. A node whose new mark was refused is in no plan for a while.
        """
        if write.kind is WriteKind.MARK and mark_of(write.before.labels) is None:
            return 1
        return 2 if write.key in self._refused else 0

    async def _work(self, batch: WriteBatch, write: Write[Node]) -> None:
        async with self._slots:
            if self._goes_on(batch, write):
                await self._carry_out(batch, write)

    def _goes_on(self, batch: WriteBatch, write: Write[Node]) -> bool:
        """Say whether the write is to be begun, or finished; one that is not is counted."""
        why = None
        if batch is not self._batch:
            why = "a later pass has decided anew"
        elif write.kind not in PRESSING:
            why = batch.why_not() or batch.why_no_hand_over(write)
        if why is not None:
            self._drop(batch, why)
        return why is None

    def _drop(self, batch: WriteBatch, why: str) -> None:
        batch.why, batch.dropped = why, batch.dropped + 1
        self._metrics.writes.labels("dropped").inc()

    async def _carry_out(self, batch: WriteBatch, write: Write[Node]) -> None:
        if write.key in self._in_flight:
            self._drop(batch, "an earlier pass is still writing it")
            return
        told = fields(kind=write.kind.value, node=write.key, reason=write.note)
        log.info("writing", extra=told)
        self._in_flight.add(write.key)
        try:
            await self._write_as_seen(batch, write)
        except UnavailableError as fault:
            self._failed(batch, write, refused=not is_for_all(fault))
            log.warning("a write failed", extra=fields(node=write.key, reason=str(fault)))
        except Exception:
            self._failed(batch, write, refused=True)
            log.exception("a write failed", extra=fields(node=write.key))
        finally:
            self._in_flight.discard(write.key)

    def _failed(self, batch: WriteBatch, write: Write[Node], *, refused: bool) -> None:
        batch.failed.append(write)
        batch.broken = batch.broken or not self._goes_without(batch, write)
        if refused:
            batch.refused.append(write)
            self._refused.add(write.key)
        self._metrics.writes.labels("failed").inc()

    def _goes_without(self, batch: WriteBatch, write: Write[Node]) -> bool:
        """Say whether the rest of the plan is as good without a write that failed.

        One that presses and was refused before, by a policy of the cluster or because its kubelet
        has filled the annotations, may be refused for ever: it stops nobody else. But the plan may
        have a place for pods on a node that it opens.
        """
        again = write.kind in PRESSING and write.key in self._refused
        return again and (write.key in batch.closed or not makes_schedulable(write))

    async def _write_as_seen(self, batch: WriteBatch, write: Write[Node]) -> None:
        """Write if the Node still is as it was when this was decided; else the next pass will.

        Then write the taints that the answer lacks if no webhook was there.
        """

        def still(found: Node) -> Write[Node] | None:
            if write.if_as_seen(found) is None:
                log.info("not as it was", extra=fields(kind=write.kind.value, node=write.key))
                self._metrics.writes.labels("outdated").inc()
            elif found is write.before or self._goes_on(batch, write):
                return anew(found) if write.kind is WriteKind.REPAIR else write
            return None

        def anew(found: Node) -> Write[Node] | None:
            return repair(found, batch.taint_key, "the webhook had not set them")

        def heard() -> tuple[Node, str]:
            node = batch.sight.latest(write.key) or write.before
            return node, node.version

        if done := await self._written(write.key, still, heard):
            await self._written(write.key, anew, lambda: done.stored)

    async def _written(
        self, name: str, decide: Callable[[Node], Write[Node] | None], heard: Heard
    ) -> Written[Node] | None:
        done = await write_as_decided(self._nodes, name, decide, heard)
        if done is not None:
            kind = done.write.kind
            self._metrics.writes.labels(kind.value).inc()
            self._tell(done.stored[0], EVENT_REASONS[kind], done.write.note)
        return done
