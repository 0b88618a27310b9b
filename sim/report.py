"""The four runs side by side.

Cost is price x time, in the unit of the configured prices; without them it is core-hours, with a
GPU as 11 cores and a GiB of memory as 0.13.
"""

from collections.abc import Callable, Mapping
from typing import Final

from sim.workload import HOUR_MS
from sim.world import Result

ROWS: Final[tuple[tuple[str, Callable[[Result], str]], ...]] = (
    ("nodes at the start", lambda r: f"{r.nodes_start}"),
    ("nodes, lowest", lambda r: f"{r.nodes_lowest}"),
    ("nodes at the end", lambda r: f"{r.nodes_end}"),
    ("node-hours", lambda r: f"{r.node_ms / HOUR_MS:,.0f}"),
    ("core-hours of capacity", lambda r: f"{r.capacity_millis_ms / 1000 / HOUR_MS:,.0f}"),
    ("cost", lambda r: f"{float(r.cost_ms / HOUR_MS):,.0f}"),
    ("pods evicted", lambda r: f"{r.evicted:,}"),
    ("work lost, core-hours", lambda r: f"{r.lost_millis_ms / 1000 / HOUR_MS:,.1f}"),
    ("pods made pending by a mark", lambda r: f"{r.pending_by_mark:,}"),
    ("pending pod-seconds", lambda r: f"{r.pending_ms / 1000:,.0f}"),
    ("longest wait, seconds", lambda r: f"{r.longest_wait_ms / 1000:,.0f}"),
    ("scale-ups", lambda r: f"{r.scale_ups:,}"),
    ("marks set", lambda r: f"{r.marks:,}"),
    ("pods that came", lambda r: f"{r.pods:,}"),
)


def table(results: Mapping[str, Result]) -> list[list[str]]:
    """Return rows of cells: a heading, then a figure a row, a run a column."""
    rows = [["", *results]]
    for label, cell in ROWS:
        rows.append([label, *(cell(result) for result in results.values())])
    return rows
