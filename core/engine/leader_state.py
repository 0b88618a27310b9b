"""Keep a leader's state between reconciliations, and derive the current rate limits from it.

Each part of the state is immutable. It compares times through core.model.now.Now, which records
when the next answer changes. So the leader knows when a part will change although the cluster does
not.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from core.engine.arrivals import Arrivals, Counts, expected_pods
from core.engine.maintenance_gate import Beginning, may_begin
from core.engine.no_schedule import RecentReasons
from core.engine.peak import Peak, RecentTemplates
from core.engine.placement_hints import Hints
from core.engine.provisioning_time import AddedNodes, ProvisioningTimes
from core.engine.reach_keys import ReachKeys, RenamedKeys, renamed
from core.engine.reserve_hysteresis import ReserveHits
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import feasible_unschedulable
from core.marks.mark import Mark, backoffs
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.now import Now
from core.model.pod import runs_to_completion
from core.model.resources import Resources
from core.placement.usable_capacity import Amount

Observed_contra = TypeVar("Observed_contra", contravariant=True)

REFUSED_SECONDS: Final = 60
"""Minimum time for which a node is skipped after a write of its mark failed.

If a NoSchedule mark cannot be removed, this is also the maximum, because pods may be Pending
because of the mark."""


@runtime_checkable
class RememberedState(Protocol[Observed_contra]):
    """A part of a leader's state that changes with time or contains keys of reaches.

    A reach is a set of nodes that some pods can use.
    """

    def observe(self, observed: Observed_contra, now: Now, /) -> Self:
        """Return the state after a reconciliation; *observed*: the input that it records."""

    def unchanged(self, now: Now) -> Self:
        """Return the state at *now*, after a reconciliation was skipped for lack of changes."""

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the state under the current keys of reaches; *keys*: current by previous key."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """Time at which each node was last in some condition, such as protected from scale-down."""

    at: Mapping[str, int] = field(default_factory=dict)
    """Time of the last reconciliation that saw each node in the situation, unix seconds."""
    current: frozenset[str] = frozenset()
    """Nodes that were in the situation in the last reconciliation."""

    def observe(self, names: tuple[Collection[str], Container[str]], now: Now) -> Self:
        """Return the times after a reconciliation; nodes that no longer exist are dropped.

        *names*: names of the nodes that are in the condition now, and names of all nodes.
        """
        current, nodes = names
        known = {name: now.capped(at) for name, at in self.at.items() if name in nodes}
        return replace(
            self, at=known | dict.fromkeys(current, now.seconds), current=frozenset(current)
        )

    def unchanged(self, now: Now) -> Self:
        """Return the times after a skipped reconciliation: nodes in the condition get *now*."""
        return replace(self, at={**self.at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self


class FailedWrite(NamedTuple):
    """How often Ebb failed to write the mark of a node, and until when it skips the node."""

    times: int
    """Number of consecutive failures to set the mark."""
    until: int
    """Time until which the node is skipped, unix seconds."""


class RecordedMark(NamedTuple):
    """When a mark was set on a node, in which pool, and whether a movable pod could use it."""

    since: int
    """Time at which the mark was set, unix seconds."""
    pool: str
    """Name of the node's pool; empty if it is in none."""
    reached: bool
    """True if the node was in the reach of a movable pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """State that a leader keeps between reconciliations, such as since when a node is a candidate.

    A new leader starts with empty state, so all delays restart.
    """

    first_reconciliation_at: int | None = None
    """Time of the first reconciliation, unix seconds; None before it."""
    candidates: Mapping[str, int] = field(default_factory=dict)
    """Time since which each node has been a candidate without interruption, unix seconds."""
    policy: str = ""
    """Name of the policy that nominated the candidates; empty before the first reconciliation."""
    hints: Hints = field(default_factory=Hints)
    """Planned placements of candidates' pods, for a policy that remembers them."""
    last_reconciliation_at: int = 0
    """Time of the last reconciliation, unix seconds; 0 before the first one."""
    node_uids: Mapping[str, str] = field(default_factory=dict)
    """UID by name of each node of the last reconciliation; empty if the Node has none. A Node that
    was deleted and created again has another UID."""
    node_added_at: int | None = None
    """Time at which the last node was added, virtual nodes aside, unix seconds; None if
    unknown."""
    pending_pods: frozenset[str] = frozenset()
    """Unschedulable pods (namespace/name) that some node admits, or admitted while they were
    pending. A node that comes and goes does not restart their time."""
    pod_pending_at: int | None = None
    """Time at which the last of these pods became unschedulable, unix seconds."""
    recent_marks: Mapping[str, RecordedMark] = field(default_factory=dict)
    """Marks by node: those that exist, and those set within the window."""
    failed_writes: Mapping[str, FailedWrite] = field(default_factory=dict)
    """Nodes on which a write failed recently, by name."""
    marked_before: frozenset[str] = frozenset()
    """Nodes that had a mark in the last reconciliation."""
    last_mark_at: int | None = None
    """Time at which a mark was last set, or removed because its node did not empty in time, unix
    seconds."""
    peak: Peak = field(default_factory=Peak)
    """Highest requests within `stabilizationWindow`, by reach."""
    recent_templates: RecentTemplates = field(default_factory=RecentTemplates)
    """Node constraints that pods had within `stabilizationWindow`."""
    reach_keys: ReachKeys = field(default_factory=ReachKeys)
    """Reaches of the last reconciliation, by their keys."""
    pending_since: Mapping[str, int] = field(default_factory=dict)
    """Time since which each pod is pending although the plan found a place for it, unix
    seconds."""
    no_schedule_reasons: RecentReasons = field(default_factory=RecentReasons)
    """Reasons against NoSchedule marks that exist, or ended recently."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """Pods that were created recently, counted by time."""
    provisioning_times: ProvisioningTimes = field(default_factory=ProvisioningTimes)
    """Time that new nodes take until pods run on them."""
    reserve_hits: ReserveHits = field(default_factory=ReserveHits)
    """Nodes that the reserve needed again after Ebb had allowed their scale-down."""
    last_protected: LastSeen = field(default_factory=LastSeen)
    """Time at which each unmarked node was last protected from scale-down."""
    last_reserved: LastSeen = field(default_factory=LastSeen)
    """Time at which each node was last kept empty for expected pods."""
    scale_in_targets: Mapping[str, int] = field(default_factory=dict)
    """Unmarked nodes that scale-ins should empty next, each with its rank; the lowest rank is
    emptied first (core.engine.scale_in_targets)."""

    def expected_pods(self, total: Resources, now: Now) -> Counts:
        """Return how many pods to reserve room for, by pod shape (reach, requests, constraints).

        *total*: allocatable resources of all nodes.
        """
        return expected_pods(self.arrivals, total, now, self.provisioning_times.seconds)

    def with_reach_keys(self, reach_keys: ReachKeys) -> "LeaderState":
        """Return the state with renamed keys of reaches; *reach_keys*: the current reaches.

        A reach is a set of nodes that some pods can use. It is recognized by its nodes if its key
        changes.
        """
        keys = renamed(self.reach_keys, reach_keys)
        states = self._states() if keys else {}
        return replace(
            self,
            reach_keys=reach_keys,
            **{name: part.renamed(keys) for name, part in states.items()},
        )

    def unchanged(self, now: Now) -> "LeaderState":
        """Return the state at *now*, after a reconciliation was skipped for lack of changes."""
        states = {name: part.unchanged(now) for name, part in self._states().items()}
        return replace(self, last_reconciliation_at=now.seconds, **states)

    def _states(self) -> dict[str, Any]:
        """Return the fields that implement RememberedState, by field name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: value for name, value in values.items() if isinstance(value, RememberedState)
        }

    def with_kept_nodes(
        self, protected: Collection[str], reserved: Collection[str], now: Now
    ) -> "LeaderState":
        """Return the state after the plan protected and reserved nodes, given by their names.

        *protected*: unmarked nodes to protect from scale-down. *reserved*: empty nodes kept for
        expected pods.
        """
        return replace(
            self,
            last_protected=self.last_protected.observe((protected, self.node_uids), now),
            last_reserved=self.last_reserved.observe((reserved, self.node_uids), now),
        )

    def with_failed_writes(
        self, nodes: frozenset[str], now: Now, *, unneeded_time_seconds: int, max_seconds: int
    ) -> "LeaderState":
        """Return the state after Ebb failed to write the marks of *nodes*.

        A node that could not be marked is skipped for the unneeded time, at least REFUSED_SECONDS,
        and twice as long after each further failure, up to *max_seconds*. A node whose NoSchedule
        mark could not be removed is skipped for up to REFUSED_SECONDS. The unneeded time of the
        nodes restarts. Failures of nodes that are skipped already do not count.
        """
        nodes -= self.skipped_until(now).keys()
        failures = dict(self.failed_writes)
        for name in nodes:
            times = failures[name].times if name in failures else 0
            seconds = REFUSED_SECONDS
            if name not in self.marked_before:
                times += 1
                seconds = max(unneeded_time_seconds, REFUSED_SECONDS) * 2 ** min(times - 1, 32)
            failures[name] = FailedWrite(times, now.seconds + min(seconds, max_seconds))
        # Their unneeded time restarts, and empty nodes are skipped too. Otherwise a user who can
        # make the API server reject every write on some nodes could have each reconciliation try
        # these nodes before all others.
        return replace(self.without_candidates(nodes), failed_writes=failures) if nodes else self

    def skipped_until(self, now: Now) -> Mapping[str, int]:
        """Return by node when the backoff after its last failed write ends, unix seconds.

        Nodes whose backoff has ended are absent.
        """
        return {
            name: failure.until
            for name, failure in self.failed_writes.items()
            if now.before(failure.until)
        }

    def without_candidates(self, nodes: frozenset[str]) -> "LeaderState":
        """Return the state without the candidates *nodes*; their unneeded time restarts."""
        if nodes.isdisjoint(self.candidates):
            return self
        kept = {name: at for name, at in self.candidates.items() if name not in nodes}
        return replace(self, candidates=kept)


