"""Every series of the project, in one registry of its own; all label sets are closed."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The series; programs touch those that concern them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._extender()
        self._webhook()
        self._replica()
        self._cluster()
        self._engine()
        self._reaches()
        self._settings()

    def text(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return generate_latest(self.registry)

    def _extender(self) -> None:
        self.prioritize = Counter(
            "ebb_extender_prioritize_requests_total",
            "Prioritize calls by kube-scheduler.",
            ("outcome",),  # scored | neutral | refused
            registry=self.registry,
        )
        for outcome in ("scored", "neutral", "refused"):
            self.prioritize.labels(outcome)
        self.prioritize_seconds = Histogram(
            "ebb_extender_prioritize_duration_seconds",
            "Time from a prioritize call's body to its answer.",
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )

    def _webhook(self) -> None:
        self.reviews = Counter(
            "ebb_webhook_reviews_total",
            "Admission reviews of Nodes.",
            ("outcome",),  # patched | unchanged | refused
            registry=self.registry,
        )
        for outcome in ("patched", "unchanged", "refused"):
            self.reviews.labels(outcome)
        self.review_seconds = Histogram(
            "ebb_webhook_review_duration_seconds",
            "Time from a review's body to its answer.",
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )

    def _replica(self) -> None:
        self.leading = Gauge(
            "ebb_leader", "1 while this replica runs the engine.", registry=self.registry
        )
        self.clock_off = Gauge(
            "ebb_clock_off_seconds",
            "By how much the wall clock is ahead of the time that is judged by: it has jumped.",
            registry=self.registry,
        )
        self.view_age = Gauge(
            "ebb_view_age_seconds",
            "How long ago there was news of the resource; an old view is not judged.",
            ("resource",),
            registry=self.registry,
        )
        self.certificate_until = Gauge(
            "ebb_serving_certificate_expiration_timestamp_seconds",
            "When the certificate that is served ends; 0: none is served.",
            registry=self.registry,
        )

    def _reaches(self) -> None:
        # The names can hold words of whoever labels nodes: how many there are is bounded by
        # core.engine.plan.REACHES_SHOWN, their length by core.capacity.reaches.
        self.reach_nodes = Gauge(
            "ebb_reach_nodes",
            "Nodes of a reach that take pods.",
            ("reach",),
            registry=self.registry,
        )
        self.reach_requests = Gauge(
            "ebb_reach_requests_ratio",
            "Requests over usable capacity of a reach.",
            ("reach", "resource"),  # cpu | memory
            registry=self.registry,
        )
        self.reach_threshold = Gauge(
            "ebb_reach_threshold_ratio",
            "Above this requests over usable capacity let no unmarked node of the reach go.",
            ("reach", "resource"),
            registry=self.registry,
        )

    def _settings(self) -> None:
        self.config_good = Gauge(
            "ebb_config_last_reload_successful",
            "1 if the configuration file was good when it was last read.",
            registry=self.registry,
        )
        self.config_since = Gauge(
            "ebb_config_last_reload_success_timestamp_seconds",
            "When the configuration in use was read.",
            registry=self.registry,
        )

    def _cluster(self) -> None:
        self.watch_restarts = Counter(
            "ebb_watch_restarts_total",
            "Watches of the API server that ended other than by their time.",
            ("resource", "reason"),  # expired | throttled | error | timeout
            registry=self.registry,
        )
        self.refused_objects = Counter(
            "ebb_refused_objects_total",
            "Objects of the API server that could not be read.",
            ("resource",),
            registry=self.registry,
        )
        self.unreadable_objects = Gauge(
            "ebb_unreadable_objects",
            "Objects of the API server that cannot be read now; each keeps its own node.",
            ("resource",),
            registry=self.registry,
        )

    def _engine(self) -> None:
        self.writes = Counter(
            "ebb_engine_writes_total",
            "Writes to Nodes by kind.",
            ("kind",),  # mark | release | guard | unguard | ... | outdated | dropped | failed
            registry=self.registry,
        )
        self.pod_writes = Counter(
            "ebb_engine_pod_writes_total",
            "Writes of deletion costs to Pods by kind.",
            ("kind",),  # set | clear | outdated | failed
            registry=self.registry,
        )
        for kind in ("set", "clear", "outdated", "failed"):
            self.pod_writes.labels(kind)
        self.lost_events = Counter(
            "ebb_lost_events_total", "Events that could not be written.", registry=self.registry
        )
        self.marked_nodes = Gauge(
            "ebb_engine_marked_nodes", "Nodes that carry a mark.", registry=self.registry
        )
        self.removable_nodes = Gauge(
            "ebb_engine_removable_nodes",
            "Nodes that the last plan would let go.",
            registry=self.registry,
        )
        self.kept_nodes = Gauge(
            "ebb_engine_kept_nodes",
            "Nodes that stay, by reason; a node with several reasons counts in each.",
            ("reason",),
            registry=self.registry,
        )
        self._passes()

    def _passes(self) -> None:
        self.passes = Counter(
            "ebb_engine_passes_total",
            "Passes of the engine; one that follows no change is skipped.",
            ("result",),  # judged | skipped
            registry=self.registry,
        )
        for result in ("judged", "skipped"):
            self.passes.labels(result)
        self.pass_seconds = Histogram(
            "ebb_engine_pass_duration_seconds",
            "Time of one pass of the engine.",
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=self.registry,
        )
        self.pass_failures = Counter(
            "ebb_engine_pass_failures_total",
            "Passes of the engine that ended with an exception; the log has it.",
            registry=self.registry,
        )
        self.pass_timeouts = Counter(
            "ebb_engine_pass_timeouts_total",
            "Passes of the engine that ran out of time before they had judged every node.",
            registry=self.registry,
        )
