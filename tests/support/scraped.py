"""Simulate days of a cluster with Ebb's real code, and scrape its metrics every minute.

The simulation runs the reconciler, the writers and the extender's scores; they count for
themselves. It has no event loop, no API server and no TLS, so `Replica` counts what these would.
Virtual time begins at 0, as the time of promtool does.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Final

import controller.metrics
import extender.metrics
import runtime.metrics
import webhook.metrics
from core.config.prices import Price
from core.config.settings import Config
from core.marks.wellknown import TAINT_KEY
from core.model.node import Node
from core.model.pod import Pod
from core.writes.write import Write
from extender.view import View
from kube.cluster_kinds import CLUSTER_KINDS
from kube.decode.kinds import NODES, PODS
from sim.cluster import ClusterState
from sim.costs import in_cores
from sim.ebb import Ebb, InProcessCalls
from sim.scenario import WHOLE, configuration
from sim.simulated_load import DAY_MS, SimulatedLoad, embedded
from sim.simulator import Result, Simulator, SimulatorOptions

SCRAPE_MS: Final = 60_000
PODS_AT_ONCE: Final = 30
GAP_SCRAPES: Final = 1
"""Number of scrapes that fail while a program restarts."""
CERTIFICATE_SECONDS: Final = 3 * 86_400
CA_SECONDS: Final = 3000 * 86_400
DURATION_SECONDS: Final = 0.002
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
CORE_PRICE: Final = Fraction(4, 100)
"""Hourly price of a node for each core, or the same amount of memory and GPUs."""
SCALED_DOWN: Final = "cluster_autoscaler_scaled_down_nodes_total"
"""The metric of Cluster Autoscaler, counted by the simulated one."""
Series = dict[str, list[float | None]]
"""Values of each scrape by series; None: the series was absent."""


class Peers(InProcessCalls):
    """The extender and the webhook; they count their calls."""

    def __init__(self, view: View, config: Config) -> None:
        super().__init__(view, config)
        self.extender, self.webhook = extender.metrics.Metrics(), webhook.metrics.Metrics()
        self.now_seconds = 0
        for kind in (NODES, PODS):
            self.extender.watch_age.labels(kind.resource).set_function(self._age)
        self.extender.certificate_until.set_function(self._until)
        self.webhook.certificate_until.set_function(self._until)
        self.webhook.ca_until.set_function(lambda: self.now_seconds + CA_SECONDS)

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        self.extender.last_prioritize.set(self.now_seconds)
        self.extender.prioritize_seconds.observe(DURATION_SECONDS)
        self.extender.prioritize.labels("scored").inc()
        return super().prioritize(pod, names)

    def mutate(self, before: Node, after: Node) -> Node:
        found = super().mutate(before, after)
        self.webhook.review_seconds.observe(DURATION_SECONDS)
        self.webhook.reviews.labels("unchanged" if found == after else "patched").inc()
        return found

    def _age(self) -> float:
        return self.now_seconds % 60

    def _until(self) -> float:
        return self.now_seconds + CERTIFICATE_SECONDS


class ScrapedEbb(Ebb):
    """Ebb with two replicas of the controller, `controller-0` and `controller-1`."""

    def __init__(self, config: Config, view: View, peers: Peers) -> None:
        self.controllers: dict[str, controller.metrics.Metrics] = {}
        self._leader, self._own = "controller-0", peers
        self.controllers["controller-1"] = self._follower()
        super().__init__(config, view, peers)

    def restart(self, config: Config, metrics: controller.metrics.Metrics | None = None) -> None:
        metrics = metrics or controller.metrics.Metrics(
            is_leading=lambda: self.controllers.get(self._leader) is metrics, past=dict
        )
        super().restart(config, metrics)
        metrics.leader.set(1)
        self._set_health(metrics)
        self.controllers[self._leader] = metrics

    def restart_leader(self) -> None:
        """Restart the leader, which continues the figures of the day as a historian lets it."""
        stored = self._reconciler.to_store
        self.restart(self.config)
        if stored is not None:
            self._reconciler.restore(stored)

    def change_leader(self) -> None:
        """Let the other replica lead; the former leader continues as a follower."""
        former = self.controllers[self._leader]
        former.leader.set(0)
        self._leader = "controller-1" if self._leader == "controller-0" else "controller-0"
        self.restart_leader()

    def reconcile(self, state: ClusterState, write: object, now_ms: int) -> None:
        super().reconcile(state, write, now_ms)  # type: ignore[arg-type]
        metrics = self.controllers[self._leader]
        metrics.reconcile_seconds.observe(DURATION_SECONDS)
        metrics.last_reconcile.set(now_ms // 1000)

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:
        self.metrics.count_request("patch", "200")
        return await super().write(write, version)

    def programs(self) -> Iterator[tuple[str, runtime.metrics.Metrics]]:
        """Yield the metrics of each pod."""
        yield from self.controllers.items()
        yield "extender-0", self._own.extender
        yield "webhook-0", self._own.webhook

    def _follower(self) -> controller.metrics.Metrics:
        metrics = controller.metrics.Metrics(is_leading=lambda: False)
        self._set_health(metrics)
        return metrics

    def _set_health(self, metrics: controller.metrics.Metrics) -> None:
        for kind in CLUSTER_KINDS:
            age = metrics.watch_age.labels(kind.resource)
            age.set_function(lambda: self._own.now_seconds % 60)
            for verb in ("list", "watch"):
                metrics.count_request(verb, "200")


class Scraper(Simulator):
    """Scrape every minute of virtual time."""

    def __init__(self, load: SimulatedLoad, ebb: ScrapedEbb, peers: Peers, keep: str) -> None:
        """*keep*: regular expression of the names to keep."""
        super().__init__(load, WHOLE.scale_down, ebb, 1, SimulatorOptions(WHOLE.options.profile))
        self._ebb, self._peers, self._keep = ebb, peers, re.compile(keep)
        self.series: Series = {}
        self.scrapes = 0
        self._scaled_down = 0
        self._down: dict[str, int] = {}

    def start(self, restarts_ms: Iterable[int], changes_ms: Iterable[int]) -> Result:
        """Run the load. *restarts_ms*: of the leader; *changes_ms*: of the leader's identity."""
        for at_ms in restarts_ms:
            self._at(at_ms, self._restart)
        for at_ms in changes_ms:
            self._at(at_ms, self._ebb.change_leader)
        self._every(SCRAPE_MS, self._scrape)
        return self.run()

    def end_node(self, name: str) -> None:
        super().end_node(name)
        self._scaled_down += 1

    def _advance(self, at_ms: int) -> None:
        super()._advance(at_ms)
        self._peers.now_seconds = at_ms // 1000

    def _restart(self) -> None:
        self._ebb.restart_leader()
        self._down = {self._ebb._leader: GAP_SCRAPES}

    def _scrape(self) -> None:
        for pod, metrics in self._ebb.programs():
            if self._down.get(pod, 0):
                self._down[pod] -= 1
                continue
            for name, value in samples(metrics, pod, self._keep):
                values = self.series.setdefault(name, [])
                values += [None] * (self.scrapes - len(values))
                values.append(value)
        if self._keep.fullmatch(SCALED_DOWN):
            removed = self.series.setdefault(f'{SCALED_DOWN}{{reason="empty"}}', [])
            removed.append(self._scaled_down)
        self.scrapes += 1


