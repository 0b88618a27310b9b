"""Compare runs with and without Ebb on a real control plane, for five loads.

`python -m tests.bench.bench_live [--wide FILE] [LOAD:RUN ...]` takes about nine minutes per run.
The autoscaler is Karpenter, or a simulated one that acts on the API server. It removes nodes after
20 s without need for them, or after the seconds with which the name of the run ends. FILE has the
load `wide` (tests/e2e/wide.py); `churn` and `protected` are those of tests/e2e/karpenter_loads.py.
Needs `make e2e-tools`.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from core.config.settings import Mode
from sim.autoscaler import ScaleDown
from tests.e2e.api import Json
from tests.e2e.buffers import define
from tests.e2e.install import apply, installed, overlay
from tests.e2e.karpenter import BALANCED, EMPTY, add_empty, karpenter
from tests.e2e.karpenter_loads import churn, protected
from tests.e2e.live import Load, karpenter_takes, play, stand_in
from tests.e2e.observer import HEAD, Outcome
from tests.e2e.plane import Ebb, Plane
from tests.e2e.scheduling import (
    most_allocated,
    port_of,
    scheduling,
    shipped_profile,
    stanza,
    start_extender,
)
from tests.e2e.wide import wide
from tests.support.scale_in import ScaleInOrder

RESERVE: Final = {"window": "10s"}
SETTINGS: Final = {
    "usableCapacity": "all",
    "unneededTime": "5s",
    "headroom": 1,
    "thresholds": {"cpu": "90%", "memory": "90%"},
    "reserve": RESERVE,
}
"""Settings in addition to `AT_ONCE`. An unneeded time of 20 s represents ten minutes, so the
window of the reserve is a sixth of its default, and pods count for an hour. With 85% instead of
90%, Ebb would need two more nodes of 28; MostAllocated has no headroom at all."""
BUILDING: Final = {"mode": Mode.OBSERVE, "reserve": {"window": "never"}}
"""Settings until the load begins, as initial nodes are empty and initial pods are no arrivals."""
COMPONENTS: Final = (
    "components/extender",
    "components/pod-deletion-cost",
    "components/surge",
)
MOVES: Final = "ebb_surge_moves_total"


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
    publishes: bool = False
    """Whether Ebb publishes CapacityBuffers (component capacity-buffers)."""
    karpenter: str | None = None
    """Consolidation policy of Karpenter, if it is the autoscaler instead of the stand-in."""
    order: ScaleInOrder | None = None
    """Another tool, whose pod deletion costs are written."""
    unneeded: float = 20.0
    """Seconds without need for a node, after which the autoscaler removes it."""


def packed(title: str, **how: Any) -> Run:
    """Return a run with MostAllocated and without Ebb."""
    return Run(title, profile=most_allocated(), **how)


def ebb(title: str, **settings: Any) -> Run:
    """Return a run of Ebb with the shipped profile."""
    return Run(title, profile=shipped_profile(), score="pack", settings=settings)


def publishing(title: str, **settings: Any) -> Run:
    """Return a run of Ebb that publishes CapacityBuffers."""
    # Buffers add nodes before pods are Pending, so the thresholds can be higher.
    return replace(ebb(title, thresholds=ALMOST_FULL, **settings), publishes=True)


ALMOST_FULL: Final = {"cpu": "98%", "memory": "98%"}
SURGE: Final = {"mode": "enabled", "minPodAge": "20s", "maxPerHour": 6000}
"""A thirtieth of the default age, and thirty times the default number of moves in an hour."""
DEFAULTS: Final = {
    "usableCapacity": "auto",
    "thresholds": {"cpu": "95%", "memory": "95%"},
    "unneededTime": "4s",
    "reserve": {"window": "2s"},
    "stabilizationWindow": "4s",
    "budgets": {"maxMarked": "50%", "maxNewMarks": "10%", "period": "20s"},
    "cooldown": {"delayAfterAdd": "6s", "delayAfterPending": "6s"},
    "maxJobAge": "60s",
    "scaleDownProtection": {"afterUnmark": "30s"},
    "surge": SURGE,
}
"""The default settings with surge moves, all times a thirtieth of their defaults."""
AT_20S: Final = {
    "autoscaler": Run("autoscaler 50%", ScaleDown.UTILIZATION),
    "mostallocated": packed("MostAllocated"),
    "mostallocated-50": packed("MostAllocated 50%", scale_down=ScaleDown.UTILIZATION),
    "kep-5982": packed("MostAllocated, KEP-5982", order=ScaleInOrder.FEWEST_PODS),
    "scaledownbinpack": packed("MostAllocated, ScaleDownBinPack", order=ScaleInOrder.BIN_PACK),
    "marks": replace(ebb("Ebb, marks"), score="marks"),
    "ebb": ebb("Ebb"),
    "buffers": publishing("Ebb, buffers"),
    "surge": publishing("Ebb, buffers, surge moves", surge=SURGE),
    "defaults": replace(ebb("Ebb, defaults, surge moves", **DEFAULTS), publishes=True),
    "karpenter": packed("Karpenter WhenEmpty, MostAllocated", karpenter=EMPTY),
    "balanced": packed("Karpenter Balanced, MostAllocated", karpenter=BALANCED),
    "ebb-karpenter": replace(ebb("Karpenter WhenEmpty, Ebb"), karpenter=EMPTY),
}
RUNS: Final = AT_20S | {
    f"{name}-{seconds}s": replace(run, title=f"{run.title}, {seconds} s", unneeded=float(seconds))
    for name, run in AT_20S.items()
    for seconds in (4, 2)
}
"""Runs by name. Two seconds represent the minute of `--scale-down-unneeded-time` that
docs/install.md advises."""
WIDE: Final = "wide"
KARPENTERS: Final = {"churn": churn, "protected": protected}
LOADS: Final = ("ramp", "day", *KARPENTERS, WIDE)
DEFAULT: Final = tuple(
    f"{load}:{run}"
    for load in ("ramp", "day")
    for run in ("autoscaler-2s", "mostallocated-50-2s", "defaults-2s")
)


@contextmanager
def programs(plane: Plane, run: Run) -> Iterator[Ebb | None]:
    """Run kube-scheduler with or without Ebb; yield the controller, which only observes."""
    with ExitStack() as stack:
        if run.score is None:
            apply(plane)
            stack.enter_context(scheduling(plane, profile=run.profile))
            yield None
            return
        define(plane)
        folder = plane.folder / "installed"
        overlay(folder, *COMPONENTS, *["components/capacity-buffers"] * run.publishes)
        settings = {**SETTINGS, **run.settings}
        how = {**settings, **BUILDING, "controller": {"interval": "1s"}}
        controller, _ = stack.enter_context(installed(plane, str(folder), **how))
        extender = start_extender(plane, score=run.score).wait_ready()
        stack.callback(extender.stop)
        asked = stanza(port_of(extender))
        stack.enter_context(scheduling(plane, asked, profile=run.profile))
        yield controller


def played(run: Run, load: Load) -> Outcome:
    """Run the load on a control plane of its own."""
    load = replace(load, unneeded=run.unneeded)
    with tempfile.TemporaryDirectory(prefix="ebb-live-") as folder:
        plane = Plane(Path(folder)).start()
        try:
            with ExitStack() as stack:
                if run.karpenter is not None:
                    stack.enter_context(karpenter(plane))
                controller = stack.enter_context(programs(plane, run))
                return _measured(plane, run, load, controller)
        finally:
            plane.stop()


def _measured(plane: Plane, run: Run, load: Load, controller: Ebb | None) -> Outcome:
    def begin() -> None:
        if controller is not None:
            reserve = {**SETTINGS, **run.settings}["reserve"]
            controller.configure(mode=Mode.ENFORCE.value, reserve=reserve)

    if run.karpenter is not None:
        return play(plane.api, load, karpenter_takes(run.karpenter), say, begin, add_empty)
    outcome = play(plane.api, load, stand_in(run.scale_down, run.order), say, begin)
    if controller is not None and "surge" in run.settings:
        ended = {
            name: count for name, count in controller.metrics().items() if name.startswith(MOVES)
        }
        say(f"moves: {ended}")
    return outcome


def _load(name: str, wide_file: Path) -> Load:
    if name == WIDE:
        return wide(wide_file)
    return KARPENTERS[name]() if name in KARPENTERS else Load.named(name)


def say(text: str) -> None:
    """Show progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Run each variant with each load, and print the table."""
    every = [f"{load}:{run}" for load in LOADS for run in RUNS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "plays", nargs="*", metavar="LOAD:RUN", default=DEFAULT, help=", ".join(every)
    )
    parser.add_argument("--wide", type=Path, metavar="FILE", help="file with the load wide")
    given = parser.parse_args()
    asked: Sequence[str] = given.plays
    if unknown := set(asked).difference(every):
        parser.error(f"unknown run: {', '.join(sorted(unknown))}; allowed: {', '.join(every)}")
    if given.wide is None and any(one.startswith(WIDE) for one in asked):
        parser.error(f"the load {WIDE} needs --wide FILE")
    print(f"{'':40} {HEAD} {'load':>5}")
    for one in asked:
        name, _, run = one.partition(":")
        outcome = played(RUNS[run], _load(name, given.wide))
        # The average of the last five minutes, most of the run: the machine may do other work.
        busy = os.getloadavg()[1]
        print(f"{name + ', ' + RUNS[run].title:40} {outcome.line()} {busy:>5.1f}", flush=True)
        for fault in outcome.faults[:5]:
            print(f"  fault: {fault}")


if __name__ == "__main__":
    main()
