"""Run one reconciliation: find the removable nodes, and why the other nodes are not removable.

All functions are pure: the same cluster, configuration, state and time give the same result. The
steps are those of thesis 4.4, 4.5 and 4.7, extended to a joint plan: the pods that one removal
displaces are placed before the next node is checked.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from core.config.settings import Config, UsabilityMode
from core.engine import no_schedule, scale_in_targets, unschedulable
from core.engine.arrivals import Counts
from core.engine.leader_state import (
    LeaderState,
    RateLimits,
    observe,
    rate_limits,
    watched_until,
    write_blocked,
)
from core.engine.mark_limits import MARK_REFUSED
from core.engine.no_schedule import NoScheduleBlockers, RecentReasons
from core.engine.placement_hints import Hints, UnneededNodes
from core.engine.plan import DeviceSums, Plan, ReachSums, ReservedNode
from core.engine.planner import UNRESTRICTED, InTime, Planner, PlanOptions, unlimited_time
from core.engine.planner_parts import new_policy
from core.engine.protection import protected_unmarked
from core.engine.reserve import RESERVE, Reserved, reserve_nodes
from core.engine.reserve_hysteresis import NeededNodes, ReserveHits
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.now import Now
from core.placement.reach_utilization import DeviceTotals
from core.placement.usable_capacity import Totals
from core.placement.utilization_ledger import UtilizationLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The result of one reconciliation, such as the plan and the leader's new state."""

    snapshot: ClusterSnapshot = field(compare=False)
    """Snapshot that the plan was made for. If the reconciliation was skipped, the Node objects in
    it may have an older resource version."""
    state: LeaderState
    plan: Plan
    rate_limits: RateLimits
    no_schedule_blockers: NoScheduleBlockers
    """Reasons against NoSchedule marks, by node; empty if the configuration forbids such marks."""
    at: int
    """Time of the reconciliation, unix seconds."""
    requeue_at: int | None
    """Time at which the next reconciliation is due if the cluster does not change, unix seconds.
    None means that time alone changes nothing."""
    short_reaches: frozenset[str]
    """Keys of the reaches in which too many of the expected pods would find no room."""
    expected_pods: Counts
    """Number of expected pods by shape: as many as were created in a usual `reserve.window`."""
    skipped: bool = False
    """True if nothing had changed, so the plan is that of the previous reconciliation."""

    @property
    def watched_seconds(self) -> int:
        """Return for how many seconds this leader has watched the cluster."""
        since = self.state.first_reconciliation_at
        return self.at - (self.at if since is None else since)

    def is_valid_for(
        self, cluster: Cluster, config: Config, state: LeaderState, now_seconds: int
    ) -> bool:
        """Report whether a reconciliation over these inputs would have this result again."""
        return (
            state is self.state
            and config is self.snapshot.config
            and self.at <= now_seconds
            and (self.requeue_at is None or now_seconds < self.requeue_at)
            and cluster == self.snapshot.cluster
        )


def reconcile(
    cluster: Cluster,
    config: Config,
    state: LeaderState,
    now_seconds: int,
    *,
    in_time: InTime = unlimited_time,
    last: ReconcileResult | None = None,
) -> ReconcileResult:
    """Make a plan for the cluster at *now_seconds* (unix), and return it with the new state.

    A node is removed once it has been a candidate for longer than the unneeded time (thesis 4.5:
    `>`), or as long as its policy requires. An empty candidate is removed at once. *in_time*:
    returns False when no further unmarked node may be tried. *last*: result of the previous
    reconciliation, or None; if nothing has changed since, its plan is returned again.
    """
    now = Now(now_seconds)
    if last is not None and last.is_valid_for(cluster, config, state, now_seconds):
        return replace(last, state=state.unchanged(now), at=now_seconds, skipped=True)
    snapshot = ClusterSnapshot(
        cluster,
        config,
        now,
        last.snapshot.pod_index if last else None,
        recent_templates=state.recent_templates,
        write_blocked=write_blocked(state, cluster, now),
    )
    observed = observe(state, snapshot, now)
    limits = rate_limits(observed, snapshot, now)
    result, candidates, hints = _plan_and_candidates(snapshot, observed, limits, now, in_time)
    pending_since = unschedulable.pending_since(
        observed.pending_since,
        snapshot.pods.unschedulable,
        {placement.pod for placement in result.pending},
        now,
    )
    reserved, reserve_hits = _reserve(observed, snapshot, now)
    protected = protected_unmarked(snapshot, reserved.nodes, limits)
    result = replace(result, reserve=reserved.nodes, protected=protected)
    before = None if state.first_reconciliation_at is None else observed.no_schedule_reasons
    reasons, blockers = _no_schedule_reasons(before, snapshot, result, pending_since, now)
    targets = scale_in_targets.choose_targets(observed.scale_in_targets, snapshot, result.kept)
    new_state = replace(
        observed,
        candidates=candidates,
        hints=hints,
        pending_since=pending_since,
        no_schedule_reasons=reasons,
        reserve_hits=reserve_hits,
        scale_in_targets=targets,
    )
    return ReconcileResult(
        snapshot=snapshot,
        state=new_state.with_kept_nodes(protected, [node.node for node in reserved.nodes], now),
        plan=result,
        rate_limits=limits,
        no_schedule_blockers=blockers,
        at=now_seconds,
        short_reaches=reserved.short_reaches,
        expected_pods=reserved.expected,
        requeue_at=now.next_change if result.complete else now_seconds,
    )


