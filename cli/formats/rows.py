"""A plan as rows of nodes: a wide table, CSV, and names; the history as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from cli.answers import ClusterPart, PastDays, Planned, RowOptions
from cli.nodes import SORT_KEYS, NodeRow
from cli.terminal import Table, fitting, render, say
from controller.day_report import PoolFigures
from core.model.humanize import age
from runtime.messages import printable

HEADINGS: Final = (
    "node", "order", "mark", "pods", "requested", "price", "age", "pool", "zone", "type",
)  # fmt: skip
NUMBERS: Final = frozenset(("order", "pods", "requested", "price"))
REASONS: Final = "not removable because"
NONE: Final = "-"
DROPPED_FIRST: Final = ("type", "zone", "pool", "age", "price", "mark", "order")
"""Columns that are left out of a table wider than the terminal, in this order."""
CONTEXT: Final = "context"
TAKEN: Final = frozenset((*HEADINGS, "ageSeconds", "reasons", CONTEXT, "error"))
"""Headings that a label of the same name cannot have."""


class Rows(NamedTuple):
    """The rows of the nodes of one cluster, in the requested order, and how to show them."""

    rows: Sequence[NodeRow]
    view: RowOptions


def rows_of(answer: Planned) -> Rows:
    """Return a row for each node of a plan, in the order of --sort-by."""
    key = SORT_KEYS[answer.view.sort_by]
    return Rows(sorted(answer.rows, key=lambda row: (key(row), row.name)), answer.view)


def wide(answer: Planned) -> str:
    """Return a table with a row for each node; columns that do not fit a terminal are left out."""
    rows, view = rows_of(answer)
    headings = (*HEADINGS, *_label_headings(view), REASONS)
    every = [dict(zip(headings, _cells(row, view), strict=True)) for row in rows]
    return render(lambda out: say(out, *_table(headings, every, view, out.width)))


def wide_of_several(parts: Sequence[ClusterPart[Rows]]) -> str:
    """Return a table with a row for each node of several clusters.

    A cluster that could not be read has one row with the error.
    """
    view = _view(parts)
    columns = (*HEADINGS, *_label_headings(view), REASONS)
    headings = (columns[0], CONTEXT, *columns[1:])
    every: list[dict[str, str]] = []
    for cluster in parts:
        if cluster.part is None:
            none = dict.fromkeys(headings, NONE)
            every.append({**none, CONTEXT: cluster.context, REASONS: f"not read: {cluster.error}"})
            continue
        for row in cluster.part.rows:
            cells = dict(zip(columns, _cells(row, view), strict=True))
            every.append({**cells, CONTEXT: cluster.context})
    return render(lambda out: say(out, *_table(headings, every, view, out.width)))


def _view(parts: Sequence[ClusterPart[Rows]]) -> RowOptions:
    return next((cluster.part.view for cluster in parts if cluster.part is not None), RowOptions())


def _table(
    headings: Sequence[str], every: Sequence[Mapping[str, str]], view: RowOptions, width: int
) -> Iterator[Table | str]:
    """Yield a table, without the columns for which the terminal is too narrow.

    If there are any, a line with their names follows. *every*: rows with a cell for each heading.
    """
    table, left_out = fitting(
        headings, every, numbers=NUMBERS, dropped_first=DROPPED_FIRST, width=width
    )
    yield table.without_headings() if view.no_headers else table
    if left_out:
        yield f"The terminal is too narrow for: {', '.join(left_out)}; -o csv has all columns."


def _label_headings(view: RowOptions) -> Iterator[str]:
    return (f"label {key}" if key in TAKEN else key for key in view.label_columns)


def _cells(row: NodeRow, view: RowOptions) -> tuple[str, ...]:
    return (
        row.name,
        NONE if row.order is None else str(row.order),
        row.mark or NONE,
        str(row.pods),
        f"{float(row.requested):.0%}",
        NONE if row.price is None else f"{float(row.price):g}",
        NONE if row.age_seconds is None else age(row.age_seconds),
        row.pool or NONE,
        row.zone or NONE,
        row.instance_type or NONE,
        *(row.node.labels.get(key) or NONE for key in view.label_columns),
        ", ".join(row.reasons) or NONE,
    )


def comma_separated(answer: Planned) -> str:
    """Return a row for each node of a plan as CSV.

    Requests are a share of the allocatable amount, such as 0.5; the age is in seconds.
    """
    rows, view = rows_of(answer)
    lines = [] if view.no_headers else [_csv_headings(view)]
    return _csv([*lines, *(_csv_cells(row, view) for row in rows)])


def comma_separated_of_several(parts: Sequence[ClusterPart[Rows]]) -> str:
    """Return a row for each node of several clusters as CSV.

    A cluster that could not be read has one row with the error.
    """
    view = _view(parts)
    headings = _csv_headings(view)
    lines: list[Sequence[object]] = [] if view.no_headers else [(*headings, CONTEXT, "error")]
    for cluster in parts:
        if cluster.part is None:
            lines.append((*[""] * len(headings), cluster.context, cluster.error))
        else:
            lines += [(*_csv_cells(row, view), cluster.context, "") for row in cluster.part.rows]
    return _csv(lines)


def _csv(lines: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow([printable(str(cell)) for cell in line])
    return out.getvalue()


def _csv_headings(view: RowOptions) -> tuple[str, ...]:
    return (*HEADINGS[:6], "ageSeconds", *HEADINGS[7:], *_label_headings(view), "reasons")


def _csv_cells(row: NodeRow, view: RowOptions) -> tuple[object, ...]:
    return (
        row.name,
        "" if row.order is None else row.order,
        row.mark,
        row.pods,
        round(float(row.requested), 4),
        "" if row.price is None else float(row.price),
        "" if row.age_seconds is None else row.age_seconds,
        row.pool,
        row.zone,
        row.instance_type,
        *(row.node.labels.get(key, "") for key in view.label_columns),
        " ".join(row.reasons),
    )


def names(answer: Planned) -> str:
    """Return a line `node/NAME` for each removable node, as an argument for kubectl."""
    return "".join(f"{name}\n" for name in _names(rows_of(answer)))


def names_of_several(parts: Sequence[ClusterPart[Rows]]) -> str:
    """Return a line `CONTEXT node/NAME` for each removable node of several clusters."""
    return "".join(
        f"{printable(cluster.context)} {name}\n"
        for cluster in parts
        if cluster.part is not None
        for name in _names(cluster.part)
    )


def _names(rows: Rows) -> Iterator[str]:
    return (f"node/{printable(row.name)}" for row in rows.rows if row.order is not None)


def history(answer: PastDays) -> str:
    """Return a row for each day and pool as CSV, the last day first."""
    rows = (
        (day.date, *msgspec.structs.astuple(pool)) for day in answer.days for pool in day.pools
    )
    return _csv([("date", *PoolFigures.__struct_encode_fields__), *rows])
