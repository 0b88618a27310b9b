"""Prometheus series of the controller."""

from collections import Counter as Count
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Histogram

from controller.stores.evictions import Outcome
from core.capacity.sums import RESOURCE_NAMES
from core.edge import metrics
from core.edge.metrics import MetricCollector, ReportedGauge, Samples
from core.engine.plan import ReachSums, tightest
from core.engine.reconcile import PassResult
from core.model.resources import Resources
from core.policies.all import POLICIES
from core.writes.costs import pods_of_other_writers
from core.writes.write import CostKind, WriteKind


def _kept(found: PassResult) -> Samples:
    codes = ({one.code for one in kept.blockers} for kept in found.plan.kept)
    return {**Count((code,) for node in codes for code in node)}


def _by_resource(of: Callable[[ReachSums], Iterable[float]]) -> Callable[[PassResult], Samples]:
    return lambda found: {
        (one.name, resource): value
        for one in tightest(found.plan.reaches)
        for resource, value in zip(RESOURCE_NAMES, of(one), strict=True)
    }


def _shares(one: ReachSums) -> Iterable[float]:
    parts = zip(one.before.requests, one.before.usable, strict=True)
    return (used / whole if whole else 0 for used, whole in parts)


def _reserved(found: PassResult) -> Samples:
    """Return what all reserved nodes offer: cores, bytes."""
    names = {held.node for held in found.plan.reserve}
    nodes = (node for node in found.snapshot.cluster.nodes if node.name in names)
    offered = Resources.total(node.allocatable for node in nodes)
    return {("cpu",): offered.cpu_millis / 1000, ("memory",): offered.memory_bytes}


def _new_nodes(found: PassResult) -> Samples:
    seconds = found.state.provisioning_times.seconds
    reaches = (one for one in tightest(found.plan.reaches) if one.key in seconds)
    return {(one.name,): seconds[one.key] for one in reaches}


def _buffered(found: PassResult) -> Samples:
    buffers = found.plan.buffers
    return {
        ("asked",): sum(one.asked for one in buffers),
        ("allowed",): sum(one.allowed for one in buffers),
        ("kept",): sum(one.placed for one in buffers),
    }


def _published(namespace: str) -> Callable[[PassResult], Samples]:
    """Return what tells of Ebb's buffers: others may bear its label, in other namespaces."""

    def told(found: PassResult) -> Samples:
        ours = [one for one in found.snapshot.cluster.buffers if one.namespace == namespace]
        return {
            ("asked",): sum(one.published or 0 for one in ours),
            ("accepted",): sum(one.accepted for one in ours),
            ("ready",): sum(min(one.ready, one.accepted) for one in ours),
        }

    return told


def _figures(gauge: str) -> Callable[[PassResult], Samples]:
    """Return the values of a policy's gauge; none while another policy is in use."""
    return lambda found: {
        one.labels: float(one.value) for one in found.plan.figures if one.gauge == gauge
    }


OF_A_PASS: Final[tuple[ReportedGauge[PassResult], ...]] = (
    ReportedGauge(
        "ebb_engine_marked_nodes",
        "Nodes that carry a mark.",
        (),
        lambda found: {(): len(found.snapshot.marks)},
    ),
    ReportedGauge(
        "ebb_engine_removable_nodes",
        "Nodes that the last plan would let go.",
        (),
        lambda found: {(): len(found.plan.removals)},
    ),
    ReportedGauge(
        "ebb_engine_kept_nodes",
        "Nodes that stay, by reason; a node with several reasons counts in each.",
        ("reason",),
        _kept,
    ),
    ReportedGauge(
        "ebb_engine_reserved_nodes",
        "Empty nodes that are not handed over: room is kept there for pods to be expected.",
        (),
        lambda found: {(): len(found.plan.reserve)},
    ),
    ReportedGauge(
        "ebb_engine_held_nodes",
        "Nodes without a mark that no autoscaler is to take, as Ebb has not handed them over.",
        (),
        lambda found: {(): len(found.plan.held)},
    ),
    ReportedGauge(
        "ebb_engine_next_in_line_nodes",
        "Unmarked nodes whose pods scale-ins delete next; needs `podDeletionCost`.",
        (),
        lambda found: {(): len(found.state.scale_in_targets)},
    ),
    ReportedGauge(
        "ebb_engine_reserved_allocatable",
        "What the nodes of `ebb_engine_reserved_nodes` offer together: cores, bytes.",
        ("resource",),  # cpu | memory
        _reserved,
    ),
    ReportedGauge(
        "ebb_engine_new_node_seconds",
        "How long pods of a reach have waited for nodes that came, as the reserve counts it.",
        ("reach",),
        _new_nodes,
    ),
    ReportedGauge(
        "ebb_engine_buffer_pods",
        "Pods of others' CapacityBuffers: asked for, allowed of these, and kept room for.",
        ("state",),  # asked | allowed | kept
        _buffered,
    ),
    ReportedGauge(
        "ebb_engine_buffers_ignored",
        "CapacityBuffers of others that count for nothing, as `ebb status` says why.",
        (),
        lambda found: {(): sum(bool(one.fault) for one in found.plan.buffers)},
    ),
    ReportedGauge(
        "ebb_engine_foreign_cost_pods",
        "Pods whose deletion cost another controller writes, so that Ebb cannot steer scale-ins.",
        (),
        lambda found: {(): len(pods_of_other_writers(found.snapshot.cluster))},
    ),
    ReportedGauge(
        "ebb_engine_deferred_resizes",
        "Pods that a kubelet will resize when their node has room.",
        (),
        lambda found: {(): sum(one.ties.resize_deferred for one in found.snapshot.cluster.pods)},
    ),
    # The names of reaches can hold words of whoever labels nodes: how many there are is bounded by
    # core.engine.plan.REACHES_SHOWN, their length by core.capacity.reaches.
    ReportedGauge(
        "ebb_reach_nodes",
        "Nodes of a reach that take pods.",
        ("reach",),
        lambda found: {(one.name,): one.before.nodes for one in tightest(found.plan.reaches)},
    ),
    ReportedGauge(
        "ebb_reach_requests_ratio",
        "Requests over usable capacity of a reach.",
        ("reach", "resource"),  # cpu | memory
        _by_resource(_shares),
    ),
    ReportedGauge(
        "ebb_reach_threshold_ratio",
        "Above this requests over usable capacity let no unmarked node of the reach go.",
        ("reach", "resource"),
        _by_resource(lambda one: map(float, one.enter)),
    ),
    *(
        ReportedGauge(one.name, one.help, one.labels, _figures(one.name))
        for policy in POLICIES.values()
        for one in policy.gauges
    ),
)
"""What each pass tells: another one is an entry here, or in its policy."""


