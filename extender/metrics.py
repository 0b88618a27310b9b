"""Define the Prometheus metrics of the extender."""

from runtime import metrics


class Metrics(metrics.WatchMetrics, metrics.TlsMetrics):
    """The Prometheus metrics of the extender, watches and TLS included."""

    def __init__(self) -> None:
        super().__init__()
        self.prioritize = self._counter(
            "ebb_extender_prioritize_requests_total",
            "Prioritize calls of kube-scheduler by result: `scored`; `neutral`, all nodes got the "
            "same score, because the view of the cluster was too old; `refused`, the call got no "
            "scores, because it was invalid, not allowed or cancelled.",
            result=("scored", "neutral", "refused"),
        )
        self.prioritize_seconds = self._histogram(
            "ebb_extender_prioritize_duration_seconds",
            "Time from the body of a prioritize call to its answer, including the time for which "
            "earlier calls of the same client delay it.",
            metrics.SECONDS_BUCKETS,
        )
        self.last_prioritize = self._gauge(
            "ebb_extender_last_prioritize_timestamp_seconds",
            "Time of the last prioritize call; 0 before the first one.",
        )
