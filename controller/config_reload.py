"""Reload the configuration file after a change: use the whole new configuration, or nothing."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.metrics import Metrics
from controller.reconciler import Reconciler
from controller.view import ClusterView
from core.config.schema import restart_needed
from core.config.settings import Config
from core.engine import reconcile
from core.engine.plan import Plan
from core.model.errors import ConfigError
from core.model.humanize import plural
from kube.stores.events import EventType
from runtime import files
from runtime.clock import Clock
from runtime.logs import fields

ACCEPTED: Final = "ConfigurationChanged"
REFUSED: Final = "ConfigurationRefused"

RecordEvent = Callable[[str, str, EventType], None]
"""Writes an Event with this reason, note and type."""

log = logging.getLogger("ebb.config-reload")


class ConfigReload:
    """Reload the configuration file that the program was started with."""

    def __init__(
        self,
        path: str,
        reconciler: Reconciler,
        view: ClusterView,
        clock: Clock,
        metrics: Metrics,
        record_event: RecordEvent,
    ) -> None:
        self._path, self._reconciler, self._view = path, reconciler, view
        self._clock, self._metrics, self._record_event = clock, metrics, record_event
        self._record_success()

    async def reload(self) -> bool:
        """Use the changed file if it is valid; otherwise keep the previous configuration.

        Either way, log the result and write an Event. Returns True always, because the content of
        the file has been handled.
        """
        try:
            note = await self._replace()
        except ConfigError as fault:
            self._metrics.config_good.set(0)
            log.error(  # noqa: TRY400 the reason names the field; a stack trace adds nothing
                "the configuration file is invalid; keeping the previous configuration",
                extra=fields(reason=str(fault)),
            )
            problems = "; ".join(str(fault).splitlines())
            note = f"keeping the previous configuration: {problems}"
            self._record_event(REFUSED, note, EventType.WARNING)
        else:
            self._record_success()
            log.info("using the changed configuration", extra=fields(path=self._path, plan=note))
            self._record_event(ACCEPTED, f"using the changed file: {note}", EventType.NORMAL)
        return True

    async def _replace(self) -> str:
        # Parsing takes about a second for a file with a thousand prices, and longer for a large
        # file of another kind. The event loop must renew the Lease meanwhile.
        config = await asyncio.to_thread(files.read_config, self._path)
        if fixed := restart_needed(self._reconciler.config, config):
            why = "changed, but ebb-controller reads it only at its start; restart ebb-controller"
            raise ConfigError(self._path, [f"{name}: {why}" for name in fixed])
        plan = await self._trial_plan(config)
        self._reconciler.config = config
        self._view.wake.set()
        nodes = plural(len(plan.removals), "node")
        return f"mode {config.mode.value}; {nodes} could be removed in the long run"

    async def _trial_plan(self, config: Config) -> Plan:
        """Make a plan for the current cluster. Raises: ConfigError if an exception ends it."""
        # A configuration with which every reconciliation fails must not replace one that works.
        snapshot, now = self._view.snapshot(config.read_options), self._clock.unix_seconds()
        try:
            return await asyncio.to_thread(
                lambda: reconcile.plan(snapshot(), config, now_seconds=now)
            )
        except Exception as fault:
            log.exception("a plan with the changed configuration failed")
            error = type(fault).__name__
            problem = (
                f"a plan with this configuration failed: {error}; see the log of ebb-controller"
            )
            raise ConfigError(self._path, [problem]) from fault

    def _record_success(self) -> None:
        self._metrics.config_good.set(1)
        self._metrics.config_since.set(self._clock.unix_seconds())
