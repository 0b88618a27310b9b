"""A plan as rows of nodes: a wide table, CSV, and names."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Final

from cli.answers import Planned
from cli.nodes import SORT_KEYS, NodeRow
from cli.terminal import Table, printable, render, say
from core.model.humanize import age

HEADINGS: Final = (
    "node", "order", "mark", "pods", "requested", "price", "age", "pool", "zone", "type",
)  # fmt: skip
NUMBERS: Final = frozenset(("order", "pods", "requested", "price"))
REASONS: Final = "not removable because"
NONE: Final = "-"
DROPPED_FIRST: Final = ("type", "zone", "pool", "age", "price", "mark", "order")
"""Columns that are left out of a table wider than the terminal, in this order."""


def sorted_rows(answer: Planned) -> Sequence[NodeRow]:
    """Return the rows in the requested order."""
    key = SORT_KEYS[answer.view.sort_by]
    return sorted(answer.rows, key=lambda row: (key(row), row.name))


def wide(answer: Planned) -> str:
    """Return a table of all nodes; columns that do not fit a terminal are left out."""
    return render(lambda out: say(out, *_table(answer, out.width)))


def _table(answer: Planned, width: int) -> Iterator[Table | str]:
    headings = (*HEADINGS, *answer.view.label_columns, REASONS)
    every = [dict(zip(headings, _cells(row, answer), strict=True)) for row in sorted_rows(answer)]
    columns, left_out = list(headings), []
    while True:
        left = [number for number, name in enumerate(columns) if name not in NUMBERS]
        shown = [[cells[name] for name in columns] for cells in every]
        table = Table(*columns, rows=shown, left=left, names_above=True)
        over = max(map(len, table.lines(width)), default=0) > width
        candidates = [name for name in DROPPED_FIRST if name in columns]
        if not over or not candidates:
            break
        columns.remove(candidates[0])
        left_out.append(candidates[0])
    yield table.without_headings() if answer.view.no_headers else table
    if left_out:
        yield f"The terminal is too narrow for: {', '.join(left_out)}; -o csv has all columns."


def _cells(row: NodeRow, answer: Planned) -> tuple[str, ...]:
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
        *(row.node.labels.get(key) or NONE for key in answer.view.label_columns),
        ", ".join(row.reasons) or NONE,
    )


def comma_separated(answer: Planned) -> str:
    """Return the rows as CSV; requested is a share, the age is in seconds."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    labels = answer.view.label_columns
    if not answer.view.no_headers:
        writer.writerow((*HEADINGS[:6], "ageSeconds", *HEADINGS[7:], *labels, "reasons"))
    for row in sorted_rows(answer):
        cells = (
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
            *(row.node.labels.get(key, "") for key in labels),
            " ".join(row.reasons),
        )
        writer.writerow([printable(str(one)) for one in cells])
    return out.getvalue()


def names(answer: Planned) -> str:
    """Return the removable nodes as arguments for kubectl, a line each."""
    rows = (row for row in sorted_rows(answer) if row.order is not None)
    return "".join(f"node/{printable(row.name)}\n" for row in rows)
