"""Define the Prometheus metrics of the controller."""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

from controller.figures.figures import Figures
from controller.figures.marks import AGAIN_SECONDS
from controller.figures.pending import Cause
from controller.figures.pools import PlannedNodeState, PoolFigures
from controller.figures.savings import CREDIT_SECONDS_MAX
from core.eligibility.scalability import OTHER
from core.engine.plan import ReachSums, ReserveCause, tightest
from core.engine.protection import kept_empty_nodes
from core.engine.reconcile import ReconcileResult
from core.history.days import DAY_SECONDS, MONTH_DAYS, PoolDay
from core.history.today import REMOVED_MAX, RemovedNode, Today
from core.marks.mark import Mark
from core.model.errors import ConflictError
from core.model.resources import Resources
from core.moves.outcomes import MoveOutcome
from core.placement.reach_utilization import RESOURCE_NAMES
from core.placement.usable_capacity import Amount
from core.policies.all import POLICIES
from core.writes.costs import pods_of_other_writers
from core.writes.write import CostKind, WriteKind
from kube.stores.evictions import EvictionResult
from runtime import metrics
from runtime.metrics import MetricCollector, ReportedGauge, Samples


class WriteResult(StrEnum):
    """The result of a write to a Node or Pod; a value of a metric label."""

    SUCCESS = "success"
    CONFLICT = "conflict"
    """The object has changed since the decision. The next reconciliation decides again."""
    DROPPED = "dropped"
    """The write was not sent, because the plan might be outdated. The next reconciliation decides
    again."""
    ERROR = "error"
    """The API server refused the write or did not answer."""

    @classmethod
    def of(cls, fault: Exception) -> "WriteResult":
        """Return CONFLICT or ERROR for a write that raised the exception *fault*."""
        return cls.CONFLICT if isinstance(fault, ConflictError) else cls.ERROR


def _marked(result: ReconcileResult) -> Samples:
    marks = Count(existing.mark for existing in result.snapshot.marks.values())
    return {(mark.value,): marks[mark] for mark in Mark}


def _unremovable(result: ReconcileResult) -> Samples:
    codes = ({blocker.code for blocker in node.blockers} for node in result.plan.kept)
    return {**Count((code,) for of_node in codes for code in of_node)}


def _by_resource(
    values_of: Callable[[ReachSums], Iterable[tuple[str, float]]],
) -> Callable[[ReconcileResult], Samples]:
    return lambda result: {
        (reach.name, resource): value
        for reach in tightest(result.plan.reaches)
        for resource, value in values_of(reach)
    }


def _request_ratios(reach: ReachSums) -> Iterable[tuple[str, float]]:
    sums = zip(RESOURCE_NAMES, reach.before.requests, reach.before.usable, strict=True)
    devices = ((device.resource, *device.before) for device in reach.devices)
    for resource, requested, usable in (*sums, *devices):
        yield resource, requested / usable if usable else 0


def _thresholds(reach: ReachSums) -> Iterable[tuple[str, float]]:
    yield from zip(RESOURCE_NAMES, map(float, reach.enter), strict=True)
    yield from ((device.resource, float(device.enter)) for device in reach.devices)


def _cpu_and_memory(cpu_cores: float, memory_bytes: int) -> Samples:
    return {("cpu", "core"): cpu_cores, ("memory", "byte"): memory_bytes}


def _by_pool(amount_of: Callable[[PoolFigures], Amount]) -> Callable[[Figures], Samples]:
    def samples(figures: Figures) -> Samples:
        amounts = ((name, amount_of(pool)) for name, pool in figures.pools.items())
        return {
            (name, *labels): value
            for name, amount in amounts
            for labels, value in _cpu_and_memory(
                amount.cpu_millis / 1000, amount.memory_bytes
            ).items()
        }

    return samples


def _nodes_by_state(figures: Figures) -> Samples:
    pools = figures.pools.items()
    return {
        (name, state): pool.states[state] for name, pool in pools for state in PlannedNodeState
    }


