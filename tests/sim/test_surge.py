"""Surge moves in the simulation: nodes become empty, and no Ready pod is missing."""

from fractions import Fraction
from functools import cache

import pytest

from core.config.budgets import Budget, Budgets, Cooldown, Reserve
from core.config.settings import Config
from core.config.thresholds import Thresholds
from sim import scenario
from sim.scenario import SURGE, WHOLE
from sim.simulated_load import HOUR_MS, Deployment, SimulatedLoad, amount
from sim.simulator import Result

SHAPE = amount(4000, 8192, 0, 110)
POD = amount(500, 64, 0)
MINUTE_MS = 60_000
SHARE = Fraction(9, 10)
GIVEN = Config(
    thresholds=Thresholds(cpu=SHARE, memory=SHARE),
    budgets=Budgets(
        cluster=Budget(),
        headroom=0,
        reserve=Reserve(window_seconds=None),
        cooldown=Cooldown(delay_after_add_seconds=0, delay_after_pending_seconds=0),
    ),
)


def of(name: str, **changes: object) -> Deployment:
    """Return a Deployment that is scaled in from four replicas to two."""
    return Deployment(name, POD, ((0, 4), (10 * MINUTE_MS, 2)), **changes)  # type: ignore[arg-type]


def simulated(
    *deployments: Deployment, nodes: int = 6, one: scenario.Scenario = SURGE, hours: int = 3
) -> Result:
    """Simulate Deployments on nodes for eight pods each."""
    load = SimulatedLoad(
        "made", (SHAPE,) * nodes, (), hours * HOUR_MS, 10_000, deployments=deployments
    )
    return scenario.run(one, load, seed=1, wire=False, given=GIVEN)


def apps(startup_ms: int) -> list[Deployment]:
    return [of(f"app-{number}", startup_ms=startup_ms) for number in range(8)]


@cache
def moved(startup_ms: int) -> Result:
    """Simulate surge moves of pods that need this time to start, once for all tests."""
    return simulated(*apps(startup_ms))


@pytest.mark.long
@pytest.mark.parametrize("startup_ms", [10_000, 60_000])
def test_pods_are_moved_and_no_ready_pod_is_missing(startup_ms: int) -> None:
    found = moved(startup_ms)
    assert found.moved > 0
    assert found.samples[-1].nodes < simulated(*apps(startup_ms), one=WHOLE).samples[-1].nodes
    assert (found.below_desired_ms, found.below_by_moves_ms) == (0, 0)
    assert found.unavailable_by_moves_ms == found.moved * startup_ms
    assert (found.evicted, found.pending_by_mark) == (0, 0)


@pytest.mark.long
def test_no_pod_is_moved_when_it_does_not_start_before_the_deadline() -> None:
    found = simulated(*apps(20 * MINUTE_MS))
    assert found.moved == 0
    assert found.moves.keys() <= {"timed_out", "node_unmarked"}
    assert found.below_desired_ms == 0


@pytest.mark.long
def test_run_with_moves_is_reproducible_by_seed() -> None:
    assert simulated(*apps(10_000)) == moved(10_000)
