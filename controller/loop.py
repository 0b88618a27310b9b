"""When the engine looks: at its interval, and at once when something cannot wait.

Whatever a pass meets, it ends neither the program nor this replica's lead: it is logged, counted,
and tried again after a growing wait.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.metrics import Metrics
from controller.notices import Notices
from controller.reconciler import PassReport, Reconciler
from controller.view import ClusterView
from controller.writers import LiveView
from core.edge.clock import Clock
from core.edge.decode.kinds import NODES
from core.edge.heap import growing
from core.edge.logs import fields
from core.engine.unschedulable import WAIT_SECONDS

STALE_SECONDS: Final = 180
"""Nothing is decided on a view without news for longer; bookmarks come about once a minute."""
PAUSE_SECONDS: Final = 0.1
"""Between two passes, however much cannot wait: what comes together is judged together."""
PASS_SECONDS_MAX: Final = 10.0
"""After this a pass tries no further node. A pass over 15,000 nodes takes about a second."""
PLAN_SECONDS_MAX: Final = 20.0
"""Nothing is marked, hardened or handed over on a look at the cluster that is older."""
FAILURE_SECONDS_MIN: Final = 1.0
FAILURE_SECONDS_MAX: Final = 30.0
"""The wait after a pass that failed; it doubles from one to the next."""
LOOK_SHARE: Final = 5
"""One part in so many of the time, at most, goes into whether pods can wait."""

log = logging.getLogger("ebb.loop")


class Loop:
    """Passes of the engine over the view, as long as this replica leads."""

    def __init__(
        self,
        view: ClusterView,
        reconciler: Reconciler,
        clock: Clock,
        metrics: Metrics,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """*leading*: false at once when the process wakes after its lead has ended."""
        self._view, self._reconciler = view, reconciler
        self._clock, self._metrics, self._leading = clock, metrics, leading
        self._notices = Notices()
        self._writing: set[asyncio.Task[PassReport]] = set()
        self.pause_seconds = PAUSE_SECONDS
        """How long the next pass waits at least."""
        self._blind_since: float | None = None
        """Since when nothing can be judged; None: it can."""

    def why_stale(self) -> str | None:
        """Return why nothing is decided on the view now, or None."""
        return self._view.news.why_stale(self._clock.monotonic_seconds(), STALE_SECONDS)

    async def run(self) -> None:
        """Run passes until cancelled; nothing is written after that."""
        self._reconciler.begin()
        lookout = asyncio.create_task(self._look_out())
        try:
            while True:
                await asyncio.sleep(self.pause_seconds)
                await self._until_due()
                await self.step()
        finally:
            lookout.cancel()
            for task in self._writing:
                task.cancel()
            await asyncio.gather(lookout, *self._writing, return_exceptions=True)

    async def step(self) -> None:
        """Run one pass, on a view that can be trusted only."""
        why = self.why_stale()
        if why is not None:
            log.warning("not judging", extra=fields(reason=why))
            await self._wait_blind()
            return
        self._blind_since = None
        try:
            with self._metrics.pass_seconds.time():
                await self._pass()
        except Exception:
            self._metrics.pass_failures.inc()
            again = max(FAILURE_SECONDS_MIN, 2 * self.pause_seconds)
            self.pause_seconds = min(again, FAILURE_SECONDS_MAX)
            log.exception("a pass failed", extra=fields(again_seconds=self.pause_seconds))
            if self.pause_seconds > FAILURE_SECONDS_MIN:
                await self._soften()
        else:
            self.pause_seconds = PAUSE_SECONDS

    async def _wait_blind(self) -> None:
        """Let no hard mark stand when nothing could be judged for STALE_SECONDS.

        One kind that cannot be listed is enough, for weeks, while the nodes are well known: by a
        right that is missing, or a server of the API that is down.
        """
        now = self._clock.monotonic_seconds()
        if self._blind_since is None:
            self._blind_since = now
        fresh = self._view.news.age_seconds(NODES, now) <= STALE_SECONDS
        if fresh and now - self._blind_since > STALE_SECONDS:
            await self._soften()

    async def _soften(self) -> None:
        """Let pods onto nodes with hard marks: no pass tells whether they wait for them."""
        try:
            await self._reconciler.soften(list(self._view.nodes.values()))
        except Exception:
            log.exception("cannot soften")

    async def _pass(self) -> None:
        begun, late = self._clock.monotonic_seconds(), False

        def in_time() -> bool:
            nonlocal late
            late = late or self._clock.monotonic_seconds() - begun > PASS_SECONDS_MAX
            return not (late or self._view.urgent.is_set())

        def halted() -> str | None:
            if not self._leading():
                return "this replica does not lead any more"
            if self._view.urgent.is_set():
                return "something has come up that cannot wait"
            if self._clock.monotonic_seconds() - begun > PLAN_SECONDS_MAX:
                return "the look at the cluster that it rests on is too old"
            return self.why_stale()

        # Collections during a pass over 5,000 nodes take half a second and stop the event loop for
        # up to 0.3 s each: a pass takes 20 % longer with them.
        with growing():
            snapshot = self._view.snapshot(self._reconciler.config.schedulers)
            now = self._view.looked_at = self._clock.unix_seconds()
            judging = asyncio.to_thread(lambda: self._reconciler.judge(snapshot(), now, in_time))
            found = await judging
        if not found.found.skipped:
            self._notices.observe(found.found.snapshot)
        if late:
            self._metrics.pass_timeouts.inc()
            log.warning("a pass ran out of time", extra=fields(seconds=PASS_SECONDS_MAX))
        sight = LiveView(halted, self._view.nodes.get, self._view.occupied)
        await self._written(asyncio.create_task(self._reconciler.carry_out(found, sight)))

    async def _written(self, writing: asyncio.Task[PassReport]) -> None:
        """Wait until all is written, or the next pass cannot wait for that.

        A batch ends by itself when its plan is old, but for calls that hang.

        Raises: what the writing raises.
        """
        self._writing.add(writing)
        hurry = asyncio.create_task(self._view.urgent.wait())
        try:
            await asyncio.wait(
                {writing, hurry},
                timeout=WAIT_SECONDS if self._reconciler.doubts else PLAN_SECONDS_MAX,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            hurry.cancel()
        if writing.done():
            self._writing.discard(writing)
            writing.result()
        else:
            writing.add_done_callback(self._overtaken)

    def _overtaken(self, writing: asyncio.Task[PassReport]) -> None:
        """Take the end of what a later pass did not wait for; it has not seen all of that."""
        self._writing.discard(writing)
        if writing.cancelled():
            return
        if fault := writing.exception():
            self._metrics.pass_failures.inc()
            log.error("a pass failed", exc_info=fault)
        self._view.urgent.set()

    async def _look_out(self) -> None:
        """Say so when pods turn unschedulable that cannot wait, beside a pass and its writing."""
        while True:
            await self._view.turned.wait()
            begun = self._clock.monotonic_seconds()
            try:
                config = self._reconciler.config
                cannot_wait = self._view.turns(config.taint_key, config.schedulers)
                if await asyncio.to_thread(cannot_wait):
                    self._view.urgent.set()
            except Exception:
                self._metrics.pass_failures.inc()
                log.exception("cannot tell whether pods can wait")
            took = self._clock.monotonic_seconds() - begun
            await asyncio.sleep(max(PAUSE_SECONDS, (LOOK_SHARE - 1) * took))

    async def _until_due(self) -> None:
        """Wait for the interval, or for what cannot."""
        seconds = self._reconciler.config.controller.interval_seconds
        if self._reconciler.doubts:
            seconds = min(seconds, WAIT_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._view.urgent.wait()
        except TimeoutError:
            self._view.rested()
        self._view.urgent.clear()
