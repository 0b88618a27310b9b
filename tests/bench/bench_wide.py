"""Simulate the scale-in of the load `wide`: how many nodes are left, with Ebb and with rivals.

`python -m tests.bench.bench_wide FILE [SETUP ...] [--thresholds PERCENT]` reads a file of
tests/e2e/wide.py. Times are thirty times those of the live loop, so that timers have their
defaults. The fewest nodes are those for which a solver finds an assignment of the remaining pods.
"""

import argparse
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

from core.config.thresholds import Thresholds
from sim import scenario
from sim.scenario import MANAGED_SURGE, MOST_ALLOCATED, OWN, SURGE
from sim.simulator import SAMPLE_MS
from tests.bench.fewest_nodes import fewest_nodes
from tests.e2e.live import Load
from tests.e2e.wide import SCALE_IN, remaining, wide
from tests.support.scale_in import ScaleInOrder, deletion_costs
from tests.support.simulated import begin_ms, simulated

SLOWER: Final = 30
NODES: Final = 90
"""Nodes at the beginning: enough for all pods. The simulated autoscaler ignores inter-pod
constraints, so it would add too many."""
BEGIN_SECONDS: Final = -300.0
"""When the Deployments are created."""
TICK_MS: Final = 60_000
MINUTES: Final = (40, 120)
"""Times after the scale-in; Karpenter's benchmark allows 40 minutes."""
MS_PER_MINUTE: Final = 60_000
ORDERED: Final = tuple(
    replace(
        MOST_ALLOCATED,
        name=f"{MOST_ALLOCATED.name}, {order}",
        options=replace(MOST_ALLOCATED.options, scale_in=partial(deletion_costs, order)),
    )
    for order in ScaleInOrder
)
"""MostAllocated with the order of scale-ins of another tool, whose costs are always up to date."""
SETUPS: Final = {one.name: one for one in (MOST_ALLOCATED, *ORDERED, MANAGED_SURGE, SURGE)}


def slower(load: Load) -> Load:
    """Return the load with the times of a real cluster."""
    events = (replace(one, second=max(SLOWER * one.second, BEGIN_SECONDS)) for one in load.events)
    seconds = SLOWER * SCALE_IN + 60.0 * MINUTES[-1] + SAMPLE_MS / 1000
    return replace(load, events=tuple(events), nodes=NODES, seconds=seconds)


def main() -> None:
    """Search for the fewest nodes, then simulate each setup."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("setups", nargs="*", metavar="SETUP", default=list(SETUPS))
    parser.add_argument("--thresholds", type=int, default=95, metavar="PERCENT")
    asked = parser.parse_args()
    load = slower(wide(asked.file))
    bound, fewest = fewest_nodes(remaining(asked.file), load.shape)
    print(f"lower bound by requests: {bound} nodes; the solver finds {fewest}", flush=True)
    share = Fraction(asked.thresholds, 100)
    given = replace(OWN, thresholds=Thresholds(cpu=share, memory=share))
    simulated_load = replace(simulated(load), interval_ms=TICK_MS)
    scaled_ms = begin_ms(load) + round(1000 * SLOWER * SCALE_IN)
    times = ", ".join(f"{minutes} min" for minutes in MINUTES)
    print(f"{'':40} nodes after {times}; Pending pod-seconds, pods moved")
    for one in map(SETUPS.__getitem__, asked.setups):
        result = scenario.run(one, simulated_load, seed=1, wire=False, given=given)
        left = [
            next(s.nodes for s in result.samples if s.at_ms >= scaled_ms + at * MS_PER_MINUTE)
            for at in MINUTES
        ]
        shown = ", ".join(f"{nodes} ({nodes / fewest:.2f})" for nodes in left)
        print(f"{one.name:40} {shown}; {result.pending_ms // 1000}, {result.moved}", flush=True)


if __name__ == "__main__":
    main()