def _reserve(
    state: LeaderState, snapshot: ClusterSnapshot, now: Now
) -> tuple[Reserved, ReserveHits]:
    """Return the reserved nodes with the expected pods they are for, and the new hits.

    A hit records a node that was needed again after its scale-down was allowed.
    """
    needed = reserve_nodes(state, snapshot, now)
    until = watched_until(state, snapshot.config.budgets.reserve.window_seconds)
    # A new leader also keeps what is protected, because it does not know which nodes are needed.
    knows_arrivals = until is None or now.reached(until)
    names = frozenset(node.node for node in needed.nodes if knows_arrivals)
    hits = state.reserve_hits.observe(NeededNodes(snapshot, names), now)
    return needed._replace(nodes=hits.extend(snapshot, needed.nodes, RESERVE, now)), hits


def _plan_and_candidates(
    snapshot: ClusterSnapshot, state: LeaderState, limits: RateLimits, now: Now, in_time: InTime
) -> tuple[Plan, Mapping[str, int], Hints]:
    """Return the plan, since when each node has been a candidate, and planned placements.

    The placements are empty unless the policy remembers them.
    """
    options = PlanOptions(limits=limits, in_time=in_time)
    if snapshot.policy_type.remembers_placements:
        unneeded = UnneededNodes(state.hints, state.candidates, snapshot, now)
        result = make_plan(snapshot, replace(options, candidates=unneeded))
        return result, unneeded.since, unneeded.hints()
    candidates = _candidates(snapshot, state.candidates, now)
    due_at, seconds = snapshot.policy_type.due_at, snapshot.config.unneeded_time_seconds
    delays = {
        name: due_at(since, seconds) if name in snapshot.non_empty_nodes else since
        for name, since in candidates.items()
    }
    return make_plan(snapshot, replace(options, candidates=delays)), candidates, Hints()


def _no_schedule_reasons(
    before: RecentReasons | None,
    snapshot: ClusterSnapshot,
    result: Plan,
    pending_since: Mapping[str, int],
    now: Now,
) -> tuple[RecentReasons, NoScheduleBlockers]:
    """Return the reasons against NoSchedule marks to remember, and those that apply now by node.

    *before*: the remembered reasons; None for a new leader. *result*: the plan. *pending_since*:
    by pod, the unix second since which it is Pending although the plan has a place for it.
    """
    blockers: NoScheduleBlockers = {}
    if snapshot.config.sets_no_schedule:
        to_mark = frozenset(removal.node for removal in result.removals)
        blockers = no_schedule_blockers(snapshot, pending_since, now, result.reserve, to_mark)
    if before is None:
        before = RecentReasons.of_new_leader(snapshot.marks, now)
    reasons = before.observe(blockers, now)
    return reasons, reasons.merged_with(blockers)


def no_schedule_blockers(
    snapshot: ClusterSnapshot,
    pending_since: Mapping[str, int],
    now: Now,
    reserved: Sequence[ReservedNode] = (),
    to_mark: Collection[str] = (),
) -> NoScheduleBlockers:
    """Return for every marked node the reasons against a NoSchedule mark on it, or an empty tuple.

    *pending_since*: by pod (namespace/name), the unix second since which it is Pending although
    the plan has a place for it. *reserved*: nodes that must accept expected pods. *to_mark*: nodes
    that get a mark in this reconciliation.
    """
    blocked_pods = unschedulable.blocked_by_no_schedule(
        snapshot.pods.unschedulable,
        pending_since,
        now,
        snapshot.reaches.untracked,
        snapshot.pods.unchecked,
    )
    blockers = no_schedule.blockers_by_node(snapshot, blocked_pods, to_mark)
    for node, _, blocker in reserved:
        if node in blockers:
            blockers[node] = (*blockers[node], blocker)
    return blockers


