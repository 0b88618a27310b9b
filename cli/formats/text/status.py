"""The answer of `ebb status` as text, the most important sentences first."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from cli.answers import ClusterPart
from cli.explain.reasons import REASONS
from cli.formats.text import buffers, headline, kept_empty, leader, reaches
from cli.formats.text.plan import summary
from cli.input.cluster_input import Leader
from cli.input.mark_status import MarkStatus
from cli.input.overview import ClusterStatus
from cli.terminal import Table, fitting, render, say
from core.model.humanize import age, duration, left

MARKS_SHOWN: Final = 20
NONE: Final = "-"
SEVERAL: Final = (
    "context", "version", "mode", "nodes", "removable", "marked", "saves a month", "problem",
)  # fmt: skip
"""Columns of the table of several clusters."""
DROPPED_FIRST: Final = ("version", "mode", "marked", "nodes")
"""Columns that are left out of a table wider than the terminal, in this order."""
ALWAYS: Final = ("nodes", "removableNow", "marked", "leaving")
"""Fields of counts that are shown even if they are 0."""


def write(status: ClusterStatus, out: Console) -> None:
    """Write the status of a cluster: summary of the plan, leader, counts, marks and reasons."""
    headline.write(status.headline, status.cluster_input.running, status.now_seconds, out)
    say(out, "", _head(status))
    say(out, "")
    say(out, _counts(status))
    say(out, "", summary(status.plan, status.headline.devices))
    if status.plan.reaches:
        say(out, "")
        reaches.write(status.plan.reaches, out)
    if status.marked:
        say(out, "", _marks(status))
        more = len(status.marked) - MARKS_SHOWN
        if more > 0:
            say(out, f"and {more:,} more marked nodes; -o json lists all of them")
    if status.reasons:
        say(out, "", _reasons(status))
    kept_empty.write(status.kept_empty, status.now_seconds, out)
    running = status.cluster_input.running
    if running is not None and running.report is not None:
        leader.write(running.report, status.now_seconds, out)
    buffers.write(status.plan.buffers, out)
    buffers.write_published(status.published, out)


def _head(status: ClusterStatus) -> Table:
    known = status.cluster_input.leader
    leads = (
        _leader(known, status.now_seconds) if known else "unknown: a dump does not name the leader"
    )
    refused = ((blocker.code, blocker.message) for blocker in status.refused)
    rows = [*status.cluster_input.origin, ("leader", leads), *refused]
    if status.pending:
        pending = f"{status.pending:,}, of which {status.unschedulable:,} fit on no node"
        rows.append(("Pending pods", pending))
    if status.marked:
        rows.append(("marks", _ages(status)))
    return Table("", "", rows=rows, left=(0, 1))


def _leader(leader: Leader, now_seconds: int) -> str:
    lease = f"Lease {leader.lease}"
    if leader.problem is not None:
        return f"{'unknown' if leader.unread else 'none'} ({lease}: {leader.problem})"
    if not leader.holder:
        return f"none ({lease} has been released)"
    if leader.renewed_seconds is None:
        return f"{leader.holder} ({lease}, never renewed)"
    ago = now_seconds - leader.renewed_seconds
    if ago > leader.duration_seconds:
        return f"none: {leader.holder} last renewed {lease} {duration(ago)} ago"
    return f"{leader.holder} ({lease}, renewed {duration(ago)} ago)"


def _ages(status: ClusterStatus) -> str:
    ages = [_age(status, mark.since) for mark in status.marked if mark.since is not None]
    known = [f"oldest {age(max(ages))}, youngest {age(min(ages))}"] if ages else []
    unknown = len(status.marked) - len(ages)
    return ", ".join([*known, *([f"{unknown} of unknown age"] if unknown else [])])


def _age(status: ClusterStatus, since: int) -> int:
    """Return the age of a mark in seconds, at least 0.

    A mark may be newer than the estimated time of a dump. *since*: Unix time of the mark.
    """
    return max(0, status.now_seconds - since)


def _counts(status: ClusterStatus) -> Table:
    rows = (
        (label, f"{count:,}") for field, label, count in status.counts if count or field in ALWAYS
    )
    return Table("nodes", "count", rows=rows)


def _marks(status: ClusterStatus) -> Table:
    rows = (
        (
            mark.effect,
            mark.node,
            age(_age(status, mark.since)) if mark.since is not None else "-",
            _deadline(mark, status.now_seconds),
            f"{mark.pods_left:,}",
            mark.protection.value,
        )
        for mark in status.marked[:MARKS_SHOWN]
    )
    headings = "mark", "node", "age", "deadline", "pods left", "scale-down protection"
    return Table(*headings, rows=rows, left=(0, 1, 3, 5))


def _deadline(mark: MarkStatus, now_seconds: int) -> str:
    if mark.details is None:
        return "unknown"
    return "overdue" if mark.overdue else left(mark.details.deadline - now_seconds)


def _reasons(status: ClusterStatus) -> Table:
    rows = ((code, f"{count:,}", REASONS[code].meaning) for code, count in status.reasons)
    return Table("not removable because", "nodes", "meaning", rows=rows, left=(0, 2))


def row(status: ClusterStatus) -> tuple[str, ...]:
    """Return the cells of a cluster in the table of several clusters, without its context."""
    running, cost = status.cluster_input.running, status.headline.cost
    report = running.report if running else None
    saved = headline.money(cost.saved_per_month) if cost else NONE
    problems = status.problems
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return (
        (report.version if report else "") or NONE,
        status.headline.mode or "unknown",
        f"{status.nodes:,}",
        f"{status.headline.removable:,}",
        f"{len(status.marked):,}",
        saved,
        f"{problems[0]}{more}" if problems else NONE,
    )


def several(parts: Sequence[ClusterPart[tuple[str, ...]]]) -> str:
    """Return a table with a row for each of several clusters, as text."""
    return render(lambda out: say(out, *table_of_several(parts, out.width)))


def table_of_several(
    parts: Sequence[ClusterPart[tuple[str, ...]]], width: int
) -> Iterator[Table | str]:
    """Yield a table with a row for each cluster, and a line about columns that do not fit.

    A cluster that could not be read has its error in the row. *width*: of the terminal in
    characters.
    """
    unread = [NONE] * (len(SEVERAL) - 2)
    rows = [
        dict(
            zip(
                SEVERAL,
                (cluster.context, *(cluster.part or (*unread, cluster.error))),
                strict=True,
            )
        )
        for cluster in parts
    ]
    numbers = frozenset(("nodes", "removable", "marked", "saves a month"))
    table, left_out = fitting(
        SEVERAL, rows, numbers=numbers, dropped_first=DROPPED_FIRST, width=width
    )
    yield table
    if left_out:
        yield f"The terminal is too narrow for: {', '.join(left_out)}; -o json has all facts."
