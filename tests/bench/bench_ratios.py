"""Compare Ebb with the autoscalers that evict, in the simulation.

`python -m tests.bench.bench_ratios [SEED ...] [--days N] [--tick SECONDS] [--startup SECONDS]
[--trace PATH] [--part N] [--scenario NAME ...] [--sweep SETTING=VALUE,VALUE ...] [--processes N]`
simulates the demo's load, or that of `ebb demo --trace PATH`, or one node and one pod in N of the
load. Rivals are the autoscalers of RIVALS: thresholds of 50, 65 and 80 %, timers of
60 s, and thresholds of 50 and 70 % with MostAllocated. The best rival of a seed is the cheapest.

Each seed prints a line for each rival, and one for each variant of Ebb: its cost and Pending
pod-seconds relative to the best rival, evictions, pods Pending because of a mark, pods moved, the
pod-seconds below desired and the seconds unavailable that moves caused, and the moves by outcome.
The mean and the worst ratios of each variant follow.

`--scenario` is a variant of Ebb, such as "Ebb, surge"; it can be repeated, as can `--sweep`, which
changes settings as in `ebb replay` and adds a variant for each combination of values. Rivals are
simulated once for each seed. The autoscaler that removes Ebb's nodes has
`--scale-down-unneeded-time=1m`. `--startup` is the time that pods of Deployments need to be Ready.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from core.config.settings import Config
from sim import trace, waves
from sim.autoscaler import ScaleDown
from sim.history import instances
from sim.processes import PARALLEL_RUNS, Run, run_each
from sim.replay import part
from sim.report import COST, PENDING
from sim.scenario import (
    AUTOSCALER,
    MANAGED_SURGE,
    PACKING,
    SCENARIOS,
    SHORTEST_TIMERS,
    SURGE,
    Scenario,
)
from sim.scoring import DEFAULT as DEFAULT_PROFILE
from sim.scoring import PACKED, Profile
from sim.simulated_load import SimulatedLoad
from sim.simulator import Result, SimulatorOptions
from sim.variants import EMPTY, parse_sweep, points


def _evicting(name: str, percent: int, profile: Profile) -> Scenario:
    options = SimulatorOptions(profile, utilization=Fraction(percent, 100))
    return Scenario(f"{name} {percent}%", ScaleDown.UTILIZATION, options=options)


RIVALS = (
    AUTOSCALER,
    _evicting("autoscaler", 65, DEFAULT_PROFILE),
    _evicting("autoscaler", 80, DEFAULT_PROFILE),
    SHORTEST_TIMERS,
    PACKING,
    _evicting("MostAllocated", 70, PACKED),
)
"""The autoscalers that evict: thresholds of utilization, timers and scheduler profiles."""
VARIANTS = {one.name: one for one in SCENARIOS if one.ebb is not None}
DEFAULT = (SURGE.name, MANAGED_SURGE.name)
DOCUMENT = EMPTY
"""The configuration `sim.scenario.OWN` as a file."""


class Variant(NamedTuple):
    """A scenario of Ebb with a configuration."""

    name: str
    scenario: Scenario
    config: Config


class Ratios(NamedTuple):
    """Cost and Pending pod-seconds relative to a rival."""

    cost: Fraction
    pending: Fraction

    @classmethod
    def of(cls, ours: Result, rival: Result) -> "Ratios":
        """Return the results of a run relative to a rival; without Pending pods it counts as 1."""
        return cls(
            ours.cost_ms / rival.cost_ms, Fraction(ours.pending_ms, max(rival.pending_ms, 1))
        )

    def __str__(self) -> str:
        """Return both as text."""
        return f"cost {float(self.cost):.3f}, Pending {float(self.pending):.3f}"


def _load(path: str | None, seed: int, days: int, startup_seconds: int) -> SimulatedLoad:
    if path is not None and instances.is_trace(path):
        return instances.load_of_days(path, days, instances.with_prices(Config(), path))
    if path is not None:
        return trace.drawn(Path(path), seed=seed, days=days)
    load, startup_ms = waves.mixed(seed, days), 1000 * startup_seconds
    slower = (replace(one, startup_ms=startup_ms) for one in load.deployments)
    return replace(load, deployments=tuple(slower))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--tick", type=int, default=10, help="seconds between reconciliations")
    parser.add_argument("--startup", type=int, default=10, metavar="SECONDS")
    parser.add_argument("--trace", metavar="PATH", help="as for `ebb demo`")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="as for `ebb replay`")
    parser.add_argument("--scenario", action="append", choices=VARIANTS)
    parser.add_argument("--sweep", action="append", default=[], help="as for `ebb replay`")
    parser.add_argument("--processes", type=int, default=PARALLEL_RUNS, metavar="N")
    return parser.parse_args()


def _variants(asked: argparse.Namespace) -> list[Variant]:
    configured = points(parse_sweep(asked.sweep), DOCUMENT, "bench_ratios")
    return [
        Variant(", ".join(filter(None, (name, one.name))), VARIANTS[name], one.config)
        for name in asked.scenario or DEFAULT
        for one in configured
    ]


def _runs(asked: argparse.Namespace, variants: list[Variant], seed: int) -> list[Run]:
    """Return the simulations of a seed, those of Ebb, which take longest, first."""
    load = _load(asked.trace, seed, asked.days, asked.startup)
    load = replace(part(load, every=asked.part, seed=seed), interval_ms=1000 * asked.tick)
    rivals = [Variant(one.name, one, variants[0].config) for one in RIVALS]
    priced = asked.trace is not None and instances.is_trace(asked.trace)
    return [
        Run(
            one.name,
            one.scenario,
            load,
            seed,
            instances.with_prices(one.config, asked.trace) if priced else one.config,
        )
        for one in (*variants, *rivals)
    ]


def _print_rivals(results: Mapping[str, Result], best: str) -> None:
    for one in RIVALS:
        result = results[one.name]
        print(
            f"  {one.name}: {Ratios.of(result, results[best])}; cost {COST.cell(result)}, Pending "
            f"{PENDING.cell(result)} pod-seconds, evicted {result.evicted}",
            flush=True,
        )


def _counts(result: Result) -> str:
    moves = ", ".join(f"{count} {outcome}" for outcome, count in result.moves.most_common())
    below, unavailable = result.below_by_moves_ms // 1000, result.unavailable_by_moves_ms // 1000
    return (
        f"evicted {result.evicted}, Pending by a mark {result.pending_by_mark}, moved "
        f"{result.moved}; by moves: pod-seconds below desired {below}, seconds unavailable "
        f"{unavailable}; moves: {moves or 'none'}"
    )


def main() -> None:
    """Simulate each seed and print its ratios, then the mean and the worst ratios."""
    asked = _arguments()
    variants = _variants(asked)
    found = defaultdict[str, list[Ratios]](list)
    for seed in asked.seeds:
        results = run_each(
            _runs(asked, variants, seed), lambda *_: None, processes=asked.processes
        )
        best = min((one.name for one in RIVALS), key=lambda name: (results[name].cost_ms, name))
        print(f"seed {seed}, best rival: {best}")
        _print_rivals(results, best)
        for name in (one.name for one in variants):
            ratios = Ratios.of(results[name], results[best])
            found[name].append(ratios)
            print(f"  {name}: {ratios}; {_counts(results[name])}", flush=True)
    for name, rows in found.items():
        for what, of in (("mean", fmean), ("worst", max)):
            columns = (Fraction(of(column)) for column in zip(*rows, strict=True))
            print(f"{what}, {name}: {Ratios(*columns)}")


if __name__ == "__main__":
    main()
