"""Read the command line and the configuration, connect the controller's parts and run them."""

import asyncio
import logging
import os
import random
import secrets
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from controller import names, report_server
from controller.conditional_watch import ConditionalWatch, forbidden_note
from controller.config_reload import ConfigReload
from controller.decisions import DecisionLog
from controller.deletion_costs import DeletionCosts
from controller.election import Elector, Timing
from controller.evictor import Evictor
from controller.handovers import Handovers
from controller.historian import Historian, HistoryStores
from controller.hourly_moves import HourlyMoves
from controller.leader_report import REPORT_PORT_NAME, LeaderFacts, facts_of, with_figures
from controller.loop import STALE_SECONDS, Loop
from controller.metrics import Metrics
from controller.mover import Mover, MoverDependencies, MoveStores
from controller.publisher import Publisher
from controller.reconciler import Reconciler
from controller.refusals import Refusals
from controller.report_server import ReportServer
from controller.view import ClusterView
from core.history.days import PoolDay
from core.model.node import Node
from core.setting_types.value_types import PORT, duration
from kube.client import Client
from kube.cluster_kinds import KINDS, NEEDED, SURGE_KINDS
from kube.decode.kinds import BUDGETS, BUFFERS, AnyKind
from kube.freshness import WatchSink
from kube.listing import Part
from kube.stores import events, objects
from kube.stores.access_review import (
    PATCH_PODS,
    Access,
    AccessReview,
    create_access,
    is_allowed,
    list_access,
)
from kube.stores.capacity_buffers import PublishedStore
from kube.stores.events import Events, EventType, Regarding
from kube.stores.evictions import EvictionStore
from kube.stores.lease import LeaseStore
from kube.stores.packed_config_map import PackedConfigMap
from kube.stores.pod_moves import PodMoves
from kube.stores.selecting import selecting_objects
from kube.target import NAMESPACE
from kube.watch import watch_objects
from runtime import program
from runtime.clock import Clock, SteadyClock, SystemClock
from runtime.logs import fields
from serving import http

Follow = Callable[[], Coroutine[Any, Any, None]]
"""Watches a kind until cancelled."""

log = logging.getLogger("ebb.controller")


