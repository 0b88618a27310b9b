"""The scenarios of the demo and the replay: the same load with different components."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from core.config.programs import ControllerConfig, ExtenderConfig
from core.config.settings import Config, Mode, PodDeletionCost
from core.config.surge import SurgeMode
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

OWN: Final = Config(controller=ControllerConfig(interval_seconds=20))
"""Configuration of Ebb in the demo: the defaults.

It reconciles half as often as by default, so that the demo takes less long.
"""
SHORTEST_MS: Final = 60_000
BEHIND_EBB: Final = Timers(unneeded_ms=SHORTEST_MS, delay_after_add_ms=2 * SHORTEST_MS)
"""Timers of the autoscaler that removes the nodes which Ebb has emptied, as docs/install.md says.

They are short, because Ebb has waited before.
"""


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
SHORTEST_TIMERS: Final = Scenario(
    "autoscaler 50%, 60 s",
    ScaleDown.UTILIZATION,
    options=SimulatorOptions(
        timers=Timers(unneeded_ms=SHORTEST_MS, delay_after_add_ms=SHORTEST_MS)
    ),
)
"""The same with its shortest timers; the cheapest that evicts, on most seeds of the demo."""
PACKING: Final = Scenario(
    "MostAllocated 50%", ScaleDown.UTILIZATION, options=SimulatorOptions(PACKED)
)
"""The autoscaler that evicts, with a scheduler that prefers fuller nodes."""
MOST_ALLOCATED: Final = Scenario(
    "MostAllocated", ScaleDown.EMPTY, options=SimulatorOptions(PACKED)
)
"""The alternative without Ebb and without evictions: fuller nodes first, and only empty nodes are
removed."""
MANAGED: Final = Scenario(
    "Ebb taint",
    ScaleDown.EMPTY,
    Parts.TAINT,
    SimulatorOptions(timers=BEHIND_EBB, extender=False),
)
"""Ebb where the scheduler cannot be configured, as on managed clusters."""
_PACKED_BEHIND_EBB: Final = SimulatorOptions(PACKED, timers=BEHIND_EBB)
WHOLE: Final = Scenario("Ebb", ScaleDown.EMPTY, Parts.WHOLE, _PACKED_BEHIND_EBB)
SURGE: Final = Scenario("Ebb, surge", ScaleDown.EMPTY, Parts.SURGE, _PACKED_BEHIND_EBB)
"""Ebb with all components, surge moves included."""
MANAGED_SURGE: Final = Scenario(
    "Ebb, managed",
    ScaleDown.EMPTY,
    Parts.SURGE,
    replace(_PACKED_BEHIND_EBB, extender=False),
)
"""Ebb on a managed cluster that packs pods: without extender, with surge moves."""
SCENARIOS: Final = (
    Scenario("nothing", ScaleDown.NEVER),
    AUTOSCALER,
    SHORTEST_TIMERS,
    MOST_ALLOCATED,
    MANAGED,
    WHOLE,
    MANAGED_SURGE,
    SURGE,
)
DEMO: Final = (SHORTEST_TIMERS, PACKING, MANAGED_SURGE, SURGE)
"""Scenarios of the demo."""


def description(scenario: Scenario) -> str:
    """Return the scheduler profile of a scenario, and the nodes and flags of its autoscaler."""
    options, timers = scenario.options, scenario.options.timers
    extender = " and the extender" if scenario.ebb is not None and options.extender else ""
    flags = {
        "unneeded-time": f"{timers.unneeded_ms // 1000}s",
        "delay-after-add": f"{timers.delay_after_add_ms // 1000}s",
    }
    if scenario.scale_down is ScaleDown.UTILIZATION:
        flags["utilization-threshold"] = str(float(options.utilization))
    values = " ".join(f"--scale-down-{flag}={value}" for flag, value in flags.items())
    return (
        f"{scenario.name}: kube-scheduler with {options.profile.strategy}{extender}, the "
        f"autoscaler removes {scenario.scale_down}; {values}"
    )


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
    """Return the configuration without pod deletion costs and surge moves."""
    surge = replace(config.surge, mode=SurgeMode.DISABLED)
    costs = PodDeletionCost.DISABLED
    return replace(config, pod_deletion_cost=costs, surge=surge)


def interval_ms(load: SimulatedLoad, given: Config | None) -> int:
    """Return the time between reconciliations; *given*: None for the demo's own configuration."""
    return load.interval_ms or 1000 * (given or OWN).controller.interval_seconds


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
    view, publishes = View(config.extender, TAINT_KEY), scenario.ebb is not Parts.TAINT
    if not wire:
        ebb = Ebb(config, view, InProcessCalls(view, config), publishes=publishes)
        return _with_ebb(scenario, load, ebb, seed, progress)
    with OverTheWire(view) as peers:
        ebb = Ebb(config, view, peers, publishes=publishes)
        return _with_ebb(scenario, load, ebb, seed, progress)


def _priced(
    options: SimulatorOptions, load: SimulatedLoad, given: Config | None
) -> SimulatorOptions:
    price = price_of(given)
    return replace(
        options,
        price_of=price,
        interval_ms=interval_ms(load, given),
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
