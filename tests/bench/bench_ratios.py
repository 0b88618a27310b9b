"""Compare Ebb with other setups in the simulation: cost, pending pod-seconds and scale-ups.

`python -m tests.bench.bench_ratios [SEED ...] [--days N] [--tick SECONDS] [--score NAME] [--order
NAME] [--capacity-buffers HOW] [--window SECONDS] [--lookback SECONDS] [--thresholds PERCENT]
[--scenario NAME] [--max-job-age SECONDS] [--startup SECONDS] [--scale-down-timers SECONDS]
[--trace PATH] [--part N]` simulates the demo's load, or that of `ebb demo --trace PATH`, or one
node and one pod in N of the load. It prints the ratio of Ebb's value to that of each other setup
for each seed, the mean ratios and the worst ratios. For each seed it also prints the moves by
outcome, the Ready pods that were missing because of moves, and the time in which a Deployment
showed too few available pods because of a move. `--scenario` is a variant of Ebb, such as "Ebb,
surge" or "Ebb, managed", or a rival with another order of scale-ins, such as "MostAllocated,
KEP-5982". `--startup` is the time that pods of Deployments need to be Ready. `--scale-down-timers`
sets `--scale-down-unneeded-time` and `--scale-down-delay-after-add` of the autoscaler of all
setups. `--capacity-buffers`, `--window` and `--lookback` set the reserve of Ebb.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Final

from core.config.budgets import CapacityBuffers
from core.config.programs import SCORE_NAMES, ExtenderConfig
from core.config.settings import Config, PodDeletionCost
from core.config.thresholds import Thresholds
from sim import scenario, trace, waves
from sim.history import instances
from sim.replay import part
from sim.scale_in import ScaleInOrder
from sim.scenario import AUTOSCALER, MOST_ALLOCATED, OWN, SCENARIOS, SHARE, WHOLE, with_timers
from sim.simulated_load import SimulatedLoad
from sim.simulator import Result

RIVALS = tuple(
    replace(
        MOST_ALLOCATED,
        name=f"{MOST_ALLOCATED.name}, {order}",
        options=replace(MOST_ALLOCATED.options, scale_in=order),
    )
    for order in ScaleInOrder
)
"""MostAllocated with the order of scale-ins of another tool, whose costs are always up to date."""
VARIANTS = {one.name: one for one in SCENARIOS if one.ebb is not None}
VARIANTS |= {one.name: one for one in RIVALS}
FIGURES: Final[Mapping[str, Callable[[Result], Fraction]]] = {
    "cost": lambda result: result.cost_ms,
    "pending": lambda result: Fraction(result.pending_ms),
    "scale-ups": lambda result: Fraction(result.scale_ups),
}


def ratios(ours: Result, others: Result) -> list[Fraction]:
    """Return the results of a variant relative to another setup."""
    return [figure(ours) / max(figure(others), Fraction(1)) for figure in FIGURES.values()]


def line(cells: Iterable[Fraction]) -> str:
    """Format ratios as a line."""
    return " ".join(f"{float(cell):>10.3f}" for cell in cells)


def _counts(result: Result) -> str:
    moves = ", ".join(f"{count} {outcome}" for outcome, count in result.moves.most_common())
    below, unavailable = result.below_by_moves_ms // 1000, result.unavailable_by_moves_ms // 1000
    return f"{result.evicted}, {result.pending_by_mark}; {moves or 0}; {below}, {unavailable}"


def _load(path: str | None, seed: int, days: int, startup_seconds: int) -> SimulatedLoad:
    if path is not None and instances.is_trace(path):
        return instances.load_of_days(path, days, instances.with_prices(OWN, path))
    if path is not None:
        return trace.drawn(Path(path), seed=seed, days=days)
    load, startup_ms = waves.mixed(seed, days), 1000 * startup_seconds
    slower = (replace(one, startup_ms=startup_ms) for one in load.deployments)
    return replace(load, deployments=tuple(slower))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--tick", type=int, default=10, help="seconds between passes")
    parser.add_argument("--score", choices=SCORE_NAMES, default=SCORE_NAMES[0])
    parser.add_argument("--order", choices=list(PodDeletionCost), default=PodDeletionCost.AUTO)
    default = OWN.budgets.reserve
    parser.add_argument(
        "--capacity-buffers", choices=list(CapacityBuffers), default=default.capacity_buffers
    )
    parser.add_argument("--window", type=int, default=default.window_seconds)
    parser.add_argument("--lookback", type=int, default=default.lookback_seconds)
    parser.add_argument("--trace", metavar="PATH", help="as for `ebb demo`")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="as for `ebb replay`")
    parser.add_argument("--scenario", choices=VARIANTS, default=WHOLE.name)
    parser.add_argument("--startup", type=int, default=10, metavar="SECONDS")
    parser.add_argument("--scale-down-timers", type=int, default=600, metavar="SECONDS")
    parser.add_argument("--max-job-age", type=int, metavar="SECONDS", help="default: never")
    parser.add_argument("--thresholds", type=int, default=SHARE * 100, metavar="PERCENT")
    return parser.parse_args()


def _config(asked: argparse.Namespace) -> Config:
    share = Fraction(asked.thresholds, 100)
    reserve = replace(
        OWN.budgets.reserve,
        window_seconds=asked.window,
        lookback_seconds=asked.lookback,
        capacity_buffers=CapacityBuffers(asked.capacity_buffers),
    )
    return replace(
        OWN,
        budgets=replace(OWN.budgets, reserve=reserve),
        thresholds=Thresholds(cpu=share, memory=share),
        pod_deletion_cost=PodDeletionCost(asked.order),
        extender=ExtenderConfig(score=asked.score),
        max_job_age_seconds=asked.max_job_age,
    )


def main() -> None:
    """Simulate each seed and print its ratios, then the worst ratios."""
    asked = _arguments()
    given = _config(asked)
    scenarios = [
        with_timers(one, asked.scale_down_timers)
        for one in (AUTOSCALER, MOST_ALLOCATED, VARIANTS[asked.scenario])
    ]
    if asked.trace is not None and instances.is_trace(asked.trace):
        given = instances.with_prices(given, asked.trace)
    head = " ".join(f"{name:>10}" for name in FIGURES)
    print(f"{'seed':<6} {'over ' + AUTOSCALER.name:^32} | {'over ' + MOST_ALLOCATED.name:^32}")
    told = "evicted, pending by a mark; moves; pod-seconds below desired, s unavailable by moves"
    print(f"{'':<6} {head} | {head} | {told}", flush=True)
    rows = []
    for seed in asked.seeds:
        load = _load(asked.trace, seed, asked.days, asked.startup)
        load = replace(part(load, every=asked.part, seed=seed), interval_ms=1000 * asked.tick)
        autoscaler, packed, ours = (
            scenario.run(one, load, seed=seed, wire=False, given=given) for one in scenarios
        )
        row = [*ratios(ours, autoscaler), *ratios(ours, packed)]
        rows.append(row)
        print(f"{seed:<6} {line(row[:3])} | {line(row[3:])} | {_counts(ours)}", flush=True)
    for name, of in (("mean", fmean), ("worst", max)):
        summary = [Fraction(of(column)) for column in zip(*rows, strict=True)]
        print(f"{name:<6} {line(summary[:3])} | {line(summary[3:])} |")


if __name__ == "__main__":
    main()
