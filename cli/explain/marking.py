"""Find the removable nodes that Ebb would mark now, and the limits that delay the others.

The planner decides, with the limits and delays that the leader reports.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from core.engine.leader_state import LeaderState, RateLimits, observe, rate_limits
from core.engine.limits import MARK_REASONS
from core.engine.mark_limits import MARK_LIMITS, PODS_PENDING
from core.engine.planner import DELAY, Planner, PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.model.now import Now
from core.model.reason import Blocker
from core.placement.usable_capacity import Amount
from core.policies.cluster_threshold import PEAK_DEMAND

if TYPE_CHECKING:  # only a live cluster has a leader
    from controller.leader_report import LeaderFacts

LIMITS: Final = frozenset((DELAY, PEAK_DEMAND, *MARK_REASONS))
"""Reasons that delay marks; all of them end with time or when marked nodes have been removed."""


class MarkingWait(NamedTuple):
    """A reason why removable nodes are not marked now, with the number of nodes and its end."""

    code: str
    nodes: int
    """Number of removable nodes with this reason; a node with several counts in each."""
    until: int | None
    """Unix second at which the reason has ended for all of these nodes; None if unknown. A reason
    that marks which are due now will cause has ended for the first of the nodes then."""


class Marking(NamedTuple):
    """The unmarked removable nodes: nodes to mark now, nodes that wait, and why they wait."""

    now: tuple[str, ...] = ()
    """Nodes that the next reconciliation would mark, in this order. If limits block a removable
    node, another one may be removable instead."""
    waiting: tuple[str, ...] = ()
    """The other removable nodes, in the order of the plan."""
    waits: tuple[MarkingWait, ...] = ()
    """Reasons why these nodes wait, most nodes first."""


class Marks(NamedTuple):
    """The marks that the next reconciliation would set, and why it would not mark other nodes."""

    now: Sequence[str]
    """Nodes that the plan removes, in order, marked ones included."""
    blockers: Mapping[str, Sequence[Blocker]]
    """Reasons why other removable nodes are not marked: limits, unless only others apply."""


def next_marks(
    snapshot: ClusterSnapshot,
    removable: Collection[str],
    facts: "LeaderFacts | None",
    now_seconds: int,
) -> Marks:
    """Make the plan of the next reconciliation.

    *removable*: nodes whose reasons are returned; the plan without limits removes them. *facts*:
    state of the leader. If it is None, the limits are those of a new leader, and `unneededTime`
    counts as passed.
    """
    delayed = {delay.node for delay in facts.delays} if facts else ()
    names = {node.name for node in snapshot.cluster.nodes}
    limits = _limits(snapshot, facts, Now(now_seconds))
    options = PlanOptions(due=frozenset(names.difference(delayed)), limits=limits)
    planner = Planner(snapshot, options)
    now = [removal.node for removal in planner.remove_all()]
    kept = planner.unremovable(names.difference(removable).union(now))
    return Marks(now, {node.node: _limiting(node.blockers) for node in kept})


def _limiting(blockers: Sequence[Blocker]) -> Sequence[Blocker]:
    # After the marks that are due now, other reasons may apply too. They would not without the
    # limit for which the node waits.
    return [blocker for blocker in blockers if blocker.reason in LIMITS] or blockers


def marking(
    snapshot: ClusterSnapshot,
    unmarked: Collection[str],
    removable: Sequence[str],
    facts: "LeaderFacts | None",
    now_seconds: int,
) -> Marking:
    """Return which of the *unmarked* nodes the next reconciliation would mark, and which wait.

    *removable*: the unmarked nodes that the plan without limits removes, in order. *facts*: as in
    `next_marks`.
    """
    if not removable:
        return Marking()
    marks = next_marks(snapshot, removable, facts, now_seconds)
    now = tuple(name for name in marks.now if name in unmarked)
    waiting = tuple(name for name in removable if name not in set(now))
    ends = _Ends.of(snapshot, facts, now_seconds)
    return Marking(now, waiting, _waits({name: marks.blockers[name] for name in waiting}, ends))


class _Ends(NamedTuple):
    """Unix seconds at which reasons end, for blockers that do not contain this time themselves."""

    delays: Mapping[str, int]
    """End of the unneeded time by node."""
    others: Mapping[str, int | None]
    """Earliest end by reason code."""

    @staticmethod
    def of(snapshot: ClusterSnapshot, facts: "LeaderFacts | None", now_seconds: int) -> "_Ends":
        config, peaks = snapshot.config, facts.peaks if facts else ()
        # The marks that are due now cause these.
        next_marks = {
            limit.reason.code: limit.mark_until(config, now_seconds) for limit in MARK_LIMITS
        }
        peak_until = max((peak.until_seconds for peak in peaks), default=None)
        return _Ends(
            {delay.node: delay.until_seconds for delay in facts.delays} if facts else {},
            {**next_marks, PEAK_DEMAND.code: peak_until},
        )

    def end(self, node: str, blocker: Blocker) -> int | None:
        """Return the Unix second at which a blocker of the node ends; None if it is unknown."""
        if blocker.until is not None:
            return blocker.until
        return self.delays.get(node) if blocker.reason is DELAY else self.others.get(blocker.code)


def _waits(blockers: Mapping[str, Sequence[Blocker]], ends: _Ends) -> tuple[MarkingWait, ...]:
    by_code: dict[str, list[int | None]] = {}
    for node, every in blockers.items():
        for code, until in {blocker.code: ends.end(node, blocker) for blocker in every}.items():
            by_code.setdefault(code, []).append(until)
    waits = (MarkingWait(code, len(every), _last(every)) for code, every in by_code.items())
    return tuple(sorted(waits, key=lambda wait: (-wait.nodes, wait.code)))


def _last(ends: Sequence[int | None]) -> int | None:
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def _limits(snapshot: ClusterSnapshot, facts: "LeaderFacts | None", now: Now) -> RateLimits:
    """Return the rate limits of a new leader, corrected by what the present leader knows.

    *facts*: state of the present leader; None if unknown.
    """
    state = observe(LeaderState(), snapshot, now)
    if facts is None:
        limits = rate_limits(state, snapshot, now)
        # Without history every Pending pod seems to be new.
        return replace(limits, ends={**limits.ends, PODS_PENDING.code: {}})
    limits = rate_limits(replace(state, refused_write=facts.refused_write()), snapshot, now)
    keys = {reach.name: reach.key for reach in snapshot.reaches.all}
    return replace(
        limits,
        ends={**limits.ends, **facts.limit_ends(now)},
        peak_excess={
            keys[peak.reach]: Amount(peak.cpu_millis, peak.memory_bytes)
            for peak in facts.peaks
            if peak.reach in keys
        },
    )
