"""Carries out what core.writes.costs decides: a bounded batch of pods a pass.

In mode observe costs are only told: what stands on pods from another mode is taken away.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from controller.access_review import AccessReview
from controller.metrics import Metrics, WriteResult
from controller.writers import for_each
from core.config.settings import Mode, PodDeletionCost
from core.edge.kube.stores.objects import Failures, Objects, write_as_decided
from core.edge.logs import fields
from core.model.errors import UnavailableError
from core.model.pod import Pod
from core.writes.write import Write, split

WRITES_MAX: Final = 200
"""Pods a pass; the others wait for the next one."""
WRITERS_MAX: Final = 4
"""Pods that are written at once."""
BEGIN_SECONDS_MAX: Final = 0.5
"""After this no further pod of a pass is begun: a release of nodes must not wait for them."""

log = logging.getLogger("ebb.deletion-costs")


class DeletionCosts:
    """Writes deletion costs. All it remembers is which pods were refused; they are tried last.

    They are forgotten once nothing is to be written on them, so there are no more than pods.
    """

    def __init__(self, pods: Objects[Pod], metrics: Metrics, right: AccessReview) -> None:
        """*right*: to patch pods."""
        self._pods, self._metrics, self._right = pods, metrics, right
        self._refused: set[str] = set()

    def enabled(self, order: PodDeletionCost) -> bool | None:
        """Say whether marks are to have costs; None: no cost can be written, nor taken away.

        With `auto` and no answer about the right yet nothing is decided: costs that another
        leader has set must not go and come again.
        """
        if order is not PodDeletionCost.AUTO:
            return order is PodDeletionCost.ENABLED
        return True if self._right.held else None

    async def look_up(self, order: PodDeletionCost) -> None:
        """Ask for the right where it decides, and tell of another answer."""
        if order is not PodDeletionCost.AUTO:
            self._right.forget()
        elif await self._right.look_up():
            log.info("scale-in order", extra=fields(may_patch_pods=self._right.held))

    async def carry_out(
        self,
        writes: Sequence[Write[Pod]],
        mode: Mode,
        halted: Callable[[], str | None] = lambda: None,
    ) -> int:
        """Write a batch, until there is a reason to look again first; return how many failed.

        A write that fails ends the batch if the next would most likely fail as well. The next pass
        begins with the others, so that a pod that is always refused holds nobody up.
        """
        wanted, told = split(writes, mode)
        _tell("would write deletion costs", told)
        _tell("deletion costs to write", wanted)
        self._refused &= {write.key for write in wanted}
        batch = sorted(wanted, key=lambda write: write.key in self._refused)[:WRITES_MAX]
        clock, failed, ended = asyncio.get_running_loop(), 0, False
        failures, end = Failures(), clock.time() + BEGIN_SECONDS_MAX

        async def carry_out(write: Write[Pod]) -> None:
            nonlocal failed, ended
            if ended or clock.time() >= end or halted() is not None:
                return
            fault = await self._carry_out(write)
            failed += fault is not None
            ended = failures.end(fault) or ended

        await for_each(batch, WRITERS_MAX, carry_out)
        return failed

    async def _carry_out(self, write: Write[Pod]) -> UnavailableError | None:
        """Write one; return why it failed, None if it did not."""
        try:
            done = await write_as_decided(self._pods, write.key, write.if_as_seen)
        except UnavailableError as fault:
            self._refused.add(write.key)
            self._metrics.pod_writes.labels(write.kind, WriteResult.of(fault)).inc()
            log.warning("a write failed", extra=fields(pod=write.key, reason=str(fault)))
            return fault
        result = WriteResult.SUCCESS if done else WriteResult.CONFLICT
        self._metrics.pod_writes.labels(write.kind, result).inc()
        return None


def _tell(what: str, writes: Sequence[Write[Pod]]) -> None:
    if writes:
        log.info(what, extra=fields(**Counter(write.kind.value for write in writes)))
