"""Simulate days with random load, faults and restarts: `make days`.

It exits with 1 if Ebb evicted a pod, kept a pod Pending, or left metadata on Nodes. The seed
determines a run, so `python -m tests.soak.days --seed N --runs 1` reproduces a violation.
"""

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from core.marks.wellknown import TAINT_KEY
from extender.view import View
from sim.autoscaler import ScaleDown
from sim.ebb import Ebb, InProcessCalls
from sim.simulated_load import HOUR_MS
from sim.simulator import Result
from tests.soak.drawn import DAYS, Run, draw
from tests.support.faults import Day

RUNS: Final = 500


@dataclass
class Outcome:
    """The result of a run."""

    run: Run
    result: Result
    second: int = 0
    """Last simulated second; a violation ends the run early."""
    wrong: list[str] = field(default_factory=list)
    kept_waiting: int = 0
    disturbed: int = 0
    removed: int = 0
    orphans: int = 0

    @property
    def restarts(self) -> int:
        """Return the number of leader changes."""
        return sum(one.fault is None for one in self.run.troubles) + len(self.run.changes)

    @property
    def faults(self) -> int:
        """Return the number of faults, without leader changes."""
        return sum(one.fault is not None for one in self.run.troubles)


class BrokenError(Exception):
    """An invariant is violated."""


class Watched(Day):
    """A simulated day that ends at the first violation."""

    def __init__(self, run: Run, ebb: Ebb) -> None:
        super().__init__(run.load, run.how, ebb, run.config, run.troubles)
        self._run = run
        self.removed = 0
        for at_ms, config in run.changes:
            self.configure(at_ms, config)

    def end_node(self, name: str) -> None:
        self.removed += 1
        super().end_node(name)

    def _run_urgent_reconciliations(self) -> None:
        super()._run_urgent_reconciliations()
        if wrong := list(self.wrong()):
            raise BrokenError("; ".join(wrong))

    def wrong(self) -> Iterable[str]:
        """Yield the violations so far."""
        if self.disturbed:
            yield f"evicted from a marked or protected node: {self.disturbed}"
        if self.result.evicted and self._run.how is not ScaleDown.UTILIZATION:
            yield f"{self.result.evicted} pods evicted"
        if self.taken:
            yield f"removed by the autoscaler although Ebb had not allowed it: {self.taken}"
        if self.kept_waiting:
            yield f"Pending because of a mark: {sorted(self.kept_waiting)}"
        if self.result.pending_by_mark and not self._run.sets_no_schedule:
            yield "a PreferNoSchedule mark made a pod Pending"


def play(run: Run) -> Outcome:
    """Simulate a run; return its outcome with violations."""
    view = View(run.config.extender, TAINT_KEY)
    ebb = Ebb(run.config, view, InProcessCalls(view, run.config))
    world = Watched(run, ebb)
    outcome = Outcome(run, world.result)
    try:
        world.run()
        left = world.traces()
        outcome.orphans = len(left)
        outcome.wrong += [f"left behind: {', '.join(left)}"] if left else []
    except BrokenError as fault:
        outcome.wrong.append(str(fault))
    except Exception:  # noqa: BLE001 any error is reported with the seed
        outcome.wrong.append(traceback.format_exc())
    finally:
        ebb.close()
    outcome.second = world.now_ms() // 1000
    outcome.kept_waiting, outcome.disturbed = len(world.kept_waiting), len(world.disturbed)
    outcome.removed = world.removed
    return outcome


ROWS: Final[tuple[tuple[str, Callable[[Outcome], float]], ...]] = (
    ("days", lambda one: one.second / 86_400),
    ("node-hours", lambda one: one.result.node_ms / HOUR_MS),
    ("pods", lambda one: one.result.pods),
    ("marks", lambda one: one.result.marks),
    ("unmarks", lambda one: one.result.unmarks),
    ("nodes added", lambda one: one.result.scale_ups),
    ("nodes removed by the autoscaler", lambda one: one.removed),
    ("leader changes", lambda one: one.restarts),
    ("faults", lambda one: one.faults),
    ("evictions by the autoscaler from unmarked nodes",
     lambda one: one.result.evicted - one.disturbed),
    ("pods rejected by NoSchedule until the next reconciliation",
     lambda one: one.result.pending_by_mark),
    ("evictions from marked or protected nodes", lambda one: one.disturbed),
    ("pods Pending because of a mark", lambda one: one.kept_waiting),
    ("keys left behind", lambda one: one.orphans),
    ("violations", lambda one: len(one.wrong)),
)  # fmt: skip


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the totals as a table."""
    sums = ((name, sum(map(count, outcomes))) for name, count in ROWS)
    return "\n".join(f"{name:<58}{count:>12,.0f}" for name, count in sums)


def main(arguments: Sequence[str], drawn: Callable[[int], Run] = draw) -> int:
    """Simulate the runs one by one; return 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="days", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of {DAYS} days (default: {RUNS})"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run (default: 1)")
    parser.add_argument("--minutes", type=float, help="start no run after this time")
    asked = parser.parse_args(arguments)
    began, outcomes = time.perf_counter(), []
    for seed in range(asked.seed, asked.seed + asked.runs):
        one = play(drawn(seed))
        outcomes.append(
            replace(one, run=replace(one.run, load=replace(one.run.load, arrivals=())))
        )
        for wrong in one.wrong:
            print(f"seed {seed}, second {one.second}: {wrong}", file=sys.stderr)
        took = time.perf_counter() - began
        late = asked.minutes is not None and took > 60 * asked.minutes
        days = f"{DAYS * len(outcomes):,} of {DAYS * asked.runs:,} days"
        print(f"{days}, {took:,.0f} s", file=sys.stderr, end="\r" if sys.stderr.isatty() else "\n")
        if late:
            break
    print(table(outcomes))
    return int(any(one.wrong for one in outcomes))


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # thousands of writes fail here
    sys.exit(main(sys.argv[1:]))
