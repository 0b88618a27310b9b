"""Define the report with the state that only the leader has in memory, and build it.

`ebb` reads the report from a replica. Times are in Unix seconds. docs/support-policy.md says when
a field may change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from controller.decisions import Decision as LoggedDecision
from controller.figures.figures import Figures
from controller.figures.pending import Cause
from core.config.settings import API_VERSION, Config
from core.engine.leader_state import LeaderState, watched_until
from core.engine.reconcile import ReconcileResult
from core.model.now import Now
from core.moves.move import Move
from core.placement.usable_capacity import Amount

KIND: Final = "LeaderReport"
PATH: Final = "/report"
DELAYS_MAX: Final = 10_000
"""Maximum number of nodes whose delay is reported; the delays that end first are reported."""
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


class Cooldown(_Part):
    """A setting that lets Ebb set no new marks before a certain time."""

    setting: str
    """Path of the setting that causes it."""
    until_seconds: int


class SkippedNode(_Part):
    """A node that plans leave out until a certain time, because its mark could not be written."""

    node: str
    until_seconds: int


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
    """A setting whose time span is longer than the leader has observed the cluster.

    What this setting needs, such as the number of pods created, is incomplete until then.
    """

    setting: str
    """Path of the setting whose time span the fact needs."""
    until_seconds: int
    """Time at which this leader has observed the cluster for the whole time span."""


class LeaderFacts(_Part):
    """What the leader has observed and decided since it started leading."""

    leading_since_seconds: int | None = None
    """Time of the first reconciliation; None before it."""
    reconciled_at_seconds: int | None = None
    stale_because: str | None = None
    """Reason why the view of the cluster is too old to reconcile, or None."""
    delays: list[Delay] = []
    delays_omitted: int = 0
    peaks: list[PeakDemand] = []
    cooldowns: list[Cooldown] = []
    skipped_nodes: list[SkippedNode] = []
    moves: list[MoveInProgress] = []
    refused_moves: dict[str, int] = {}
    """Number of ReplicaSets whose pods cannot be detached now, by code of the reason."""
    decisions: list[Decision] = []
    """The last decisions, newest first."""
    not_yet_known: list[Unknown] = []
    savings: Savings | None = None
    pending: list[PendingPods] = []


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
    decisions: Sequence[LoggedDecision],
    stale_because: str | None,
    now_seconds: int,
    delays_max: int = DELAYS_MAX,
) -> LeaderFacts:
    """Return what the leader has observed and decided, without savings and Pending pods.

    *last*: its last reconciliation, or None before the first one. *moves*: surge moves in
    progress. *refused_moves*: number of ReplicaSets whose pods cannot be detached, by reason code.
    *stale_because*: why the cluster is too outdated to reconcile, or None. *delays_max*:
    maximum number of delays; `delays_omitted` counts the others.
    """
    facts = LeaderFacts(
        stale_because=stale_because,
        moves=[_in_progress(move) for move in sorted(moves, key=lambda move: move.key)],
        refused_moves=dict(refused_moves),
        decisions=[_decision(decision) for decision in reversed(decisions)],
    )
    if last is None:
        return facts
    config, now = last.snapshot.config, Now(now_seconds)
    delays = sorted(
        _delays(last, now_seconds), key=lambda delay: (delay.until_seconds, delay.node)
    )
    return msgspec.structs.replace(
        facts,
        leading_since_seconds=last.state.first_reconciliation_at,
        reconciled_at_seconds=last.at,
        delays=delays[:delays_max],
        delays_omitted=max(0, len(delays) - delays_max),
        peaks=list(_peaks(last)),
        cooldowns=list(_cooldowns(last, now_seconds)),
        skipped_nodes=[
            SkippedNode(node=name, until_seconds=until)
            for name, until in sorted(last.state.skipped_until(now).items())
        ],
        not_yet_known=list(_not_yet_known(last.state, config, now_seconds)),
    )


def with_figures(facts: LeaderFacts, figures: Figures) -> LeaderFacts:
    """Return *facts* with the fields `savings` and `pending` set from the statistics *figures*."""
    saved, pending = figures.savings, figures.pending
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


def _cooldowns(last: ReconcileResult, now_seconds: int) -> Iterator[Cooldown]:
    limits = last.rate_limits
    for setting, until in (
        ("cooldown.delayAfterAdd", limits.cooling_until),
        ("cooldown.delayAfterPending", limits.pending_until),
        ("markInterval", limits.mark_interval_until),
    ):
        if until is not None and until > now_seconds:
            yield Cooldown(setting=setting, until_seconds=until)


def _not_yet_known(state: LeaderState, config: Config, now_seconds: int) -> Iterator[Unknown]:
    """Yield each setting whose time span is longer than this leader has observed the cluster.

    Yields nothing before the first reconciliation.
    """
    since, budgets = state.first_reconciliation_at, config.budgets
    if since is None:
        return
    spans = [
        ("unneededTime", since + config.unneeded_time_seconds),
        ("stabilizationWindow", since + budgets.stabilization_window_seconds),
        ("cooldown.delayAfterPending", since + budgets.cooldown.delay_after_pending_seconds),
        # Marks of nodes that have left are on no Node any more.
        ("budgets.window", since + budgets.window_seconds),
    ]
    counting = state.arrivals.counting_since
    counted = watched_until(state, budgets.reserve.window_seconds)
    if counting is not None and counted is not None:
        end = max(counted, counting + budgets.reserve.lookback_seconds)
        spans.append(("reserve.lookback", end))
    yield from (
        Unknown(setting=setting, until_seconds=until)
        for setting, until in spans
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
