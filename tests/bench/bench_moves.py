"""Draw cost over pods that surge moves replace: `python -m tests.bench.bench_moves FILE [SEED]`.

It simulates the demo's load for one day, without surge moves and with different values of
`surge.maxPerHour`. The evicting autoscaler with its shortest timers and MostAllocated are the
points beside the line.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from matplotlib.figure import Figure

from sim import picture, scenario, waves
from sim.report import COST
from sim.scenario import MOST_ALLOCATED, OWN, SHORTEST_TIMERS, SURGE, WHOLE, Scenario

LIMITS: Final = (1, 2, 5)
"""Values of `surge.maxPerHour` beside the default."""


class Point(NamedTuple):
    """One simulation as a point in the chart: its name, moved pods and cost."""

    name: str
    pods: int
    """Pods that were moved or evicted."""
    cost: float
    line: bool
    """It is a point of the line of Ebb."""


def draw(points: Sequence[Point], title: str, path: str) -> None:
    """Draw cost over moved or evicted pods, and write the picture to *path*."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    ours = sorted((point for point in points if point.line), key=lambda point: point.pods)
    axis.plot(
        [point.pods for point in ours],
        [point.cost for point in ours],
        "o-",
        color=picture.COLOURS[4],
        label="Ebb with surge moves; numbers: surge.maxPerHour",
    )
    others = [point for point in points if not point.line]
    for point, colour in zip(others, picture.COLOURS[2::-1], strict=False):
        axis.plot([point.pods], [point.cost], "s", color=colour)
    for point in points:
        axis.annotate(
            point.name, (point.pods, point.cost), (6, 6), textcoords="offset points", fontsize=9
        )
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel("pods moved or evicted in the day")
    axis.set_ylabel("cost of the nodes")
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.margins(x=0.2)
    axis.set_ylim(0, 1.15 * max(point.cost for point in points))  # room for the names
    axis.grid(alpha=0.25)
    axis.legend(loc="lower right", frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def points(seed: int) -> Iterator[Point]:
    """Simulate each setup, and print and yield its point."""
    load = waves.mixed(seed, 1)

    def simulated(name: str, one: Scenario, *, line: bool, per_hour: int = 0) -> Point:
        surge = replace(OWN.surge, max_per_hour=per_hour or OWN.surge.max_per_hour)
        given = replace(OWN, surge=surge)
        result = scenario.run(one, load, seed=seed, wire=False, given=given)
        pods = result.moved + result.evicted
        print(f"{name}: cost {COST.cell(result)}, {pods} pods", flush=True)
        return Point(name, pods, float(COST.value(result) or 0), line=line)

    yield simulated("MostAllocated", MOST_ALLOCATED, line=False)
    yield simulated("autoscaler that evicts", SHORTEST_TIMERS, line=False)
    yield simulated("0", WHOLE, line=True)
    for limit in LIMITS:
        yield simulated(str(limit), SURGE, line=True, per_hour=limit)
    yield simulated(str(OWN.surge.max_per_hour), SURGE, line=True)


if __name__ == "__main__":
    file, *seeds = sys.argv[1:]
    seed = int(seeds[0]) if seeds else 1
    picture.check(file)
    title = f"Cost and moved pods of a simulated day (seed {seed})"
    draw(list(points(seed)), title, file)
