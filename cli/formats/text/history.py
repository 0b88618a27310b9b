"""The answer of `ebb history` as text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console

from cli.answers import PastDays
from cli.terminal import Table, say
from controller.day_report import PoolFigures, RemovedNodeReport
from controller.figures.day import UNKNOWN
from core.model.humanize import HOUR, age, duration, plural, timestamp

REMOVED_SHOWN: Final = 20
"""Maximum number of removed nodes in the table; -o json has the others that are known."""
NONE: Final = "-"
BY_OTHERS: Final = "by hand, or by another leader"
HEADINGS: Final = (
    "node-hours", "savings expected", "saved", "marked", "unmarked", "removed", "pods moved",
)  # fmt: skip


def write(answer: PastDays, out: Console) -> None:
    """Write the figures by day or, for a single day, by pool; then reasons and removed nodes."""
    say(out, f"cluster {answer.cluster}, {_period(answer)}{_counted(answer)}")
    if not answer.days:
        say(out, "", "Ebb has no figures of this period.")
        return
    say(out, "", _figures(answer))
    waited = answer.total.waited_pod_seconds
    say(
        out,
        "",
        f"Because of marks, pods were Pending for {duration(waited)}, the sum over all pods.",
    )
    if answer.total.unmarks:
        rows = sorted(answer.total.unmarks.items(), key=lambda one: (-one[1], one[0]))
        reasons = ((BY_OTHERS if code == UNKNOWN else code, f"{count:,}") for code, count in rows)
        say(out, "", Table("unmarked because", "nodes", rows=reasons, left=(0,)))
    removed = [node for day in answer.days for node in day.removed]
    if removed:
        say(out, "", _removed(removed[:REMOVED_SHOWN]))
    if len(removed) > REMOVED_SHOWN:
        say(out, f"and {len(removed) - REMOVED_SHOWN:,} more removed nodes; -o json has them")


def _period(answer: PastDays) -> str:
    first, last = answer.first, answer.last
    return f"{first} (UTC)" if first == last else f"{first} to {last} (UTC)"


def _counted(answer: PastDays) -> str:
    if answer.counted_until_seconds is None:
        return ""
    ago = age(answer.now_seconds - answer.counted_until_seconds)
    return f", counted until {ago} ago"


def _figures(answer: PastDays) -> Table:
    rows: Iterable[tuple[str, PoolFigures]]
    if answer.period == "day":
        rows = [(one.pool or NONE, one) for day in answer.days for one in day.pools]
    else:
        rows = [(day.date, day.total) for day in answer.days]
    total = answer.total.total
    costs = bool(total.expected_cost)
    headings = (*HEADINGS[:3], "cost saved", *HEADINGS[3:]) if costs else HEADINGS
    cells = [(name, *_cells(figures, costs=costs)) for name, figures in rows]
    sums = [("all", *_cells(total, costs=costs))] if len(cells) > 1 else []
    first = "pool" if answer.period == "day" else "day"
    return Table(first, *headings, rows=[*cells, *sums], left=(0,))


def _cells(figures: PoolFigures, *, costs: bool) -> Iterator[str]:
    yield _hours(figures.node_seconds)
    yield _hours(figures.expected_node_seconds)
    yield _hours(figures.saved_node_seconds)
    if costs:
        yield f"{figures.saved_cost:,.2f}"
    for count in (figures.marks, figures.unmarks, figures.removed_nodes, figures.moved_pods):
        yield f"{count:,}"


def _hours(seconds: int) -> str:
    return f"{seconds / HOUR:,.1f}"


def _removed(nodes: Sequence[RemovedNodeReport]) -> Table:
    """Return a table of removed nodes: what was predicted at the mark, and what happened."""
    headings = (
        "removed node", "pool", "marked", "predicted", "removed after", "happened",
    )  # fmt: skip
    return Table(*headings, rows=map(_row, nodes), left=range(len(headings)))


def _row(node: RemovedNodeReport) -> tuple[str, ...]:
    price = f", price {node.price:g} an hour" if node.price else ""
    saved = _hours(node.saved_node_seconds)
    limit = age(node.deadline_seconds - node.marked_at_seconds)
    cost = f" (cost {node.saved_cost:,.2f})" if node.saved_cost else ""
    return (
        node.node,
        node.pool or NONE,
        timestamp(node.marked_at_seconds),
        f"{plural(node.predicted_pods, 'pod')} to move within {limit}{price}",
        age(node.removed_at_seconds - node.marked_at_seconds),
        f"{plural(node.moved_pods, 'pod')} moved, saved {saved} node-hours{cost}",
    )


def short(total: PoolFigures) -> str:
    """Return the figures of a day or month in one line, for other answers."""
    cost = f", {total.saved_cost:,.2f} in the currency of `prices`" if total.saved_cost else ""
    return (
        f"saved {_hours(total.saved_node_seconds)} node-hours{cost}, of "
        f"{_hours(total.expected_node_seconds)} expected; nodes: {total.marks:,} marked, "
        f"{total.unmarks:,} unmarked, {total.removed_nodes:,} removed; "
        f"{plural(total.moved_pods, 'pod')} moved"
    )
