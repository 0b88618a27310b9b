"""Write as text what only the leader knows: rate limits, moves, decisions and savings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console

from cli.terminal import Table, say
from controller.leader_report import Decision, LeaderFacts, Report
from core.model.humanize import HOUR, age, plural
from core.model.quantity import format_bytes, format_millis

ROWS_SHOWN: Final = 10
"""Rows of each table; -o json has the others."""
NOT_YET_KNOWN: Final[Mapping[str, str]] = {
    "unneededTime": "for how long nodes have been candidates",
    "stabilizationWindow": "peak demand",
    "cooldown.delayAfterPending": "which pods were unschedulable before",
    "budgets.window": "marks of nodes that have been removed since",
    "reserve.lookback": "how many pods to expect",
}
"""Description of the fact whose time span a setting defines."""

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
        _table(headings, moves, out)
    decisions = [
        (
            f"{_ago(decision.at_seconds, now_seconds)} ago",
            _action(decision),
            f"{decision.kind} {decision.name}",
            decision.reason,
        )
        for decision in facts.decisions
    ]
    _table(("decided", "action", "object", "reason"), decisions, out)


def write_about_node(facts: LeaderFacts, node: str, now_seconds: int, out: Console) -> None:
    """Write what the leader knows about one node, such as its delay and decisions about it."""
    rows = [
        ("delay", f"unneededTime ends in {_left(delay.until_seconds, now_seconds)}")
        for delay in facts.delays
        if delay.node == node
    ]
    rows += [
        ("skipped", f"for {_left(skip.until_seconds, now_seconds)}: its mark could not be written")
        for skip in facts.skipped_nodes
        if skip.node == node
    ]
    rows += _limits(facts, now_seconds)
    rows += [
        (
            f"{_ago(decision.at_seconds, now_seconds)} ago",
            f"{_action(decision)}: {decision.reason}",
        )
        for decision in facts.decisions
        if (decision.kind, decision.name) == ("Node", node)
    ][:ROWS_SHOWN]
    rows = rows or [("delay", "none: no cooldown, backoff or waiting time delays this node")]
    say(out, "", Table("known to the leader", "", rows=rows, left=(0, 1)))


def fact_rows(facts: LeaderFacts, now_seconds: int) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with what the leader knows about the whole cluster."""
    if facts.leading_since_seconds is not None:
        yield "leading for", _ago(facts.leading_since_seconds, now_seconds)
    if facts.reconciled_at_seconds is not None:
        yield "last reconciliation", f"{_ago(facts.reconciled_at_seconds, now_seconds)} ago"
    if facts.stale_because:
        yield "cannot reconcile", facts.stale_because
    if delays := facts.delays:
        nodes = plural(len(delays) + facts.delays_omitted, "node")
        ends = [_left(delay.until_seconds, now_seconds) for delay in (delays[0], delays[-1])]
        when = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        yield "delays", f"unneededTime of {nodes} ends in {when}"
    yield from _figures(facts)
    yield from _limits(facts, now_seconds)
    for skipped in facts.skipped_nodes[:ROWS_SHOWN]:
        wait = _left(skipped.until_seconds, now_seconds)
        yield "skipped", f"{skipped.node} for {wait}: its mark could not be written"
    for unknown in facts.not_yet_known:
        about = NOT_YET_KNOWN.get(unknown.setting, "")
        wait = _left(unknown.until_seconds, now_seconds)
        yield "not yet known", f"{about} ({unknown.setting}): complete in {wait}".lstrip()


def savings_rows(facts: LeaderFacts) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with the savings since the leader's process started."""
    if (saved := facts.savings) is not None:
        expected = _saved(saved.expected_node_seconds, saved.expected_cost)
        yield "savings expected", f"{expected}, if removable nodes were gone at once"
        estimated = _saved(saved.estimated_node_seconds, saved.estimated_cost)
        yield "savings estimated", f"{estimated}, of nodes that autoscalers have removed"


def _figures(facts: LeaderFacts) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with savings and Pending time since the leader's start."""
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


def _limits(facts: LeaderFacts, now_seconds: int) -> Iterator[tuple[str, str]]:
    """Yield rows of label and text with cooldowns and peak demand, which delay marks."""
    for cooldown in facts.cooldowns:
        wait = _left(cooldown.until_seconds, now_seconds)
        yield "cooldown", f"no new marks for {wait} ({cooldown.setting})"
    for peak in facts.peaks[:ROWS_SHOWN]:
        amount = f"{format_millis(peak.cpu_millis)} CPU, {format_bytes(peak.memory_bytes)} memory"
        wait = _left(peak.until_seconds, now_seconds)
        yield "peak demand", f"{amount} above current requests in {peak.reach}, for {wait}"


def _action(decision: Decision) -> str:
    return decision.action if decision.written else f"{decision.action} (only reported)"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], out: Console) -> None:
    if not rows:
        return
    say(out, "", Table(*headings, rows=rows[:ROWS_SHOWN], left=range(len(headings))))
    if len(rows) > ROWS_SHOWN:
        say(out, f"and {len(rows) - ROWS_SHOWN:,} more; -o json lists all of them")


def _ago(at_seconds: int, now_seconds: int) -> str:
    """Return the age of a moment as text, at least 0: the clocks of two machines may differ."""
    return age(now_seconds - at_seconds)


def _left(until_seconds: int, now_seconds: int) -> str:
    return age(until_seconds - now_seconds)
