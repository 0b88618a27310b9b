"""Prometheus series of the extender."""

from prometheus_client import Histogram

from core.edge import metrics


class Metrics(metrics.WatchMetrics, metrics.TlsMetrics):
    """The series of the extender."""

    def __init__(self) -> None:
        super().__init__()
        self.prioritize = self._counter(
            "ebb_extender_prioritize_requests_total",
            "Prioritize calls by kube-scheduler.",
            outcome=("scored", "neutral", "refused"),
        )
        self.prioritize_seconds = Histogram(
            "ebb_extender_prioritize_duration_seconds",
            "Time from a prioritize call's body to its answer, with the wait for its turn.",
            buckets=metrics.SECONDS_BUCKETS,
            registry=self.registry,
        )