def samples(
    metrics: runtime.metrics.Metrics, pod: str, keep: re.Pattern[str]
) -> Iterator[tuple[str, float]]:
    """Yield the series whose names match, with the labels that a scrape adds."""
    for family in metrics.registry.collect():
        for one in family.samples:
            if keep.fullmatch(one.name):
                labels = {**one.labels, "namespace": "ebb-system", "pod": pod}
                inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
                yield f"{one.name}{{{inner}}}", one.value


def simulated_days(days: int, keep: str, *, priced: bool = False) -> Scraper:
    """Simulate days with a restart and a leader change each; return the scraped series.

    *priced*: whether the configuration has prices.
    """
    load = embedded(seed=3, days=days, at_once=PODS_AT_ONCE)
    load = replace(load, nodes=load.nodes[::6], interval_ms=SCRAPE_MS)
    config = configuration(WHOLE.ebb, None)  # type: ignore[arg-type]
    if priced:
        load, config = _with_prices(load, config)
    view = View(config.extender, TAINT_KEY)
    peers = Peers(view, config)
    ebb = ScrapedEbb(config, view, peers)
    scraper = Scraper(load, ebb, peers, keep)
    try:
        days_ms = [day * DAY_MS for day in range(days)]
        scraper.start([at + DAY_MS // 3 for at in days_ms], [at + DAY_MS // 2 for at in days_ms])
    finally:
        ebb.close()
    return scraper


def _with_prices(load: SimulatedLoad, config: Config) -> tuple[SimulatedLoad, Config]:
    """Make an instance type with a price of each shape of nodes."""
    groups, prices = {}, []
    for number, template in enumerate(load.templates, 1):
        label = INSTANCE_TYPE, f"type-{number}"
        groups[template.allocatable] = replace(template, labels=dict([label]))
        prices.append(Price(node_selector=(label,), price=CORE_PRICE * in_cores(template)))
    return replace(load, groups=groups), replace(config, prices=tuple(prices))


def written(values: Iterable[float | None]) -> str:
    """Return values in the notation of promtool: equal ones in a row are written once."""
    parts = []
    for value, equal in groupby(values):
        more = len(list(equal)) - 1
        first = "_" if value is None else f"{value:.15g}"
        if not more:
            parts.append(first)
        else:
            parts.append(f"_x{more + 1}" if value is None else f"{first}+0x{more}")
    return " ".join(parts)
