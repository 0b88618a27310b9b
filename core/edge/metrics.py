"""Prometheus series that several programs share, and types for the series of each program.

A program has one registry with its own series only. All label sets are closed.
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
"""By the values of the labels."""


class Metrics:
    """The registry of one program and the series that every program has."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, registry=self.registry)

    def _counter(self, name: str, what: str, **labels: Iterable[str]) -> Counter:
        """Return a counter; the values of its label that are named are told from 0 on."""
        made = Counter(name, what, tuple(labels), registry=self.registry)
        for label, values in labels.items():
            for value in values:
                made.labels(**{label: value})
        return made

    def text(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return generate_latest(self.registry)


class WatchMetrics(Metrics):
    """The series of a program that watches the API server."""

    def __init__(self) -> None:
        super().__init__()
        self.watch_restarts = self._counter(
            "ebb_watch_restarts_total",
            "Watches of the API server that ended other than by their time.",
            resource=(),
            reason=(),  # expired | throttled | error | timeout
        )
        self.refused_objects = self._counter(
            "ebb_refused_objects_total",
            "Objects of the API server that could not be read.",
            resource=(),
        )
        self.unreadable_objects = self._gauge(
            "ebb_unreadable_objects",
            "Objects of the API server that cannot be read now; a Node stays, and that of a pod.",
            "resource",
        )


class TlsMetrics(Metrics):
    """The series of a program that serves TLS."""

    def __init__(self) -> None:
        super().__init__()
        self.handshake_failures = self._counter(
            "ebb_tls_handshake_failures_total",
            "TLS handshakes with callers that failed.",
            reason=(),  # certificate | protocol | connection
        )
        self.certificate_until = self._gauge(
            "ebb_serving_certificate_expiration_timestamp_seconds",
            "When the certificate that is served ends; 0: none is served.",
        )


class EventMetrics(Metrics):
    """The series of a program that writes Events."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_events = self._counter(
            "ebb_lost_events_total", "Events that could not be written."
        )


class ReportedGauge(NamedTuple, Generic[Seen_]):
    """A gauge of what has been seen."""

    name: str
    what: str
    labels: tuple[str, ...]
    of: Callable[[Seen_], Samples]


class MetricCollector(Collector, Generic[Seen_]):
    """Gauges that are told at once: a scrape sees all of one telling, and nothing between two."""

    def __init__(
        self, *gauges: ReportedGauge[Seen_], holds: Callable[[], bool] = lambda: True
    ) -> None:
        """Tell of nothing yet: gauges without labels are 0.

        *holds*: whether what was told last still does; while not, it is as if nothing had been.
        """
        self._gauges, self._holds = gauges, holds
        self._show({(): 0} if not one.labels else {} for one in gauges)
        self._nothing = self._families

    def tell(self, seen: Seen_) -> None:
        """Replace all."""
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
        """Return what was told last."""
        return self._families if self._holds() else self._nothing
