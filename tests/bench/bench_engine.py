"""Measure a cold, full plan: `python -m tests.bench.bench_engine [SIZES]`.

Cold means without state from an earlier reconciliation; full means with all reasons for
unremovable nodes. The
benchmark also compares with the reference plan of tests/support/reference.py on a small cluster.
"""

import gc
import math
import sys
import time
from fractions import Fraction

from core.config.settings import Config, PolicySettings
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.plan import Plan
from core.engine.reconcile import PassResult
from core.model.cluster import Cluster
from core.policies.ported.node_utilization import NodeUtilization, Settings
from tests.bench.machine import factor, resident_mib, show
from tests.support.builders import UNLIMITED
from tests.support.generate import REGIMES, cluster, of_reaches
from tests.support.reference import Reference

SIZES = (1000, 5000, 15_000)
REFERENCE_NODES = 200
"""Size of the comparison; the reference plan takes minutes on larger clusters."""
TURNS = 3
REACHES_NODES = 5000
POLICY_NODES = 5000
BUDGET_SECONDS = {5000: 0.6}
"""Budget by nodes, times K, for a plan without limits and without the reasons."""


def timed(made: Cluster, config: Config) -> tuple[float, Plan]:
    """Return the shortest time of several runs without garbage collection, and the plan."""
    best, plan = math.inf, None
    for _ in range(TURNS):
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        plan = reconcile.plan(made, config)
        best = min(best, time.perf_counter() - start)
        gc.enable()
    assert plan is not None
    return best, plan


def by_reaches() -> list[list[str]]:
    """Return a row per regime that compares one reach with twelve, for the same pods."""
    rows = []
    for regime in REGIMES:
        made = cluster(REACHES_NODES, regime)
        share = Thresholds(cpu=Fraction(4, 5), memory=Fraction(4, 5))
        config = Config(thresholds=share, budgets=UNLIMITED)
        one, plan = timed(of_reaches(made, many=False), config)
        twelve, other = timed(of_reaches(made, many=True), config)
        rows.append(
            [
                regime,
                f"{len(plan.reaches)} / {len(other.reaches)}",
                f"{len(plan.removals):,} / {len(other.removals):,}",
                f"{one * 1000:,.0f}",
                f"{twelve * 1000:,.0f}",
                f"{twelve / one:.2f}",
            ]
        )
    return rows


def by_policies() -> list[list[str]]:
    """Return a row per regime that compares NodeUtilization with ClusterThreshold."""
    rows = []
    for regime in REGIMES:
        made, places = cluster(POLICY_NODES, regime), NodeUtilization.name
        plain, _ = looked(made, Config(budgets=UNLIMITED))
        for utilization in (Fraction(1, 2), Fraction(1)):
            own = PolicySettings(node_utilization=Settings(utilization=utilization))
            config = Config(
                policy=places, policies=own, budgets=UNLIMITED, unneeded_time_seconds=60
            )
            first, found = looked(made, config)
            again, later = looked(made, config, found.state)
            rows.append(
                [
                    regime,
                    f"{float(utilization):.0%}",
                    f"{len(found.state.candidates):,}",
                    f"{len(later.plan.removals):,}",
                    f"{plain * 1000:,.0f}",
                    f"{first * 1000:,.0f}",
                    f"{again * 1000:,.0f}",
                    f"{first / plain:.2f} / {again / plain:.2f}",
                ]
            )
    return rows


def looked(
    made: Cluster, config: Config, memory: LeaderState | None = None
) -> tuple[float, PassResult]:
    """Return the shortest processor time of several reconciliations, and the result of the last.

    A pass with *memory* is an hour after it.
    """
    best, found = math.inf, None
    for _ in range(TURNS):
        gc.collect()
        gc.disable()
        start = time.process_time()
        found = reconcile.reconcile(made, config, memory or LeaderState(), 3600 if memory else 0)
        best = min(best, time.process_time() - start)
        gc.enable()
    assert found is not None
    return best, found


def main() -> None:
    sizes = [int(text) for text in sys.argv[1].split(",")] if len(sys.argv) > 1 else list(SIZES)
    k = factor()
    rows, ratios = [], []
    for regime in REGIMES:
        taken = {}
        for share in (Fraction(4, 5), Fraction(1)):
            config = Config(thresholds=Thresholds(cpu=share, memory=share), budgets=UNLIMITED)
            for size in sizes:
                before = resident_mib()
                made = cluster(size, regime)
                held = resident_mib() - before
                seconds, plan = timed(made, config)
                taken[size] = seconds
                budget = BUDGET_SECONDS.get(size)
                rows.append(
                    [
                        regime,
                        f"{float(share):.0%}",
                        f"{size:,}",
                        f"{len(made.pods):,}",
                        f"{len(plan.removals):,}",
                        f"{seconds * 1000:,.0f}",
                        f"{seconds / k * 1000:,.0f}",
                        f"{budget * 1000:,.0f}" if budget else "",
                        f"{held:,.0f}",
                    ]
                )
                print(".", end="", file=sys.stderr, flush=True)
            ratios.append(_ratio(regime, config))
            if len(sizes) > 1:
                low, high = sizes[0], sizes[-1]
                growth = math.log(taken[high] / taken[low]) / math.log(high / low)
                ratios[-1].append(f"{growth:.2f}")
    print(file=sys.stderr)
    columns = ["regime", "threshold", "nodes", "pods", "removed", "ms", "ms / K", "budget", "MiB"]
    show(f"cold plan with all reasons, K = {k:.2f}", columns, rows)
    columns = ["regime", "threshold", "nodes", "reference ms", "ms", "ratio", "growth exponent"]
    show(
        "comparison with the reference plan (same result), and growth with the number of nodes",
        columns,
        ratios,
    )
    columns = ["regime", "reaches", "removed", "ms, one", "ms, twelve", "ratio"]
    show(
        f"{REACHES_NODES:,} nodes, one reach and twelve reaches, threshold 80%",
        columns,
        by_reaches(),
    )
    columns = ["regime", "utilization", "listed", "removed", "ms, ClusterThreshold",
               "ms, first pass", "ms, later pass", "ratios"]  # fmt: skip
    title = f"{POLICY_NODES:,} nodes, a pass with NodeUtilization and with ClusterThreshold"
    show(title, columns, by_policies())


def _ratio(regime: str, config: Config) -> list[str]:
    made = cluster(REFERENCE_NODES, regime)
    seconds, plan = timed(made, config)
    start = time.perf_counter()
    plain = Reference(made, config).run().removals
    slow = time.perf_counter() - start
    assert [name for name, _ in plain] == [removal.node for removal in plan.removals]
    return [
        regime,
        f"{float(config.thresholds.cpu):.0%}",
        f"{REFERENCE_NODES}",
        f"{slow * 1000:,.0f}",
        f"{seconds * 1000:,.1f}",
        f"{slow / seconds:,.0f}",
    ]


if __name__ == "__main__":
    main()
