"""Write the pod deletion costs that core.writes.costs decides on, in bounded batches.

In mode observe, Ebb only reports the costs that it would set, and removes costs that mode enforce
has set.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from controller.metrics import Metrics, WriteResult
from controller.writers import for_each
from core.config.settings import Mode, PodDeletionCost
from core.model.errors import UnavailableError
from core.model.pod import Pod
from core.writes.write import Write, split
from kube.client import PolicyRefusedError
from kube.stores.access_review import AccessReview
from kube.stores.objects import Failures, Objects, write_as_decided
from runtime.logs import fields

WRITES_MAX: Final = 200
"""Maximum number of pods that one reconciliation writes; later ones write the others."""
WRITERS_MAX: Final = 4
"""Maximum number of concurrent writes."""
BEGIN_SECONDS_MAX: Final = 0.5
"""Time from the first write to a Pod until a reconciliation starts no further one.

The next reconciliation waits for these writes, and may have urgent writes to Nodes."""
ALLOWED: Final = "RBAC allows patching pods, so pod deletion costs are written"
FORBIDDEN: Final = (
    "RBAC does not allow patching pods, so no pod deletion costs are written; "
    "manifests/components/pod-deletion-cost grants the permission"
)

log = logging.getLogger("ebb.deletion-costs")


class DeletionCosts:
    """Write the pod deletion costs of each reconciliation, if RBAC allows patching pods."""

    def __init__(self, pods: Objects[Pod], metrics: Metrics, access: AccessReview) -> None:
        """Take the store of pods; *access*: review of the permission to patch pods."""
        self._pods, self._metrics, self._access = pods, metrics, access
        self._refused: set[str] = set()
        """Pods whose last write failed, as namespace/name. Pods that need no write any more are
        removed from the set, so it is never larger than the number of pods."""

    def enabled(self, order: PodDeletionCost) -> bool | None:
        """Return True to set pod deletion costs, False to remove them, None to write nothing.

        *order*: the setting `podDeletionCost`. With AUTO, the result is None unless RBAC is known
        to allow patching pods.
        """
        if order is not PodDeletionCost.AUTO:
            return order is PodDeletionCost.ENABLED
        # Without permission, costs can neither be set nor removed. Without an answer yet, costs of
        # the previous leader must not be removed and then set again.
        return True if self._access.allowed else None

    async def refresh_access(self, order: PodDeletionCost) -> None:
        """Review the permission to patch pods if *order* is AUTO, and log a changed answer.

        *order*: the setting `podDeletionCost`.
        """
        if order is not PodDeletionCost.AUTO:
            self._access.forget()
        elif await self._access.refresh():
            log.info(ALLOWED if self._access.allowed else FORBIDDEN)

    async def carry_out(
        self,
        writes: Sequence[Write[Pod]],
        mode: Mode,
        halted: Callable[[], str | None] = lambda: None,
    ) -> int:
        """Write the pod deletion costs of up to WRITES_MAX pods, and return the number of errors.

        In mode observe, new costs are only logged. The batch ends early if *halted* returns a
        reason, or if the next write would most likely fail too.
        """
        wanted, reported = split(writes, mode)
        _log("would write deletion costs", reported)
        _log("deletion costs to write", wanted)
        self._refused &= {write.key for write in wanted}
        # Pods whose last write failed come last: a pod that is always refused blocks no other.
        batch = sorted(wanted, key=lambda write: write.key in self._refused)[:WRITES_MAX]
        clock, failed, ended = asyncio.get_running_loop(), 0, False
        failures, end = Failures(), clock.time() + BEGIN_SECONDS_MAX

        async def write_cost(write: Write[Pod]) -> None:
            nonlocal failed, ended
            if ended or clock.time() >= end or halted() is not None:
                return
            fault = await self._write(write)
            failed += fault is not None
            ended = failures.end(fault) or ended

        await for_each(batch, WRITERS_MAX, write_cost)
        return failed

    async def _write(self, write: Write[Pod]) -> UnavailableError | None:
        """Patch one pod; return the error, or None if there was none.

        A pod that has changed since the decision is skipped without an error.
        """
        try:
            done = await write_as_decided(self._pods, write.key, write.if_unchanged)
        except UnavailableError as fault:
            self._refused.add(write.key)
            self._metrics.pod_writes.labels(write.kind, WriteResult.of(fault)).inc()
            if not isinstance(fault, PolicyRefusedError):  # logged once by controller.refusals
                log.warning(
                    "cannot write the deletion cost of a pod; a later reconciliation retries",
                    extra=fields(pod=write.key, reason=str(fault)),
                )
            return fault
        result = WriteResult.SUCCESS if done else WriteResult.CONFLICT
        self._metrics.pod_writes.labels(write.kind, result).inc()
        return None


def _log(message: str, writes: Sequence[Write[Pod]]) -> None:
    if writes:
        log.info(message, extra=fields(**Counter(write.kind.value for write in writes)))
