"""When the engine looks: at its interval, and at once when something cannot wait."""

import asyncio
import logging
from typing import Final

from core.edge.clock import Clock
from core.edge.logs import fields
from core.edge.metrics import Metrics
from webhook.controller import Controller
from webhook.view import ClusterView

STALE_SECONDS: Final = 180
"""Nothing is decided on a view without news for longer; bookmarks come about once a minute."""
PAUSE_SECONDS: Final = 0.1
"""Between two passes, however much cannot wait: what comes together is judged together."""

log = logging.getLogger("ebb.loop")


class Loop:
    """Passes of the engine over the view, as long as this replica leads."""

    def __init__(
        self,
        view: ClusterView,
        controller: Controller,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._view, self._controller = view, controller
        self._clock, self._metrics = clock, metrics

    def why_stale(self) -> str | None:
        """Return why nothing is decided on the view now, or None."""
        return self._view.why_stale(self._clock.monotonic_seconds(), STALE_SECONDS)

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            await self._until_due()
            await self.step()

    async def step(self) -> None:
        """Run one pass, on a view that can be trusted only."""
        why = self.why_stale()
        if why is not None:
            log.warning("not judging", extra=fields(reason=why))
            return
        with self._metrics.pass_seconds.time():
            snapshot, now = self._view.snapshot(), self._clock.unix_seconds()
            found = await asyncio.to_thread(lambda: self._controller.judge(snapshot(), now))
            await self._controller.carry_out(found)

    async def _until_due(self) -> None:
        """Wait for the interval, or for what cannot."""
        try:
            async with asyncio.timeout(self._controller.config.webhook.interval_seconds):
                await self._view.urgent.wait()
        except TimeoutError:
            pass
        self._view.urgent.clear()
