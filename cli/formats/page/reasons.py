"""The reasons that keep nodes, with the number and the cost of these nodes, as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from cli.answers import Planned
from cli.explain.reasons import with_placeholders
from cli.formats.page.tiles import rounded
from cli.nodes import NodeRow
from core.config.prices import HOURS_A_MONTH
from core.model.reason import Reason


@dataclass(slots=True)
class _Kept:
    """The nodes that one reason keeps."""

    reason: Reason
    rows: list[NodeRow] = field(default_factory=list)


def reasons(answer: Planned) -> list[dict[str, Any]]:
    """Return each reason that keeps nodes, most nodes first.

    A node with several reasons counts in each. `alone` counts the nodes with no other reason.
    """
    kept: dict[str, _Kept] = {}
    rows = {row.name: row for row in answer.rows}
    for node in answer.plan.kept:
        for code, reason in {one.code: one.reason for one in node.blockers}.items():
            kept.setdefault(code, _Kept(reason)).rows.append(rows[node.node])
    most_first = sorted(kept.items(), key=lambda item: (-len(item[1].rows), item[0]))
    priced = answer.headline.cost is not None
    return [
        {
            "code": code,
            "meaning": with_placeholders(found.reason).meaning,
            "fix": with_placeholders(found.reason).fix,
            "nodes": len(found.rows),
            "alone": sum(len(row.reasons) == 1 for row in found.rows),
            "amount": _month(found.rows) if priced else _cores(found.rows),
        }
        for code, found in most_first
    ]


def _month(rows: Sequence[NodeRow]) -> str:
    hour = sum((row.price or Fraction() for row in rows), Fraction())
    return f"{rounded(hour * HOURS_A_MONTH)} a month"


def _cores(rows: Sequence[NodeRow]) -> str:
    return f"{sum(row.node.allocatable.cpu_millis for row in rows) / 1000:,.0f} cores"
