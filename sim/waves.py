"""Generate Deployments that a HorizontalPodAutoscaler scales with a daily wave of load.

Source: kube-controller-manager's HorizontalPodAutoscaler with its defaults: it syncs every 15 s,
with a tolerance of 10 %. A scale-out at most doubles the replicas, or sets four. A scale-in uses
the highest recommendation of the last five minutes. Metrics are exact and immediate.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from core.model.resources import Resources
from sim.simulated_load import (
    DAY_MS,
    HOUR_MS,
    PODS_AT_ONCE,
    Deployment,
    SimulatedLoad,
    amount,
    embedded,
)
from sim.statistics import POD_SHAPES, WAVE_PERCENT

SYNC_MS: Final = 15_000
TOLERANCE_PARTS: Final = 10
"""Tolerance as one part in this number."""
STABILIZATION_MS: Final = 300_000
FOUR_PODS: Final = 4
DEPLOYMENTS: Final = 20
POD_LIFE_MS: Final = 2 * DAY_MS
"""Mean lifetime of a Deployment's pod until it is restarted."""
ROLLOUT_HOURS: Final = (9, 17)
ROLLOUTS_A_DAY: Final = Fraction(1, 2)
"""Mean rollouts of a Deployment a day, within these hours."""
LEVELS_MAX: Final = DAY_MS // SYNC_MS
"""Maximum number of cached results of `level`; all Deployments use the same ones."""


def level(at_ms: int) -> Fraction:
    """Return the load at a time (ms) relative to the mean load of a day, which is 1.

    It repeats every day, and is linear between full hours.
    """
    return _level(at_ms % DAY_MS)


@lru_cache(maxsize=LEVELS_MAX)
def _level(at_ms: int) -> Fraction:
    hour, rest_ms = divmod(at_ms, HOUR_MS)
    low, high = WAVE_PERCENT[hour], WAVE_PERCENT[(hour + 1) % len(WAVE_PERCENT)]
    wave = low + Fraction(rest_ms, HOUR_MS) * (high - low)
    return wave * len(WAVE_PERCENT) / sum(WAVE_PERCENT)


def scale_out_max(replicas: int) -> int:
    """Return the highest number of replicas that an HPA sets at once (calculateScaleUpLimit).

    *replicas*: replicas before.
    """
    return max(2 * replicas, FOUR_PODS)


def hpa_replicas(load: Callable[[int], Fraction], until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield (start in ms, replicas) at the start and for each later change that an HPA makes.

    *load* returns how many pods would run exactly at the target utilization at a time (ms).
    """
    replicas = max(1, -(-load(0) // 1))
    yield 0, replicas
    advised: deque[tuple[int, int]] = deque([(0, replicas)])
    for at_ms in range(SYNC_MS, until_ms, SYNC_MS):
        pods_at_target = load(at_ms)
        # Integers, because Fraction would normalize every sum, 115,000 times a simulated day.
        pods, parts = pods_at_target.as_integer_ratio()
        off = TOLERANCE_PARTS * abs(pods - replicas * parts)
        advice = replicas if off <= replicas * parts else max(1, -(-pods // parts))
        advised.append((at_ms, advice))
        while advised[0][0] <= at_ms - STABILIZATION_MS:
            advised.popleft()
        wanted = min(advice, scale_out_max(replicas))
        if wanted < replicas:
            wanted = min(max(one for _, one in advised), replicas)
        if wanted != replicas:
            replicas = wanted
            yield at_ms, replicas


def mixed(seed: int, days: int) -> SimulatedLoad:
    """Generate a load on the built-in nodes: half of the pods are of Jobs, half of Deployments."""
    half = PODS_AT_ONCE // 2
    return replace(
        embedded(seed, days, at_once=half),
        name="mixed",
        deployments=deployments(seed, days, at_once=half),
    )


def deployments(seed: int, days: int, *, at_once: int) -> tuple[Deployment, ...]:
    """Draw Deployments with HPAs, whose pods have shapes of sim.statistics.

    In total *at_once* pods run on average.
    """
    chance = random.Random(seed)
    shapes = [amount(c, m, g) for c, m, g, _ in POD_SHAPES]
    weights = [weight for *_, weight in POD_SHAPES]
    parts = [chance.expovariate(1) for _ in range(DEPLOYMENTS)]
    return tuple(
        _drawn(
            f"app-{number:02}",
            chance.choices(shapes, weights)[0],
            Fraction(round(1000 * at_once * part / sum(parts)), 1000),
            days=days,
            chance=chance,
        )
        for number, part in enumerate(parts)
    )


def _drawn(
    name: str,
    requests: Resources,
    mean: Fraction,
    *,
    days: int,
    chance: random.Random,
) -> Deployment:
    end_ms = days * DAY_MS
    return Deployment(
        name,
        requests,
        tuple(hpa_replicas(lambda at_ms: mean * level(at_ms), end_ms)),
        rollouts=tuple(_rollouts(days, chance)),
        restarts=tuple(_restarts(end_ms, float(mean) / POD_LIFE_MS, chance)),
        wave_mean=mean,
    )


def _rollouts(days: int, chance: random.Random) -> Iterator[int]:
    for day in range(days):
        if chance.random() < ROLLOUTS_A_DAY:
            first, last = (day * DAY_MS + hour * HOUR_MS for hour in ROLLOUT_HOURS)
            yield chance.randrange(first, last)


def _restarts(end_ms: int, rate: float, chance: random.Random) -> Iterator[int]:
    at_ms = 0.0
    while rate and (at_ms := at_ms + chance.expovariate(rate)) < end_ms:
        yield round(at_ms)