Ends = Mapping[str, tuple[int, ...]]
"""Times in unix seconds, ascending, by pool; the key "" is the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The current limits on new marks, such as the ends of cooldowns; times are unix seconds."""

    beginning: Beginning
    """Whether anything may begin, according to `schedule` and `pauseUntil`."""
    cooling_until: int | None = None
    """End of the cooldown after the last node was added; None if it has ended."""
    pending_until: int | None = None
    """End of the cooldown after a pod became unschedulable; None if it has ended."""
    mark_interval_until: int | None = None
    """End of `markInterval` after the last mark, or after a node did not empty in time."""
    window_ends: Ends = field(default_factory=dict)
    """By pool, times at which recent marks no longer count for `budgets.window`."""
    reached_ends: Ends = field(default_factory=dict)
    """The same times, for marks on nodes that a movable pod reaches."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """End of the backoff by node, after the node did not empty before its deadline."""
    failed_writes: Mapping[str, int] = field(default_factory=dict)
    """End of the backoff by node, after a write of its mark failed."""
    old_jobs: Mapping[str, str] = field(default_factory=dict)
    """By unmarked node, a pod that runs to completion and is older than `maxJobAge`."""
    peak_excess: Mapping[str, Amount] = field(default_factory=dict)
    """Difference between the highest requests within `stabilizationWindow` and the current ones,
    by reach."""

    @property
    def in_window(self) -> Mapping[str, int]:
        """Return by pool the number of marks within `budgets.window`; key "" is the cluster."""
        return {pool: len(ends) for pool, ends in self.window_ends.items()}


def observe(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> LeaderState:
    """Return the leader's state updated from the snapshot of a reconciliation, before its plan."""
    cluster, config = snapshot.cluster, snapshot.config
    budgets = config.budgets
    node_uids = {
        node.name: node.uid or state.node_uids.get(node.name, "") for node in cluster.nodes
    }
    added = _added_nodes(state, cluster, node_uids)
    reach_keys = ReachKeys.of(
        [node.name for node in snapshot.node_order.nodes], snapshot.reaches.all
    )
    state = state.with_reach_keys(reach_keys).without_candidates(added)
    pending_pods = _pending_pods(state, snapshot)
    with_prefer_no_schedule = {
        name for name, mark in snapshot.marks.items() if mark.mark is not Mark.NO_SCHEDULE
    }
    may_have_failed_write = node_uids.keys() - added - with_prefer_no_schedule
    window_seconds = budgets.stabilization_window_seconds
    return replace(
        state,
        first_reconciliation_at=now.seconds
        if state.first_reconciliation_at is None
        else state.first_reconciliation_at,
        candidates=state.candidates if state.policy in {"", config.policy} else {},
        policy=config.policy,
        last_reconciliation_at=now.seconds,
        node_uids=node_uids,
        node_added_at=now.seconds if added else _node_added_at(state, cluster, now),
        pending_pods=pending_pods,
        pod_pending_at=state.pod_pending_at if pending_pods <= state.pending_pods else now.seconds,
        recent_marks=_recent_marks(state, snapshot, now),
        failed_writes={
            name: failure
            for name, failure in state.failed_writes.items()
            if name in may_have_failed_write
            and now.before(failure.until + budgets.backoff.max_seconds)
        },
        marked_before=frozenset(snapshot.marks),
        last_mark_at=_last_mark_at(state, snapshot, now),
        peak=state.peak.observe((snapshot.demand(), window_seconds), now),
        recent_templates=state.recent_templates.observe((snapshot.reaches, window_seconds), now),
        arrivals=state.arrivals.observe(snapshot, now),
        provisioning_times=state.provisioning_times.observe(AddedNodes(snapshot, added), now),
    )