def plan(
    cluster: Cluster,
    config: Config,
    options: PlanOptions = UNRESTRICTED,
    *,
    now_seconds: int | None = None,
) -> Plan:
    """Take a snapshot of the cluster and return a plan for it.

    *now_seconds*: unix time; None if no deadline counts as passed.
    """
    write_blocked = options.limits.of(MARK_REFUSED) if options.limits else ()
    snapshot = ClusterSnapshot(cluster, config, Now.at(now_seconds), write_blocked=write_blocked)
    return make_plan(snapshot, options)


def make_plan(snapshot: ClusterSnapshot, options: PlanOptions = UNRESTRICTED) -> Plan:
    """Choose which nodes can be removed together, and where their pods would be placed.

    Marked nodes are tried first, in the order of their marks, without unneeded time. An unmarked
    node is removable if every reach (a set of nodes that some pods can use) stays within the
    thresholds without it. For a marked node `hysteresis` is added to the thresholds, so that small
    changes of the load remove no marks.

    Unmarked nodes are tried in the order of the policy, until none of the remaining nodes can be
    removed. Plan.kept contains the reasons.
    """
    planner = Planner(snapshot, options)
    before, metrics = Sums.of(planner.ledger), planner.policy_metrics()
    buffers = planner.buffers()
    removals = planner.remove_all()
    removed = {removal.node for removal in removals}
    after = Sums.of(planner.ledger)
    has_thresholds = snapshot.policy_type.thresholds
    return Plan(
        policy=snapshot.config.policy,
        usability=planner.ledger.total.usability,
        usability_derived=has_thresholds and snapshot.config.usable_capacity is UsabilityMode.AUTO,
        before=before.cluster,
        after=after.cluster,
        reaches=_reach_sums(planner.ledger, before, after) if has_thresholds else (),
        removals=removals,
        kept=planner.unremovable(removed),
        pending=planner.pending,
        marked_infeasible=tuple(sorted(planner.marked - removed)),
        figures=metrics,
        buffers=buffers,
        complete=not planner.out_of_time,
        crowded=planner.crowded(removed),
    )


class Sums(NamedTuple):
    """Requests and capacity of the cluster, its reaches and their devices at one moment."""

    cluster: Totals
    reaches: Sequence[Totals]
    devices: Sequence[DeviceTotals]

    @staticmethod
    def of(ledger: UtilizationLedger) -> "Sums":
        """Return a copy of the current totals of the ledger."""
        return Sums(
            ledger.total.totals(),
            [reach.totals() for reach in ledger.reaches],
            [device.totals() for device in ledger.devices],
        )


def _reach_sums(ledger: UtilizationLedger, before: Sums, after: Sums) -> tuple[ReachSums, ...]:
    devices: dict[str, list[DeviceSums]] = {}
    for device, then, now in zip(ledger.devices, before.devices, after.devices, strict=True):
        sums_of_device = DeviceSums(device.resource, device.enter, device.unmark, then, now)
        devices.setdefault(device.reach.key, []).append(sums_of_device)
    return tuple(
        ReachSums(
            name=sums.reach.name,
            key=sums.reach.key,
            usability=sums.usability,
            enter=sums.enter,
            unmark=sums.unmark,
            before=then,
            after=now,
            devices=tuple(devices.get(sums.reach.key, ())),
        )
        for sums, then, now in zip(ledger.reaches, before.reaches, after.reaches, strict=True)
        if sums.reach is not None
    )


def _candidates(snapshot: ClusterSnapshot, before: Mapping[str, int], now: Now) -> dict[str, int]:
    """Return by node the unix second since which it has been a candidate without interruption.

    Nodes that still pass the check (thesis 4.4) keep their time from *before*, new candidates get
    *now*. Marked nodes are not listed; the other nodes are checked as if the marked nodes were
    removed.
    """
    ledger = snapshot.utilization.new_ledger()
    policy = new_policy(snapshot, ledger)
    nodes = snapshot.node_order.nodes
    leaving = snapshot.leaving_nodes
    marked = {snapshot.node_order.ids[name] for name in snapshot.marks.keys() - leaving}
    for number in sorted(marked):
        ledger.assume_removed(number)
    return {
        node.name: before.get(node.name, now.seconds)
        for number, node in enumerate(nodes)
        if number not in marked
        and node.name not in leaving
        and policy.is_candidate(number, was=node.name in before)
    }
