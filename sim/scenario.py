"""The four runs of the demo: the same arrivals, four ways to shrink."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from core.config.programs import ExtenderConfig
from core.config.settings import Config, Mode
from core.config.thresholds import Thresholds
from extender.view import View
from sim.autoscaler import ScaleDown
from sim.costs import price_of
from sim.ebb import Direct, Ebb
from sim.scoring import PACKED
from sim.wire import OverTheWire
from sim.workload import Workload
from sim.world import BY_DEFAULT, Result, Setting, World

SHARE: Final = Fraction(85, 100)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to shrink."""

    name: str
    scale_down: ScaleDown
    score: str | None = None
    """None: without Ebb."""
    setting: Setting = BY_DEFAULT


MOST_ALLOCATED: Final = Scenario(
    "MostAllocated, empties only", ScaleDown.EMPTY, setting=Setting(PACKED)
)
"""What a person would do instead of Ebb."""
SCENARIOS: Final = (
    Scenario("no scale-down", ScaleDown.NEVER),
    Scenario("autoscaler 50 %", ScaleDown.UTILIZATION),
    Scenario("Ebb, marks", ScaleDown.EMPTY, "marks"),
    Scenario("Ebb, pack", ScaleDown.EMPTY, "pack"),
)


def configuration(score: str, given: Config | None = None) -> Config:
    """Return what Ebb runs with: what is *given*, by default the demo's own, and enforced."""
    config = given or Config(thresholds=Thresholds(cpu=SHARE, memory=SHARE))
    return replace(config, mode=Mode.ENFORCE, extender=ExtenderConfig(score=score))


def run(
    scenario: Scenario,
    workload: Workload,
    *,
    seed: int,
    wire: bool,
    given: Config | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Play *workload* once; with *wire* Ebb is asked over HTTP and HTTPS; *given*: its rules."""
    tick_ms = 1000 * (given or Config()).webhook.interval_seconds
    setting = replace(scenario.setting, price_of=price_of(given), tick_ms=tick_ms)
    scenario = replace(scenario, setting=setting)
    if scenario.score is None:
        return World(workload, scenario.scale_down, None, seed, scenario.setting).run(progress)
    config = configuration(scenario.score, given)
    view = View(config.extender, config.taint_key)
    if not wire:
        return _with_ebb(
            scenario, workload, Ebb(config, view, Direct(view, config)), seed, progress
        )
    with OverTheWire(view, config) as peers:
        return _with_ebb(scenario, workload, Ebb(config, view, peers), seed, progress)


def _with_ebb(
    scenario: Scenario,
    workload: Workload,
    ebb: Ebb,
    seed: int,
    progress: Callable[[int], None],
) -> Result:
    try:
        return World(workload, scenario.scale_down, ebb, seed, scenario.setting).run(progress)
    finally:
        ebb.close()