def _added_nodes(
    state: LeaderState, cluster: Cluster, node_uids: Mapping[str, str]
) -> frozenset[str]:
    if state.first_reconciliation_at is None:
        return frozenset()
    # Virtual nodes come with every pod, so they are no scale-up. Neither is a node that stops
    # being virtual, because its kubelet could change that at will.
    machines = (node.name for node in cluster.nodes if not node.virtual)
    return frozenset(
        name for name in machines if state.node_uids.get(name) not in ("", node_uids[name])
    )


def _recent_marks(
    state: LeaderState, snapshot: ClusterSnapshot, now: Now
) -> dict[str, RecordedMark]:
    """Return by node the existing marks, and removed ones that were set within the window.

    *state*: the leader's state before this reconciliation. The window is `budgets.window`.
    """
    budgets = snapshot.config.budgets
    marks = {
        name: mark
        for name, mark in state.recent_marks.items()
        if now.before(mark.since + budgets.window_seconds)
    }
    for name, mark in snapshot.marks.items():
        earlier = state.recent_marks.get(name) if name in state.marked_before else None
        # A kubelet, or a leader whose clock was ahead, may have written the time. So a mark keeps
        # the time of the first reconciliation that saw it, and can use up the window only once.
        since = earlier.since if earlier else max(mark.since, state.last_reconciliation_at)
        pool = budgets.pool_of(snapshot.node_order.nodes[snapshot.node_order.ids[name]].labels)
        marks[name] = RecordedMark(
            now.capped(since), pool.name if pool else "", snapshot.reaches_node(name)
        )
    return marks


