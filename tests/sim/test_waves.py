"""The daily wave, the replicas that an HPA derives from it, and drawn workloads."""

from collections import Counter
from fractions import Fraction

import pytest

from core.model.resources import Resources
from sim import simulated_load, waves
from sim.simulated_load import DAY_MS, HOUR_MS, PODS_AT_ONCE, amount
from sim.statistics import WAVE_PERCENT
from sim.waves import STABILIZATION_MS, SYNC_MS, hpa_replicas, level

END_MS = HOUR_MS
RISE_MS = 10 * SYNC_MS


def steps(*levels: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the replicas for a load that changes at these times, in hundredths of a pod."""

    def load(at_ms: int) -> Fraction:
        return Fraction([high for since, high in levels if since <= at_ms][-1], 100)

    return list(hpa_replicas(load, END_MS))


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        pytest.param([(0, 410)], [(0, 5)], id="rounded up"),
        pytest.param([(0, 0)], [(0, 1)], id="at least one"),
        pytest.param([(0, 1000), (RISE_MS, 1100)], [(0, 10)], id="within the tolerance"),
        pytest.param(
            [(0, 1000), (RISE_MS, 1101)], [(0, 10), (RISE_MS, 12)], id="above the tolerance"
        ),
        pytest.param(
            [(0, 200), (RISE_MS, 2000)],
            [
                (0, 2),
                (RISE_MS, 4),
                (RISE_MS + SYNC_MS, 8),
                (RISE_MS + 2 * SYNC_MS, 16),
                (RISE_MS + 3 * SYNC_MS, 20),
            ],
            id="four pods, or twice as many per sync",
        ),
        pytest.param(
            [(0, 1000), (RISE_MS, 500)],
            [(0, 10), (RISE_MS - SYNC_MS + STABILIZATION_MS, 5)],
            id="scale-in after five minutes",
        ),
        pytest.param(
            [(0, 1000), (RISE_MS, 500), (RISE_MS + 2 * SYNC_MS, 1000)],
            [(0, 10)],
            id="no scale-in for a short drop",
        ),
    ],
)
def test_hpa_replicas_follow_load(
    levels: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    assert steps(*levels) == found


def test_wave_is_linear_between_hours_and_has_mean_1() -> None:
    mean = Fraction(sum(WAVE_PERCENT), 24)
    assert level(0) == WAVE_PERCENT[0] / mean
    assert level(HOUR_MS // 2) == Fraction(WAVE_PERCENT[0] + WAVE_PERCENT[1], 2) / mean
    assert level(DAY_MS) == level(0)
    assert sum(level(hour * HOUR_MS) for hour in range(24)) == 24


@pytest.mark.long
def test_deployments_are_reproducible_by_seed() -> None:
    assert waves.mixed(1, 1) == waves.mixed(1, 1)
    assert waves.mixed(1, 1).deployments != waves.mixed(2, 1).deployments


def test_deployments_have_requested_average_and_follow_wave() -> None:
    found = waves.deployments(1, 2, at_once=100)
    at_noon, at_night = (
        sum([wanted for since, wanted in one.replicas if since <= at_ms][-1] for one in found)
        for at_ms in (DAY_MS + 14 * HOUR_MS, DAY_MS + 18 * HOUR_MS)
    )
    pods_ms = 0
    for one in found:
        ends = [since for since, _ in one.replicas[1:]] + [2 * DAY_MS]
        pods_ms += sum(
            wanted * (end - since) for (since, wanted), end in zip(one.replicas, ends, strict=True)
        )
    assert pods_ms / (2 * DAY_MS) == pytest.approx(100, rel=0.15)  # rounded up, and scaled in late
    assert at_night > 2 * at_noon
    assert sum(len(one.restarts) for one in found) == pytest.approx(100, rel=0.3)
    assert all(9 <= at_ms % DAY_MS / HOUR_MS < 17 for one in found for at_ms in one.rollouts)
    assert any(one.rollouts for one in found)


@pytest.mark.long
def test_half_of_pods_are_jobs() -> None:
    load = waves.mixed(1, 4)
    running = sum(a.life_ms for a in load.arrivals if a.at_ms > 0) / (4 * DAY_MS)
    assert running == pytest.approx(PODS_AT_ONCE / 2, rel=0.1)
    assert load.interval_ms is None


def trace(wave: tuple[int, ...]) -> simulated_load.SimulatedLoad:
    rows: list[tuple[Resources, int]] = [(amount(100, 100, 0), HOUR_MS)]
    return simulated_load.bootstrap(
        [amount(4000, 8192, 0, 110)], rows, seed=1, days=20, at_once=200, wave=wave
    )


@pytest.mark.parametrize("wave", [(100,), WAVE_PERCENT])
def test_drawn_trace_follows_wave(wave: tuple[int, ...]) -> None:
    came = [a for a in trace(wave).arrivals if a.at_ms > 0]
    assert len(came) == pytest.approx(20 * 24 * 200, rel=0.05)
    hours = Counter(a.at_ms // HOUR_MS % 24 for a in came)
    mean = sum(wave) / len(wave)
    expected = [wave[hour % len(wave)] / mean for hour in range(24)]
    assert [hours[hour] * 24 / len(came) for hour in range(24)] == pytest.approx(expected, rel=0.1)
