"""Follow a live cluster by watches, and make a new plan when it changes."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from cli.input.cluster_input import ClusterInput, Installation
from cli.input.live import Connecting
from cli.input.running import read_running
from cli.page.worker import Worker
from core.edge.clock import Clock
from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import CLUSTER_KINDS, SURGE_KINDS, AnyKind
from core.edge.kube.client import Client
from core.edge.kube.freshness import Freshness, WatchSink
from core.edge.kube.listing import Part
from core.edge.kube.watch import follow
from core.edge.metrics import WatchMetrics
from core.model.cluster import Cluster
from core.model.errors import EbbError
from core.surge.facts import with_moves
from core.surge.objects import SurgeObjects
from core.surge.records import MoveRecords

PLAN_SHARE: Final = 3
"""Plans take at most one part in this many of the time of a processor."""
PLAN_SECONDS_MAX: Final = 60.0
"""Time after which a plan is made although nothing has changed: delays and cooldowns end."""
STALE_SECONDS: Final = 180
"""Age of the information about a kind after which the page warns.

The API server sends bookmarks about every minute."""


class Intervals(NamedTuple):
    """Seconds between repeated steps."""

    check: float = 1.0
    """Between checks whether something has changed."""
    plan: float = 3.0
    """Between two plans, at least."""
    leader: float = 10.0
    """Between reads of the report of the leader."""


INTERVALS: Final = Intervals()


class Sink(Protocol):
    """Shows the cluster: a page in browsers, or a screen in a terminal."""

    async def publish(self, state: bytes) -> None:
        """Show a new state of the page, as JSON."""

    def warn(self, banners: Sequence[str]) -> None:
        """Show warnings about the connection to the cluster."""


class Feed:
    """The live cluster of a page: its objects by watches, and the report of the leader."""

    def __init__(
        self,
        first: ClusterInput,
        connecting: Connecting,
        installation: Installation,
        clock: Clock,
        intervals: Intervals = INTERVALS,
    ) -> None:
        """*first*: the cluster as it was read at the start."""
        self._input, self._clock = first, clock
        self._connecting, self._installation = connecting, installation
        self._intervals = intervals
        self._inventory, self._metrics = Inventory(), WatchMetrics()
        surges = SURGE_KINDS if first.surge_objects is not None else ()
        self._kinds = (*CLUSTER_KINDS, *surges)
        # A kind that RBAC does not allow reading would make the page stale for ever. The page
        # names it, and shows a plan without it.
        self._freshness = Freshness(
            [kind for kind in self._kinds if kind.name not in first.absent]
        )
        missing = first.running.problems if first.running else ()
        self._not_read = tuple(one for one in first.not_read if one not in missing)

    async def run(self, sink: Sink, worker: Worker) -> None:
        """Follow the cluster until cancelled. Raises: as `Client.connect`."""
        async with await self._connecting.client() as client, asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(client, kind))
            tasks.create_task(self._follow_leader(client))
            tasks.create_task(self._follow_changes(sink, worker))

    async def _follow(self, client: Client, kind: AnyKind) -> None:
        sink = WatchSink(self._inventory, kind, self._freshness, self._clock, self._metrics)
        await follow(client, kind, sink, Part.of(kind, self._input.config))

    async def _follow_leader(self, client: Client) -> None:
        """Read the Lease and the report of the leader; another replica may lead at any time."""
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
        """Make and publish a plan after changes, and warn while the view is stale."""
        seen: object = None
        made_at, pause = self._clock.monotonic_seconds(), 0.0
        failed: tuple[str, ...] = ()
        while True:
            await asyncio.sleep(self._intervals.check)
            now = self._clock.monotonic_seconds()
            sink.warn((*self._stale(now), *failed))
            state = self._state()
            changed = state != seen or not worker.has_plan or now - made_at >= PLAN_SECONDS_MAX
            if not changed or now - made_at < pause or not self._listed(now):
                continue
            try:
                cluster, surge = await asyncio.to_thread(self._cluster_function())
                self._input = replace(self._input, cluster=cluster, surge_objects=surge)
                await sink.publish(await worker.state(self._input))
                failed = ()
            except EbbError as fault:
                failed = (f"No new plan: {fault}",)
            seen, made_at = state, self._clock.monotonic_seconds()
            pause = max(self._intervals.plan, (made_at - now) * (PLAN_SHARE - 1))

    def _state(self) -> object:
        """Return a value that changes with everything that the page shows."""
        versions = tuple(self._inventory.versions[kind] for kind in self._kinds)
        return versions, self._input.running, self._input.config

    def _stale(self, now: float) -> Sequence[str]:
        why = self._freshness.why_stale(now, STALE_SECONDS) if self._listed(now) else None
        return (f"This page may be out of date: {why}.",) if why else ()

    def _listed(self, now: float) -> bool:
        """Return whether all kinds have been listed; until then the page shows the first plan."""
        return all(
            self._freshness.age_seconds(kind, now) < math.inf
            for kind in self._kinds
            if kind.name not in self._input.absent
        )

    def _cluster_function(self) -> Callable[[], tuple[Cluster, SurgeObjects | None]]:
        """Capture the objects; the returned function may run in any thread."""
        snapshot = self._inventory.snapshot(self._input.config.read_options)
        surge = self._inventory.surge_snapshot() if self._input.surge_objects is not None else None
        namespace = self._input.namespace

        def made() -> tuple[Cluster, SurgeObjects | None]:
            cluster = snapshot()
            if surge is None:
                return cluster, None
            objects, none = surge(), MoveRecords()
            return with_moves(cluster, objects, none, none, namespace), objects

        return made