def _reserved_cost(result: ReconcileResult) -> Samples:
    kept, snapshot = kept_empty_nodes(result.snapshot, result.plan), result.snapshot
    costs = dict.fromkeys(ReserveCause, Fraction(0))
    for node in snapshot.cluster.nodes:
        if (cause := kept.get(node.name)) is not None:
            costs[cause] += snapshot.config.price_of(node.labels)
    return {(cause.value,): float(price) for cause, price in costs.items()}


def _reserved_nodes(result: ReconcileResult) -> Samples:
    counts = Count(kept_empty_nodes(result.snapshot, result.plan).values())
    return {(cause.value,): counts[cause] for cause in ReserveCause}


def _reserved_allocatable(result: ReconcileResult) -> Samples:
    names = {reserved.node for reserved in result.plan.reserve}
    nodes = (node for node in result.snapshot.cluster.nodes if node.name in names)
    total = Resources.total(node.allocatable for node in nodes)
    return _cpu_and_memory(total.cpu_millis / 1000, total.memory_bytes)


def _provisioning_seconds(result: ReconcileResult) -> Samples:
    seconds = result.state.provisioning_times.seconds
    reaches = (reach for reach in tightest(result.plan.reaches) if reach.key in seconds)
    return {(reach.name,): seconds[reach.key] for reach in reaches}


def _policy_values(gauge: str) -> Callable[[ReconcileResult], Samples]:
    """Return a function that reads the values of a policy's *gauge* from a reconciliation.

    The function returns no values while another policy is in use.
    """
    return lambda result: {
        value.labels: float(value.value) for value in result.plan.figures if value.gauge == gauge
    }


