"""The plan for people: sums before and after, what goes in which order, why the rest stays."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from rich.console import Console
from rich.table import Table

from cli import caveats_text
from cli.terminal import printable, table, written
from core.capacity import Totals, Usability
from core.caveats import Caveat
from core.config import Config
from core.plan import Kept, Plan, Removal
from core.quantity import format_bytes, format_millis
from core.sums import percent

TARGETS_SHOWN: Final = 3


def text(plan: Plan, config: Config, minded: Sequence[Caveat]) -> str:
    """Write the plan for standard output: with colour for a terminal, without for a pipe."""
    return written(lambda out: _print(plan, config, minded, out))


def _print(plan: Plan, config: Config, minded: Sequence[Caveat], out: Console) -> None:
    if minded:
        out.print("\n".join(caveats_text.lines(minded)))
        out.print()
    out.print(summary(plan))
    out.print()
    limits = f"cpu {_share(config.thresholds.cpu)}, memory {_share(config.thresholds.memory)}"
    out.print(f"At most {limits} of usable capacity may be requested. {_usability(plan)}")
    if plan.pending:
        count = len(plan.pending)
        out.print(f"Waiting for a node, placed first: {count} {'pod' if count == 1 else 'pods'}.")
    if plan.marked_infeasible:
        names = ", ".join(plan.marked_infeasible)
        out.print(f"Marked, but can not go any more: {printable(names)}")
    out.print()
    if plan.removals:
        out.print(_removals(plan.removals))
    else:
        out.print("No node can go.")
    if plan.kept:
        out.print()
        out.print(_kept(plan.kept))


def summary(plan: Plan) -> Table:
    """Return the sums before the plan and after it."""
    rows = table("", "before", "after")
    before, after = plan.before, plan.after
    rows.add_row("nodes", str(before.nodes), str(after.nodes))
    for number, name, unit, write in (
        (0, "cpu", ", cores", _cores),
        (1, "memory", "", format_bytes),
    ):
        for field in ("capacity", "requests", "usable"):
            cells = [write(getattr(totals, field)[number]) for totals in (before, after)]
            rows.add_row(f"{name} {field}{unit}", *cells)
        shares = [_utilization(totals, number) for totals in (before, after)]
        rows.add_row(f"{name} requests / usable", *shares)
    return rows


def _cores(cpu_millis: int) -> str:
    """Write cores with one digit in every row, so that a column can be compared."""
    return f"{cpu_millis / 1000:,.1f}"


def _utilization(totals: Totals, resource: int) -> str:
    whole = totals.usable[resource]
    return percent(totals.requests[resource], whole) if whole else "-"


def _removals(removals: tuple[Removal, ...]) -> Table:
    rows = table("order", "node that can go", "pods", "would fit on", left=(1, 3))
    for removal in removals:
        targets = Counter(placement.node for placement in removal.placements)
        names = [f"{node} ({count})" for node, count in targets.most_common(TARGETS_SHOWN)]
        more = len(targets) - len(names)
        where = ", ".join(names) + (f", {more} more" if more else "")
        moves = str(len(removal.placements))
        rows.add_row(str(removal.order), removal.node, moves, where or "-")
    return rows


def _kept(kept: tuple[Kept, ...]) -> Table:
    """Group the nodes that stay by reason; a node with several reasons counts in each."""
    nodes: dict[str, list[str]] = {}
    example: dict[str, str] = {}
    for node in kept:
        for blocker in node.blockers:
            members = nodes.setdefault(blocker.code, [])
            if not members or members[-1] != node.node:
                members.append(node.node)
            about = f"{blocker.pod}: " if blocker.pod else ""
            example.setdefault(blocker.code, f"{node.node}: {about}{blocker.message}")
    rows = table("nodes stay because", "nodes", "for example", left=(0, 2))
    for code, members in sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        rows.add_row(code, str(len(members)), printable(example[code]))
    return rows


def _usability(plan: Plan) -> str:
    usability: Usability | None = plan.usability
    if usability is None:
        return "Everything allocatable counts as usable."
    how = "derived from the pods" if plan.usability_derived else "as configured"
    return (
        f"Free capacity counts as usable from {format_millis(usability.min_cpu_millis)} and "
        f"{format_bytes(usability.min_memory_bytes)} a node, up to "
        f"{float(usability.max_cpu_per_gb):.3g} cores per GB and "
        f"{float(usability.max_gb_per_cpu):.3g} GB per core ({how})."
    )


def _share(share: Fraction) -> str:
    return percent(share.numerator, share.denominator)
