"""The replicas that a simulated HPA sets, also while a surge move has a detached pod."""

from dataclasses import replace
from fractions import Fraction

import pytest

from sim import waves
from sim.deployments import Scaled
from sim.hpa import HorizontalPodAutoscaler
from sim.simulated_load import DAY_MS, HOUR_MS
from sim.waves import STABILIZATION_MS, SYNC_MS, hpa_replicas, level

MEAN = Fraction(7)


def test_hpa_agrees_with_wave_when_nothing_else_sets_replicas() -> None:
    expected = dict(hpa_replicas(lambda at_ms: MEAN * level(at_ms), 24 * HOUR_MS))
    replicas = expected.pop(0)
    hpa = HorizontalPodAutoscaler(MEAN, replicas)
    changes = {}
    for at_ms in range(SYNC_MS, 24 * HOUR_MS, SYNC_MS):
        wanted = hpa.sync(Scaled(replicas, replicas, replicas), at_ms)
        if wanted != replicas:
            changes[at_ms] = replicas = wanted
    assert changes == expected


@pytest.mark.parametrize(
    ("load", "scaled", "wanted"),
    [
        pytest.param("9", Scaled(3, 3, 3), 6, id="at most doubled"),
        pytest.param("9", Scaled(1, 1, 1), 4, id="or four"),
        pytest.param("9", Scaled(3, 3, 0), 3, id="no pod measured"),
        pytest.param("2.2", Scaled(2, 2, 2), 2, id="upper end of tolerance"),
        pytest.param("2.21", Scaled(2, 2, 2), 3, id="above tolerance"),
        pytest.param("9", Scaled(10, 10, 10), 10, id="lower end of tolerance"),
        pytest.param("8.99", Scaled(10, 10, 10), 9, id="below tolerance"),
        pytest.param(
            "30", Scaled(20, 21, 20), 30, id="load is too high even with pods that start"
        ),
        pytest.param("22.5", Scaled(20, 21, 20), 20, id="pods that start are enough"),
        pytest.param(
            "20.5", Scaled(18, 21, 18), 18, id="pods that start would turn the direction"
        ),
        pytest.param("2.5", Scaled(4, 2, 1), 4, id="fewer pods than replicas, load is too high"),
        pytest.param("0.5", Scaled(4, 2, 1), 1, id="fewer pods than replicas, load is too low"),
    ],
)
def test_hpa_recommends_replicas(load: str, scaled: Scaled, wanted: int) -> None:
    hpa = HorizontalPodAutoscaler(Fraction(load) / level(0), 1)
    assert hpa.sync(scaled, DAY_MS) == wanted


@pytest.mark.parametrize(
    ("load", "replicas", "starting", "overlap"),
    [
        pytest.param("3.2", 3, 3, 4, id="observed: 3 replicas become 4"),
        pytest.param("2.84", 3, 3, 3, id="observed: a load below the replicas"),
        pytest.param("1.05", 1, 1, 2, id="one replica with a little more load than it has"),
        pytest.param("1", 1, 1, 1, id="one replica with its load"),
        pytest.param("3.3", 3, 3, 4, id="upper end of tolerance"),
        pytest.param("3.4", 3, 3, 4, id="a due scale-out waits for the pod that starts"),
        pytest.param("9.1", 9, 9, 9, id="nine replicas: ten pods are within tolerance"),
        pytest.param("8.9", 9, 9, 9, id="nine replicas: ten pods are beyond it, nine are needed"),
        pytest.param("2.6", 3, 3, 3, id="a due scale-in to the same number"),
        pytest.param("1.9", 3, 2, 2, id="a due scale-in"),
    ],
)
def test_hpa_measures_detached_pod_and_new_pod(
    load: str, replicas: int, starting: int, overlap: int
) -> None:
    for ready, wanted in ((replicas, starting), (replicas + 1, overlap)):
        hpa = HorizontalPodAutoscaler(Fraction(load) / level(0), 1)
        assert hpa.sync(Scaled(replicas, replicas + 1, ready), DAY_MS) == wanted


def test_hpa_keeps_replicas_that_it_raised_in_the_overlap_while_they_are_needed() -> None:
    hpa = HorizontalPodAutoscaler(Fraction("3.2") / level(0), 3)
    assert hpa.sync(Scaled(3, 4, 4), SYNC_MS) == 4
    assert hpa.sync(Scaled(4, 4, 4), STABILIZATION_MS + 2 * SYNC_MS) == 4


def test_hpa_applies_recommendation_of_the_overlap_for_its_window() -> None:
    hpa = HorizontalPodAutoscaler(Fraction("3.2") / level(0), 3)
    assert hpa.sync(Scaled(3, 4, 4), 0) == 4
    after = [
        hpa.sync(Scaled(3, 3, 3), at_ms) for at_ms in (SYNC_MS, STABILIZATION_MS - 1, 300_000)
    ]
    assert after == [4, 4, 3]


def test_demo_load_names_the_wave_that_hpas_follow() -> None:
    one = waves.mixed(1, 1).deployments[0]
    assert one.wave_mean is not None
    replayed = hpa_replicas(lambda at_ms: one.wave_mean * level(at_ms), 24 * HOUR_MS)  # type: ignore[operator]
    assert tuple(replayed) == one.replicas
    assert replace(one, wave_mean=None) != one
