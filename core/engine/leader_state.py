"""What has happened as far as it matters, and what follows from it now; pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from core.capacity.usable import Amount
from core.engine.arrivals import Arrivals, Counts, expected_pods
from core.engine.no_schedule import RecentReasons
from core.engine.peak import Peak, RecentTemplates
from core.engine.placement_hints import Hints
from core.engine.provisioning_time import AddedNodes, ProvisioningTimes
from core.engine.reach_keys import ReachKeys, renamed
from core.engine.reserve_hysteresis import ReserveHits
from core.engine.snapshot import ClusterSnapshot
from core.engine.state import LastSeen, State
from core.engine.unschedulable import feasible_unschedulable, is_unschedulable
from core.marks.mark import Mark, backoff_of
from core.model.cluster import Cluster
from core.model.now import Now
from core.model.resources import Resources

REFUSED_SECONDS: Final = 60
"""So long at least a node is left alone whose mark could not be written, or not taken away."""


class FailedWrite(NamedTuple):
    """A node on which a mark could not be written, or a hard one not taken away."""

    times: int
    until: int
    """Unix seconds; it is left alone until then."""


class RecordedMark(NamedTuple):
    """A mark that was set."""

    since: int
    pool: str
    """Empty: none."""
    reached: bool
    """Whether some movable pod reached the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """What has happened; a program that starts anew knows nothing, and waits the delay anyway."""

    first_pass_at: int | None = None
    """Unix seconds of the first look; None: there was none."""
    candidates: Mapping[str, int] = field(default_factory=dict)
    """Since when each node has been a candidate without a break."""
    policy: str = ""
    """By whose rule they have been; empty: there was no look."""
    hints: Hints = field(default_factory=Hints)
    """Where pods of candidates are to go, under a policy that finds them places."""
    last_pass_at: int = 0
    """Unix seconds of the last look; 0: there was none."""
    node_uids: Mapping[str, str] = field(default_factory=dict)
    """Those of the last look, by name the uid: one that is made anew is another; empty: not read
    yet."""
    node_added_at: int | None = None
    """Unix seconds of the last machine that came; None: none since the first look."""
    pending_pods: frozenset[str] = frozenset()
    """Pods (namespace/name) that are unschedulable and that some node would admit, or would have
    admitted since they wait: a node that comes and goes makes none of them wait anew."""
    pod_pending_at: int | None = None
    """When the last of them began to wait."""
    recent_marks: Mapping[str, RecordedMark] = field(default_factory=dict)
    """Marks within the window, and those that stand."""
    failed_writes: Mapping[str, FailedWrite] = field(default_factory=dict)
    marked_before: frozenset[str] = frozenset()
    """Nodes that carried a mark at the last look."""
    last_mark_at: int | None = None
    """Unix seconds of the last mark, or of the last release of a node that did not empty."""
    peak: Peak = field(default_factory=Peak)
    """The highest requests of the peak window, by reach."""
    recent_templates: RecentTemplates = field(default_factory=RecentTemplates)
    """Templates that pods have had within the peak window."""
    reach_keys: ReachKeys = field(default_factory=ReachKeys)
    """The reaches of the last look, by the keys under which they are remembered."""
    pending_since: Mapping[str, int] = field(default_factory=dict)
    """Since when pods wait for which there was a place (core.engine.unschedulable)."""
    no_schedule_reasons: RecentReasons = field(default_factory=RecentReasons)
    """What spoke against hard marks a short time ago."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """Which pods have come, and when."""
    provisioning_times: ProvisioningTimes = field(default_factory=ProvisioningTimes)
    """How long they take."""
    reserve_hits: ReserveHits = field(default_factory=ReserveHits)
    """Nodes that the reserve needed again after they had been released to the autoscaler."""
    last_protected: LastSeen = field(default_factory=LastSeen)
    """When each node was last protected from scale-down without a mark."""
    last_reserved: LastSeen = field(default_factory=LastSeen)
    """When each node was last kept empty for expected pods."""
    scale_in_targets: Mapping[str, int] = field(default_factory=dict)
    """Nodes without a mark that scale-ins are to empty next, each with its number: the lower, the
    sooner (core.engine.scale_in_targets)."""

    def expected_pods(self, whole: Resources, now: Now) -> Counts:
        """Return the pods that room is kept for; *whole*: what all nodes offer."""
        return expected_pods(self.arrivals, whole, now, self.provisioning_times.seconds)

    def with_reach_keys(self, words: ReachKeys) -> "LeaderState":
        """Return the state under the keys that the reaches have now."""
        keys = renamed(self.reach_keys, words)
        states = self._states() if keys else {}
        return replace(
            self, reach_keys=words, **{name: one.renamed(keys) for name, one in states.items()}
        )

    def unchanged(self, now: Now) -> "LeaderState":
        """Return the state after the same cluster was seen again, without a reconciliation."""
        states = {name: one.unchanged(now) for name, one in self._states().items()}
        return replace(self, last_pass_at=now.seconds, **states)

    def _states(self) -> dict[str, Any]:
        """Return by field every part that may change with time or with the keys of reaches."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, State)}

    def with_kept_nodes(
        self, held: Collection[str], reserved: Collection[str], now: Now
    ) -> "LeaderState":
        """Return the state after a plan that protects these nodes, and keeps these in reserve."""
        return replace(
            self,
            last_protected=self.last_protected.observe((held, self.node_uids), now),
            last_reserved=self.last_reserved.observe((reserved, self.node_uids), now),
        )

    def with_failed_writes(
        self, nodes: frozenset[str], now: Now, *, delay_seconds: int, max_seconds: int
    ) -> "LeaderState":
        """Return the state in which the marks of these nodes could not be written, or opened.

        Their delay begins anew, and one that is empty waits as well: who may have every write on
        some nodes refused would else have them tried in each pass, before all others. They wait
        twice as long each time, *max_seconds* at most; what fails meanwhile does not count.
        """
        nodes -= self.skipped_until(now).keys()
        refused = dict(self.failed_writes)
        for name in nodes:
            times = refused[name].times + 1 if name in refused else 1
            seconds = max(delay_seconds, REFUSED_SECONDS) * 2 ** min(times - 1, 32)
            refused[name] = FailedWrite(times, now.seconds + min(seconds, max_seconds))
        return replace(self.without_candidates(nodes), failed_writes=refused) if nodes else self

    def skipped_until(self, now: Now) -> Mapping[str, int]:
        """Return the nodes whose write failed, and until when (unix seconds) they are skipped."""
        left = self.failed_writes.items()
        return {name: one.until for name, one in left if now.before(one.until)}

    def without_candidates(self, nodes: frozenset[str]) -> "LeaderState":
        """Return the state in which these nodes have not been candidates yet."""
        if nodes.isdisjoint(self.candidates):
            return self
        kept = {name: at for name, at in self.candidates.items() if name not in nodes}
        return replace(self, candidates=kept)


