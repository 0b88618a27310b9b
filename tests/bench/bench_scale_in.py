"""Simulate scale-ins of large Deployments with the timers of a real cluster, and with rivals.

`python -m tests.bench.bench_scale_in LOAD [SETUP ...]`: LOAD is `churn` or `protected`
(tests/e2e/karpenter_loads.py), or a file of tests/e2e/wide.py. All settings are defaults. Times
are thirty times those of the live loop, so that timers have their defaults. The rows compare with
the fewest nodes for the pods that remain: for a file those for which a solver finds an assignment,
and otherwise the bound by the sums of CPU and memory.
"""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from sim import scenario
from sim.scenario import (
    AUTOSCALER,
    MANAGED_SURGE,
    MOST_ALLOCATED,
    OWN,
    PACKING,
    SHORTEST_TIMERS,
    SURGE,
)
from sim.simulator import SAMPLE_MS, Result
from tests.bench.fewest_nodes import fewest_nodes, least_nodes
from tests.e2e.karpenter_loads import churn, protected
from tests.e2e.live import Load
from tests.e2e.wide import Remaining, remaining, wide
from tests.support.scale_in import ScaleInOrder, deletion_costs
from tests.support.simulated import begin_ms, simulated

SLOWER: Final = 30
WIDE_NODES: Final = 90
"""Nodes of `wide` at the beginning: enough for all pods. The simulated autoscaler ignores
inter-pod constraints, so it would add too many."""
BEGIN_SECONDS: Final = -300.0
"""When the Deployments are created."""
TICK_MS: Final = 10_000
MINUTES: Final = (40, 120)
"""Times after the last scale-in; Karpenter's benchmark of `wide` allows 40 minutes."""
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 60 * MS_PER_MINUTE
ORDERED: Final = tuple(
    replace(
        MOST_ALLOCATED,
        name=f"{MOST_ALLOCATED.name}, {order}",
        options=replace(MOST_ALLOCATED.options, scale_in=partial(deletion_costs, order)),
    )
    for order in ScaleInOrder
)
"""MostAllocated with the order of scale-ins of another tool, whose costs are always up to date."""
SETUPS: Final = {
    one.name: one
    for one in (
        AUTOSCALER,
        SHORTEST_TIMERS,
        PACKING,
        MOST_ALLOCATED,
        *ORDERED,
        MANAGED_SURGE,
        SURGE,
    )
}
KARPENTERS: Final = {"churn": churn, "protected": protected}


def slower(load: Load) -> Load:
    """Return the load with the times of a real cluster."""
    events = (replace(one, second=max(SLOWER * one.second, BEGIN_SECONDS)) for one in load.events)
    last = SLOWER * _scaled_in(load)
    seconds = last + 60.0 * MINUTES[-1] + SAMPLE_MS / 1000
    return replace(load, events=tuple(events), seconds=seconds)


def _scaled_in(load: Load) -> float:
    return max(event.second for event in load.events)


def _remaining(load: Load) -> list[Remaining]:
    """Return the pods that remain after the last event; none of them must be apart."""
    last = {one.app: one.replicas for one in load.events}
    return [
        Remaining(one.cpu, one.memory, last[one.app], apart=False)
        for one in load.events
        if one.event == "deploy"
    ]


def _row(result: Result, scaled_ms: int, fewest: int) -> str:
    left = [
        next(s.nodes for s in result.samples if s.at_ms >= scaled_ms + at * MS_PER_MINUTE)
        for at in MINUTES
    ]
    shown = "".join(f"{nodes:>5} {nodes / fewest:>5.2f}" for nodes in left)
    pending = result.pending_ms // 1000
    hours = result.node_ms / MS_PER_HOUR
    return f"{shown} {hours:>10.1f} {result.evicted:>8} {pending:>8} {result.moved:>6}"


def main() -> None:
    """Find the fewest nodes, then simulate each setup."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", metavar="LOAD", help=f"{', '.join(KARPENTERS)}, or a file")
    parser.add_argument("setups", nargs="*", metavar="SETUP", default=list(SETUPS))
    asked = parser.parse_args()
    if make := KARPENTERS.get(asked.load):
        load = make()
        fewest = least_nodes(_remaining(load), load.shape)
        print(f"lower bound by requests: {fewest} nodes", flush=True)
    else:
        path = Path(asked.load)
        load = replace(wide(path), nodes=WIDE_NODES)
        bound, fewest = fewest_nodes(remaining(path), load.shape)
        print(f"lower bound by requests: {bound} nodes; the solver finds {fewest}", flush=True)
    played = slower(load)
    simulated_load = replace(simulated(played), interval_ms=TICK_MS)
    scaled_ms = begin_ms(played) + round(1000 * SLOWER * _scaled_in(load))
    after = "".join(f"{f'{minutes} min':>5} {'ratio':>5}" for minutes in MINUTES)
    print(f"{'':40}{after} {'node-hours':>10} {'evicted':>8} {'Pending':>8} {'moved':>6}")
    for one in map(SETUPS.__getitem__, asked.setups):
        result = scenario.run(one, simulated_load, seed=1, wire=False, given=OWN)
        print(f"{one.name:40}{_row(result, scaled_ms, fewest)}", flush=True)


if __name__ == "__main__":
    main()
