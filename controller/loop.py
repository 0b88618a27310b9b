"""Reconcile at an interval, and at once when a change cannot wait.

If a reconciliation raises an exception, the program continues, and this replica remains the
leader. The exception is logged and counted, and the next reconciliation follows after a pause that
grows with each failure.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from controller.metrics import Metrics
from controller.reconciler import Reconciler, ReconcileReport
from controller.view import ClusterView
from controller.writers import LiveView
from core.engine.maintenance_gate import MayBegin
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import WAIT_SECONDS
from core.marks.wellknown import TAINT_KEY
from core.model.now import Now
from core.moves.facts import AddMoves
from kube.decode.kinds import NODES
from runtime.clock import Clock
from runtime.heap import growing, release_memory
from runtime.logs import fields

STALE_SECONDS: Final = 180
"""Maximum age of the information about each kind in a reconciliation.

The API server sends bookmarks about every minute."""
PAUSE_SECONDS: Final = 0.1
"""Minimum pause between two reconciliations, so that one of them handles simultaneous changes."""
RECONCILIATION_SECONDS_MAX: Final = 10.0
"""Time after which a reconciliation tries no further node; 15,000 nodes take about 1 s."""
PLAN_SECONDS_MAX: Final = 20.0
"""Maximum age of the snapshot that writes are based on, except for urgent writes."""
FAILURE_SECONDS_MIN: Final = 1.0
FAILURE_SECONDS_MAX: Final = 30.0
"""Bounds of the pause after a failed reconciliation; it doubles with each failure."""
CHECK_SHARE: Final = 5
"""The check whether new unschedulable pods are urgent takes at most one part in this many of the
time."""

log = logging.getLogger("ebb.loop")


class Loop:
    """Reconcile the cluster repeatedly, as the watches report it, while this replica leads."""

    def __init__(
        self,
        view: ClusterView,
        reconciler: Reconciler,
        clock: Clock,
        metrics: Metrics,
        leading: Callable[[], bool] = lambda: True,
        capture_moves: Callable[[], AddMoves] = lambda: lambda cluster: cluster,
    ) -> None:
        """Take the parts that a reconciliation needs.

        *leading* returns whether this replica leads, even if the process was suspended before.
        *capture_moves* returns a function that adds the state of surge moves to a cluster.
        """
        self._capture_moves = capture_moves
        self._view, self._reconciler = view, reconciler
        self._clock, self._metrics, self._leading = clock, metrics, leading
        self._notices = Notices()
        self._writing: set[asyncio.Task[ReconcileReport]] = set()
        self.pause_seconds = PAUSE_SECONDS
        """Minimum pause before the next reconciliation."""
        self._stale_since: float | None = None
        """Monotonic time since which the view has been too old to reconcile; None if it is not."""

    def why_stale(self) -> str | None:
        """Return why the information about the cluster is too old to reconcile, or None."""
        return self._view.freshness.why_stale(self._clock.monotonic_seconds(), STALE_SECONDS)

    async def run(self) -> None:
        """Reconcile until cancelled, then stop all writes."""
        self._reconciler.begin()
        checks = asyncio.create_task(self._check_unschedulable())
        try:
            while True:
                await asyncio.sleep(self.pause_seconds)
                await self._until_due()
                await self.step()
        finally:
            checks.cancel()
            for task in self._writing:
                task.cancel()
            await asyncio.gather(checks, *self._writing, return_exceptions=True)

    async def step(self) -> None:
        """Reconcile once, unless the information about the cluster is too old.

        Exceptions are logged and lead to a longer pause before the next reconciliation.
        """
        why = self.why_stale()
        if why is not None:
            log.warning(
                "cannot reconcile: the view of the cluster is outdated",
                extra=fields(reason=why),
            )
            await self._handle_stale_view()
            return
        self._stale_since = None
        try:
            with self._metrics.reconcile_seconds.time():
                await self._reconcile()
        except Exception:
            self._metrics.reconcile_errors.inc()
            pause = max(FAILURE_SECONDS_MIN, 2 * self.pause_seconds)
            self.pause_seconds = min(pause, FAILURE_SECONDS_MAX)
            log.exception(
                "a reconciliation failed; retrying after a pause",
                extra=fields(pause_seconds=self.pause_seconds),
            )
            if self.pause_seconds > FAILURE_SECONDS_MIN:  # the second failure in a row
                await self._remove_no_schedule()
        else:
            self.pause_seconds = PAUSE_SECONDS
            self._metrics.last_reconcile.set(self._clock.unix_seconds())

    async def _handle_stale_view(self) -> None:
        """Change NoSchedule marks to PreferNoSchedule if Ebb cannot reconcile for STALE_SECONDS.

        Called while the information about the cluster is too old. It does so only if the Nodes are
        up to date.
        """
        # One kind that cannot be listed may stop reconciliations for weeks, while the Nodes are up
        # to date: an RBAC permission may be missing, or an aggregated API server may be down.
        now = self._clock.monotonic_seconds()
        if self._stale_since is None:
            self._stale_since = now
        nodes_known = self._view.freshness.age_seconds(NODES, now) <= STALE_SECONDS
        if nodes_known and now - self._stale_since > STALE_SECONDS:
            await self._remove_no_schedule()

    async def _remove_no_schedule(self) -> None:
        try:
            await self._reconciler.set_prefer_no_schedule(list(self._view.nodes.values()))
        except Exception:
            log.exception("cannot change NoSchedule marks to PreferNoSchedule; retrying")

    async def _reconcile(self) -> None:
        begun, late = self._clock.monotonic_seconds(), False

        def in_time() -> bool:
            nonlocal late
            late = late or self._clock.monotonic_seconds() - begun > RECONCILIATION_SECONDS_MAX
            return not (late or self._view.wake.is_set())

        def halted() -> str | None:
            if not self._leading():
                return "this replica does not lead any more"
            if self._view.wake.is_set():
                return "an urgent change in the cluster needs a new reconciliation"
            if self._clock.monotonic_seconds() - begun > PLAN_SECONDS_MAX:
                return (
                    f"the snapshot of the cluster is older than {PLAN_SECONDS_MAX:.0f} s; if this "
                    "repeats, give ebb-controller more CPU"
                )
            return self.why_stale()

        # Garbage collections would make a reconciliation of 5,000 nodes half a second, or 20 %,
        # longer. Each of them would stop the event loop for up to 0.3 s.
        with growing():
            snapshot = self._view.snapshot(self._reconciler.config.read_options)
            now = self._view.snapshot_at = self._clock.unix_seconds()
            add_moves = self._capture_moves()
            report = await asyncio.to_thread(
                lambda: self._reconciler.evaluate(add_moves(snapshot()), now, in_time)
            )
        release_memory()
        if not report.result.skipped:
            self._notices.observe(report.result.snapshot)
        if late:
            self._metrics.reconcile_timeouts.inc()
            log.warning(
                "a reconciliation reached its time limit; later ones try the remaining nodes",
                extra=fields(seconds=RECONCILIATION_SECONDS_MAX),
            )
        beginning = report.result.rate_limits.beginning

        def permitted() -> bool:
            moment = Now(self._clock.unix_seconds())
            return isinstance(beginning, MayBegin) and beginning.is_valid(moment)

        live_view = LiveView(halted, self._view.nodes.get, self._view.occupied, permitted)
        await self._finish(asyncio.create_task(self._reconciler.carry_out(report, live_view)))

    async def _finish(self, writing: asyncio.Task[ReconcileReport]) -> None:
        """Wait until *writing* is done, or until the next reconciliation cannot wait for it.

        Raises: any exception of *writing*.
        """
        # A batch ends by itself when its plan is too old, but a call may hang for longer.
        self._writing.add(writing)
        woken = asyncio.create_task(self._view.wake.wait())
        blocking = self._reconciler.marks_may_block_pods
        try:
            await asyncio.wait(
                {writing, woken},
                timeout=WAIT_SECONDS if blocking else PLAN_SECONDS_MAX,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            woken.cancel()
        if writing.done():
            self._writing.discard(writing)
            writing.result()
        else:
            writing.add_done_callback(self._overtaken)

    def _overtaken(self, writing: asyncio.Task[ReconcileReport]) -> None:
        self._writing.discard(writing)
        if writing.cancelled():
            return
        if fault := writing.exception():
            self._metrics.reconcile_errors.inc()
            log.error("the writes of a reconciliation failed", exc_info=fault)
        self._view.wake.set()  # the reconciliation since then did not see all of these writes

    async def _check_unschedulable(self) -> None:
        # This task runs beside reconciliations and their writes, which it must be able to
        # interrupt.
        while True:
            await self._view.became_unschedulable.wait()
            begun = self._clock.monotonic_seconds()
            try:
                config = self._reconciler.config
                cannot_wait = self._view.unschedulable_check(TAINT_KEY, config.read_options)
                if await asyncio.to_thread(cannot_wait):
                    self._view.wake.set()
            except Exception:
                self._metrics.reconcile_errors.inc()
                log.exception(
                    "cannot check unschedulable pods at once; the next reconciliation checks them"
                )
            took = self._clock.monotonic_seconds() - begun
            await asyncio.sleep(max(PAUSE_SECONDS, (CHECK_SHARE - 1) * took))

    async def _until_due(self) -> None:
        """Wait until the interval has passed, marks may begin again, or a change cannot wait."""
        seconds = self._reconciler.config.controller.interval_seconds
        if (opens := self._reconciler.opens_at) is not None:
            seconds = min(seconds, max(opens - self._clock.unix_seconds(), 0))
        if self._reconciler.marks_may_block_pods:
            seconds = min(seconds, WAIT_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._view.wake.wait()
        except TimeoutError:
            self._view.idle_reconciliation_started()
        self._view.wake.clear()


class Notices:
    """Log each warning about the cluster and the configuration once, when it first applies."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Log the warnings about this snapshot that have not been logged yet."""
        for subject, message in _notices(snapshot):
            if subject not in self._logged:
                self._logged.add(subject)
                log.warning(message, extra=fields(subject=subject))


def _notices(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the warnings that apply to this snapshot, each as its subject and its message.

    The configuration bounds their number.
    """
    config = snapshot.config
    if not snapshot.autoscalers.found:
        subject = f"ConfigMap {config.cluster_autoscaler.status}, NodePools"
        yield (
            subject,
            "Ebb found no autoscaler, so it does not know which nodes an autoscaler can remove",
        )
    if config.lacks_prices:
        yield "minSavings", "`minSavings` has no effect, because no `prices` are configured"
    for name in config.budgets.empty_pools(node.labels for node in snapshot.cluster.nodes):
        yield f"pool {name}", "a configured pool selects no node"
