"""Carries out what core.writes.nodes decides: which write first, how many at once, when to stop.

What keeps pods from waiting or from being evicted (decide.PRESSING) is always written. The rest of
a batch is dropped as soon as a write fails or there is a reason to look again first: it rests on a
plan that may not be true any more, and the next pass decides anew.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.errors import ConflictError, UnavailableError
from core.marks.optouts import traces
from core.marks.taints import desired_taints
from core.model.leaving import being_deleted
from core.model.node import Node, Taint
from core.writes.write import PRESSING, Write, WriteKind

TRIES_MAX: Final = 5
"""How often one write is tried on a Node that others change at the same time."""
PRESSING_WRITERS_MAX: Final = 32
"""Nodes that are released, softened, guarded and repaired at once: pods may be waiting."""
WRITERS_MAX: Final = 4
"""Nodes that are marked, hardened and handed over at once. If one of these marks fails, those
after it that were written meanwhile have a gap before them; the next pass judges marked nodes
first, and nothing is made of a mark before that."""

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

log = logging.getLogger("ebb.writers")


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


class Sight(NamedTuple):
    """What is seen while writes go on."""

    halted: Callable[[], str | None]
    """Says why nothing must be begun that can wait, or None."""
    latest: Callable[[str], Node | None]
    """Returns the Node of that name as it was heard of last, or None."""


BLIND: Final = Sight(lambda: None, lambda _: None)


@dataclass(slots=True, eq=False)
class Batch:
    """The writes of one pass while they are carried out."""

    taint_key: str
    sight: Sight
    overtaking: bool
    """An earlier batch was still writing when this one began."""
    failed: list[Write] = field(default_factory=list)
    dropped: int = 0
    why: str = ""
    """Why the last write was dropped that was."""

    def why_not(self) -> str | None:
        """Say why nothing must be begun that can wait, or None."""
        if self.failed:
            return "a write failed"
        return "an earlier pass is still writing" if self.overtaking else self.sight.halted()


class Writers:
    """Writes to Nodes. A later batch overtakes the one before: what that has begun is finished."""

    def __init__(self, writer: NodeWriter, metrics: Metrics, tell: Tell) -> None:
        self._writer, self._metrics, self._tell = writer, metrics, tell
        self._batch: Batch | None = None
        self._in_flight: set[str] = set()
        self._refused: set[str] = set()
        """Nodes whose last write failed; they are tried last, so that they hold nobody up."""
        self._slots = asyncio.Semaphore(PRESSING_WRITERS_MAX + WRITERS_MAX)

    async def carry_out(self, writes: Sequence[Write], taint_key: str, sight: Sight) -> Batch:
        """Write a batch; return what became of it.

        If an earlier one is still writing, this one was decided without knowing what comes of
        that: only what is pressing is written.
        """
        batch = Batch(taint_key, sight, overtaking=bool(self._in_flight))
        self._batch = batch
        self._refused &= {write.node for write in writes}
        pressing = deque(write for write in writes if write.kind in PRESSING)
        others = [write for write in writes if write.kind not in PRESSING]
        await self._write_all(batch, pressing, PRESSING_WRITERS_MAX)
        await self._write_all(batch, deque(sorted(others, key=self._late)), WRITERS_MAX)
        if batch.dropped:
            log.info("dropped", extra=fields(writes=batch.dropped, reason=batch.why))
        return batch

    def _late(self, write: Write) -> bool:
        """Say whether the write comes after others; marks keep the order of their plan."""
        return write.kind is WriteKind.MARK or write.node in self._refused

    async def _write_all(self, batch: Batch, waiting: deque[Write], most: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(most, len(waiting))):
                tasks.create_task(self._work(batch, waiting))

    async def _work(self, batch: Batch, waiting: deque[Write]) -> None:
        while waiting:
            async with self._slots:
                if waiting and self._goes_on(batch, write := waiting.popleft()):
                    await self._carry_out(batch, write)

    def _goes_on(self, batch: Batch, write: Write) -> bool:
        """Say whether the write is to be begun, or finished; one that is not is counted."""
        why = None
        if batch is not self._batch:
            why = "a later pass has decided anew"
        elif write.kind not in PRESSING:
            why = batch.why_not()
        if why is not None:
            self._drop(batch, why)
        return why is None

    def _drop(self, batch: Batch, why: str) -> None:
        batch.why, batch.dropped = why, batch.dropped + 1
        self._metrics.writes.labels("dropped").inc()

    async def _carry_out(self, batch: Batch, write: Write) -> None:
        if write.node in self._in_flight:
            self._drop(batch, "an earlier pass is still writing it")
            return
        told = fields(kind=write.kind.value, node=write.node, reason=write.note)
        log.info("writing", extra=told)
        self._in_flight.add(write.node)
        try:
            await self._write_as_seen(batch, write)
        except UnavailableError as fault:
            self._failed(batch, write)
            log.warning("a write failed", extra=fields(node=write.node, reason=str(fault)))
        except Exception:
            self._failed(batch, write)
            log.exception("a write failed", extra=fields(node=write.node))
        finally:
            self._in_flight.discard(write.node)

    def _failed(self, batch: Batch, write: Write) -> None:
        batch.failed.append(write)
        self._refused.add(write.node)
        self._metrics.writes.labels("failed").inc()

    async def _write_as_seen(self, batch: Batch, write: Write) -> None:
        """Write if the Node still is as it was when this was decided; else the next pass will.

        The version that the watch told last says so without another call.
        """
        tried = {""}
        for _ in range(TRIES_MAX):
            node = batch.sight.latest(write.node) or write.before
            version = node.version
            if version in tried:
                node, version = await self._writer.get_node(write.node)
            if traces(node) != write.seen:
                log.info("not as it was", extra=fields(kind=write.kind.value, node=node.name))
                self._metrics.writes.labels("outdated").inc()
                return
            if node is not write.before and not self._goes_on(batch, write):
                return
            try:
                await self._write(write, node, version, batch.taint_key)
            except ConflictError:
                tried.add(version)
            else:
                return
        raise UnavailableError(f"node {write.node}: it changed {TRIES_MAX} times")

    async def _write(self, write: Write, node: Node, version: str, taint_key: str) -> None:
        """Write what is wanted, then the taints that the answer lacks if no webhook was there.

        Each on the version that was read, so that nothing is decided on what has changed, and
        the list of taints whole, so that nobody else's is lost. Raises: ConflictError.
        """
        if write.kind is not WriteKind.REPAIR:
            patch = write.merge_patch(version)
            node, version = await self._writer.patch_node(write.node, patch)
            self._metrics.writes.labels(write.kind.value).inc()
            self._tell(node, EVENT_REASONS[write.kind], write.note)
        await self._repair(node, version, taint_key)

    async def _repair(self, node: Node, version: str, taint_key: str) -> None:
        for _ in range(TRIES_MAX):
            wanted = desired_taints(node, taint_key)
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
