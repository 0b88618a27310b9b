"""Measure the pods per second that kube-scheduler binds with and without opportunistic batching.

`python -m tests.bench.bench_batching [--turns N] [--pods N] [--nodes N]`; needs `make e2e-tools`.
kube-scheduler reuses the node scores of a pod for the next identical one (feature gate
OpportunisticBatching). It never does that in a scheduler with an extender, nor for pods with
spread constraints, so the profile of this measurement has no default constraints. All pods are
identical. The processor time of kube-scheduler depends less on other load than its rate.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.bench_scheduler import EBB, NONE, Field, contenders, prepare, say, turn
from tests.bench.machine import factor, show
from tests.e2e import tools
from tests.e2e.api import Api, Json
from tests.e2e.plane import LOOPBACK, Plane, free_port

SPREAD: Final = {"defaultingType": "List", "defaultConstraints": []}
PROFILE: Final = {"pluginConfig": [{"name": "PodTopologySpread", "args": SPREAD}]}
METRICS: Final = "/metrics"
CPU: Final = "process_cpu_seconds_total"
USED: Final = 'scheduler_batch_attempts_total{profile="default-scheduler",result="hint_used"}'
OFF: Final = ("--feature-gates=OpportunisticBatching=false",)
BASE: Final = "no extender, no batching"


@dataclass(frozen=True, slots=True)
class Setup:
    """A compared setup: its extender, and options of kube-scheduler."""

    name: str
    extender: str
    options: Sequence[str] = ()
    profile: Json | None = None


SETUPS: Final = (
    Setup("no extender, batching", NONE, profile=PROFILE),
    Setup("Ebb's extender", EBB, profile=PROFILE),
    Setup(BASE, NONE, OFF, PROFILE),
    Setup("no extender, batching, default spread constraints", NONE),
)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a turn."""

    pods_per_second: float
    cpu_seconds: float
    """Processor time of kube-scheduler, from its start on."""
    batched: float
    """Number of pods that were bound without computing all scores."""


def measure(plane: Plane, field: Field, pods: int, setup: Setup) -> Result:
    """Let kube-scheduler bind all pods once."""
    port = free_port()
    metrics = Api(f"https://{LOOPBACK}:{port}", str(plane.authority.certificate), plane.admin)
    how: dict[str, Any] = {"port": port, "options": setup.options, "profile": setup.profile}
    contender = contenders(plane, field, None)[setup.extender]
    texts: list[str] = []
    bound = turn(plane, field, pods, contender, lambda: texts.append(metrics.text(METRICS)), **how)
    (text,) = texts
    return Result(bound.pods_per_second, value(text, CPU), value(text, USED))


def value(text: str, series: str) -> float:
    """Return the value of a series, or 0 if kube-scheduler does not report it."""
    found = [line for line in text.splitlines() if line.startswith(f"{series} ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def measure_all(plane: Plane, field: Field, turns: int, pods: int) -> dict[str, list[Result]]:
    """Run all turns; each round begins with another setup."""
    prepare(plane)
    results: dict[str, list[Result]] = {setup.name: [] for setup in SETUPS}
    for number in range(turns):
        start = number % len(SETUPS)
        for setup in (*SETUPS[start:], *SETUPS[:start]):
            result = measure(plane, field, pods, setup)
            say(f"turn {number + 1}, {setup.name}: {result.pods_per_second:.1f} pods/s")
            results[setup.name].append(result)
    return results


def rows(results: dict[str, list[Result]], pods: int) -> list[list[str]]:
    """Return the rows: rates, and ratios to the setup without batching in the same round."""
    return [[name, "", *cells(found, results[BASE], pods)] for name, found in results.items()]


def cells(found: list[Result], base: list[Result], pods: int) -> list[str]:
    rates = [one.pods_per_second for one in found]
    ratios = [
        one.pods_per_second / of.pods_per_second for one, of in zip(found, base, strict=True)
    ]
    cpu = statistics.median(1000 * one.cpu_seconds / pods for one in found)
    batched = statistics.median(100 * one.batched / pods for one in found)
    return [
        *(f"{cell:.1f}" for cell in (min(rates), statistics.median(rates), max(rates))),
        f"{statistics.median(ratios):.2f}",
        f"{cpu:.2f} ms",
        f"{batched:.0f}%",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--pods", type=int, default=1500)
    parser.add_argument("--nodes", type=int, default=1000)
    asked = parser.parse_args()
    try:
        tools.find()
    except tools.MissingError as fault:
        sys.exit(f"bench_batching: {fault}")
    with tempfile.TemporaryDirectory(prefix="ebb-batching-") as name:
        plane = Plane(Path(name))
        try:
            results = measure_all(plane.start(), Field(asked.nodes), asked.turns, asked.pods)
        finally:
            plane.stop()
    size = f"{asked.pods:,} pods, {asked.nodes:,} nodes; {asked.turns} turns"
    columns = ["setup", "", "min", "median", "max", "ratio", "CPU/pod", "batched"]
    show(f"kube-scheduler, pods/s: {size}; K = {factor():.2f}", columns, rows(results, asked.pods))


if __name__ == "__main__":
    main()
