"""Measure a cold, full plan: `python -m tests.bench.bench_engine [SIZES] [--short]`.

--short omits the comparisons with the reference plan and with the policy NodeUtilization.
Cold means without state from an earlier reconciliation; full means with all reasons for
unremovable nodes. The
benchmark also compares with the reference plan of tests/support/reference.py on a small cluster.
"""

import argparse
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from core.config.settings import Config, PolicySettings
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.plan import Plan
from core.engine.reconcile import ReconcileResult
from core.model.cluster import Cluster
from core.policies.ported.node_utilization import NodeUtilization, Settings
from tests.bench.machine import factor, resident_mib, show
from tests.support.builders import UNLIMITED, node, pod
from tests.support.generate import REGIMES, cluster, of_reaches
from tests.support.reference import Reference

SIZES = (1000, 5000, 15_000)
REFERENCE_NODES = 200
"""Size of the comparison; the reference plan takes minutes on larger clusters."""
TURNS = 3
REACHES_NODES = 5000
POLICY_NODES = 5000
LOW, HIGH = Fraction(4, 5), Fraction(1)
BUDGET_SECONDS = {(5000, LOW): 0.6, (5000, HIGH): 1.0}
"""Budget by nodes and thresholds, times K, for a plan without limits."""
BUDGET_REACHES = 1.15
"""Budget of a plan with twelve reaches, in plans with one."""


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
) -> tuple[float, ReconcileResult]:
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="?", metavar="SIZES", help="such as 1000,5000")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    sizes = [*map(int, given.sizes.split(","))] if given.sizes else [*SIZES]
    k = factor()
    columns = ["regime", "threshold", "nodes", "pods", "removed", "ms", "ms / K", "budget", "MiB"]
    show(f"cold plan with all reasons, K = {k:.2f}", columns, [*by_sizes(sizes, k)])
    columns = ["regime", "reaches", "removed", "ms, one", "ms, twelve", "ratio"]
    title = f"{REACHES_NODES:,} nodes, one reach and twelve reaches, threshold 80%"
    show(f"{title}; budget {BUDGET_REACHES}", columns, by_reaches())
    if given.short:
        return
    columns = ["regime", "threshold", "nodes", "reference ms", "ms", "ratio"]
    rows = [_ratio(regime, _config(share)) for regime in REGIMES for share in (LOW, HIGH)]
    show("comparison with the reference plan (same result)", columns, rows)
    columns = ["regime", "utilization", "listed", "removed", "ms, ClusterThreshold",
               "ms, first pass", "ms, later pass", "ratios"]  # fmt: skip
    title = f"{POLICY_NODES:,} nodes, a pass with NodeUtilization and with ClusterThreshold"
    show(title, columns, by_policies())


def _config(share: Fraction) -> Config:
    return Config(thresholds=Thresholds(cpu=share, memory=share), budgets=UNLIMITED)


def by_sizes(sizes: Sequence[int], k: float) -> Iterator[list[str]]:
    """Yield a row per regime, thresholds and number of nodes."""
    shapes: list[tuple[str, Callable[[], Cluster]]] = [
        (regime, partial(cluster, size, regime)) for regime in REGIMES for size in sizes
    ]
    for regime, make in [*shapes, ("equal", equal_nodes)]:
        before = resident_mib()
        made = make()
        held = resident_mib() - before
        for share in (LOW, HIGH):
            seconds, plan = timed(made, _config(share))
            budget = BUDGET_SECONDS.get((len(made.nodes), share))
            yield [
                regime,
                f"{float(share):.0%}",
                f"{len(made.nodes):,}",
                f"{len(made.pods):,}",
                f"{len(plan.removals):,}",
                f"{seconds * 1000:,.0f}",
                f"{seconds / k * 1000:,.0f}",
                f"{budget * 1000:,.0f}" if budget else "",
                f"{held:,.0f}",
            ]
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def equal_nodes() -> Cluster:
    """Return the cluster of BenchmarkRunOnceScaleDown in Cluster Autoscaler.

    2,000 equal nodes hold 40 equal pods each, and each pod requests 1% of a node. So 1,200 nodes
    are removable with thresholds of 100%.
    """
    names = [f"node-{number:04}" for number in range(2000)]
    one = pod("", None, 100, 100)  # decoded pods share equal requests too
    pods = (replace(one, name=f"{n}-{i}", node=n) for n in names for i in range(40))
    return Cluster.of((node(name, 10_000, 10_000) for name in names), pods)


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
