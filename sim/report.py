"""The metrics of a run that tables of runs show.

Cost is price times duration, in the unit of the configured prices. Without prices it is
core-hours, with a GPU as 11 cores and a GiB of memory as 0.13 cores. The lower bound is computed
for the running pods every 15 minutes (sim.bound).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sim.simulated_load import HOUR_MS
from sim.simulator import Result

SECOND_MS: Final = 1000
MILLIS: Final = 1000
NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class RunMetric:
    """One metric of a run; lower is better in all of RUN_METRICS."""

    label: str
    value: Callable[[Result], Fraction | None]
    """Function that returns the value of the metric for a run; None if it is undefined."""
    places: int = 0
    """Number of decimal places."""

    def shown(self, value: Fraction | None) -> str:
        """Return a value of this metric, or a mean of values, as text; "-" for None."""
        return NONE if value is None else f"{float(value):,.{self.places}f}"

    def cell(self, result: Result) -> str:
        """Return this metric of one run as text; "-" if it is undefined."""
        return self.shown(self.value(result))


def _times_the_bound(result: Result) -> Fraction | None:
    """Return the cost of a run relative to its lower bound; None without a bound.

    Both are totals over the samples that have a bound.
    """
    bounded = [(one.cost, one.least) for one in result.samples if one.least is not None]
    least = sum((least for _, least in bounded), Fraction())
    return sum((cost for cost, _ in bounded), Fraction()) / least if least else None


COST: Final = RunMetric("cost", lambda r: r.cost_ms / HOUR_MS)
CORE_HOURS: Final = RunMetric(
    "core-hours", lambda r: Fraction(r.capacity_millis_ms, MILLIS * HOUR_MS)
)
NODE_HOURS: Final = RunMetric("node-hours", lambda r: Fraction(r.node_ms, HOUR_MS))
EVICTED: Final = RunMetric("pods evicted", lambda r: Fraction(r.evicted))
BY_MARK: Final = RunMetric("pods Pending because of a mark", lambda r: Fraction(r.pending_by_mark))
PENDING: Final = RunMetric("Pending pod-seconds", lambda r: Fraction(r.pending_ms, SECOND_MS))
RUN_METRICS: Final = (
    COST,
    RunMetric("cost relative to the LP lower bound", _times_the_bound, 2),
    CORE_HOURS,
    NODE_HOURS,
    EVICTED,
    RunMetric("pods moved", lambda r: Fraction(r.moved)),
    RunMetric("core-hours of work lost", lambda r: Fraction(r.lost_millis_ms, MILLIS * HOUR_MS)),
    RunMetric("pod-seconds below desired", lambda r: Fraction(r.below_desired_ms, SECOND_MS)),
    RunMetric(
        "pod-seconds below desired by evictions",
        lambda r: Fraction(r.below_by_eviction_ms, SECOND_MS),
    ),
    RunMetric(
        "pod-seconds below desired by surge moves",
        lambda r: Fraction(r.below_by_moves_ms, SECOND_MS),
    ),
    RunMetric(
        "seconds unavailable by surge moves",
        lambda r: Fraction(r.unavailable_by_moves_ms, SECOND_MS),
    ),
    BY_MARK,
    PENDING,
    RunMetric("longest Pending time, s", lambda r: Fraction(r.longest_wait_ms, SECOND_MS)),
    RunMetric("scale-ups", lambda r: Fraction(r.scale_ups)),
    RunMetric("marks", lambda r: Fraction(r.marks)),
)


def table(results: Mapping[str, Result]) -> list[list[str]]:
    """Return a table as a list of lines: the names of the runs, then a line for each metric.

    *results*: result of each run by its name.
    """
    figures = [[metric.label, *map(metric.cell, results.values())] for metric in RUN_METRICS]
    return [["", *results], *figures]
