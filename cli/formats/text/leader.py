"""Write as text what only the leader knows: rate limits, moves, decisions and savings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console

from cli.formats.text import history
from cli.terminal import Table, say
from controller.day_report import MonthReport
from controller.leader_report import Decision, LeaderFacts, LimitUse, Report
from core.engine.mark_limits import MARK_LIMITS
from core.model.humanize import HOUR, age, left, plural
from core.model.quantity import format_bytes, format_millis

ROWS_SHOWN: Final = 10
"""Rows of each table; -o json has the others."""
NOT_YET_KNOWN: Final[Mapping[str, str]] = {
    "unneededTime": "for how long nodes have been candidates",
    "stabilizationWindow": "peak demand",
    "reserve.window": "how many pods to expect",
}
"""Description of the fact whose time span a setting defines; limits have none."""

BUFFERS: Final[Mapping[str, str]] = {
    "published": "Ebb publishes the expected pods",
    "absent": "not published, because the cluster has no CapacityBuffers",
    "forbidden": "not published, because RBAC does not allow it (component capacity-buffers)",
}
"""Whether Ebb publishes CapacityBuffers, by the word of the report; others are not shown."""
COUNTING_MARKS: Final = frozenset(limit.reason.code for limit in MARK_LIMITS if limit.counts_marks)
"""Codes of the limits that marks use up."""
CAUSES: Final[Mapping[str, str]] = {"mark": "because of marks", "room": "for lack of room"}
"""Description of a cause for which pods are Pending; other causes have none."""


def write(report: Report, now_seconds: int, out: Console) -> None:
    """Write what the leader knows, such as delays and decisions; nothing if it is unknown."""
    facts = report.facts
    if facts is None:
        return
    say(out, "", Table("known to the leader", "", rows=fact_rows(facts, now_seconds), left=(0, 1)))
    if facts.moves:
        moves = [
            (
                move.deployment,
                move.pod,
                move.node,
                _left(move.deadline_seconds, now_seconds),
            )
            for move in facts.moves
        ]
        headings = "surge move of", "pod", "from node", "deadline"
        _table(headings, moves, "surge moves", out)
    decisions = [
        (
            f"{_ago(decision.at_seconds, now_seconds)} ago",
            _action(decision),
            f"{decision.kind} {decision.name}",
            decision.reason,
        )
        for decision in facts.decisions
    ]
    _table(("decided", "action", "object", "reason"), decisions, "decisions", out)


def rows_about_node(
    facts: LeaderFacts, node: str, limits: Sequence[LimitUse], now_seconds: int
) -> list[tuple[str, str]]:
    """Return rows of label and text with what the leader knows about one node.

    They are its delay, limits and decisions. *limits*: what counts for limits on a new mark of the
    node.
    """
    rows = [
        ("delay", f"`unneededTime` ends in {_left(delay.until_seconds, now_seconds)}")
        for delay in facts.delays
        if delay.node == node
    ]
    rows += _limits(facts, limits, now_seconds)
    rows += [
        (
            f"{_ago(decision.at_seconds, now_seconds)} ago",
            f"{_action(decision)}: {decision.reason}",
        )
        for decision in facts.decisions
        if (decision.kind, decision.name) == ("Node", node)
    ][:ROWS_SHOWN]
    if not facts.knows_limits:
        rows.append(("limits", "unknown: the leader has not reconciled yet"))
    elif facts.delays_omitted or facts.limits_omitted:
        rows.append(("limits", "the leader's report does not list every delay and limit"))
    return rows or [("delay", "none: no cooldown, backoff or waiting time delays this node")]


def fact_rows(facts: LeaderFacts, now_seconds: int) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with what the leader knows about the whole cluster."""
    if facts.leading_since_seconds is not None:
        yield "leading for", _ago(facts.leading_since_seconds, now_seconds)
    if facts.reconciled_at_seconds is not None:
        yield "last reconciliation", f"{_ago(facts.reconciled_at_seconds, now_seconds)} ago"
    if facts.stale_because:
        yield "cannot reconcile", facts.stale_because
    if about := BUFFERS.get(facts.capacity_buffers):
        yield "CapacityBuffers", about
    if delays := facts.delays:
        nodes = plural(len(delays) + facts.delays_omitted, "node")
        ends = [_left(delay.until_seconds, now_seconds) for delay in (delays[0], delays[-1])]
        when = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        yield "delays", f"`unneededTime` of {nodes} ends in {when}"
    yield from _figures(facts)
    yield from _limits(facts, facts.limits, now_seconds)
    for unknown in facts.not_yet_known:
        about = NOT_YET_KNOWN.get(unknown.needed_for, "what happened before this leader started")
        wait = _left(unknown.until_seconds, now_seconds)
        yield "not yet known", f"{about} ({unknown.needed_for}): complete in {wait}"


