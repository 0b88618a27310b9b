"""The reaches that matter, for people: how full each is, before the plan and after it."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from rich.console import Console

from cli.terminal import Table, say
from core.capacity.sums import limit_text, percent
from core.capacity.usable import Share, Totals
from core.engine.plan import REACHES_SHOWN, ReachSums, tightest


def write(reaches: Sequence[ReachSums], out: Console) -> None:
    """Write those that come nearest to their limits."""
    say(out, table(tightest(reaches, REACHES_SHOWN)))
    if len(reaches) > REACHES_SHOWN:
        say(out, f"and {len(reaches) - REACHES_SHOWN} more; -o json has them all")


def table(reaches: Iterable[ReachSums]) -> Table:
    """Return a row for each; the names are long."""
    headings = "reach", "nodes", "cpu", "memory", "at most"
    return Table(*headings, rows=map(_row, reaches), names_above=True)


def _row(one: ReachSums) -> tuple[str, ...]:
    nodes = _change(str(one.before.nodes), str(one.after.nodes))
    cpu, memory = (_change(used(one.before, n), used(one.after, n)) for n in (0, 1))
    return one.name, nodes, cpu, memory, limits(one.enter)


def limits(share: Share) -> str:
    """Write one limit where both are the same."""
    cpu, memory = map(limit_text, share)
    return cpu if cpu == memory else f"{cpu}, {memory}"


def in_percent(share: Fraction) -> str:
    """Write a share."""
    return percent(share.numerator, share.denominator)


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def used(totals: Totals, resource: int) -> str:
    """Write how much of what is usable is asked for."""
    whole = totals.usable[resource]
    return percent(totals.requests[resource], whole) if whole else "-"
