"""The reaches that matter, for people: how full each is, before the plan and after it."""

from collections.abc import Iterable, Sequence
from typing import Final

from cli.terminal import printable
from core.capacity.sums import percent
from core.capacity.usable import Share, Totals
from core.engine.plan import REACHES_SHOWN, ReachSums, tightest

HEADINGS: Final = ("reach", "nodes", "cpu", "memory", "at most")
GAP: Final = "  "


def lines(reaches: Sequence[ReachSums], width: int) -> list[str]:
    """Write a table; where it is wider than *width* the names stand above their rows."""
    shown = tightest(reaches, REACHES_SHOWN)
    rows = [HEADINGS, *map(_row, shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    written = [_fit(row, widths) for row in rows]
    if max(map(len, written)) > width:
        written = list(_stacked(rows, widths))
    more = len(reaches) - len(shown)
    return [*written, *([f"and {more} more; -o json has them all"] if more else [])]


def _row(one: ReachSums) -> tuple[str, ...]:
    nodes = _change(str(one.before.nodes), str(one.after.nodes))
    cpu, memory = (_change(_used(one.before, n), _used(one.after, n)) for n in (0, 1))
    return printable(one.name), nodes, cpu, memory, limits(one.enter)


def limits(share: Share) -> str:
    """Write one limit where both are the same."""
    cpu, memory = (percent(part.numerator, part.denominator) for part in share)
    return cpu if cpu == memory else f"{cpu}, {memory}"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _used(totals: Totals, resource: int) -> str:
    whole = totals.usable[resource]
    return percent(totals.requests[resource], whole) if whole else "-"


def _fit(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(size) if not number else cell.rjust(size)
        for number, (cell, size) in enumerate(zip(row, widths, strict=True))
    )
    return GAP.join([first, *others]).rstrip()


def _stacked(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterable[str]:
    for number, row in enumerate(rows):
        if not number:
            yield _fit(row, [len(row[0]), *widths[1:]])
        else:
            yield row[0]
            yield _fit(["", *row[1:]], [len(rows[0][0]), *widths[1:]])
