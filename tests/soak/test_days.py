"""Tests of the soak test itself: it must detect violations."""

from dataclasses import replace

import pytest

from core.marks.wellknown import TAINT_KEY
from extender.view import View
from sim.autoscaler import ScaleDown
from sim.ebb import Ebb, InProcessCalls
from sim.simulated_load import HOUR_MS
from tests.soak.days import Watched, main
from tests.soak.drawn import Run, draw

SEED = 5
ASKED = ("--seed", str(SEED), "--runs", "1")
CUT_HOURS = 12


def cut_short(seed: int) -> Run:
    """Return the run without its quiet end, in which all metadata of Ebb would be removed."""
    run = draw(seed)
    return replace(run, load=replace(run.load, duration_ms=CUT_HOURS * HOUR_MS), troubles=())


def test_run_is_reproducible_by_seed() -> None:
    assert draw(SEED) == draw(SEED)
    assert draw(SEED) != draw(SEED + 1)


@pytest.mark.long
def test_run_without_violation_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ASKED) == 0
    table, progress = capsys.readouterr()
    assert f"{'violations':<58}{0:>12}" in table.splitlines()
    assert "2 of 2 days" in progress


def test_leftovers_are_reported_with_seed_and_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(ASKED, cut_short) == 1
    assert f"seed {SEED}, second {CUT_HOURS * 3600}: left behind: " in capsys.readouterr().err


@pytest.mark.parametrize("how", ScaleDown)
def test_evictions_and_pods_pending_by_mark_are_violations(how: ScaleDown) -> None:
    run = replace(draw(SEED), how=how)
    view = View(run.config.extender, TAINT_KEY)
    ebb = Ebb(run.config, view, InProcessCalls(view, run.config))
    world = Watched(run, ebb)
    assert list(world.wrong()) == []
    world.result.evicted += 1
    assert bool(list(world.wrong())) is (how is not ScaleDown.UTILIZATION)
    world.disturbed.append("work/p1")
    world.kept_waiting.add("work/p2")
    ebb.close()
    text = "; ".join(world.wrong())
    assert "work/p1" in text
    assert "work/p2" in text
