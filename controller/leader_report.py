"""Define the report with the state that only the leader has in memory, and build it.

`ebb` reads the report from a replica. Times are in Unix seconds. docs/support-policy.md says when
a field may change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

import msgspec

from controller.day_report import (
    DayReport,
    MonthReport,
    month_report,
    today_report,
    yesterday_report,
)
from controller.figures.figures import Figures
from controller.figures.pending import Cause
from controller.publishing import Publishing
from core.config.settings import API_VERSION, Config
from core.engine.arrivals import LOOKBACK_SECONDS
from core.engine.leader_state import LeaderState, watched_until
from core.engine.maintenance_gate import RefusedWrite
from core.engine.mark_limits import CLUSTER, MARK_LIMITS, End, Ends
from core.engine.reconcile import ReconcileResult
from core.history.days import PoolDay
from core.history.today import Decision as LoggedDecision
from core.model.node import Node
from core.model.now import Now
from core.moves.move import Move
from core.placement.usable_capacity import Amount
from kube.decode.kinds import NODES

KIND: Final = "LeaderReport"
PATH: Final = "/report"
REPORT_PORT_NAME: Final = "report"
"""Name of the container port that serves the report, as in manifests/."""
LISTED_MAX: Final = 10_000
"""Maximum number of delays that are reported, those that end first; and of entries of `limits`,
those of the cluster first."""
REMEMBERED: Final = frozenset(limit.reason.code for limit in MARK_LIMITS if fields(limit))
"""Codes of the limits for which a leader remembers something, such as earlier marks."""
REPORT_BYTES_MAX: Final = 8 * 1024**2
"""Maximum size of a report that a client accepts."""


class _Part(msgspec.Struct, rename="camel", kw_only=True):
    pass


class Delay(_Part):
    """A candidate node that Ebb does not mark yet, because `unneededTime` has not passed."""

    node: str
    since_seconds: int
    """Time since which the node has been a candidate without interruption."""
    until_seconds: int
    """First second in which the node can be marked."""


class PeakDemand(_Part):
    """How much higher the requests of pods of one reach recently were than they are now.

    A reach is a set of nodes that some pods can use. Ebb keeps room for the highest requests
    within `stabilizationWindow`.
    """

    reach: str
    """Name of the reach."""
    cpu_millis: int
    """Highest CPU requests minus the current ones."""
    memory_bytes: int
    until_seconds: int
    """Time at which the last sample above the current requests leaves the window."""


class LimitUse(_Part):
    """What counts for a limit on new marks, such as earlier marks (core.engine.mark_limits)."""

    code: str
    """Code of the reason, such as cooldown."""
    scope: str
    """Name of the node or pool to which the limit applies; empty for the whole cluster."""
    until_seconds: list[int]
    """Time until which each event counts, the first to end first."""
    unreached_until_seconds: list[int] = []
    """The same for marks of nodes that no movable pod can use; they count for such nodes only."""

    @property
    def ends(self) -> tuple[End, ...]:
        """Return all events, the first to end first."""
        reached = (End(until) for until in self.until_seconds)
        unreached = (End(until, reached=False) for until in self.unreached_until_seconds)
        return tuple(sorted((*reached, *unreached)))


class RefusedWrites(_Part):
    """A policy for Ebb's own accounts that refuses Ebb's writes (controller.refusals)."""

    resource: str
    """Kind of the objects: nodes or pods. Marks begin only while writes to nodes are accepted."""
    policy: str
    """Name of the ValidatingAdmissionPolicy."""
    change: str
    """The change that the policy does not allow, in its own words."""
    until_seconds: int
    """Time until which Ebb begins nothing; then it tries again."""


class MoveInProgress(_Part):
    """A surge move in progress: a detached pod on a marked node, and its Deployment."""

    deployment: str
    """Namespace and name; empty if another leader began the move, which is being undone."""
    pod: str
    """Namespace and name."""
    node: str
    begun_seconds: int
    deadline_seconds: int


class Decision(_Part):
    """A decision about an object, such as to mark a Node; see controller.decisions."""

    at_seconds: int
    kind: str
    name: str
    action: str
    reason: str
    written: bool


class Savings(_Part):
    """The savings that this replica has counted while it led; see controller.figures.savings."""

    expected_node_seconds: int
    """Time of the nodes that plans could remove, summed over nodes."""
    expected_cost: float
    """Price of these nodes times hours, in the currency of `prices`."""
    estimated_node_seconds: int
    """Estimated time of the removed nodes, summed over nodes."""
    estimated_cost: float
    """Price of these nodes times hours, in the currency of `prices`."""


class PendingPods(_Part):
    """The pods that kube-scheduler could not place for one cause (controller.figures.pending)."""

    cause: str
    """mark, room or other."""
    pods: int
    """Number of pods in the last reconciliation."""
    pod_seconds: int
    """Time that such pods were Pending while this replica led, summed over pods."""


class Unknown(_Part):
    """A setting or limit whose time span is longer than the leader has observed the cluster.

    What it needs, such as the number of pods created, is incomplete until then.
    """

    needed_for: str
    """Path of the setting, or code of the reason of the limit."""
    until_seconds: int
    """Time at which this leader has observed the cluster for the whole time span."""


class LeaderFacts(_Part):
    """What the leader has observed and decided since it started leading."""

    leading_since_seconds: int | None = None
    """Time of the first reconciliation; None before it."""
    reconciled_at_seconds: int | None = None
    stale_because: str | None = None
    """Reason why the view of the cluster is too old to reconcile, or None."""
    capacity_buffers: str = Publishing.UNKNOWN.value
    """Whether Ebb publishes the expected pods as CapacityBuffers, or why not: published, absent,
    forbidden, observe or unknown."""
    delays: list[Delay] = []
    delays_omitted: int = 0
    peaks: list[PeakDemand] = []
    limits: list[LimitUse] = []
    """The limits on new marks for which the leader remembers something; the others follow from the
    cluster."""
    limits_omitted: int = 0
    refused_writes: list[RefusedWrites] = []
    moves: list[MoveInProgress] = []
    refused_moves: dict[str, int] = {}
    """Number of ReplicaSets whose pods cannot be detached now, by code of the reason."""
    decisions: list[Decision] = []
    """The last decisions, newest first."""
    not_yet_known: list[Unknown] = []
    savings: Savings | None = None
    pending: list[PendingPods] = []
    today: DayReport | None = None
    """The figures of this day, also under previous leaders; None before the first
    reconciliation."""
    yesterday: DayReport | None = None
    month: MonthReport | None = None
    """None also until the leader can read and write the past days in `ebb-history`."""

    @property
    def knows_limits(self) -> bool:
        """Return whether delays and limits are known, as after the first reconciliation."""
        return self.reconciled_at_seconds is not None

    def refused_write(self) -> RefusedWrite | None:
        """Return the write to a Node that was refused last, while such writes are refused."""
        found = (
            RefusedWrite(one.policy, one.change, one.until_seconds)
            for one in self.refused_writes
            if one.resource == NODES.resource
        )
        return next(found, None)

    def limits_of(self, node: Node, pool: str) -> list[LimitUse]:
        """Return what counts for the node; *pool*: the name of its pool, or NO_POOL."""
        scopes = {limit.reason.code: limit.scopes(node, pool) for limit in MARK_LIMITS}
        return [use for use in self.limits if use.scope in scopes.get(use.code, ())]

    def limit_ends(self, now: Now) -> dict[str, Ends]:
        """Return what counts at *now* for each limit that remembers something, by its code."""
        found: dict[str, dict[str, tuple[End, ...]]] = {code: {} for code in REMEMBERED}
        for use in self.limits:
            ends = tuple(end for end in use.ends if end.until and now.before(end.until))
            if use.code in found and ends:
                found[use.code][use.scope] = ends
        return dict(found)


class Report(_Part):
    """The report of one replica of ebb-controller; `facts` is None unless the replica leads."""

    api_version: str = API_VERSION
    kind: str = KIND
    version: str = ""
    """Version of Ebb."""
    at_seconds: int = 0
    identity: str = ""
    """Identity of the replica that answers."""
    leader: str = ""
    """Identity of the leader as this replica knows it; empty if there is none."""
    leading: bool = False
    configuration: dict[str, Any] = {}
    """Settings in force that differ from the defaults, in the form of the file."""
    facts: LeaderFacts | None = None


def facts_of(
    last: ReconcileResult | None,
    *,
    moves: Iterable[Move],
    refused_moves: Mapping[str, int] = MappingProxyType({}),
    refused_writes: Mapping[str, RefusedWrite] = MappingProxyType({}),
    decisions: Sequence[LoggedDecision],
    stale_because: str | None,
    capacity_buffers: Publishing = Publishing.UNKNOWN,
    now_seconds: int,
    listed_max: int = LISTED_MAX,
) -> LeaderFacts:
    """Return what the leader has observed and decided, without its statistics.

    *last*: its last reconciliation, or None before the first one. *moves*: surge moves in
    progress. *refused_moves*: number of ReplicaSets whose pods cannot be detached, by reason code.
    *refused_writes*: last refused write of each policy that refuses writes now, by resource.
    *stale_because*: why the cluster is too outdated to reconcile, or None. *capacity_buffers*:
    whether Ebb publishes CapacityBuffers. *listed_max*: maximum number of delays, and of entries
    of `limits`; `delays_omitted` and `limits_omitted` count the others.
    """
    facts = LeaderFacts(
        stale_because=stale_because,
        capacity_buffers=capacity_buffers.value,
        moves=[_in_progress(move) for move in sorted(moves, key=lambda move: move.key)],
        refused_moves=dict(refused_moves),
        refused_writes=[
            RefusedWrites(
                resource=resource, policy=one.policy, change=one.change, until_seconds=one.until
            )
            for resource, one in sorted(refused_writes.items())
        ],
        decisions=[_decision(decision) for decision in reversed(decisions)],
    )
    if last is None:
        return facts
    config, limits = last.snapshot.config, _limits(last, Now(now_seconds))
    delays = sorted(
        _delays(last, now_seconds), key=lambda delay: (delay.until_seconds, delay.node)
    )
    return msgspec.structs.replace(
        facts,
        leading_since_seconds=last.state.first_reconciliation_at,
        reconciled_at_seconds=last.at,
        delays=delays[:listed_max],
        delays_omitted=max(0, len(delays) - listed_max),
        peaks=list(_peaks(last)),
        limits=limits[:listed_max],
        limits_omitted=max(0, len(limits) - listed_max),
        not_yet_known=list(_not_yet_known(last.state, config, now_seconds)),
    )


def with_figures(
    facts: LeaderFacts, figures: Figures, past: Mapping[int, PoolDay] | None = None
) -> LeaderFacts:
    """Return *facts* with the fields that are set from the statistics *figures*.

    *past*: sums of the days in `ebb-history`, by number of the day; None if they are unknown.
    """
    saved, pending, today = figures.savings, figures.pending, figures.to_store
    return msgspec.structs.replace(
        facts,
        savings=Savings(
            expected_node_seconds=saved.expected.node_seconds,
            expected_cost=float(saved.expected.cost),
            estimated_node_seconds=saved.real.node_seconds,
            estimated_cost=float(saved.real.cost),
        ),
        pending=[
            PendingPods(
                cause=cause.value,
                pods=pending.pods[cause],
                pod_seconds=pending.pod_seconds[cause],
            )
            for cause in Cause
        ],
        today=today and today_report(today),
        yesterday=today and yesterday_report(today),
        month=None if today is None or past is None else month_report(today, past),
    )


def _delays(last: ReconcileResult, now_seconds: int) -> Iterator[Delay]:
    """Yield the non-empty candidate nodes for which `unneededTime` has not passed yet."""
    seconds, snapshot = last.snapshot.config.unneeded_time_seconds, last.snapshot
    for node, since in last.state.candidates.items():
        until = snapshot.policy_type.due_at(since, seconds)
        if until > now_seconds and node in snapshot.non_empty_nodes:
            yield Delay(node=node, since_seconds=since, until_seconds=until)


def _peaks(last: ReconcileResult) -> Iterator[PeakDemand]:
    names = {reach.key: reach.name for reach in last.snapshot.reaches.all}
    window = last.snapshot.config.budgets.stabilization_window_seconds
    for key, excess in sorted(last.rate_limits.peak_excess.items()):
        if excess.cpu_millis or excess.memory_bytes:
            yield PeakDemand(
                reach=names.get(key, key),
                cpu_millis=excess.cpu_millis,
                memory_bytes=excess.memory_bytes,
                until_seconds=_last_above(last.state.peak.samples[key]) + window,
            )


def _last_above(samples: Sequence[tuple[int, Amount]]) -> int:
    """Return the time of the last earlier sample, or of the current one if there is no other.

    *samples*: time and requests, oldest first; the last is the current one. Earlier samples are
    above the current requests.
    """
    *earlier, current = samples
    return max((at for at, _ in earlier), default=current[0])


def _limits(last: ReconcileResult, now: Now) -> Sequence[LimitUse]:
    """Return what counts for the limits, first for the cluster, then for pools and nodes."""
    uses = [
        LimitUse(
            code=limit.reason.code,
            scope=scope,
            until_seconds=[end.until for end in ends if end.until and end.reached],
            unreached_until_seconds=[end.until for end in ends if end.until and not end.reached],
        )
        for limit in last.state.mark_limits
        if limit.reason.code in REMEMBERED
        for scope, ends in sorted(limit.ends(last.snapshot, now).items())
    ]
    return sorted(uses, key=lambda use: use.scope != CLUSTER)


def _not_yet_known(state: LeaderState, config: Config, now_seconds: int) -> Iterator[Unknown]:
    """Yield each setting and limit whose time span is longer than this leader has observed.

    Yields nothing before the first reconciliation.
    """
    since, budgets = state.first_reconciliation_at, config.budgets
    if since is None:
        return
    spans = [
        ("unneededTime", since + config.unneeded_time_seconds),
        ("stabilizationWindow", since + budgets.stabilization_window_seconds),
        *(
            (limit.reason.code, until)
            for limit in MARK_LIMITS
            if (until := limit.unseen_until(config, since)) is not None
        ),
    ]
    counting = state.arrivals.counting_since
    counted = watched_until(state, budgets.reserve.window_seconds)
    if counting is not None and counted is not None:
        spans.append(("reserve.window", max(counted, counting + LOOKBACK_SECONDS)))
    yield from (
        Unknown(needed_for=needed_for, until_seconds=until)
        for needed_for, until in spans
        if until > now_seconds
    )


def _in_progress(move: Move) -> MoveInProgress:
    return MoveInProgress(
        deployment=move.deployment_key,
        pod=move.key,
        node=move.node,
        begun_seconds=move.note.begun,
        deadline_seconds=move.note.deadline,
    )


def _decision(decision: LoggedDecision) -> Decision:
    return Decision(
        at_seconds=decision.at,
        kind=decision.kind,
        name=decision.name,
        action=decision.action,
        reason=decision.reason,
        written=decision.written,
    )
