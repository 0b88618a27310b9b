"""Keep a leader's state between reconciliations, and derive the current rate limits from it.

Each part of the state is immutable. It compares times through core.model.now.Now, which records
when the next answer changes. So the leader knows when a part will change although the cluster does
not.
"""

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from core.engine.arrivals import Arrivals, Counts, expected_pods
from core.engine.maintenance_gate import Beginning, RefusedWrite, may_begin
from core.engine.mark_limits import MARK_LIMITS, Ends, MarkLimit, MarkRefused, Observed
from core.engine.no_schedule import RecentReasons
from core.engine.peak import Peak, RecentTemplates
from core.engine.placement_hints import Hints
from core.engine.provisioning_time import AddedNodes, ProvisioningTimes
from core.engine.reach_keys import ReachKeys, RenamedKeys, renamed
from core.engine.reserve_hysteresis import ReserveHits
from core.engine.snapshot import ClusterSnapshot
from core.engine.stored_arrivals import StoredArrivals, continued
from core.marks.mark import BACKOFF_SECONDS_MAX
from core.model.cluster import Cluster
from core.model.now import Now
from core.model.reason import Reason
from core.model.resources import Resources
from core.placement.usable_capacity import Amount

Observed_contra = TypeVar("Observed_contra", contravariant=True)
MarkLimitT = TypeVar("MarkLimitT", bound=MarkLimit)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """State that a leader keeps between reconciliations, such as since when a node is a candidate.

    A new leader starts with empty state, so all delays restart; it continues only the arrivals.
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
    mark_limits: tuple[MarkLimit, ...] = MARK_LIMITS
    """Limits on new marks, each with what it remembers, in the order of MARK_LIMITS."""
    may_publish: bool = False
    """Whether RBAC allows Ebb to write CapacityBuffers; False until that is known."""
    refused_write: RefusedWrite | None = None
    """The last write to a Node that a policy for Ebb's own accounts refused recently, if any."""
    marked_before: frozenset[str] = frozenset()
    """Nodes that had a mark in the last reconciliation."""
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
    stored_arrivals: StoredArrivals | None = None
    """Arrivals of the previous leader, which the next reconciliation continues."""
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

    def expected_pods(self, total: Resources, now: Now, percentile: Fraction) -> Counts:
        """Return how many pods to reserve room for, by pod shape (reach, requests, constraints).

        *total*: allocatable resources of all nodes. *percentile*: `reserve.percentile`.
        """
        return expected_pods(
            self.arrivals,
            total,
            now,
            percentile=percentile,
            at_least=self.provisioning_times.seconds,
        )

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
        self,
        nodes: frozenset[str],
        now: Now,
        *,
        unneeded_time_seconds: int,
        max_seconds: int = BACKOFF_SECONDS_MAX,
    ) -> "LeaderState":
        """Return the state after Ebb failed to write the marks of *nodes*.

        A node that could not be marked is skipped for the unneeded time, at least REFUSED_SECONDS,
        and twice as long after each further failure, up to *max_seconds*. A node whose NoSchedule
        mark could not be removed is skipped for up to REFUSED_SECONDS. The unneeded time of the
        nodes restarts. Failures of nodes that are skipped already do not count.
        """
        refused = self.limit(MarkRefused)
        nodes -= refused.skipped(now)
        if not nodes:
            return self
        failed = refused.with_failures(
            nodes,
            now,
            no_schedule=self.marked_before,
            first_seconds=unneeded_time_seconds,
            max_seconds=max_seconds,
        )
        limits = tuple(failed if limit is refused else limit for limit in self.mark_limits)
        # Their unneeded time restarts, and empty nodes are skipped too. Otherwise a user who can
        # make the API server reject every write on some nodes could have each reconciliation try
        # these nodes before all others.
        return replace(self.without_candidates(nodes), mark_limits=limits)

    def limit(self, kind: type[MarkLimitT]) -> MarkLimitT:
        """Return the limit of this class."""
        return next(limit for limit in self.mark_limits if type(limit) is kind)

    def without_candidates(self, nodes: frozenset[str]) -> "LeaderState":
        """Return the state without the candidates *nodes*; their unneeded time restarts."""
        if nodes.isdisjoint(self.candidates):
            return self
        kept = {name: at for name, at in self.candidates.items() if name not in nodes}
        return replace(self, candidates=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """What limits new marks now, such as cooldowns that have not ended."""

    beginning: Beginning
    """Whether anything may begin, according to `schedule` and `pauseUntil`."""
    ends: Mapping[str, Ends] = field(default_factory=dict)
    """What counts for each limit of MARK_LIMITS, by the code of its reason; maybe nothing."""
    peak_excess: Mapping[str, Amount] = field(default_factory=dict)
    """Difference between the highest requests within `stabilizationWindow` and the current ones,
    by reach."""

    def of(self, reason: Reason) -> Ends:
        """Return what counts for the limit with this reason, by scope."""
        return self.ends.get(reason.code, {})

    def of_limits(self) -> Iterator[tuple[MarkLimit, Ends]]:
        """Yield each limit with what counts for it, in the order of MARK_LIMITS."""
        return ((limit, self.of(limit.reason)) for limit in MARK_LIMITS)


def observe(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> LeaderState:
    """Return the leader's state updated from the snapshot of a reconciliation, before its plan."""
    cluster, config = snapshot.cluster, snapshot.config
    budgets = config.budgets
    node_uids = _node_uids(state, cluster)
    added = _added_nodes(state, cluster, node_uids)
    reach_keys = ReachKeys.of(
        [node.name for node in snapshot.node_order.nodes], snapshot.reaches.all
    )
    state = state.with_reach_keys(reach_keys).without_candidates(added)
    observed = Observed(
        snapshot=snapshot,
        added=added,
        marked_before=state.marked_before,
        last_at=state.last_reconciliation_at,
        is_first=state.first_reconciliation_at is None,
    )
    window_seconds = budgets.stabilization_window_seconds
    state = replace(
        state,
        first_reconciliation_at=now.seconds
        if state.first_reconciliation_at is None
        else state.first_reconciliation_at,
        candidates=state.candidates if state.policy in {"", config.policy} else {},
        policy=config.policy,
        last_reconciliation_at=now.seconds,
        node_uids=node_uids,
        mark_limits=tuple(limit.observe(observed, now) for limit in state.mark_limits),
        marked_before=frozenset(snapshot.marks),
        peak=state.peak.observe((snapshot.utilization.demand(), window_seconds), now),
        recent_templates=state.recent_templates.observe((snapshot.reaches, window_seconds), now),
        arrivals=state.arrivals.observe(snapshot, now),
        provisioning_times=state.provisioning_times.observe(AddedNodes(snapshot, added), now),
    )
    return _with_stored_arrivals(state, now)


def _with_stored_arrivals(state: LeaderState, now: Now) -> LeaderState:
    stored = state.stored_arrivals
    if stored is None:
        return state
    arrivals, times = continued(state.arrivals, stored, now), state.provisioning_times
    if arrivals is not state.arrivals:
        times = times.after(stored.provisioning)
    return replace(state, stored_arrivals=None, arrivals=arrivals, provisioning_times=times)


def arrivals_to_store(state: LeaderState) -> StoredArrivals | None:
    """Return what the next leader needs of the arrivals; None if they are not counted."""
    arrivals = state.arrivals
    if arrivals.buckets is None or arrivals.counting_since is None:
        return None
    return StoredArrivals(
        at=state.last_reconciliation_at,
        counting_since=arrivals.counting_since,
        buckets=arrivals.buckets,
        recent=arrivals.recent,
        provisioning=state.provisioning_times.durations,
    )


def write_blocked(state: LeaderState, cluster: Cluster, now: Now) -> Collection[str]:
    """Return the nodes whose last write failed recently, without nodes that were added since."""
    failed = state.limit(MarkRefused).skipped(now)
    return failed - _added_nodes(state, cluster, _node_uids(state, cluster))


def _node_uids(state: LeaderState, cluster: Cluster) -> Mapping[str, str]:
    return {node.name: node.uid or state.node_uids.get(node.name, "") for node in cluster.nodes}


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


def rate_limits(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> RateLimits:
    """Return the current limits on new marks; *state*: result of `observe` for the snapshot."""
    return RateLimits(
        beginning=may_begin(snapshot.config, now, state.refused_write),
        ends={limit.reason.code: limit.ends(snapshot, now) for limit in state.mark_limits},
        peak_excess=state.peak.beyond_current(),
    )


def watched_until(state: LeaderState, window_seconds: int | None) -> int | None:
    """Return the unix second at which arrivals of pods will have been counted for a whole window.

    *window_seconds*: `reserve.window`. The window is at least as long as pods wait for new nodes.
    None: arrivals are not counted.
    """
    since = state.arrivals.counting_since
    if since is None or window_seconds is None:
        return None
    return since + max((window_seconds, *state.provisioning_times.seconds.values()))