class Metrics(metrics.WatchMetrics, metrics.EventMetrics):
    """The series of the controller."""

    def __init__(self, namespace: str = "") -> None:
        """*namespace*: where the buffers are that Ebb writes; empty: nowhere."""
        super().__init__()
        self.leads: Callable[[], bool] = lambda: True
        """Whether this replica does; what a leader has seen is told no longer than it leads."""
        published = ReportedGauge(
            "ebb_published_pods",
            "Pods that Ebb asks autoscalers to keep room for, those that one has accepted, and "
            "those that it reports room for.",
            ("state",),  # asked | accepted | ready
            _published(namespace),
        )
        holds = lambda: self.leads()  # noqa: E731, PLW0108 it is said later who says it
        self.of_a_pass: MetricCollector[PassResult] = MetricCollector(
            *OF_A_PASS, published, holds=holds
        )
        self.registry.register(self.of_a_pass)
        self.leading = self._gauge("ebb_leader", "1 while this replica runs the engine.")
        self.clock_off = self._gauge(
            "ebb_clock_off_seconds",
            "By how much the wall clock is ahead of the time that is judged by: it has jumped.",
        )
        self.view_age = self._gauge(
            "ebb_view_age_seconds",
            "How long ago there was news of the resource; an old view is not judged.",
            "resource",
        )
        self._engine()
        self.config_good = self._gauge(
            "ebb_config_last_reload_successful",
            "1 if the configuration file was good when it was last read.",
        )
        self.config_good.set(1)  # or the program would not run
        self.config_since = self._gauge(
            "ebb_config_last_reload_success_timestamp_seconds",
            "When the configuration in use was read.",
        )

    def _engine(self) -> None:
        self.writes = self._counter(
            "ebb_engine_writes_total",
            "Writes to Nodes by kind.",
            kind=(*WriteKind, "outdated", "dropped", "failed"),
        )
        self.pod_writes = self._counter(
            "ebb_engine_pod_writes_total",
            "Writes of deletion costs to Pods by kind.",
            kind=(*CostKind, "outdated", "failed"),
        )
        self.evictions = self._counter(
            "ebb_engine_evictions_total",
            "Evictions of pods of marked nodes by outcome.",
            outcome=tuple(Outcome),
        )
        self.drain_failures = self._counter(
            "ebb_engine_drain_failures_total",
            "Drains that failed, by the reason of the node or of a pod that could not go.",
            reason=(),  # a code of docs/reasons.md
        )
        self.eviction_forbidden = self._gauge(
            "ebb_engine_eviction_forbidden",
            "1 if pods are to be evicted and the program has no right to.",
        )
        self.passes = self._counter(
            "ebb_engine_passes_total",
            "Passes of the engine; one that follows no change is skipped.",
            result=("judged", "skipped"),
        )
        self.pass_seconds = Histogram(
            "ebb_engine_pass_duration_seconds",
            "Time of one pass of the engine.",
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=self.registry,
        )
        self.pass_failures = self._counter(
            "ebb_engine_pass_failures_total",
            "Passes of the engine that ended with an exception; the log has it.",
        )
        self.pass_timeouts = self._counter(
            "ebb_engine_pass_timeouts_total",
            "Passes of the engine that ran out of time before they had judged every node.",
        )
