"""The status for people: one look, the most important first."""

from typing import Final

from rich.console import Console

from cli.look.found import Leader
from cli.look.overview import Status
from cli.look.standing import Standing, span
from cli.terminal import Table, printable, say
from cli.text import reaches
from cli.text.plan import summary, write_minded
from core.explain.reasons import REASONS

MARKS_SHOWN: Final = 20
ALWAYS: Final = ("nodes", "removable now", "marked", "being deleted")
"""Counts that are shown even where they are 0."""


def write(status: Status, out: Console) -> None:
    """Write the status."""
    say(out, _head(status))
    say(out)
    write_minded(status.minded, out)
    say(out, _counts(status))
    say(out)
    say(out, summary(status.plan))
    if status.plan.reaches:
        say(out)
        reaches.write(status.plan.reaches, out)
    if status.marked:
        say(out)
        say(out, _marks(status))
        more = len(status.marked) - MARKS_SHOWN
        if more > 0:
            say(out, f"and {more:,} more; -o json has them all")
    if status.reasons:
        say(out)
        say(out, _reasons(status))


def _head(status: Status) -> Table:
    found = status.found
    rows = Table("", "", left=(0, 1))
    rows.add_row("seen in", printable(found.where))
    built_in = "built-in defaults (give the programs' own with --config)"
    rows.add_row("judged by", printable(found.config_from or built_in))
    if found.leader is None:
        rows.add_row("leader", "not known from a dump")
    else:
        rows.add_row("leader", printable(_leader(found.leader, status.now_seconds)))
    if status.waiting:
        stuck = f"{status.waiting:,}, of which {status.stuck:,} find no place on any node"
        rows.add_row("waiting pods", stuck)
    if status.marked:
        rows.add_row("marks", _ages(status))
    return rows


def _leader(leader: Leader, now_seconds: int) -> str:
    lease = f"Lease {leader.lease}"
    if leader.problem is not None:
        return f"not known ({lease}: {leader.problem})"
    if not leader.holder:
        return f"nobody ({lease} was given back)"
    if leader.renewed_seconds is None:
        return f"{leader.holder} ({lease}, never renewed)"
    ago = now_seconds - leader.renewed_seconds
    if ago > leader.duration_seconds:
        return f"nobody: {leader.holder} last renewed {lease} {span(ago)} ago"
    return f"{leader.holder} ({lease}, renewed {span(ago)} ago)"


def _ages(status: Status) -> str:
    ages = [status.now_seconds - one.since for one in status.marked if one.since is not None]
    unknown = len(status.marked) - len(ages)
    not_known = f"{unknown} of unknown age" if unknown else ""
    if not ages:
        return not_known
    oldest, youngest = max(ages), min(ages)
    found = f"oldest {span(oldest)}, youngest {span(youngest)}"
    return f"{found}, {not_known}" if unknown else found


def _counts(status: Status) -> Table:
    rows = Table("nodes that are", "count")
    for name, count in status.counts:
        if count or name in ALWAYS:
            rows.add_row("all" if name == "nodes" else name, f"{count:,}")
    return rows


def _marks(status: Status) -> Table:
    rows = Table("marked", "node", "age", "deadline", "pods left", "guard", left=(0, 1, 3, 5))
    for one in status.marked[:MARKS_SHOWN]:
        rows.add_row(
            str(one.mark),
            one.node,
            span(status.now_seconds - one.since) if one.since is not None else "-",
            _deadline(one, status.now_seconds),
            f"{one.pods_left:,}",
            one.guard.value,
        )
    return rows


def _deadline(one: Standing, now_seconds: int) -> str:
    if one.details is None:
        return "not known"
    return "overdue" if one.overdue else f"in {span(one.details.deadline - now_seconds)}"


def _reasons(status: Status) -> Table:
    rows = Table("nodes stay because", "nodes", "that is", left=(0, 2))
    for code, count in status.reasons:
        rows.add_row(code, f"{count:,}", REASONS[code].meaning)
    return rows
