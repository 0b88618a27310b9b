"""The scenarios of the demo and the replay: the same load with different components."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final

from core.config.budgets import Budgets, CapacityBuffers, Reserve
from core.config.programs import ExtenderConfig
from core.config.settings import Config, Mode, PodDeletionCost
from core.config.surge import SurgeMode
from core.config.thresholds import Thresholds
from core.marks.wellknown import TAINT_KEY
from extender.view import View
from sim.autoscaler import ScaleDown, Timers
from sim.bound import lp_lower_bound
from sim.costs import price_of
from sim.ebb import Ebb, InProcessCalls
from sim.scoring import PACKED
from sim.simulated_load import SimulatedLoad
from sim.simulator import DEFAULT_OPTIONS, Result, Simulator, SimulatorOptions
from sim.surge import SurgeSimulator
from sim.wire import OverTheWire

SHARE: Final = Fraction(85, 100)
OWN: Final = Config(
    thresholds=Thresholds(cpu=SHARE, memory=SHARE),
    budgets=Budgets(reserve=Reserve(capacity_buffers=CapacityBuffers.ENABLED)),
)
"""Configuration of Ebb in the demo."""


class Parts(StrEnum):
    """Which components of Ebb a scenario has."""

    TAINT = "taints only, without extender and pod deletion costs"
    WHOLE = "all default features, with the components pod-deletion-cost and capacity-buffers"
    SURGE = "all of these, and the component surge"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One combination of autoscaler, scheduler profile and Ebb."""

    name: str
    scale_down: ScaleDown
    ebb: Parts | None = None
    """Components of Ebb; None: without Ebb."""
    options: SimulatorOptions = DEFAULT_OPTIONS


AUTOSCALER: Final = Scenario("autoscaler 50%", ScaleDown.UTILIZATION)
"""Cluster Autoscaler, which evicts the pods of nodes that are utilized below 50 %."""
MOST_ALLOCATED: Final = Scenario(
    "MostAllocated", ScaleDown.EMPTY, options=SimulatorOptions(PACKED)
)
"""The alternative without Ebb: fuller nodes first, and only empty nodes are removed."""
MANAGED: Final = Scenario(
    "Ebb taint", ScaleDown.EMPTY, Parts.TAINT, SimulatorOptions(extender=False)
)
"""Ebb where the scheduler cannot be configured, as on managed clusters."""
WHOLE: Final = Scenario("Ebb", ScaleDown.EMPTY, Parts.WHOLE, SimulatorOptions(PACKED))
SURGE: Final = Scenario("Ebb, surge", ScaleDown.EMPTY, Parts.SURGE, SimulatorOptions(PACKED))
"""Ebb with all components, surge moves included."""
MANAGED_SURGE: Final = Scenario(
    "Ebb, managed", ScaleDown.EMPTY, Parts.SURGE, SimulatorOptions(PACKED, extender=False)
)
"""Ebb on a managed cluster that packs pods: without extender, with surge moves."""
SCENARIOS: Final = (
    Scenario("nothing", ScaleDown.NEVER),
    AUTOSCALER,
    MOST_ALLOCATED,
    MANAGED,
    WHOLE,
    MANAGED_SURGE,
    SURGE,
)
DEMO: Final = (AUTOSCALER, MOST_ALLOCATED, MANAGED_SURGE, WHOLE, SURGE)
"""Scenarios of the demo; with more columns its table would not fit in a terminal of 80."""


def with_timers(scenario: Scenario, seconds: int) -> Scenario:
    """Return the scenario with two timers of Cluster Autoscaler set to *seconds*.

    They are `--scale-down-unneeded-time` and `--scale-down-delay-after-add`.
    """
    timers = Timers(unneeded_ms=1000 * seconds, delay_after_add_ms=1000 * seconds)
    return replace(scenario, options=replace(scenario.options, timers=timers))


def recorded(scenario: Scenario) -> Scenario:
    """Return the scenario with the option to record frames for a time lapse."""
    return replace(scenario, options=replace(scenario.options, record=True))


def configuration(parts: Parts, given: Config | None = None) -> Config:
    """Return Ebb's configuration for the components *parts*: *given* or the demo's own.

    The mode is always enforce. Features without their component are disabled.
    """
    config = given or OWN
    extender = ExtenderConfig(score=config.extender.score)
    config = replace(config, mode=Mode.ENFORCE, extender=extender)
    match parts:
        case Parts.TAINT:
            return _taint_alone(config)
        case Parts.WHOLE:
            return replace(config, surge=replace(config.surge, mode=SurgeMode.DISABLED))
        case Parts.SURGE:
            return replace(config, surge=replace(config.surge, mode=SurgeMode.ENABLED))


def _taint_alone(config: Config) -> Config:
    """Return the configuration without pod deletion costs, CapacityBuffers and surge moves."""
    reserve = replace(config.budgets.reserve, capacity_buffers=CapacityBuffers.DISABLED)
    budgets = replace(config.budgets, reserve=reserve)
    surge = replace(config.surge, mode=SurgeMode.DISABLED)
    costs = PodDeletionCost.DISABLED
    return replace(config, pod_deletion_cost=costs, budgets=budgets, surge=surge)


def run(
    scenario: Scenario,
    load: SimulatedLoad,
    *,
    seed: int,
    wire: bool,
    given: Config | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Simulate *load* once in a scenario; return the totals of the run.

    *wire*: call Ebb's webhook and extender over HTTPS and HTTP. *given*: the configuration of Ebb;
    None: the demo's own. *progress* is called with the number of simulated hours.
    """
    scenario = replace(scenario, options=_priced(scenario.options, load, given))
    if scenario.ebb is None:
        return Simulator(load, scenario.scale_down, None, seed, scenario.options).run(progress)
    config = configuration(scenario.ebb, given)
    view = View(config.extender, TAINT_KEY)
    if not wire:
        ebb = Ebb(config, view, InProcessCalls(view, config))
        return _with_ebb(scenario, load, ebb, seed, progress)
    with OverTheWire(view) as peers:
        return _with_ebb(scenario, load, Ebb(config, view, peers), seed, progress)


def _priced(
    options: SimulatorOptions, load: SimulatedLoad, given: Config | None
) -> SimulatorOptions:
    price = price_of(given)
    interval_ms = 1000 * (given or Config()).controller.interval_seconds
    return replace(
        options,
        price_of=price,
        interval_ms=interval_ms,
        least=lp_lower_bound(load.templates, price),
    )


def _with_ebb(
    scenario: Scenario,
    load: SimulatedLoad,
    ebb: Ebb,
    seed: int,
    progress: Callable[[int], None],
) -> Result:
    simulator = SurgeSimulator if ebb.config.surges else Simulator
    try:
        return simulator(load, scenario.scale_down, ebb, seed, scenario.options).run(progress)
    finally:
        ebb.close()