METRICS_LISTEN: Final = program.listen_flag("--metrics-listen", "[::]:8081", "probes and metrics")
REPORT_PORT: Final = program.Flag(
    "--report-port",
    PORT,
    8082,
    "port on 127.0.0.1 for the leader's report, which `ebb` reads through a port-forward; the "
    f"container port `{REPORT_PORT_NAME}` must be the same",
)
LEASE_DURATION: Final = program.Flag(
    "--lease-duration",
    duration(3),
    15,
    "time after which another replica takes over from a leader that has died",
)
FLAGS: Final = (METRICS_LISTEN, REPORT_PORT, LEASE_DURATION)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the controller until SIGTERM, and return its exit code.

    The code is 0, or 2 after an error in the configuration. *argv*: None means the arguments of
    the process.
    """
    description = "Watches the cluster; the elected leader marks and unmarks Nodes."
    return program.run("ebb-controller", description, _serve, argv, FLAGS)


async def _serve(start: program.Start) -> None:
    namespace = os.environ.get("POD_NAMESPACE") or NAMESPACE
    # The elector needs the client, and the client counts its requests in the metrics. So the
    # metrics ask the elector at each scrape, which is later.
    metrics = Metrics(
        namespace, is_leading=lambda: controller.leading, past=lambda: controller.past
    )
    connecting = Client.connect(start.kubeconfig, count_request=metrics.count_request)
    async with await connecting as client:
        controller = _Controller(start, client, namespace, metrics)
        await controller.run()


class _Controller:
    def __init__(
        self, start: program.Start, client: Client, namespace: str, metrics: Metrics
    ) -> None:
        config = start.config
        self._start, self._config, self._client = start, config, client
        self._namespace, self._metrics = namespace, metrics
        self._clock, self._health = SystemClock(), http.Health()
        self._decisions = DecisionLog(self._clock)
        self._view = ClusterView(self._clock.unix_seconds)
        name = os.environ.get("POD_NAME") or socket.gethostname()
        timing = Timing.of(start.flags[LEASE_DURATION.name])
        leases = LeaseStore(client, self._namespace, names.LEASE, timing.call)
        self._elector = Elector(
            leases,
            # A restarted container has the same name, and must not take over the Lease of its
            # predecessor, whose last calls may still arrive.
            f"{name}_{secrets.token_hex(4)}",
            self._clock,
            timing,
            jitter=random.random,
        )
        self._events = self._queue_of_events(name)
        self._record_about_namespace = partial(
            self._events.record_about, events.namespace(self._namespace)
        )
        # Deadlines and backoffs must not end because the wall clock is set.
        steady = SteadyClock(self._clock)
        warn = partial(self._record_about_namespace, type_=EventType.WARNING)
        self._refusals = Refusals(steady, self._metrics, warn)
        client.observe_patch = self._refusals.observe
        buffers = create_access(BUFFERS, self._namespace)
        may_publish = self._access(buffers, "create CapacityBuffers", steady)
        self._reconciler = Reconciler(
            config,
            objects.nodes(client),
            owner=name,
            metrics=self._metrics,
            record_event=self._record_decision,
            observe_writes=self._decisions.observe,
            deletion_costs=self._deletion_costs(steady),
            evictor=self._evictor(steady),
            refused_write=self._refusals.of_node,
            may_publish=lambda: may_publish.allowed is True,
        )
        self._watches: dict[AnyKind, ConditionalWatch] = {}
        """Watches of the kinds that only some configurations need."""
        self._mover = self._surge_mover(steady, leases, name)
        self._loop = Loop(
            self._view,
            self._reconciler,
            steady,
            self._metrics,
            lambda: self._elector.leading,
            self._mover.capture,
        )
        self._publisher = Publisher(
            PublishedStore(client, self._namespace), self._reconciler, may_publish
        )
        self._historian = self._storing_historian()
        self._metrics.clock_offset.set_function(steady.offset_seconds)
        self._set_gauges()

    @property
    def leading(self) -> bool:
        """Return whether this replica leads."""
        return self._elector.leading

    @property
    def past(self) -> Mapping[int, PoolDay] | None:
        """Return the sums of the days in `ebb-history`; None while they are unknown."""
        return self._historian.past

    def _queue_of_events(self, name: str) -> Events:
        lost = self._metrics.event_write_failures.inc
        controller = names.REPORTING
        return Events(self._client, self._clock, lost, controller=controller, instance=name)

    def _record_decision(self, node: Node, action: str, reason: str) -> None:
        self._decisions.record("Node", node.name, action, reason)
        self._events.record(node, action, reason)

    def _record_move(
        self, regarding: Regarding, action: str, reason: str, type_: EventType
    ) -> None:
        name = f"{regarding['namespace']}/{regarding['name']}"
        self._decisions.record(regarding["kind"], name, action, reason)
        self._events.record_about(regarding, action, reason, type_)

    def _set_gauges(self) -> None:
        for kind in KINDS:
            age = partial(self._age_seconds, kind)
            self._metrics.watch_age.labels(kind.resource).set_function(age)
        self._metrics.leader.set_function(self._metrics.is_leading)

    def _deletion_costs(self, clock: Clock) -> DeletionCosts:
        access = self._access(PATCH_PODS, "patch pods", clock)
        return DeletionCosts(objects.pods(self._client), self._metrics, access)

    def _sink(self, kind: AnyKind) -> WatchSink:
        freshness = self._view.freshness_of(kind)
        return WatchSink(self._view, kind, freshness, self._clock, self._metrics)

    def _conditional(self, kind: AnyKind, sink: WatchSink, watch: Follow) -> ConditionalWatch:
        access = self._access(list_access(kind), f"list {kind.resource}", self._clock)
        conditional = ConditionalWatch(
            sink,
            watch,
            partial(self._is_needed, kind),
            access,
            forbidden=forbidden_note(kind),
            empty_if_forbidden=kind is BUDGETS,
        )
        self._watches[kind] = conditional
        return conditional

    def _is_needed(self, kind: AnyKind) -> bool:
        if kind in SURGE_KINDS:
            return self._mover.needs_objects
        return kind not in NEEDED or NEEDED[kind](self._reconciler.config)

    def _access(self, access: Access, action: str, clock: Clock) -> AccessReview:
        return AccessReview(partial(is_allowed, self._client, access), clock, action)

    def _surge_mover(self, clock: Clock, leases: LeaseStore, name: str) -> Mover:
        stores = MoveStores(
            moves=PodMoves(self._client),
            pods=objects.pods(self._client),
            hourly=HourlyMoves(leases),
            handovers=Handovers(leases),
            selecting=partial(selecting_objects, self._client),
        )
        dependencies = MoverDependencies(
            namespace=self._namespace,
            leading=lambda: self._elector.leading,
            why_unknown=self._why_surge_unknown,
            pod_access=self._access(PATCH_PODS, "patch pods", clock),
            leader_pod=f"{self._namespace}/{name}",
            hand_over=self._elector.hand_over,
            refused_write=self._refusals.of_node_or_pod,
            record_event=self._record_move,
            report_forbidden=partial(self._record_about_namespace, type_=EventType.WARNING),
            count_moved_pod=self._reconciler.count_moved_pod,
        )
        return Mover(self._reconciler, self._view, stores, clock, self._metrics, dependencies)

    def _storing_historian(self) -> Historian:
        stores = HistoryStores(
            today=PackedConfigMap(self._client, self._namespace, names.TODAY),
            history=PackedConfigMap(self._client, self._namespace, names.HISTORY),
        )
        return Historian(
            stores,
            self._reconciler,
            self._decisions,
            identity=self._elector.identity,
            leading=lambda: self._elector.leading,
        )

    def _why_surge_unknown(self) -> str | None:
        """Return why the objects that surge moves depend on are unknown or outdated, or None."""
        for kind in SURGE_KINDS:
            if kind not in self._watches or not self._watches[kind].following:
                return f"{kind.resource} are not watched"
        now = self._clock.monotonic_seconds()
        return self._view.surge_freshness.why_stale(now, STALE_SECONDS)

    def _evictor(self, clock: Clock) -> Evictor:
        return Evictor(
            EvictionStore(self._client),
            clock,
            self._metrics,
            own_namespace=self._namespace,
            jitter=random.random,
            report_forbidden=partial(self._record_about_namespace, type_=EventType.WARNING),
        )

    async def run(self) -> None:
        """Run until SIGTERM; then fail readiness, stop leading and give up the Lease."""
        plain = http.Server(
            http.base_app(self._health, self._clock, self._metrics),
            self._start.flags[METRICS_LISTEN.name],
            flag=METRICS_LISTEN.name,
        )
        report = self._report_server()
        await plain.start()
        await report.start()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._events.run()),
                tasks.create_task(self._reload_config()),
            ]
            for kind in KINDS:
                sink = self._sink(kind)
                part = Part.of(kind, self._config)
                watch: Follow = partial(watch_objects, self._client, kind, sink, part)
                if kind in NEEDED:
                    watch = self._conditional(kind, sink, watch).run
                running.append(tasks.create_task(watch()))
            leader = tasks.create_task(self._elector.run(self._lead))
            log.info(
                "running", extra=fields(mode=self._config.mode.value, policy=self._config.policy)
            )
            await http.until_signal()
            await http.drain(self._health, seconds=0)  # no Service sends requests to this program
            leader.cancel()
            await asyncio.wait({leader})
            for task in running:
                task.cancel()
            await report.stop()
            await plain.stop()

    def _report_server(self) -> http.Server:
        reports = ReportServer(
            self._clock,
            identity=self._elector.identity,
            leader=lambda: self._elector.holder,
            config=lambda: self._reconciler.config,
            facts=self._facts,
        )
        return http.Server(
            reports.app(),
            f"{report_server.HOST}:{self._start.flags[REPORT_PORT.name]}",
            limits=report_server.LIMITS,
            flag=REPORT_PORT.name,
        )

    def _facts(self) -> LeaderFacts | None:
        if not self._elector.leading:
            return None
        facts = facts_of(
            self._reconciler.last,
            moves=self._mover.moves,
            refused_moves=self._mover.refused,
            refused_writes=self._refusals.current,
            decisions=self._decisions.entries,
            stale_because=self._loop.why_stale(),
            capacity_buffers=self._publisher.state,
            now_seconds=self._clock.unix_seconds(),
        )
        return with_figures(facts, self._reconciler.figures, self.past)

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._loop.run())
            tasks.create_task(self._publisher.run(self._loop.why_stale))
            tasks.create_task(self._mover.run(self._loop.why_stale))
            tasks.create_task(self._historian.run())

    def _age_seconds(self, kind: AnyKind) -> float:
        freshness = self._view.freshness_of(kind)
        return freshness.age_seconds(kind, self._clock.monotonic_seconds())

    async def _reload_config(self) -> None:
        if self._start.config_path is None:
            return
        config_reload = ConfigReload(
            self._start.config_path,
            self._reconciler,
            self._view,
            self._clock,
            self._metrics,
            self._record_about_namespace,
        )
        await self._start.changes.run(config_reload.reload)


if __name__ == "__main__":
    sys.exit(main())
