"""Find the removable nodes that Ebb would mark now, and the limits that delay the others."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from core.engine.leader_state import LeaderState, RateLimits, observe, rate_limits
from core.engine.limits import BUDGET_WINDOW, BUDGETS, RATE_LIMITS, SPACING, RemovalLimits
from core.engine.plan import Plan
from core.engine.planner import DELAY, LIMIT
from core.engine.reconcile import prepare
from core.engine.snapshot import ClusterSnapshot
from core.model.now import Now
from core.model.reason import Blocker
from core.placement.usable_capacity import NOTHING, Amount
from core.policies.cluster_threshold import PEAK_DEMAND

if TYPE_CHECKING:  # only a live cluster has a leader
    from controller.leader_report import LeaderFacts

LIMITS: Final = frozenset(
    (DELAY, PEAK_DEMAND, *(reason for rules in (RATE_LIMITS, BUDGETS)
                    for reason, _ in (*rules.of_node, *rules.of_scope)))
)  # fmt: skip
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


def marking(
    snapshot: ClusterSnapshot,
    plan: Plan,
    unmarked: Collection[str],
    removable: Sequence[str],
    facts: "LeaderFacts | None",
    now_seconds: int,
) -> Marking:
    """Return which of the *unmarked* nodes the next reconciliation would mark, and which wait.

    *plan*: the plan without rate limits. *removable*: the unmarked nodes that *plan* removes, in
    order. *facts*: state of the leader. If it is None, the answer is that of a new leader, except
    that `unneededTime` counts as passed.
    """
    if not removable:
        return Marking()
    ends = _Ends.of(snapshot, facts, now_seconds)
    due = frozenset(node.name for node in snapshot.cluster.nodes if node.name not in ends.delays)
    limits = _limits(snapshot, facts, Now(now_seconds))
    limited = limited_part(snapshot, plan, removable, due, limits)
    if limited is None:
        limited = limited_plan(snapshot, removable, due, limits)
    marked = tuple(name for name in limited.removals if name in unmarked)
    waiting = tuple(name for name in removable if name not in set(marked))
    return Marking(
        marked, waiting, _waits({name: limited.blockers[name] for name in waiting}, ends)
    )


class Limited(NamedTuple):
    """The removals of a plan that rate limits allow now, and why they do not allow the others."""

    removals: Sequence[str]
    """Nodes that are removed, in order."""
    blockers: Mapping[str, Sequence[Blocker]]
    """Reasons why other nodes of the plan without limits are not removed. If limits are among
    the reasons, others may be missing."""


def limited_plan(
    snapshot: ClusterSnapshot, removable: Sequence[str], due: frozenset[str], limits: RateLimits
) -> Limited:
    """Make a plan within the rate limits, with the reasons of the *removable* nodes only.

    *removable*: unmarked nodes that the plan without limits removes. *due*: nodes whose
    `unneededTime` has passed.
    """
    planner, _ = prepare(snapshot, due=due, limits=limits)
    removals = [removal.node for removal in planner.remove_all(None)]
    others = {node.name for node in snapshot.cluster.nodes}.difference(removable)
    kept = planner.unremovable(others.union(removals))
    return Limited(removals, {node.node: node.blockers for node in kept})


def limited_part(
    snapshot: ClusterSnapshot,
    plan: Plan,
    removable: Sequence[str],
    due: frozenset[str],
    limits: RateLimits,
) -> Limited | None:
    """Return the result of `limited_plan` from the given *plan*; None if a second plan is needed.

    *plan*: the plan without rate limits. Limits only refuse nodes. So up to the first removal that
    they refuse, both plans are equal. If they refuse every other node too, the plan within the
    limits ends there.
    """
    if any(excess != NOTHING for excess in limits.peak_excess.values()):
        return None  # a peak also changes sums
    counted, removals = RemovalLimits(snapshot, limits), list[str]()
    nodes = {node.name: node for node in snapshot.node_order.nodes}

    def blockers(name: str) -> list[Blocker]:
        passed = name in due or name in snapshot.marks
        return [*([] if passed else [Blocker(DELAY, "")]), *counted.blockers(nodes[name])]

    for removal in plan.removals:
        if blockers(removal.node):
            break
        counted.count_removal(nodes[removal.node])
        removals.append(removal.node)
    if len(removals) == len(plan.removals):
        return None if _is_cut(plan) else Limited(removals, {})
    # Marked nodes were tried in this state: the plan tries them again after each removal.
    tried = nodes.keys() - snapshot.marks.keys() - snapshot.leaving_nodes.union(removals)
    refused = {name: blockers(name) for name in tried if not snapshot.blockers[name]}
    waiting = set(removable).difference(removals)
    if all(refused.values()) and all(_limiting(refused[name]) for name in waiting):
        return Limited(removals, {name: refused[name] for name in waiting})
    return None


def _is_cut(plan: Plan) -> bool:
    """Return whether the plan stops at its maximum number of removals, and more were possible."""
    return any(blocker.reason is LIMIT for node in plan.kept for blocker in node.blockers)


def _limiting(blockers: Iterable[Blocker]) -> list[Blocker]:
    return [blocker for blocker in blockers if blocker.reason in LIMITS]


class _Ends(NamedTuple):
    """Unix seconds at which reasons end, for blockers that do not contain this time themselves."""

    delays: Mapping[str, int]
    """End of the unneeded time by node."""
    others: Mapping[str, int | None]
    """Earliest end by reason code."""

    @staticmethod
    def of(snapshot: ClusterSnapshot, facts: "LeaderFacts | None", now_seconds: int) -> "_Ends":
        budgets = snapshot.config.budgets
        peaks = facts.peaks if facts else ()
        return _Ends(
            {delay.node: delay.until_seconds for delay in facts.delays} if facts else {},
            {
                # The marks that are due now cause these two.
                SPACING.code: now_seconds + budgets.mark_interval_seconds,
                BUDGET_WINDOW.code: now_seconds + budgets.window_seconds,
                PEAK_DEMAND.code: max((peak.until_seconds for peak in peaks), default=None),
            },
        )

    def end(self, node: str, blocker: Blocker) -> int | None:
        """Return the Unix second at which a blocker of the node ends; None if it is unknown."""
        if blocker.until is not None:
            return blocker.until
        return self.delays.get(node) if blocker.reason is DELAY else self.others.get(blocker.code)


def _waits(blockers: Mapping[str, Sequence[Blocker]], ends: _Ends) -> tuple[MarkingWait, ...]:
    by_code: dict[str, list[int | None]] = {}
    for node, every in blockers.items():
        # After the marks that are due now, other reasons may apply too. They would not without
        # the limit for which the node waits.
        for code, until in {
            blocker.code: ends.end(node, blocker) for blocker in _limiting(every) or every
        }.items():
            by_code.setdefault(code, []).append(until)
    waits = (MarkingWait(code, len(every), _last(every)) for code, every in by_code.items())
    return tuple(sorted(waits, key=lambda wait: (-wait.nodes, wait.code)))


def _last(ends: Sequence[int | None]) -> int | None:
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def _limits(snapshot: ClusterSnapshot, facts: "LeaderFacts | None", now: Now) -> RateLimits:
    """Return the rate limits of a new leader, corrected by what the present leader knows.

    *facts*: state of the present leader; None if unknown. It lacks the marks of nodes that have
    left, so they do not count for `budgets.window`.
    """
    limits = rate_limits(observe(LeaderState(), snapshot, now), snapshot, now)
    if facts is None:
        return limits
    keys = {reach.name: reach.key for reach in snapshot.reaches.all}
    cooldowns = {
        cooldown.setting: cooldown.until_seconds
        for cooldown in facts.cooldowns
        if now.before(cooldown.until_seconds)
    }
    return replace(
        limits,
        cooling_until=cooldowns.get("cooldown.delayAfterAdd"),
        pending_until=cooldowns.get("cooldown.delayAfterPending"),
        mark_interval_until=cooldowns.get("markInterval"),
        failed_writes={node.node: node.until_seconds for node in facts.skipped_nodes},
        peak_excess={
            keys[peak.reach]: Amount(peak.cpu_millis, peak.memory_bytes)
            for peak in facts.peaks
            if peak.reach in keys
        },
    )
