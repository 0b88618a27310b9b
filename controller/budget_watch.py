"""Watch PodDisruptionBudgets only while eviction is enabled, since nothing else needs them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from controller.access_review import Access, AccessReview
from core.edge.decode.kinds import BUDGETS
from core.edge.kube.freshness import WatchSink

LOOK_SECONDS: Final = 1.0
"""Interval at which the configuration is checked."""
LIST_BUDGETS: Final[Access] = {
    "verb": "list",
    "group": BUDGETS.group,
    "resource": BUDGETS.resource,
}
WITHOUT_NOTE: Final = (
    "`eviction` is enabled, but RBAC does not allow listing poddisruptionbudgets, so Ebb plans "
    "evictions without them; manifests/components/eviction grants the permission"
)

log = logging.getLogger("ebb.budgets")


class BudgetWatch:
    """Follow the budgets while eviction is enabled and RBAC allows listing them."""

    def __init__(
        self,
        sink: WatchSink,
        follow: Callable[[], Coroutine[Any, Any, None]],
        evicts: Callable[[], bool],
        access: AccessReview,
    ) -> None:
        """*follow* watches until it is cancelled; *evicts* returns whether eviction is enabled."""
        self._sink, self._follow, self._evicts, self._access = sink, follow, evicts, access
        self._task: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """Start and stop the watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._step(tasks)
                await asyncio.sleep(LOOK_SECONDS)

    async def _step(self, tasks: asyncio.TaskGroup) -> None:
        if not self._evicts():
            self._access.forget()
            self._stop()
        elif await self._access.refresh() and self._access.allowed is False:
            log.error(WITHOUT_NOTE)
        if self._evicts() and self._access.allowed and self._task is None:
            # No reconciliation may start until the new watch has listed the budgets.
            self._sink.lost()
            self._task = tasks.create_task(self._follow())
        elif self._access.allowed is False:
            self._stop()

    def _stop(self) -> None:
        """Stop the watch and forget the budgets; they then count as up to date."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._sink.replaced([])
        self._sink.alive()