def savings_rows(facts: LeaderFacts) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with what Ebb has done and saved.

    That is today, yesterday and this month or, from the report of an older version, since the
    leader's process started.
    """
    if facts.today is not None:
        yield "today (UTC)", history.short(facts.today.total)
        if facts.yesterday is not None:
            yield "yesterday", history.short(facts.yesterday.total)
        yield "this month (UTC)", _month(facts.month)
    elif (saved := facts.savings) is not None:
        expected = _saved(saved.expected_node_seconds, saved.expected_cost)
        yield "savings expected", f"{expected}, if removable nodes were gone at once"
        estimated = _saved(saved.estimated_node_seconds, saved.estimated_cost)
        yield "savings estimated", f"{estimated}, of nodes that autoscalers have removed"


def _month(month: MonthReport | None) -> str:
    if month is None:
        return "unknown until the leader can read and write the ConfigMap ebb-history"
    begins = "" if month.first.endswith("-01") else f", counted since {month.first}"
    return f"{history.short(month.total)}{begins}"


def _figures(facts: LeaderFacts) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with savings and Pending time."""
    yield from savings_rows(facts)
    if facts.pending:
        causes = (
            f"{CAUSES.get(waiting.cause, waiting.cause)} {waiting.pod_seconds:,} pod-seconds "
            f"(now {plural(waiting.pods, 'pod')})"
            for waiting in facts.pending
        )
        yield "Pending so far", ", ".join(causes)


def _saved(node_seconds: int, cost: float) -> str:
    hours = f"{node_seconds / HOUR:,.1f} node-hours"
    return f"{hours}, {cost:,.2f} in the currency of `prices`" if cost else hours


def _limits(
    facts: LeaderFacts, limits: Sequence[LimitUse], now_seconds: int
) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with what delays marks, such as cooldowns and peak demand."""
    for refused in facts.refused_writes:
        wait = _left(refused.until_seconds, now_seconds)
        change = f"Ebb's writes to {refused.resource} ({refused.change})"
        why = f"the ValidatingAdmissionPolicy {refused.policy} refuses {change}"
        yield "refused", f"{why}; next try in {wait}"
    for use in limits[:ROWS_SHOWN]:
        ends = use.until_seconds + use.unreached_until_seconds
        wait = _left(min(ends, default=now_seconds), now_seconds)
        counts = "1 mark counts" if len(ends) == 1 else f"{len(ends):,} marks count"
        first = "" if len(ends) == 1 else ", the first"
        until = (
            f"{counts} against the limit{first} for" if use.code in COUNTING_MARKS else "ends in"
        )
        yield use.code, f"{use.scope or 'all nodes'}: {until} {wait}"
    for peak in facts.peaks[:ROWS_SHOWN]:
        amount = f"{format_millis(peak.cpu_millis)} CPU, {format_bytes(peak.memory_bytes)} memory"
        wait = _left(peak.until_seconds, now_seconds)
        yield (
            "peak demand",
            f"{amount} above current requests in the reach {peak.reach}, for {wait}",
        )


def _action(decision: Decision) -> str:
    return decision.action if decision.written else f"{decision.action} (only reported)"


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], what: str, out: Console
) -> None:
    """Write a table with at most ROWS_SHOWN rows; *what*: plural noun for the others."""
    if not rows:
        return
    say(out, "", Table(*headings, rows=rows[:ROWS_SHOWN], left=range(len(headings))))
    if len(rows) > ROWS_SHOWN:
        say(out, f"and {len(rows) - ROWS_SHOWN:,} more {what}; -o json lists all of them")


def _ago(at_seconds: int, now_seconds: int) -> str:
    """Return the age of a moment as text, at least 0: the clocks of two machines may differ."""
    return age(now_seconds - at_seconds)


def _left(until_seconds: int, now_seconds: int) -> str:
    return left(until_seconds - now_seconds)
