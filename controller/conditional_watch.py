"""Watch a kind of objects only while the configuration needs it and RBAC allows it.

PodDisruptionBudgets are needed only for evictions, Deployments and three other kinds only for
surge moves.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kube.decode.kinds import BUDGETS, AnyKind
from kube.freshness import WatchSink
from kube.stores.access_review import AccessReview

CHECK_SECONDS: Final = 1.0
"""Interval at which the configuration is checked."""
FORBIDDEN_BUDGETS: Final = (
    "eviction is enabled, but RBAC does not allow listing poddisruptionbudgets, so no pod is "
    "evicted; manifests/components/eviction grants the permission"
)
FORBIDDEN_SURGE: Final = (
    "surge moves are enabled, but RBAC does not allow listing {resource}, so no pod is moved; "
    "manifests/components/surge grants the permission"
)

log = logging.getLogger("ebb.conditional-watch")


def forbidden_note(kind: AnyKind) -> str:
    """Return the log message for a needed kind of objects that RBAC does not allow to list."""
    if kind is BUDGETS:
        return FORBIDDEN_BUDGETS
    return FORBIDDEN_SURGE.format(resource=kind.resource)


class ConditionalWatch:
    """Watch a kind of objects while the configuration needs it and RBAC allows listing it.

    While the configuration does not need the kind, it counts as up to date and without objects.
    """

    def __init__(
        self,
        sink: WatchSink,
        follow: Callable[[], Coroutine[Any, Any, None]],
        needed: Callable[[], bool],
        access: AccessReview,
        *,
        forbidden: str,
        empty_if_forbidden: bool = False,
    ) -> None:
        """Take the function *follow*, which watches the kind until cancelled.

        *needed* returns whether the configuration needs the kind. *access*: review of the
        permission to list it. *forbidden*: log message if RBAC does not allow listing.
        *empty_if_forbidden*: whether the kind then counts as up to date, without objects, or as
        unknown.
        """
        self._sink, self._follow, self._needed, self._access = sink, follow, needed, access
        self._forbidden, self._empty_if_forbidden = forbidden, empty_if_forbidden
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Start and stop the watch, as the configuration and RBAC require, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._step(tasks)
                await asyncio.sleep(CHECK_SECONDS)

    async def _step(self, tasks: asyncio.TaskGroup) -> None:
        if not self._needed():
            self._access.forget()
            self._stop()
            self._sink.alive()
        elif await self._access.refresh() and self._access.allowed is False:
            log.error(self._forbidden)
        if not self._needed():
            return
        if self._access.allowed is False:
            self._stop()
            if self._empty_if_forbidden:
                self._sink.alive()
        elif self._task is None:
            # No reconciliation may use the objects of an earlier watch.
            self._sink.lost()
            if self._access.allowed:
                self._task = tasks.create_task(self._follow())

    @property
    def following(self) -> bool:
        """Return whether the kind is being watched."""
        return self._task is not None

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._sink.replaced([])
        self._sink.lost()
