"""Prometheus metrics of the extender."""

from prometheus_client import Histogram

from core.edge import metrics


class Metrics(metrics.WatchMetrics, metrics.TlsMetrics):
    """The metrics of the extender."""

    def __init__(self) -> None:
        super().__init__()
        self.prioritize = self._counter(
            "ebb_extender_prioritize_requests_total",
            "Prioritize calls by kube-scheduler.",
            outcome=("scored", "neutral", "refused"),
        )
        self.prioritize_seconds = Histogram(
            "ebb_extender_prioritize_duration_seconds",
            "Time from the body of a prioritize call to its answer, with the peer's rate limit.",
            buckets=metrics.SECONDS_BUCKETS,
            registry=self.registry,
        )
