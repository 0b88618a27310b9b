"""Surge moves in the simulation: nodes become empty, and no Ready pod is missing."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from core.config.budgets import Budget, Budgets, Cooldown, Reserve
from core.config.settings import Config
from core.config.thresholds import Thresholds
from sim import scenario, waves
from sim.hpa import HorizontalPodAutoscaler
from sim.scenario import SURGE, WHOLE
from sim.simulated_load import DAY_MS, HOUR_MS, Deployment, SimulatedLoad, amount
from sim.simulator import Result
from sim.waves import SYNC_MS, hpa_replicas, level

SHAPE = amount(4000, 8192, 0, 110)
POD = amount(500, 64, 0)
MINUTE_MS = 60_000
SHARE = Fraction(9, 10)
GIVEN = Config(
    thresholds=Thresholds(cpu=SHARE, memory=SHARE),
    budgets=Budgets(
        cluster=Budget(),
        headroom=0,
        reserve=Reserve(lookback_seconds=0),
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
    assert (found.evicted, found.pending_by_mark) == (0, 0)


@pytest.mark.long
def test_no_pod_is_moved_when_it_does_not_start_before_the_deadline() -> None:
    found = simulated(*apps(20 * MINUTE_MS))
    assert found.moved == 0
    assert found.moves.keys() <= {"timed_out", "node_released", "abandoned"}
    assert found.below_desired_ms == 0


@pytest.mark.long
def test_run_with_moves_is_reproducible_by_seed() -> None:
    assert simulated(*apps(10_000)) == moved(10_000)


MEAN = Fraction(7)


def test_hpa_agrees_with_wave_when_nothing_else_sets_replicas() -> None:
    expected = dict(hpa_replicas(lambda at_ms: MEAN * level(at_ms), 24 * HOUR_MS))
    replicas = expected.pop(0)
    hpa = HorizontalPodAutoscaler(MEAN, replicas)
    changes = {}
    for at_ms in range(SYNC_MS, 24 * HOUR_MS, SYNC_MS):
        wanted = hpa.sync(replicas, replicas, at_ms)
        if wanted != replicas:
            changes[at_ms] = replicas = wanted
    assert changes == expected


def test_hpa_raises_replicas_for_its_window_after_a_move_within_tolerance() -> None:
    load = MEAN * level(0)
    replicas = int(load) + 1
    hpa = HorizontalPodAutoscaler(MEAN, replicas)
    assert hpa.sync(replicas + 1, replicas, 1) == replicas + 1
    after = [hpa.sync(replicas, replicas, at_ms) for at_ms in (SYNC_MS, 299_000, 301_000)]
    assert after == [replicas + 1, replicas + 1, replicas]


@pytest.mark.parametrize(
    ("load", "replicas", "ready", "wanted"),
    [
        pytest.param("2.4", 4, 3, 3, id="lowered during a move beyond tolerance"),
        pytest.param("3", 4, 3, 4, id="additional replica within tolerance"),
        pytest.param("10", 11, 11, 11, id="additional replica of eleven is within tolerance"),
        pytest.param("8", 9, 9, 8, id="additional replica of nine is beyond it"),
        pytest.param("22.5", 21, 20, 21, id="new pod counts as idle when load rises"),
        pytest.param("30", 21, 20, 30, id="load rises further"),
        pytest.param("9", 3, 3, 6, id="at most doubled"),
        pytest.param("9", 1, 1, 4, id="or four"),
        pytest.param("9", 3, 0, 3, id="no pod measured"),
    ],
)
def test_hpa_recommends_replicas(load: str, replicas: int, ready: int, wanted: int) -> None:
    hpa = HorizontalPodAutoscaler(Fraction(load) / level(0), 1)
    assert hpa.sync(replicas, ready, DAY_MS) == wanted


def test_demo_load_names_the_wave_that_hpas_follow() -> None:
    one = waves.mixed(1, 1).deployments[0]
    assert one.wave_mean is not None
    replayed = hpa_replicas(lambda at_ms: one.wave_mean * level(at_ms), 24 * HOUR_MS)  # type: ignore[operator]
    assert tuple(replayed) == one.replicas
    assert replace(one, wave_mean=None) != one