def _pending_pods(state: LeaderState, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the keys of unschedulable pods that some node would admit if it were empty.

    Pods for which this was true in an earlier reconciliation are included while they are
    unschedulable.
    """
    unschedulable, taint_key = snapshot.unschedulable_pods, TAINT_KEY
    admitted = feasible_unschedulable(snapshot.cluster, taint_key, unschedulable)
    feasible = frozenset(pod.key for pod in admitted)
    if feasible >= state.pending_pods:
        return feasible
    return feasible | state.pending_pods.intersection(pod.key for pod in unschedulable)


def _node_added_at(state: LeaderState, cluster: Cluster, now: Now) -> int | None:
    if state.first_reconciliation_at is not None:
        return state.node_added_at
    # Only the first reconciliation reads the creation times, which the clock of the API server
    # sets. Later reconciliations see nodes being added.
    created = (node.created_seconds for node in cluster.nodes if not node.virtual)
    return max((now.capped(at) for at in created if at is not None), default=None)


def _last_mark_at(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> int | None:
    """Return when a mark was last set, or removed because its node did not empty in time.

    Unix seconds; None if neither has happened as far as the leader knows.
    """
    first = state.first_reconciliation_at is None
    # A node's kubelet may write the annotations that contain the times, but not the mark. So the
    # times are read only in the first reconciliation, and later on nodes whose mark was set or
    # removed since the last reconciliation. A kubelet can neither stop the controller for longer
    # than the interval nor hide a mark from it.
    newly_marked = snapshot.marks.keys() - state.marked_before
    times = [
        max(snapshot.marks[name].since, state.last_reconciliation_at) for name in newly_marked
    ]
    settings = snapshot.config.budgets.backoff
    for name, backoff in backoffs(snapshot.cluster.nodes).items():
        if name not in snapshot.marks and (first or name in state.marked_before):
            times.append(backoff.until - settings.seconds(backoff.times))
    known = [] if state.last_mark_at is None else [state.last_mark_at]
    return max((*known, *map(now.capped, times)), default=None)


def rate_limits(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> RateLimits:
    """Return the current limits on new marks; *state*: result of `observe` for the snapshot."""
    budgets = snapshot.config.budgets
    marks = [
        mark
        for mark in state.recent_marks.values()
        if now.before(mark.since + budgets.window_seconds)
    ]
    cooldown, holds = budgets.cooldown, budgets.backoff.holds
    node_backoffs = backoffs(snapshot.cluster.nodes).items()
    return RateLimits(
        beginning=may_begin(snapshot.config, now),
        cooling_until=_end(state.node_added_at, cooldown.delay_after_add_seconds, now),
        pending_until=_end(state.pod_pending_at, cooldown.delay_after_pending_seconds, now),
        mark_interval_until=_end(state.last_mark_at, budgets.mark_interval_seconds, now),
        window_ends=_window_ends(marks, budgets.window_seconds),
        reached_ends=_window_ends((m for m in marks if m.reached), budgets.window_seconds),
        backing_off={
            name: backoff.until for name, backoff in node_backoffs if holds(backoff.until, now)
        },
        failed_writes=state.skipped_until(now),
        old_jobs=_old_jobs(snapshot, now),
        peak_excess=state.peak.beyond_current(),
    )


def _old_jobs(snapshot: ClusterSnapshot, now: Now) -> Mapping[str, str]:
    age_seconds = snapshot.config.max_job_age_seconds
    if age_seconds is None:
        return {}
    return {
        pod.node: pod.key
        for pod in snapshot.cluster.pods
        if pod.node is not None
        and pod.node not in snapshot.marks
        and pod.created_seconds is not None
        and pod.occupies
        and not pod.terminating
        and runs_to_completion(pod)
        and now.reached(pod.created_seconds + age_seconds)
    }


def _window_ends(marks: Iterable[RecordedMark], window_seconds: int) -> Ends:
    ends_by_pool: dict[str, list[int]] = {"": []}
    for mark in marks:
        for pool in {"", mark.pool}:
            ends_by_pool.setdefault(pool, []).append(mark.since + window_seconds)
    return {pool: tuple(sorted(ends)) for pool, ends in ends_by_pool.items()}


def _end(since: int | None, seconds: int, now: Now) -> int | None:
    return None if since is None or now.reached(since + seconds) else since + seconds


def watched_until(state: LeaderState, window_seconds: int) -> int | None:
    """Return the unix second at which arrivals of pods will have been counted for a whole window.

    *window_seconds*: `reserve.window`. The window is at least as long as pods wait for new nodes.
    None: arrivals are not counted.
    """
    longest = max((window_seconds, *state.provisioning_times.seconds.values()))
    since = state.arrivals.counting_since
    return None if since is None else since + longest