RECONCILIATION_GAUGES: Final[tuple[ReportedGauge[ReconcileResult], ...]] = (
    ReportedGauge(
        "ebb_marked_nodes",
        "Marked nodes by the effect of their taint.",
        ("effect",),
        _marked,
        {(mark.value,): 0 for mark in Mark},
    ),
    ReportedGauge(
        "ebb_removable_nodes",
        "Nodes that the latest plan can remove, marked nodes included.",
        (),
        lambda result: {(): len(result.plan.removals)},
    ),
    ReportedGauge(
        "ebb_unremovable_nodes",
        "Nodes that cannot be removed, by reason. A node with several reasons counts once for "
        "each.",
        ("reason",),
        _unremovable,
    ),
    ReportedGauge(
        "ebb_schedule_open",
        "1 if marks, surge moves and evictions may begin; 0 while `schedule`, `pauseUntil` or a "
        "refused write to a Node forbids it.",
        (),
        lambda result: {(): not result.rate_limits.beginning.blockers},
    ),
    ReportedGauge(
        "ebb_unmarked_protected_nodes",
        "Unmarked nodes that Ebb protects from the autoscaler's scale-down.",
        (),
        lambda result: {(): len(result.plan.protected)},
    ),
    ReportedGauge(
        "ebb_scale_in_target_nodes",
        "Unmarked nodes whose pods have a low pod deletion cost, so that scale-ins delete these "
        "pods after the pods on marked nodes. Requires `podDeletionCost`.",
        (),
        lambda result: {(): len(result.state.scale_in_targets)},
    ),
    ReportedGauge(
        "ebb_reserved_nodes",
        "Empty nodes whose scale-down Ebb does not allow, because pods may need them, by cause.",
        ("cause",),
        _reserved_nodes,
        {(cause.value,): 0 for cause in ReserveCause},
    ),
    ReportedGauge(
        "ebb_reserved_cost",
        "Price of the reserved nodes for an hour, in the unit of `prices`.",
        ("cause",),
        _reserved_cost,
        {(cause.value,): 0 for cause in ReserveCause},
    ),
    ReportedGauge(
        "ebb_reserved_allocatable",
        "Allocatable resources of the reserved nodes.",
        ("resource", "unit"),
        _reserved_allocatable,
        _cpu_and_memory(0, 0),
    ),
    ReportedGauge(
        "ebb_node_provisioning_seconds",
        "Median time from the moment a pod became unschedulable until it was bound to a new node, "
        "by reach. If it is longer than `reserve.window`, the reserve uses this time instead, up "
        "to 15m.",
        ("reach",),
        _provisioning_seconds,
    ),
    # The next three include each other, so they are no values of one label: a sum over such a
    # label would mean nothing.
    ReportedGauge(
        "ebb_capacity_buffer_requested_pods",
        "Pods that CapacityBuffers request, except for Ebb's own CapacityBuffers.",
        (),
        lambda result: {(): sum(buffer.asked for buffer in result.plan.buffers)},
    ),
    ReportedGauge(
        "ebb_capacity_buffer_allowed_pods",
        "Pods that CapacityBuffers request, up to half of the capacity of the nodes that they "
        "can use.",
        (),
        lambda result: {(): sum(buffer.allowed for buffer in result.plan.buffers)},
    ),
    ReportedGauge(
        "ebb_capacity_buffer_reserved_pods",
        "Pods that CapacityBuffers request and for which Ebb keeps room.",
        (),
        lambda result: {(): sum(buffer.placed for buffer in result.plan.buffers)},
    ),
    ReportedGauge(
        "ebb_ignored_capacity_buffers",
        "CapacityBuffers that Ebb ignores; `ebb status` shows why.",
        (),
        lambda result: {(): sum(bool(buffer.fault) for buffer in result.plan.buffers)},
    ),
    ReportedGauge(
        "ebb_foreign_cost_pods",
        "Pods whose pod deletion cost is written by another controller, so that Ebb cannot decide "
        "which of them a scale-in deletes.",
        (),
        lambda result: {
            (): len(
                pods_of_other_writers(
                    chain(result.snapshot.pod_index.untypical, result.snapshot.pod_index.pending)
                )
            )
        },
    ),
    ReportedGauge(
        "ebb_deferred_resize_pods",
        "Pods with an in-place resize that the kubelet has deferred until the node has room.",
        (),
        lambda result: {
            (): sum(
                pod.disruption_facts.resize_deferred for pod in result.snapshot.pod_index.untypical
            )
        },
    ),
    # Users who label nodes influence the names of reaches. core.engine.plan.REACHES_SHOWN bounds
    # the number of reaches, core.placement.reaches the length of their names.
    ReportedGauge(
        "ebb_reach_nodes",
        "Ready and schedulable nodes of a reach (the set of nodes that a pod can use).",
        ("reach",),
        lambda result: {
            (reach.name,): reach.before.nodes for reach in tightest(result.plan.reaches)
        },
    ),
    ReportedGauge(
        "ebb_reach_requests_ratio",
        "Sum of pod requests divided by usable capacity, on the nodes of a reach.",
        ("reach", "resource"),
        _by_resource(_request_ratios),
    ),
    ReportedGauge(
        "ebb_reach_threshold_ratio",
        "Threshold for ebb_reach_requests_ratio: a node is marked only if the ratio of the other "
        "nodes of the reach is not above the threshold.",
        ("reach", "resource"),
        _by_resource(_thresholds),
    ),
    *(
        ReportedGauge(gauge.name, gauge.help, gauge.labels, _policy_values(gauge.name))
        for policy in POLICIES.values()
        for gauge in policy.gauges
    ),
)
"""Gauges that each reconciliation reports; each policy defines its own gauges."""


