"""Define the Prometheus metrics of the webhook."""

from runtime import metrics


class Metrics(metrics.ApiMetrics, metrics.TlsMetrics, metrics.EventMetrics):
    """The Prometheus metrics of the webhook, API requests, TLS and Events included."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews = self._counter(
            "ebb_webhook_reviews_total",
            "Admission reviews of Nodes by result: `patched`, the webhook changed the taints; "
            "`unchanged`; `refused`, the body was no valid review.",
            result=("patched", "unchanged", "refused"),
        )
        self.ca_bundle_repairs = self._counter(
            "ebb_webhook_ca_bundle_repairs_total",
            "Number of times a replica restored Ebb's CA in a caBundle after another writer had "
            "removed it.",
        )
        self.review_seconds = self._histogram(
            "ebb_webhook_review_duration_seconds",
            "Time from the body of an admission review to its answer.",
            metrics.SECONDS_BUCKETS,
        )
        self.ca_until = self._gauge(
            "ebb_webhook_ca_expiration_timestamp_seconds",
            "Expiration time of the CA that signed the serving certificate; 0 if Ebb does not "
            "manage the CA.",
        )
