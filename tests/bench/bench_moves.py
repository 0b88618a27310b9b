"""Draw cost over pods that surge moves replace: `python -m tests.bench.bench_moves FILE [SEED]`.

It simulates the demo's load for one day, with thresholds of 95 %, without surge moves and with
different values of `surge.maxPerHour`. The evicting autoscaler and MostAllocated are the points
beside the line.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Final

from core.config.thresholds import Thresholds
from sim import picture, scenario, waves
from sim.picture import MovesPoint
from sim.report import COST
from sim.scenario import AUTOSCALER, MOST_ALLOCATED, OWN, SURGE, WHOLE, Scenario

SHARE: Final = Fraction(95, 100)
GIVEN: Final = replace(OWN, thresholds=Thresholds(cpu=SHARE, memory=SHARE))
LIMITS: Final = (1, 2, 5)
"""Values of `surge.maxPerHour` beside the default."""


def points(seed: int) -> Iterator[MovesPoint]:
    """Simulate each setup, and print and yield its point."""
    load = waves.mixed(seed, 1)

    def simulated(name: str, one: Scenario, *, line: bool, per_hour: int = 0) -> MovesPoint:
        surge = replace(GIVEN.surge, max_per_hour=per_hour or GIVEN.surge.max_per_hour)
        given = replace(GIVEN, surge=surge)
        result = scenario.run(one, load, seed=seed, wire=False, given=given)
        pods = result.moved + result.evicted
        print(f"{name}: cost {COST.cell(result)}, {pods} pods", flush=True)
        return MovesPoint(name, pods, float(COST.value(result) or 0), line=line)

    yield simulated("MostAllocated", MOST_ALLOCATED, line=False)
    yield simulated("autoscaler that evicts", AUTOSCALER, line=False)
    yield simulated("0", WHOLE, line=True)
    for limit in LIMITS:
        yield simulated(str(limit), SURGE, line=True, per_hour=limit)
    yield simulated(str(GIVEN.surge.max_per_hour), SURGE, line=True)


if __name__ == "__main__":
    file, *seeds = sys.argv[1:]
    seed = int(seeds[0]) if seeds else 1
    picture.check(file)
    title = f"Cost and moved pods of a simulated day (seed {seed}, thresholds 95 %)"
    picture.draw_moves(list(points(seed)), title, file)
