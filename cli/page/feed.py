"""Follow a live cluster by watches, and make and publish a new plan when it changes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from cli.input.live import Reading
from cli.input.running import read_running
from cli.page.changes import RecordingInventory
from cli.page.worker import Worker
from core.model.cluster import Cluster
from core.model.errors import EbbError
from core.moves.objects import SurgeObjects
from kube.client import Client
from kube.decode.kinds import CLUSTER_KINDS, SURGE_KINDS, AnyKind
from kube.freshness import Freshness, WatchSink
from kube.listing import Part
from kube.watch import watch_objects
from runtime.clock import Clock
from runtime.metrics import WatchMetrics

PLAN_SHARE: Final = 3
"""Plans take at most one part in this many of the time of a processor."""
PLAN_SECONDS_MAX: Final = 60.0
"""Time after which a plan is made although nothing has changed: delays and cooldowns end."""
STALE_SECONDS: Final = 180
"""Age of the information about a kind after which the page warns.

The API server sends bookmarks about every minute."""


class Intervals(NamedTuple):
    """Seconds between the checks, plans and leader reads of `ebb page` and `ebb top`."""

    check: float = 1.0
    """Between checks whether something has changed."""
    plan: float = 3.0
    """Between two plans, at least."""
    leader: float = 10.0
    """Between reads of the report of the leader."""


INTERVALS: Final = Intervals()


class Sink(Protocol):
    """A display of the cluster: a page in browsers, or a screen in a terminal."""

    async def publish(self, state: bytes) -> None:
        """Show a new state of the cluster, the JSON of `PageState.document`."""

    def warn(self, banners: Sequence[str]) -> None:
        """Show these warnings about the connection to the cluster; empty: remove them."""


class Feed:
    """The live cluster of `ebb page` or `ebb top`: its objects, and the report of the leader.

    The leader is the active replica of Ebb's controller.
    """

    def __init__(self, reading: Reading, clock: Clock, intervals: Intervals = INTERVALS) -> None:
        """Prepare watches that begin from *reading*, the cluster as it was read at the start."""
        first, lists, self._connecting, self._installation = reading
        self._clock, self._intervals, self._lists = clock, intervals, lists
        self._inventory, self._metrics = RecordingInventory(), WatchMetrics()
        surges = SURGE_KINDS if first.surge_objects is not None else ()
        self._kinds = (*CLUSTER_KINDS, *surges)
        # A kind that RBAC does not allow reading would make the page stale for ever. The page
        # names it, and shows a plan without it.
        needed = [kind for kind in self._kinds if kind.name not in first.absent]
        self._freshness = Freshness(needed)
        for kind in self._kinds:
            self._inventory.replaced(kind, lists[kind].objects, lists[kind].refused)
            self._freshness.alive(kind, clock.monotonic_seconds())
        # The process that makes plans has the objects.
        surge_objects = SurgeObjects() if surges else None
        self._input = replace(first, cluster=Cluster.of((), ()), surge_objects=surge_objects)
        missing = first.running.problems if first.running else ()
        self._not_read = tuple(problem for problem in first.not_read if problem not in missing)
        self._published: object = None

    async def run(self, sink: Sink, worker: Worker) -> None:
        """Publish a plan to *sink* now and after changes, until cancelled.

        *worker*: process that makes the plans. Raises: EbbError if there is no first plan, or if
        the connection fails.
        """
        await self._plan(sink, worker)
        async with await self._connecting.client() as client, asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(client, kind))
            tasks.create_task(self._follow_leader(client))
            tasks.create_task(self._follow_changes(sink, worker))

    async def _follow(self, client: Client, kind: AnyKind) -> None:
        sink = WatchSink(self._inventory, kind, self._freshness, self._clock, self._metrics)
        part, known = Part.of(kind, self._input.config), self._lists.pop(kind)
        await watch_objects(client, kind, sink, part, known=known)

    async def _follow_leader(self, client: Client) -> None:
        """Read the Lease and the report of the controller's leader again and again.

        Another replica may lead at any time.
        """
        while True:
            await asyncio.sleep(self._intervals.leader)
            running, config, source = await read_running(client, self._installation)
            self._input = replace(
                self._input,
                running=running,
                config=config,
                config_from=self._input.config_from if self._installation.config else source,
                not_read=(*running.problems, *self._not_read),
            )

    async def _follow_changes(self, sink: Sink, worker: Worker) -> None:
        """Make and publish a plan after changes, and warn while the watches are out of date."""
        made_at, pause = self._clock.monotonic_seconds(), 0.0
        failed: tuple[str, ...] = ()
        while True:
            await asyncio.sleep(self._intervals.check)
            now = self._clock.monotonic_seconds()
            sink.warn((*self._stale(now), *failed))
            changed = self._state() != self._published or not worker.has_plan
            if now - made_at < (pause if changed else max(pause, PLAN_SECONDS_MAX)):
                continue
            try:
                await self._plan(sink, worker)
                failed = ()
            except EbbError as fault:
                failed = (f"No new plan: {fault}",)
            made_at = self._clock.monotonic_seconds()
            pause = max(self._intervals.plan, (made_at - now) * (PLAN_SHARE - 1))

    async def _plan(self, sink: Sink, worker: Worker) -> None:
        self._published = self._state()
        # A process that has been started again has no objects.
        changes = self._inventory.changes(whole=not worker.has_plan)
        await sink.publish(await worker.state(self._input, changes))

    def _state(self) -> object:
        """Return a value that changes whenever objects or settings of the page change."""
        versions = tuple(self._inventory.versions[kind] for kind in self._kinds)
        return versions, self._input.running, self._input.config

    def _stale(self, now: float) -> Sequence[str]:
        why = self._freshness.why_stale(now, STALE_SECONDS)
        return (f"This page may be out of date: {why}.",) if why else ()