Ends = Mapping[str, tuple[int, ...]]
"""By pool, "" for the cluster: unix seconds, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """What limits new marks at this moment; all times are unix seconds."""

    cooling_until: int | None = None
    """No node is marked until then, as a node was added; None: none was."""
    pending_until: int | None = None
    """No node is marked until then, as a pod became unschedulable; None: none did."""
    spacing_until: int | None = None
    """No node is marked until then, as another one was marked or did not empty in time."""
    window_ends: Ends = field(default_factory=dict)
    """When each mark of the window leaves it."""
    reached_ends: Ends = field(default_factory=dict)
    """The same for marks on nodes that some movable pod reaches."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """By node: until when it is skipped, as it did not empty before its deadline."""
    failed_writes: Mapping[str, int] = field(default_factory=dict)
    """By node: until when it is skipped, as its mark could not be written or removed."""
    peak_excess: Mapping[str, Amount] = field(default_factory=dict)
    """By reach: how much the highest requests of the peak window exceed the current ones."""

    @property
    def in_window(self) -> Mapping[str, int]:
        """Return by pool how many marks are within the window."""
        return {pool: len(ends) for pool, ends in self.window_ends.items()}


def observe(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> LeaderState:
    """Return the state after a look at the cluster."""
    cluster, config = snapshot.cluster, snapshot.config
    budgets = config.budgets
    nodes = {node.name: node.uid or state.node_uids.get(node.name, "") for node in cluster.nodes}
    new = _new(state, cluster, nodes)
    words = ReachKeys.of([node.name for node in snapshot.node_order.nodes], snapshot.reaches.all)
    state = state.with_reach_keys(words).without_candidates(new)
    waiting = _waiting(state, cluster, config.taint_key)
    open_to_all = {name for name, one in snapshot.marks.items() if one.mark is not Mark.HARD}
    may_refuse = nodes.keys() - new - open_to_all
    return replace(
        state,
        first_pass_at=now.seconds if state.first_pass_at is None else state.first_pass_at,
        candidates=state.candidates if state.policy in {"", config.policy} else {},
        policy=config.policy,
        last_pass_at=now.seconds,
        node_uids=nodes,
        node_added_at=now.seconds if new else _added(state, cluster, now),
        pending_pods=waiting,
        pod_pending_at=state.pod_pending_at if waiting <= state.pending_pods else now.seconds,
        recent_marks=_marked(state, snapshot, now),
        failed_writes={
            name: one
            for name, one in state.failed_writes.items()
            if name in may_refuse and now.before(one.until + budgets.backoff.max_seconds)
        },
        marked_before=frozenset(snapshot.marks),
        last_mark_at=_paced(state, snapshot, now),
        peak=state.peak.observe(snapshot, now),
        recent_templates=state.recent_templates.observe(snapshot, now),
        arrivals=state.arrivals.observe(snapshot, now),
        provisioning_times=state.provisioning_times.observe(AddedNodes(snapshot, new), now),
    )


def _new(state: LeaderState, cluster: Cluster, nodes: Mapping[str, str]) -> frozenset[str]:
    """Return the machines that have come since the last look; at the first one, none has.

    Virtual nodes come with every pod, and none is a scale-up; nor is a node that is one no more,
    as its kubelet may say in turns.
    """
    if state.first_pass_at is None:
        return frozenset()
    machines = (node.name for node in cluster.nodes if not node.virtual)
    return frozenset(
        name for name in machines if state.node_uids.get(name) not in ("", nodes[name])
    )


def _marked(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> dict[str, RecordedMark]:
    """Return the marks within the window, and those that stand.

    Since when is believed of who says it as in `_paced`: no kubelet, and no leader whose clock
    was ahead, uses up the window for longer than one mark does.
    """
    budgets = snapshot.config.budgets
    marked = {
        name: mark
        for name, mark in state.recent_marks.items()
        if now.before(mark.since + budgets.window_seconds)
    }
    for name, mark in snapshot.marks.items():
        known = state.recent_marks.get(name) if name in state.marked_before else None
        since = known.since if known else max(mark.since, state.last_pass_at)
        pool = budgets.pool_of(snapshot.node_order.nodes[snapshot.node_order.ids[name]].labels)
        marked[name] = RecordedMark(
            now.capped(since), pool.name if pool else "", snapshot.reaches_node(name)
        )
    return marked


def _waiting(state: LeaderState, cluster: Cluster, taint_key: str) -> frozenset[str]:
    found = frozenset(pod.key for pod in feasible_unschedulable(cluster, taint_key))
    if found >= state.pending_pods:
        return found
    return found | state.pending_pods.intersection(
        pod.key for pod in cluster.pods if is_unschedulable(pod)
    )


def _added(state: LeaderState, cluster: Cluster, now: Now) -> int | None:
    """Return when the last node came, at the first look by what stands on the nodes.

    Later looks see them come: what an API server's clock says is asked for once.
    """
    if state.first_pass_at is not None:
        return state.node_added_at
    made = (node.created_seconds for node in cluster.nodes if not node.virtual)
    return max((now.capped(at) for at in made if at is not None), default=None)


def _paced(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> int | None:
    """Return when the last mark was set, or a node that did not empty was released.

    A node's kubelet may write the annotations that say when, not the mark itself. So they are
    believed at the first look alone, and later where a mark has come or gone since the last one:
    no kubelet holds the engine back for longer than the spacing, or hides a mark from it.
    """
    first = state.first_pass_at is None
    new = snapshot.marks.keys() - state.marked_before
    found = [max(snapshot.marks[name].since, state.last_pass_at) for name in new]
    rules = snapshot.config.budgets.backoff
    for node in snapshot.cluster.nodes:
        one = backoff_of(node.annotations)
        if one and node.name not in snapshot.marks and (first or node.name in state.marked_before):
            found.append(one.until - rules.seconds(one.times))
    known = [] if state.last_mark_at is None else [state.last_mark_at]
    return max((*known, *map(now.capped, found)), default=None)


def rate_limits(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> RateLimits:
    """Return what limits new marks now; *state* has seen the cluster last."""
    budgets = snapshot.config.budgets
    marks = [
        mark
        for mark in state.recent_marks.values()
        if now.before(mark.since + budgets.window_seconds)
    ]
    cooldown, holds = budgets.cooldown, budgets.backoff.holds
    found = ((node.name, backoff_of(node.annotations)) for node in snapshot.cluster.nodes)
    return RateLimits(
        cooling_until=_end(state.node_added_at, cooldown.after_node_add_seconds, now),
        pending_until=_end(state.pod_pending_at, cooldown.after_pending_seconds, now),
        spacing_until=_end(state.last_mark_at, budgets.spacing_seconds, now),
        window_ends=_window_ends(marks, budgets.window_seconds),
        reached_ends=_window_ends((m for m in marks if m.reached), budgets.window_seconds),
        backing_off={name: one.until for name, one in found if one and holds(one.until, now)},
        failed_writes=state.skipped_until(now),
        peak_excess=state.peak.beyond_current(),
    )


def _window_ends(marks: Iterable[RecordedMark], window_seconds: int) -> Ends:
    found: dict[str, list[int]] = {"": []}
    for mark in marks:
        for pool in {"", mark.pool}:
            found.setdefault(pool, []).append(mark.since + window_seconds)
    return {pool: tuple(sorted(ends)) for pool, ends in found.items()}


def _end(since: int | None, seconds: int, now: Now) -> int | None:
    """Return when a time that began at *since* ends; None: it has ended, or never began."""
    return None if since is None or now.reached(since + seconds) else since + seconds


def watched_until(state: LeaderState, length_seconds: int) -> int | None:
    """Return when the leader has counted arrivals for a whole window of the reserve, unix seconds.

    Where new nodes are known to take longer, for that time. None: it does not count.
    """
    longest = max((length_seconds, *state.provisioning_times.seconds.values()))
    since = state.arrivals.counting_since
    return None if since is None else since + longest
