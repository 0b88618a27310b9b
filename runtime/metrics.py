"""Define Prometheus metrics that several programs share, and base types for a program's metrics.

Each program has one registry. Labels have a bounded number of values.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import product
from typing import Final, Generic, NamedTuple, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from runtime.version import ebb_version

SECONDS_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Histogram buckets of requests that a program answers, seconds."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Stability(StrEnum):
    """Stability level of a metric, as in Kubernetes; docs/support-policy.md explains them."""

    ALPHA = "ALPHA"
    BETA = "BETA"


BETA: Final = frozenset(
    {
        "ebb_build_info",
        "ebb_config_last_reload_successful",
        "ebb_evictions_total",
        "ebb_leader",
        "ebb_marked_nodes",
        "ebb_node_writes_total",
        "ebb_reconcile_duration_seconds",
        "ebb_reconcile_errors_total",
        "ebb_reconcile_total",
        "ebb_removable_nodes",
        "ebb_serving_certificate_expiration_timestamp_seconds",
        "ebb_surge_moves_total",
        "ebb_unremovable_nodes",
        "ebb_watch_age_seconds",
        "ebb_webhook_reviews_total",
    }
)
"""Metrics with the level BETA; all others are ALPHA."""


def stability_of(name: str) -> Stability:
    """Return the stability level of a metric."""
    return Stability.BETA if name in BETA else Stability.ALPHA


def help_text(name: str, meaning: str) -> str:
    """Return the HELP text of the metric *name*: its stability level, then its meaning."""
    return f"[{stability_of(name)}] {meaning}"


# The text format exports the creation time of each counter and histogram as a gauge of its own,
# which nearly doubles the number of series. All counters of a program start with the process, and
# process_start_time_seconds is exported anyway.
disable_created_metrics()  # type: ignore[no-untyped-call]

Report = TypeVar("Report")
Samples = dict[tuple[str, ...], float]
"""Values of a gauge by its label values."""


class Metrics:
    """A Prometheus registry with the metrics that every program has.

    They are the version of Ebb, and metrics of the process and of Python's garbage collector.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.build_info = self._gauge(
            "ebb_build_info", "1; the label has the version of the program.", "version"
        )
        self.build_info.labels(ebb_version()).set(1)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, help_text(name, meaning), labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        text = help_text(name, meaning)
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, meaning: str, **labels: Iterable[str]) -> Counter:
        """Return a new counter that exports every combination of the given label values from 0 on.

        *labels*: all known values of each label, by its name; empty if they are not known.
        """
        # rate() and increase() do not see the first increment of a series that starts with it.
        text = help_text(name, meaning)
        counter = Counter(name, text, tuple(labels), registry=self.registry)
        if labels:
            for values in product(*labels.values()):
                counter.labels(*values)
        return counter

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class ApiMetrics(Metrics):
    """The metrics of a program that calls the API server."""

    def __init__(self) -> None:
        super().__init__()
        self.api_requests = self._counter(
            "ebb_api_requests_total",
            "Requests to the API server by verb and by the HTTP status of the answer; `error`: no "
            "answer. Each try counts.",
            verb=(),
            code=(),
        )

    def count_request(self, verb: str, code: str) -> None:
        """Count a request to the API server; *code*: HTTP status, or `error` without an answer."""
        self.api_requests.labels(verb, code).inc()


class WatchMetrics(ApiMetrics):
    """The metrics of a program that watches the API server: age and restarts of its watches."""

    def __init__(self) -> None:
        super().__init__()
        self.watch_age = self._gauge(
            "ebb_watch_age_seconds",
            "Time since the API server last sent a list, an event or a bookmark of the resource. "
            "The controller does not reconcile while the age of a resource that it needs exceeds "
            "3 minutes.",
            "resource",
        )
        self.watch_restarts = self._counter(
            "ebb_watch_restarts_total",
            "Watches of the API server that ended before their timeout.",
            resource=(),
            reason=(),  # expired | restored | throttled | error | timeout
        )
        self.decode_errors = self._counter(
            "ebb_decode_errors_total",
            "Objects from the API server that could not be decoded.",
            resource=(),
        )
        self.unreadable_objects = self._gauge(
            "ebb_unreadable_objects",
            "Objects in the cluster that cannot be decoded. Ebb does not mark such Nodes, nor "
            "the Nodes of such Pods.",
            "resource",
        )


class TlsMetrics(Metrics):
    """The metrics of a program that serves TLS: failed handshakes, end of the certificate."""

    def __init__(self) -> None:
        super().__init__()
        self.handshake_failures = self._counter(
            "ebb_tls_handshake_failures_total",
            "Failed TLS handshakes with clients.",
            reason=(),  # certificate | protocol | connection
        )
        self.certificate_until = self._gauge(
            "ebb_serving_certificate_expiration_timestamp_seconds",
            "Expiration time of the serving certificate; 0 if there is no certificate.",
        )


class EventMetrics(Metrics):
    """The metrics of a program that writes Events."""

    def __init__(self) -> None:
        super().__init__()
        self.event_write_failures = self._counter(
            "ebb_event_write_failures_total", "Events that could not be written."
        )


class ReportedGauge(NamedTuple, Generic[Report]):
    """The definition of a Prometheus gauge that is computed from an object, the report."""

    name: str
    meaning: str
    """Help text of the metric."""
    labels: tuple[str, ...]
    compute: Callable[[Report], Samples]
    """Returns the values of the gauge for a report."""
    initial: Samples | None = None
    """Values while there is no valid report; None: 0 without labels, no values with labels."""

    @property
    def before_report(self) -> Samples:
        """Return the values while there is no valid report."""
        if self.initial is not None:
            return self.initial
        return {} if self.labels else {(): 0}


class MetricCollector(Collector, Generic[Report]):
    """A Prometheus collector of gauges that are computed from one object, the report.

    So no scrape mixes the values of two reports.
    """

    def __init__(
        self, *gauges: ReportedGauge[Report], is_valid: Callable[[], bool] = lambda: True
    ) -> None:
        """Create a collector of *gauges*, with their initial values until the first report.

        *is_valid*: returns whether the last report is valid; if not, the gauges have their initial
        values.
        """
        self.gauges, self._is_valid = gauges, is_valid
        self._initial = self._families_of(gauge.before_report for gauge in gauges)
        self._families = self._initial

    def report(self, report: Report) -> None:
        """Replace the values of all gauges by values computed from a new report."""
        self._families = self._families_of(gauge.compute(report) for gauge in self.gauges)

    def _families_of(self, samples: Iterable[Samples]) -> tuple[GaugeMetricFamily, ...]:
        families = []
        for gauge, values_by_labels in zip(self.gauges, samples, strict=True):
            text = help_text(gauge.name, gauge.meaning)
            family = GaugeMetricFamily(gauge.name, text, labels=gauge.labels)
            for values, value in values_by_labels.items():
                family.add_metric(values, value)
            families.append(family)
        return tuple(families)

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of the last report; with initial values if it is not valid."""
        return self._families if self._is_valid() else self._initial
