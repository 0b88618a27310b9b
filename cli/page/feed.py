"""Follow a live cluster by watches, and make and publish a new plan when it changes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from cli.input.cluster_input import ClusterInput
from cli.input.live import Reading
from cli.input.running import read_leader, read_running
from cli.page.changes import Changes, RecordingInventory
from core.model.cluster import Cluster
from core.model.errors import EbbError
from core.model.humanize import timestamp
from core.moves.objects import SurgeObjects
from kube.client import Client
from kube.cluster_kinds import CLUSTER_KINDS, SURGE_KINDS
from kube.decode.kinds import AnyKind
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
    """Times of `ebb page` and `ebb top` in seconds."""

    check: float = 1.0
    """Between checks whether something has changed."""
    plan: float = 3.0
    """Between two plans, at least."""
    leader: float = 10.0
    """Between reads of the Lease and of the report of the leader."""
    unheard: float = 30.0
    """Without an answer of the API server (three reads of the Lease), after which the last state
    counts as out of date, and no new plan is made."""


INTERVALS: Final = Intervals()


class Sink(Protocol):
    """A display of the cluster: a page in browsers, or a screen in a terminal."""

    async def publish(self, state: bytes) -> None:
        """Show a new state of the cluster, the JSON of `PageState.document`."""

    def warn(
        self, banners: Sequence[str], heard_seconds: int | None = None, *, stale: bool = False
    ) -> None:
        """Show these warnings about the connection to the cluster; empty: remove them.

        *heard_seconds*: time of the last answer of the API server. *stale*: that is too long ago.
        """


class Maker(Protocol):
    """What makes a state of the display from the objects of the cluster."""

    has_plan: bool
    """Whether it has the objects of an earlier call."""

    async def state(self, cluster_input: ClusterInput, changes: Changes | None = None) -> bytes:
        """Return the state; *changes*: changes of the objects since the previous call."""


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
        self._heard = clock.monotonic_seconds(), clock.unix_seconds()
        """Time of the last answer of the API server to a read of the Lease, by both clocks."""

    async def run(self, sink: Sink, worker: Maker) -> None:
        """Publish a plan to *sink* now and after changes, until cancelled.

        *worker*: process that makes the plans. Raises: EbbError if there is no first plan, or if
        the connection fails.
        """
        await self._plan(sink, worker)
        async with await self._connecting.client() as client, asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(client, kind))
            tasks.create_task(self._follow_lease(client))
            tasks.create_task(self._follow_leader(client))
            tasks.create_task(self._follow_changes(sink, worker))

    async def _follow(self, client: Client, kind: AnyKind) -> None:
        sink = WatchSink(self._inventory, kind, self._freshness, self._clock, self._metrics)
        part, known = Part.of(kind, self._input.config), self._lists.pop(kind)
        await watch_objects(client, kind, sink, part, known=known)

    async def _follow_lease(self, client: Client) -> None:
        """Read the Lease again and again, to see whether the API server answers.

        A watch does not tell: it may send nothing for minutes.
        """
        while True:
            asked = self._clock.monotonic_seconds(), self._clock.unix_seconds()
            if (await read_leader(client, self._installation.namespace)).answered:
                self._heard = asked
            await asyncio.sleep(self._intervals.leader)

    async def _follow_leader(self, client: Client) -> None:
        """Read the Lease and the report of the controller's leader again and again.

        Another replica may lead at any time. If the API server does not answer, the last report
        and configuration remain.
        """
        while True:
            await asyncio.sleep(self._intervals.leader)
            running, config, source = await read_running(client, self._installation)
            before, problems = self._input.running, running.problems
            if before is not None and not running.leader.answered:
                problems = problems[:1]  # all reads fail alike
                running = replace(before, leader=running.leader, problems=running.problems)
                config, source = self._input.config, self._input.config_from
            self._input = replace(
                self._input,
                running=running,
                config=config,
                config_from=self._input.config_from if self._installation.config else source,
                not_read=(*problems, *self._not_read),
            )

    async def _follow_changes(self, sink: Sink, worker: Maker) -> None:
        """Make and publish a plan after changes, and warn while the watches are out of date."""
        made_at, pause = self._clock.monotonic_seconds(), 0.0
        failed: tuple[str, ...] = ()
        while True:
            await asyncio.sleep(self._intervals.check)
            now = self._clock.monotonic_seconds()
            heard, heard_seconds = self._heard
            unheard = now - heard >= self._intervals.unheard
            banners = _unheard(heard_seconds) if unheard else self._stale(now)
            sink.warn((*banners, *failed), heard_seconds, stale=unheard)
            if unheard and worker.has_plan:
                continue
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

    async def _plan(self, sink: Sink, worker: Maker) -> None:
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
        return (f"What is shown may be out of date: {why}.",) if why else ()


def _unheard(heard_seconds: int) -> Sequence[str]:
    since = timestamp(heard_seconds)
    return (f"What is shown may be out of date: the API server has not answered since {since}.",)
