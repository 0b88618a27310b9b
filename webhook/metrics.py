"""Prometheus series of the webhook."""

from prometheus_client import Histogram

from core.edge import metrics


class Metrics(metrics.TlsMetrics, metrics.EventMetrics):
    """The series of the webhook."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews = self._counter(
            "ebb_webhook_reviews_total",
            "Admission reviews of Nodes.",
            outcome=("patched", "unchanged", "refused"),
        )
        self.ca_bundle_repairs = self._counter(
            "ebb_webhook_ca_bundle_repairs_total",
            "How often a replica restored its CA in a caBundle after another writer removed it.",
        )
        self.review_seconds = Histogram(
            "ebb_webhook_review_duration_seconds",
            "Time from a review's body to its answer.",
            buckets=metrics.SECONDS_BUCKETS,
            registry=self.registry,
        )
