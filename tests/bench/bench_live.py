"""Compare runs with and without Ebb on a real control plane, for two loads.

`python -m tests.bench.bench_live [LOAD:RUN ...]` takes about nine minutes per run. The autoscaler
is Karpenter, or a simulated one that acts on the API server. It removes nodes after 20 s without
need for them. Needs `make e2e-tools`.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from core.config.settings import Mode
from sim.autoscaler import ScaleDown
from tests.e2e.api import Json
from tests.e2e.buffers import define
from tests.e2e.install import apply, installed, overlay
from tests.e2e.karpenter import add_empty, karpenter
from tests.e2e.live import Load, karpenter_takes, play, stand_in
from tests.e2e.observer import HEAD, Outcome
from tests.e2e.plane import Plane
from tests.e2e.scheduling import (
    most_allocated,
    port_of,
    scheduling,
    shipped_profile,
    stanza,
    start_extender,
)

RESERVE: Final = {"window": "10s", "lookback": "2m"}
SETTINGS: Final = {
    "usability": "none",
    "unneededTime": "5s",
    "headroom": 1,
    "thresholds": {"cpu": "90%", "memory": "90%"},
    "reserve": RESERVE,
}
"""Settings in addition to `AT_ONCE`. An unneeded time of 20 s represents ten minutes, so the
durations of the reserve are a thirtieth of their defaults. With 85% instead of 90%, Ebb would need
two more nodes of 28; MostAllocated has no headroom at all."""
BUILDING: Final = {"mode": Mode.OBSERVE, "reserve": {"lookback": "0s"}}
"""Settings until the load begins, as initial nodes are empty and initial pods are no arrivals."""
COMPONENTS = ("components/extender", "components/pod-deletion-cost", "components/capacity-buffers")


@dataclass(frozen=True)
class Run:
    """One variant of the comparison."""

    title: str
    scale_down: ScaleDown = ScaleDown.EMPTY
    profile: Json | None = None
    """Profile of kube-scheduler; None is its default."""
    score: str | None = None
    """Score of the extender; None is a run without Ebb."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    karpenter: bool = False
    """Whether Karpenter is the autoscaler instead of the stand-in."""
    waits: Fraction = Fraction(1)
    """Unneeded time of the autoscaler as a fraction of its default."""


MOST_ALLOCATED: Final = Run("MostAllocated, empties only", profile=most_allocated())
PUBLISHING: Final = Run(
    "Ebb, publishing its reserve",
    profile=shipped_profile(),
    score="pack",
    settings={
        "reserve": {**RESERVE, "capacityBuffers": "enabled"},
        "thresholds": {"cpu": "98%", "memory": "98%"},  # buffers add nodes before pods are Pending
    },
)
ADVISED: Final = Fraction(1, 5)
"""Two minutes of ten: the value of `--scale-down-unneeded-time` that docs/install.md advises."""
RUNS: Final = {
    "autoscaler": Run("autoscaler 50%", ScaleDown.UTILIZATION),
    "mostallocated": MOST_ALLOCATED,
    "mostallocated-advised": replace(
        MOST_ALLOCATED, title="MostAllocated, as advised", waits=ADVISED
    ),
    "marks": Run("Ebb, marks", profile=shipped_profile(), score="marks"),
    "ebb": Run("Ebb", profile=shipped_profile(), score="pack"),
    "buffers": PUBLISHING,
    "advised": replace(PUBLISHING, title="Ebb publishing, as advised", waits=ADVISED),
    "karpenter": Run("Karpenter, MostAllocated", profile=most_allocated(), karpenter=True),
    "ebb-karpenter": Run(
        "Karpenter, Ebb", profile=shipped_profile(), score="pack", karpenter=True
    ),
}
LOADS: Final = ("ramp", "day")
GOALS: Final = {
    "autoscaler": {"ramp": "0.92", "day": "0.92"},
    "mostallocated": {"ramp": "1.00", "day": "0.93"},
}
"""Goals for the node-seconds of Ebb relative to other runs, by load."""


@contextmanager
def programs(plane: Plane, run: Run) -> Iterator[Callable[[], None]]:
    """Run kube-scheduler with or without Ebb; yield a function that starts Ebb's marking."""
    with ExitStack() as stack:
        if run.score is None:
            apply(plane)
            stack.enter_context(scheduling(plane, profile=run.profile))
            yield lambda: None
            return
        define(plane)
        folder = plane.folder / "installed"
        overlay(folder, *COMPONENTS)
        settings = {**SETTINGS, **run.settings}
        how = {**settings, **BUILDING, "controller": {"interval": "1s"}}
        controller, _ = stack.enter_context(installed(plane, str(folder), **how))
        extender = start_extender(plane, score=run.score).wait_ready()
        stack.callback(extender.stop)
        asked = stanza(port_of(extender))
        stack.enter_context(scheduling(plane, asked, profile=run.profile))
        yield lambda: controller.configure(mode=Mode.ENFORCE.value, reserve=settings["reserve"])


def played(run: Run, load: Load) -> Outcome:
    """Run the load on a control plane of its own."""
    load = replace(load, unneeded=load.unneeded * run.waits)
    with tempfile.TemporaryDirectory(prefix="ebb-live-") as folder:
        plane = Plane(Path(folder)).start()
        try:
            if run.karpenter:
                with karpenter(plane), programs(plane, run) as begin:
                    return play(plane.api, load, karpenter_takes, say, begin, add_empty)
            with programs(plane, run) as begin:
                return play(plane.api, load, stand_in(run.scale_down), say, begin)
        finally:
            plane.stop()


def say(text: str) -> None:
    """Show progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Run each variant with each load, and print the table."""
    every = [f"{load}:{run}" for load in LOADS for run in RUNS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plays", nargs="*", metavar="LOAD:RUN", help=", ".join(every))
    asked = parser.parse_args().plays or every
    if unknown := set(asked).difference(every):
        parser.error(f"unknown run: {', '.join(sorted(unknown))}; allowed: {', '.join(every)}")
    print(f"{'':32} {HEAD}")
    found: dict[tuple[str, str], Outcome] = {}
    for one in asked:
        load, _, name = one.partition(":")
        outcome = found[load, name] = played(RUNS[name], Load.named(load))
        print(f"{load + ', ' + RUNS[name].title:32} {outcome.line()}", flush=True)
        for fault in outcome.faults[:5]:
            print(f"  fault: {fault}")
    for (load, name), outcome in found.items():
        for other, goals in GOALS.items():
            if RUNS[name].score is None or RUNS[name].karpenter or (load, other) not in found:
                continue
            ratio = outcome.node_seconds / found[load, other].node_seconds
            goal = f"(goal for Ebb: {goals[load]})"
            print(
                f"{load}, {RUNS[name].title} relative to {RUNS[other].title}: {ratio:.3f} {goal}"
            )


if __name__ == "__main__":
    main()