FIGURE_GAUGES: Final[tuple[ReportedGauge[Figures], ...]] = (
    ReportedGauge(
        "ebb_nodes",
        "Nodes by pool and state, without virtual nodes. Each node is in one state.",
        ("pool", "state"),
        _nodes_by_state,
    ),
    ReportedGauge(
        "ebb_pool_nodes",
        "Ready and schedulable nodes of a pool.",
        ("pool",),
        lambda figures: {(name,): pool.nodes for name, pool in figures.pools.items()},
    ),
    ReportedGauge(
        "ebb_pool_pods",
        "Pods on the Ready and schedulable nodes of a pool.",
        ("pool",),
        lambda figures: {(name,): pool.pods for name, pool in figures.pools.items()},
    ),
    ReportedGauge(
        "ebb_pool_allocatable",
        "Allocatable resources of the Ready and schedulable nodes of a pool.",
        ("pool", "resource", "unit"),
        _by_pool(lambda pool: pool.allocatable),
    ),
    ReportedGauge(
        "ebb_pool_requests",
        "Pod requests on the Ready and schedulable nodes of a pool.",
        ("pool", "resource", "unit"),
        _by_pool(lambda pool: pool.requests),
    ),
    ReportedGauge(
        "ebb_pool_usable",
        "Usable capacity of the Ready and schedulable nodes of a pool: the requests, and the free "
        "capacity that pods of this cluster can use.",
        ("pool", "resource", "unit"),
        _by_pool(lambda pool: pool.usable),
    ),
    ReportedGauge(
        "ebb_pending_pods",
        "Pods that kube-scheduler could not place, by cause. `mark`: a node with a NoSchedule "
        "mark has room for the pod. `room`: no node has room, but some node could hold the pod if "
        "it were empty. `other`: all other pods.",
        ("cause",),
        lambda figures: {(cause,): figures.pending.pods[cause] for cause in Cause},
        {(cause,): 0 for cause in Cause},
    ),
    ReportedGauge(
        "ebb_oldest_mark_timestamp_seconds",
        "Time of the oldest mark on a node whose scale-down is not allowed yet; 0 if there is "
        "none.",
        (),
        lambda figures: {(): figures.marks.oldest or 0},
    ),
    ReportedGauge(
        "ebb_oldest_scale_down_allowed_timestamp_seconds",
        "Of the nodes whose scale-down is allowed, the earliest time at which Ebb allowed it; 0 "
        "if there is none.",
        (),
        lambda figures: {(): figures.savings.oldest_allowed or 0},
    ),
)
"""Gauges of the figures of a leader."""


class History(NamedTuple):
    """What Ebb has done and saved: the figures of `ebb history`."""

    today: Today
    past: Mapping[int, PoolDay] | None
    """Sums of the past days by number of the day; None while they are unknown."""

    @property
    def month(self) -> PoolDay | None:
        """Return the sums of the last MONTH_DAYS days; None while past days are unknown."""
        return None if self.past is None else self.today.month(self.past)


_FIGURES_OF_DAYS: Final[tuple[tuple[str, str, Callable[[PoolDay], float]], ...]] = (
    (
        "expected_savings_node_seconds",
        "Time of the nodes that plans could remove and of those that count as saved",
        lambda figures: figures.expected_seconds,
    ),
    (
        "estimated_savings_node_seconds",
        "Estimate of the saved node-seconds, as `ebb_estimated_savings_node_seconds_total`",
        lambda figures: figures.saved_seconds,
    ),
    (
        "estimated_savings_cost",
        "Price of the saved nodes times hours, in the unit of `prices`",
        lambda figures: float(figures.saved_cost),
    ),
    (
        "removed_nodes",
        "Nodes that were removed after Ebb had allowed their scale-down",
        lambda figures: figures.removed,
    ),
    (
        "moved_pods",
        "Pods that Ebb moved by surge moves and evictions",
        lambda figures: figures.moved,
    ),
)
"""End of the name, meaning and value of the gauges of a day and of a month."""


def _today_gauge(
    name: str, meaning: str, value_of: Callable[[PoolDay], float]
) -> ReportedGauge[History]:
    return ReportedGauge(
        f"ebb_today_{name}",
        f"{meaning}; today in UTC, also under previous leaders.",
        ("pool",),
        lambda history: {
            (pool,): value_of(figures) for pool, figures in history.today.day.pools.items()
        },
    )


