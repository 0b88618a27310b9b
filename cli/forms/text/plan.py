"""The plan for people: sums before and after, what goes in which order, why the rest stays."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import takewhile
from typing import Final

from rich.console import Console

from cli.answers import Money, Planned
from cli.explain.caveats import Caveat
from cli.forms.text import buffers, reaches
from cli.terminal import Table, say
from core.capacity.sums import limit_text
from core.engine.plan import Plan, Removal, UnremovableNode
from core.model.humanize import plural
from core.model.quantity import format_bytes, format_millis
from core.policies.all import POLICIES
from core.policies.policy import PolicyMetric

TARGETS_SHOWN: Final = 3


def write(answer: Planned, out: Console) -> None:
    """Write the plan."""
    plan = answer.plan
    write_minded(answer.minded, out)
    say(out, summary(plan))
    say(out, "")
    if plan.reaches:
        reaches.write(plan.reaches, out)
        say(out, "")
    say(out, _rule(answer))
    if plan.pending:
        pods = plural(len(plan.pending), "pod")
        say(out, f"Waiting for a node, or on one that leaves, placed first: {pods}.")
    if plan.marked_infeasible:
        say(out, f"Marked, but can not go any more: {', '.join(plan.marked_infeasible)}")
    if answer.money:
        say(out, _prices(answer.money))
    if told := _figures(plan):
        say(out, "", told)
    say(out, "", _removals(plan.removals, out.width) if plan.removals else "No node can go.")
    if plan.kept:
        say(out, "", _kept(plan.kept))
    buffers.write(plan.buffers, out)


def _rule(answer: Planned) -> str:
    """Say what was gone by: the thresholds, or the policy and what it tells."""
    plan, limits = answer.plan, answer.config.thresholds
    if POLICIES[plan.policy].thresholds:
        cpu, memory = map(limit_text, (limits.cpu, limits.memory))
        at_most = f"At most cpu {cpu}, memory {memory} of usable capacity may be requested."
        return f"{at_most} {_usability(plan)}"
    told = (f"{one.gauge}: {_value(one)}" for one in plan.figures if not one.labels)
    return f"By policy {plan.policy}. {'; '.join(told)}".strip()


def _figures(plan: Plan) -> Table | None:
    """Return a row for each thing that the policy tells several figures of, such as a pool."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in plan.figures:
        if one.labels:
            rows.setdefault(one.labels, []).append(_value(one))
    gauges = [gauge for gauge in POLICIES[plan.policy].gauges if gauge.labels]
    words = [gauge.name.split("_") for gauge in gauges]
    shared = sum(1 for _ in takewhile(lambda one: len(set(one)) == 1, zip(*words, strict=False)))
    names = [" ".join(one[shared:]) for one in words]
    cells = [(*(label or '""' for label in labels), *values) for labels, values in rows.items()]
    return Table(*gauges[0].labels, *names, rows=cells) if rows else None


def _value(one: PolicyMetric) -> str:
    return f"{float(one.value):.4g}"


def write_minded(minded: Sequence[Caveat], out: Console) -> None:
    """Write what the look cannot tell, a line each, if there is anything."""
    for one in minded:
        say(out, f"Mind: {one.message}")
    if minded:
        say(out, "")


def _prices(money: Money) -> str:
    before, after, less = map(_price, (money.before, money.after, money.removed))
    return (
        f"By the configured prices the nodes cost {before} together, and {after} without those "
        f"that can go: {less} less."
    )


def _price(amount: Fraction) -> str:
    return f"{float(amount):,.4f}".rstrip("0").rstrip(".")


def summary(plan: Plan) -> Table:
    """Return the sums before the plan and after it."""
    both = plan.before, plan.after
    rows = [("nodes", *(str(totals.nodes) for totals in both))]
    for number, name, unit, write in (
        (0, "cpu", ", cores", _cores),
        (1, "memory", "", format_bytes),
    ):
        for field in ("capacity", "requests", "usable"):
            cells = (write(getattr(totals, field)[number]) for totals in both)
            rows.append((f"{name} {field}{unit}", *cells))
        shares = (reaches.used(totals, number) for totals in both)
        rows.append((f"{name} requests / usable", *shares))
    return Table("nodes that pods can reach", "before", "after", rows=rows)


def _cores(cpu_millis: int) -> str:
    """Write cores with one digit in every row, so that a column can be compared."""
    return f"{cpu_millis / 1000:,.1f}"


def _removals(removals: Sequence[Removal], width: int) -> Table:
    """Where two names side by side would be too wide, what the pods fit on stands below."""
    headings = "order", "node that can go", "pods"
    found = [((str(one.order), one.node, str(len(one.placements))), list(_targets(one)))
             for one in removals]  # fmt: skip
    rows = [(*cells, ", ".join(f"{to} ({pods})" if pods else to for to, pods in targets) or "-")
            for cells, targets in found]  # fmt: skip
    beside = Table(*headings, "would fit on", rows=rows, left=(1, 3))
    if beside.width <= width:
        return beside
    below = (row for cells, targets in found
             for row in (cells, *(("", f" -> {to}", pods) for to, pods in targets)))  # fmt: skip
    return Table(*headings, rows=below, left=(1,))


def _targets(removal: Removal) -> Iterator[tuple[str, str]]:
    """Name the nodes that its pods would fit on, each with how many."""
    targets = Counter(placement.node for placement in removal.placements)
    for node, count in targets.most_common(TARGETS_SHOWN):
        yield node, str(count)
    if len(targets) > TARGETS_SHOWN:
        yield f"{len(targets) - TARGETS_SHOWN} more", ""


def _kept(kept: tuple[UnremovableNode, ...]) -> Table:
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
    most_first = sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    rows = ((code, str(len(members)), example[code]) for code, members in most_first)
    return Table("nodes stay because", "nodes", "for example", rows=rows, left=(0, 2))


def _usability(plan: Plan) -> str:
    usability = plan.usability
    if usability is None:
        return "Everything allocatable counts as usable."
    how = "derived from the pods" if plan.usability_derived else "as configured"
    return (
        f"Free capacity counts as usable from {format_millis(usability.min_cpu_millis)} and "
        f"{format_bytes(usability.min_memory_bytes)} a node, up to "
        f"{float(usability.max_cpu_per_gb):.3g} cores per GB and "
        f"{float(usability.max_gb_per_cpu):.3g} GB per core ({how})."
    )
