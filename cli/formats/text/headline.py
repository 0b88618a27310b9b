"""The summary of a plan as sentences, and sums of its nodes by pool and zone."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from rich.console import Console

from cli.explain.headline import Cost, Headline
from cli.explain.marking import MarkingWait
from cli.input.cluster_input import Running
from cli.nodes import NodeRow
from cli.terminal import Table, say
from core.config.prices import HOURS_A_MONTH
from core.config.settings import Mode
from core.model.humanize import first, left, plural
from core.model.quantity import format_bytes

NAMES_SHOWN: Final = 3
REASONS_SHOWN: Final = 4
GROUPS_SHOWN: Final = 12
NONE: Final = "-"
ONLY: Final[Mapping[Mode | None, str]] = {
    Mode.ENFORCE: "",
    Mode.OBSERVE: " (mode observe: only reported)",
    None: " (if the mode is enforce, which is unknown)",
}
"""What follows the number of nodes to mark, by mode."""


def write(headline: Headline, running: Running | None, now_seconds: int, out: Console) -> None:
    """Write the summary of a plan, and why no node is marked at the moment.

    *running*: how Ebb runs in the cluster; None for a dump.
    """
    for line in (*lines(headline, now_seconds), *problems(running, now_seconds)):
        say(out, line)


def problems(running: Running | None, now_seconds: int) -> Iterator[str]:
    """Yield a sentence if no replica leads, if that is unknown, or if the leader is stuck.

    *running*: how Ebb runs in the cluster; None for a dump.
    """
    if running is None:
        return
    leads = running.leads(now_seconds)
    if leads is None:
        lease = running.leader.lease
        yield (
            f"The Lease {lease} cannot be read, so it is unknown whether a replica of "
            "ebb-controller leads and marks nodes."
        )
    elif not leads:
        yield "No replica of ebb-controller leads, so no node is marked now."
    elif running.facts and (why := running.facts.stale_because):
        yield f"The leader marks no node, because it cannot reconcile: {why}."


def lines(headline: Headline, now_seconds: int) -> Iterator[str]:
    """Yield the summary of a plan as sentences."""
    if not headline.nodes:
        yield "The cluster has no nodes, or the options select no node."
        return
    if not headline.removable:
        yield _none(headline)
        return
    freed, whole = headline.capacity, headline.before.allocatable
    share, cpu, memory = (
        f"{percent(*pair)} %"
        for pair in (
            (headline.removable, headline.nodes),
            (freed.cpu_millis, whole.cpu_millis),
            (freed.memory_bytes, whole.memory_bytes),
        )
    )
    parts = (
        f"{freed.cpu_millis / 1000:,.1f} cores ({cpu})",
        f"{format_bytes(freed.memory_bytes)} memory ({memory})",
        *(f"{units:,} {name}" for name, units in sorted(freed.devices.items())),
    )
    nodes = plural(headline.nodes, "node")
    yield f"{headline.removable:,} of {nodes} can be removed ({share}): {', '.join(parts)}."
    yield _savings(headline.cost)
    yield from _marks(headline, now_seconds)
    late = [f"{why.code} ({plural(why.pods, 'pod')}, such as {why.example})"
            for why in headline.late_because]  # fmt: skip
    because = f", because of {first(late, REASONS_SHOWN)}" if late else ""
    yield (
        f"Removable nodes empty already: {headline.empty:,}. Emptied by completion and turnover: "
        f"{headline.by_themselves:,}; by surge moves: {headline.by_moves:,}; "
        f"late: {headline.emptied_late:,}{because}."
    )


def _none(headline: Headline) -> str:
    """Return why no node can be removed: the cluster is compact, or other reasons keep nodes."""
    nodes, (requests, whole) = plural(headline.nodes, "node"), headline.before
    cpu = percent(requests.cpu_millis, whole.cpu_millis)
    memory = percent(requests.memory_bytes, whole.memory_bytes)
    used = f"Requested: {cpu} % of CPU, {memory} % of memory."
    if headline.compact:
        return f"The cluster is compact: none of {nodes} can be removed. {used}"
    return f"None of {nodes} can be removed. {used}"


def percent(part: int, whole: int) -> int:
    """Return *part* as a rounded percentage of *whole*; 0 if *whole* is 0."""
    return (100 * part + whole // 2) // whole if whole else 0


def _savings(cost: Cost | None) -> str:
    if cost is None:
        return "Savings in money: unknown, because the configuration has no `prices`."
    saved, whole = map(money, (cost.saved_per_month, cost.before * HOURS_A_MONTH))
    text = f"Savings: {saved} of {whole} a month ({HOURS_A_MONTH} h), in the currency of `prices`."
    if not cost.unpriced:
        return text
    without = plural(len(cost.unpriced), "node")
    return f"{text} Without a price: {without}, {first(cost.unpriced, NAMES_SHOWN)}."


def _marks(headline: Headline, now_seconds: int) -> Iterator[str]:
    now, waiting, waits = headline.marking
    yield (
        f"Marked nodes: {headline.marked:,}. To mark now: {len(now):,}{ONLY[headline.mode]}. "
        f"Waiting: {len(waiting):,}."
    )
    if waits:
        reasons = [_wait(wait, now_seconds) for wait in waits]
        yield f"Waiting for: {first(reasons, REASONS_SHOWN)}."
    if not headline.leader_asked and headline.marked < headline.removable:
        yield (
            "Limits unknown: this is an estimate without the controller. Delays such as "
            "`unneededTime` count as passed, and peak demand is unknown."
        )


def _wait(wait: MarkingWait, now_seconds: int) -> str:
    nodes = plural(wait.nodes, "node")
    for_ = "" if wait.until is None else f", {left(wait.until - now_seconds)}"
    return f"{wait.code} ({nodes}{for_})"


def money(amount: Fraction) -> str:
    """Return an amount of money as text with two decimals, or more if it is small."""
    return f"{float(amount):,.2f}" if amount >= 1 or not amount else f"{float(amount):.3g}"


def groups(rows: Sequence[NodeRow], *, priced: bool) -> Iterator[Table | str]:
    """Yield an empty line and a table that counts nodes by pool and zone.

    Only pools and zones with removable nodes have a row. Yields nothing if there are none, or if
    all nodes are in one pool and zone. *priced*: prices are configured, so show the savings.
    """
    by_group: dict[tuple[str, str], list[NodeRow]] = {}
    for row in rows:
        by_group.setdefault((row.pool, row.zone), []).append(row)
    shown = {
        group: members
        for group, members in sorted(by_group.items())
        if any(row.order is not None for row in members)
    }
    if len(by_group) < 2 or not shown:
        return
    known = [number for number in (0, 1) if any(group[number] for group in by_group)]
    names = [("pool", "zone")[number] for number in known]
    table_rows = [
        (*(group[number] or NONE for number in known), *_sums(members, priced=priced))
        for group, members in shown.items()
    ]
    headings = *names, "nodes", "removable", *(("saves a month",) if priced else ())
    yield ""
    yield Table(*headings, rows=table_rows[:GROUPS_SHOWN], left=range(len(known)))
    if len(shown) > GROUPS_SHOWN:
        yield f"and {len(shown) - GROUPS_SHOWN:,} more pools and zones; -o csv has every node"


def _sums(members: Sequence[NodeRow], *, priced: bool) -> tuple[str, ...]:
    removable = [row for row in members if row.order is not None]
    counts = f"{len(members):,}", f"{len(removable):,}"
    if not priced:
        return counts
    prices = [row.price for row in removable if row.price is not None]
    unknown = removable and not prices
    return *counts, NONE if unknown else money(sum(prices, Fraction()) * HOURS_A_MONTH)