def _month_gauge(
    name: str, meaning: str, value_of: Callable[[PoolDay], float]
) -> ReportedGauge[History]:
    return ReportedGauge(
        f"ebb_last_{MONTH_DAYS}_days_{name}",
        f"{meaning}; today and the {MONTH_DAYS - 1} days before, in UTC. Absent while the leader "
        "cannot read and write `ebb-history`.",
        (),
        lambda history: {} if history.month is None else {(): value_of(history.month)},
        {},
    )


def _of_removed(pods_of: Callable[[RemovedNode], int]) -> Callable[[History], Samples]:
    def samples(history: History) -> Samples:
        day = history.today.day
        pods: Samples = {(pool,): 0 for pool in day.pools}
        for one in history.today.removed:
            if one.removed_at // DAY_SECONDS == day.number:
                labels = (one.pool if one.pool in day.pools else OTHER,)
                pods[labels] = pods.get(labels, 0) + pods_of(one)
        return pods

    return samples


HISTORY_GAUGES: Final[tuple[ReportedGauge[History], ...]] = (
    *(_today_gauge(*figure) for figure in _FIGURES_OF_DAYS),
    *(_month_gauge(*figure) for figure in _FIGURES_OF_DAYS),
    ReportedGauge(
        "ebb_today_removed_nodes_predicted_pods",
        f"Of the last {REMOVED_MAX} nodes removed today: pods that the plan placed on other nodes "
        "when the node was marked.",
        ("pool",),
        _of_removed(lambda node: node.pods),
    ),
    ReportedGauge(
        "ebb_today_removed_nodes_moved_pods",
        f"Of the last {REMOVED_MAX} nodes removed today: pods that Ebb moved from the node; the "
        "others ended by themselves.",
        ("pool",),
        _of_removed(lambda node: node.moved),
    ),
)
"""Gauges that continue under the next leader, because the historian stores what they show."""


def _published_gauges(namespace: str) -> Iterable[ReportedGauge[ReconcileResult]]:
    # Others can create CapacityBuffers with Ebb's label, but only in other namespaces.
    def requested(result: ReconcileResult) -> Samples:
        buffers = result.snapshot.cluster.buffers
        return {(): sum(own.published or 0 for own in buffers if own.namespace == namespace)}

    def accepted(result: ReconcileResult) -> Samples:
        buffers = result.snapshot.cluster.buffers
        return {(): sum(own.accepted for own in buffers if own.namespace == namespace)}

    def ready(result: ReconcileResult) -> Samples:
        buffers = result.snapshot.cluster.buffers
        own = (buffer for buffer in buffers if buffer.namespace == namespace)
        return {(): sum(min(buffer.ready, buffer.accepted) for buffer in own)}

    yield ReportedGauge(
        "ebb_capacity_buffer_published_pods",
        "Pods that Ebb's CapacityBuffers request from autoscalers.",
        (),
        requested,
    )
    yield ReportedGauge(
        "ebb_published_accepted_pods",
        "Pods of Ebb's CapacityBuffers that an autoscaler has accepted.",
        (),
        accepted,
    )
    yield ReportedGauge(
        "ebb_published_ready_pods",
        "Pods of Ebb's CapacityBuffers that an autoscaler has accepted and for which it reports "
        "room.",
        (),
        ready,
    )


