"""For people: in how long nodes are expected to be empty."""

from collections.abc import Mapping, Sequence
from typing import Final

from cli.terminal import Table
from core.model.telling import first, span
from core.model.workload import Workload
from core.survival.look import Emptying

WORKLOADS_SHOWN: Final = 3
UNKNOWN: Final = "not known"
LONGER: Final = "longer"
"""Than pods like those were seen to live."""


def table(heading: str, found: Mapping[str, Emptying]) -> Table | None:
    """Return a row for each node with pods of which it is known; None: of none."""
    known = [(name, one.left) for name, one in found.items() if one.left is not None]
    rows = [
        (name, *map(_time, (left.expected, left.early, left.late)))
        for name, left in known
        if left.expected != 0
    ]
    if not rows:
        return None
    if others := len(found) - len(known):
        rows.append((f"{others:,} more", UNKNOWN, "", ""))
    return Table(heading, "empty in", "early", "late", rows=rows, names_above=True)


def sentence(found: Emptying) -> str:
    """Say it of one node."""
    if found.left is None:
        return f"{UNKNOWN}: too few pods are seen to have ended like those of {_of(found.unknown)}"
    if found.left.expected == 0:
        return "now: nothing is left that keeps it"
    early, expected, late = map(_time, found.left)
    return f"{expected} (early {early}, late {late}), if no pod comes"


def _time(seconds: int | None) -> str:
    return LONGER if seconds is None else span(seconds)


def _of(workloads: Sequence[Workload]) -> str:
    """Name the first of them, and how many more there are."""
    named = [
        f"{one.owner_kind or 'bare pods in'} {one.namespace}"
        + (f"/{one.owner_name}" if one.owner_name else "")
        for one in workloads
    ]
    return first(named, WORKLOADS_SHOWN)
