"""Prometheus metrics that several programs share, and types for metrics of a program.

Each program has one registry. All sets of labels are closed.
"""

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

SECONDS_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Seen_ = TypeVar("Seen_")
Samples = dict[tuple[str, ...], float]
"""Values by the values of the labels."""


class Metrics:
    """The registry of a program, with the metrics of every program."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, registry=self.registry)

    def _counter(self, name: str, what: str, **labels: Iterable[str]) -> Counter:
        """Return a counter; the given label values are exported from the start, as 0."""
        made = Counter(name, what, tuple(labels), registry=self.registry)
        for label, values in labels.items():
            for value in values:
                made.labels(**{label: value})
        return made

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class WatchMetrics(Metrics):
    """Metrics of a program that watches the API server."""

    def __init__(self) -> None:
        super().__init__()
        self.watch_restarts = self._counter(
            "ebb_watch_restarts_total",
            "Watches of the API server that ended before their timeout.",
            resource=(),
            reason=(),  # expired | restored | throttled | error | timeout
        )
        self.refused_objects = self._counter(
            "ebb_refused_objects_total",
            "Objects from the API server that could not be decoded.",
            resource=(),
        )
        self.unreadable_objects = self._gauge(
            "ebb_unreadable_objects",
            "API objects that cannot be decoded now; such Nodes and Nodes of such Pods are not "
            "marked.",
            "resource",
        )


class TlsMetrics(Metrics):
    """Metrics of a program that serves TLS."""

    def __init__(self) -> None:
        super().__init__()
        self.handshake_failures = self._counter(
            "ebb_tls_handshake_failures_total",
            "Failed TLS handshakes with callers.",
            reason=(),  # certificate | protocol | connection
        )
        self.certificate_until = self._gauge(
            "ebb_serving_certificate_expiration_timestamp_seconds",
            "Expiration time of the serving certificate; 0 if there is none.",
        )


class EventMetrics(Metrics):
    """Metrics of a program that writes Events."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_events = self._counter(
            "ebb_lost_events_total", "Events that could not be written."
        )


class ReportedGauge(NamedTuple, Generic[Seen_]):
    """A gauge that is computed from a reported value."""

    name: str
    what: str
    labels: tuple[str, ...]
    of: Callable[[Seen_], Samples]


class MetricCollector(Collector, Generic[Seen_]):
    """Gauges that change together: a scrape sees one report completely."""

    def __init__(
        self, *gauges: ReportedGauge[Seen_], holds: Callable[[], bool] = lambda: True
    ) -> None:
        """Start without a report; gauges without labels are 0.

        *holds*: returns whether the last report is still valid; if not, the gauges show no report.
        """
        self._gauges, self._holds = gauges, holds
        self._show({(): 0} if not one.labels else {} for one in gauges)
        self._nothing = self._families

    def tell(self, seen: Seen_) -> None:
        """Replace all values."""
        self._show(one.of(seen) for one in self._gauges)

    def _show(self, samples: Iterable[Samples]) -> None:
        families = []
        for one, found in zip(self._gauges, samples, strict=True):
            family = GaugeMetricFamily(one.name, one.what, labels=one.labels)
            for values, value in found.items():
                family.add_metric(values, value)
            families.append(family)
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of the last report."""
        return self._families if self._holds() else self._nothing