class Metrics(metrics.WatchMetrics, metrics.EventMetrics):
    """The metrics of the controller."""

    def __init__(
        self,
        namespace: str = "",
        is_leading: Callable[[], bool] = lambda: True,
        past: Callable[[], Mapping[int, PoolDay] | None] = lambda: None,
    ) -> None:
        """Create the metrics.

        *namespace*: where Ebb publishes CapacityBuffers; empty if it publishes none. *is_leading*:
        returns whether this replica leads. *past*: returns the sums of the days in `ebb-history`
        by number of the day, or None while they are unknown.
        """
        super().__init__()
        self._past = past
        self.is_leading = is_leading
        # The report of a former leader and that of the new leader would count the same nodes.
        self.reconciliation_gauges: MetricCollector[ReconcileResult] = MetricCollector(
            *RECONCILIATION_GAUGES, *_published_gauges(namespace), is_valid=is_leading
        )
        self.registry.register(self.reconciliation_gauges)
        self.figure_gauges: MetricCollector[Figures] = MetricCollector(
            *FIGURE_GAUGES, is_valid=is_leading
        )
        self.registry.register(self.figure_gauges)
        self.history_gauges: MetricCollector[History] = MetricCollector(
            *HISTORY_GAUGES, is_valid=is_leading
        )
        self.registry.register(self.history_gauges)
        self.leader = self._gauge("ebb_leader", "1 while this replica leads.")
        self.clock_offset = self._gauge(
            "ebb_clock_offset_seconds",
            "Wall clock minus the time that Ebb uses; not 0 after a jump of the wall clock.",
        )
        self._add_reconcile()
        self._add_writes()
        self._add_surge()
        self._add_figures()
        self.config_good = self._gauge(
            "ebb_config_last_reload_successful",
            "1 if the configuration file was valid when it was last read.",
        )
        self.config_good.set(1)  # the program does not start with an invalid file
        self.config_since = self._gauge(
            "ebb_config_last_reload_success_timestamp_seconds",
            "Time at which the configuration in use was read.",
        )

    def _add_reconcile(self) -> None:
        self.reconciles = self._counter(
            "ebb_reconcile_total",
            "Reconciliations by result: `evaluated` made a plan; `skipped` made none, because "
            "nothing had changed since the last one.",
            result=("evaluated", "skipped"),
        )
        self.reconcile_seconds = self._histogram(
            "ebb_reconcile_duration_seconds",
            "Duration of a reconciliation, including its writes.",
            (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )
        self.reconcile_errors = self._counter(
            "ebb_reconcile_errors_total",
            "Reconciliations that ended with an exception; the log contains it.",
        )
        self.last_reconcile = self._gauge(
            "ebb_reconcile_last_success_timestamp_seconds",
            "Time at which this replica last ended a reconciliation without an exception; 0 if it "
            "never did.",
        )
        self.reconcile_timeouts = self._counter(
            "ebb_reconcile_timeouts_total",
            "Reconciliations that reached their time limit before they had tried every node.",
        )

    def _add_writes(self) -> None:
        self.node_writes = self._counter(
            "ebb_node_writes_total",
            "Writes to Nodes by operation and result.",
            operation=tuple(WriteKind),
            result=tuple(WriteResult),
        )
        self.pod_writes = self._counter(
            "ebb_pod_writes_total",
            "Writes to Pods by operation and result.",
            operation=tuple(CostKind),
            result=(WriteResult.SUCCESS, WriteResult.CONFLICT, WriteResult.ERROR),
        )
        self.writes_refused = self._gauge(
            "ebb_writes_refused",
            "1 while a ValidatingAdmissionPolicy for Ebb's own accounts refuses Ebb's writes.",
        )
        self.evictions = self._counter(
            "ebb_evictions_total",
            "Evictions of pods on marked nodes by result.",
            result=tuple(EvictionResult),
        )
        self.unmarks = self._counter(
            "ebb_unmarks_total",
            "Marks that Ebb removed, by reason: a reason code, or `deadline-missed`, `leaving` "
            "(another program is removing the node), `observe`, `not-removable`.",
            reason=(),
        )
        self.drain_failures = self._counter(
            "ebb_drain_failures_total",
            "Nodes whose evictions failed, by reason code: why a pod could not be evicted, or "
            "that the cluster needs the node again.",
            reason=(),  # a code of docs/reasons.md
        )
        self.eviction_forbidden = self._gauge(
            "ebb_eviction_forbidden",
            "1 if `eviction.mode` is enabled, but RBAC does not let Ebb evict pods.",
        )

    def _add_surge(self) -> None:
        self.surge_moves = self._counter(
            "ebb_surge_moves_total",
            "Surge moves that ended, by outcome: `moved`, or why the pod was not moved.",
            outcome=tuple(MoveOutcome),
        )
        self.surge_moves_in_progress = self._gauge(
            "ebb_surge_moves_in_progress", "Surge moves that have begun and not ended."
        )
        self.surge_move_seconds = self._histogram(
            "ebb_surge_move_duration_seconds",
            "Time from the beginning of a surge move, when Ebb detaches the pod, to its end.",
            (5, 10, 20, 30, 60, 120, 300, 600),
        )
        self.surge_moved_pods_per_node = self._histogram(
            "ebb_surge_moved_pods_per_removed_node",
            "Pods that surge moves took from a node before the node was removed. Nodes without "
            "moves do not count.",
            (1, 2, 3, 5, 8, 13, 21, 34, 55),
        )
        self.surge_write_errors = self._counter(
            "ebb_surge_write_errors_total",
            "Failed writes of surge moves by result; each is retried.",
            result=(WriteResult.CONFLICT, WriteResult.ERROR),
        )
        self.surge_forbidden = self._gauge(
            "ebb_surge_forbidden",
            "1 if `surge` is enabled, but RBAC does not let Ebb patch pods.",
        )
        self.surge_overdue_pods = self._gauge(
            "ebb_surge_overdue_pods",
            "Pods that are detached from their ReplicaSet although the deadline of their move "
            "passed more than a minute ago.",
        )

    def _add_figures(self) -> None:
        self.pending_pod_seconds = self._counter(
            "ebb_pending_pod_seconds_total",
            "Time for which pods were Pending after kube-scheduler could not place them, summed "
            "over pods, by cause.",
            cause=tuple(Cause),
        )
        self.repeated_marks = self._counter(
            "ebb_remarked_nodes_total",
            f"Marks on nodes that had lost a mark at most {AGAIN_SECONDS // 60} minutes before.",
        )
        # Expected savings include real savings, so they are no values of one label.
        self.expected_node_seconds = self._counter(
            "ebb_expected_savings_node_seconds_total",
            "Node-seconds that would be saved if every node disappeared as soon as the plan can "
            "remove it. In mode observe, it shows what mode enforce would save at most.",
        )
        self.expected_cost = self._counter(
            "ebb_expected_savings_cost_total",
            "Price of the nodes in `ebb_expected_savings_node_seconds_total` times hours, in the "
            "unit of `prices`.",
        )
        self.estimated_node_seconds = self._counter(
            "ebb_estimated_savings_node_seconds_total",
            "Estimate of the saved node-seconds: time since the autoscaler removed a node whose "
            "scale-down Ebb had allowed, summed over these nodes. A node counts until its pool "
            f"has as many nodes again, at most {CREDIT_SECONDS_MAX // 3600} hours.",
        )
        self.estimated_cost = self._counter(
            "ebb_estimated_savings_cost_total",
            "Price of the nodes in `ebb_estimated_savings_node_seconds_total` times hours, in the "
            "unit of `prices`.",
        )

    def report_figures(self, before: Figures, after: Figures, *, changed: bool) -> None:
        """Export the statistics of this leader as metrics.

        *before*: the statistics that were exported last. *after*: the current ones. *changed*:
        False if a reconciliation was skipped, so that only times grow.
        """
        if changed:
            self.figure_gauges.report(after)
        if (today := after.day.today) is not None:
            self.history_gauges.report(History(today, self._past()))
        for cause in Cause:
            seconds = after.pending.pod_seconds[cause] - before.pending.pod_seconds[cause]
            self.pending_pod_seconds.labels(cause).inc(seconds)
        self.repeated_marks.inc(after.marks.repeated - before.marks.repeated)
        old, new = before.savings, after.savings
        self.expected_node_seconds.inc(new.expected.node_seconds - old.expected.node_seconds)
        self.expected_cost.inc(float(new.expected.cost - old.expected.cost))
        self.estimated_node_seconds.inc(new.real.node_seconds - old.real.node_seconds)
        self.estimated_cost.inc(float(new.real.cost - old.real.cost))
