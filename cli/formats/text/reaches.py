"""The reaches that are nearest to their thresholds, before and after the plan, as text.

A reach is a set of nodes that some pods can use.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from rich.console import Console

from cli.terminal import Table, say
from core.engine.plan import REACHES_SHOWN, DeviceSums, ReachSums, tightest
from core.placement.reach_utilization import limit_text, percent
from core.placement.usable_capacity import Share, Totals


def write(reaches: Sequence[ReachSums], out: Console) -> None:
    """Write a table of the reaches that are nearest to their thresholds."""
    say(out, table(tightest(reaches, REACHES_SHOWN)))
    if len(reaches) > REACHES_SHOWN:
        say(out, f"and {len(reaches) - REACHES_SHOWN} more reaches; -o json lists all of them")


def table(reaches: Iterable[ReachSums]) -> Table:
    """Return a table with a row for each reach; long names may move above their row."""
    reaches = list(reaches)
    devices = any(reach.devices for reach in reaches)
    headings = ("reach", "nodes", "cpu", "memory", *(("devices",) if devices else ()), "threshold")
    rows = (_row(reach, devices=devices) for reach in reaches)
    return Table(*headings, rows=rows, names_above=True)


def _row(reach: ReachSums, *, devices: bool) -> tuple[str, ...]:
    nodes = _change(str(reach.before.nodes), str(reach.after.nodes))
    cpu, memory = (_change(used(reach.before, n), used(reach.after, n)) for n in (0, 1))
    more = (", ".join(map(_device, reach.devices)) or "-",) if devices else ()
    return reach.name, nodes, cpu, memory, *more, limits(reach.enter)


def _device(device: DeviceSums) -> str:
    """Return requested/allocatable units before and after a plan, such as `gpu 5/8 -> 5/6`."""
    before, after = (
        f"{units.requested}/{units.offered}" for units in (device.before, device.after)
    )
    return f"{device.resource.rpartition('/')[2]} {_change(before, after)}"


def limits(share: Share) -> str:
    """Return the thresholds as text: one percentage if CPU and memory have the same."""
    cpu, memory = map(limit_text, share)
    return cpu if cpu == memory else f"{cpu}, {memory}"


def in_percent(share: Fraction) -> str:
    """Return a share as text in percent."""
    return percent(share.numerator, share.denominator)


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def used(totals: Totals, resource: int) -> str:
    """Return requests over usable capacity (docs/glossary.md) in percent, or "-" without capacity.

    *resource*: 0 for CPU, 1 for memory.
    """
    whole = totals.usable[resource]
    return percent(totals.requests[resource], whole) if whole else "-"
