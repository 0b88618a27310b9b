"""Reads a changed configuration file, tries it, and swaps the whole configuration or nothing."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.metrics import Metrics
from controller.reconciler import Reconciler
from controller.view import ClusterView
from core.config.schema import restart_needed
from core.config.settings import Config
from core.edge import files
from core.edge.clock import Clock
from core.edge.kube.stores.events import EventType
from core.edge.logs import fields
from core.engine import reconcile
from core.engine.plan import Plan
from core.model.errors import ConfigError
from core.model.humanize import plural

ACCEPTED: Final = "ConfigurationChanged"
REFUSED: Final = "ConfigurationRefused"

Tell = Callable[[str, str, EventType], None]
"""Takes an Event's reason, a note for people, and its type."""

log = logging.getLogger("ebb.config-reload")


class ConfigReload:
    """Reads the file that the program was started with, whenever it has changed."""

    def __init__(
        self,
        path: str,
        reconciler: Reconciler,
        view: ClusterView,
        clock: Clock,
        metrics: Metrics,
        tell: Tell,
    ) -> None:
        self._path, self._reconciler, self._view = path, reconciler, view
        self._clock, self._metrics, self._tell = clock, metrics, tell
        self._succeeded()

    async def reload(self) -> bool:
        """Swap the configuration if the file is good; else the last good one stays.

        True: what stands in the file now has been dealt with, and told, once.
        """
        try:
            note = await self._swap()
        except ConfigError as fault:
            self._metrics.config_good.set(0)
            log.error("configuration refused", extra=fields(reason=str(fault)))  # noqa: TRY400 no trace
            self._tell(REFUSED, "; ".join(str(fault).splitlines()), EventType.WARNING)
        else:
            self._succeeded()
            log.info("configuration changed", extra=fields(path=self._path, plan=note))
            self._tell(ACCEPTED, note, EventType.NORMAL)
        return True

    async def _swap(self) -> str:
        # A thousand prices take a second, and what somebody has mistaken for this file longer.
        found = await asyncio.to_thread(files.read_config, self._path)
        before = self._reconciler.config
        if fixed := restart_needed(before, found):
            allowed = "as it was when the program started: restart it for this"
            raise ConfigError(
                self._path, [f"{name}: changed; allowed: {allowed}" for name in fixed]
            )
        plan = await self._tried(found)
        self._reconciler.config = found
        self._view.urgent.set()
        could = plural(len(plan.removals), "node")
        return f"mode {found.mode.value}; {could} could go in the long run"

    async def _tried(self, config: Config) -> Plan:
        """Make a plan with it on the cluster as it stands, so that it fails here if it does."""
        snapshot, now = self._view.snapshot(config.read_options), self._clock.unix_seconds()
        try:
            return await asyncio.to_thread(
                lambda: reconcile.plan(snapshot(), config, now_seconds=now)
            )
        except Exception as fault:
            log.exception("a plan with the changed configuration failed")
            problem = f"no plan can be made with it: {type(fault).__name__}"
            raise ConfigError(self._path, [problem]) from fault

    def _succeeded(self) -> None:
        self._metrics.config_good.set(1)
        self._metrics.config_since.set(self._clock.unix_seconds())
