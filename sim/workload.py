"""What arrives: nodes at the start, pods over time; from a small table, or from a trace.

Units: milliseconds of virtual time, millicores, bytes, thousandths of a GPU.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.model import Resources

GPU: Final = "gpu-milli"
"""Thousandths of a GPU, as an integer extended resource."""
MIB: Final = 1024**2
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PODS_PER_NODE: Final = 110


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes at a time and runs for a time from the moment it is bound."""

    at_ms: int
    name: str
    requests: Resources
    life_ms: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes at the start, and arrivals in order of time."""

    name: str
    nodes: tuple[Resources, ...]
    arrivals: tuple[Arrival, ...]
    duration_ms: int
    tick_ms: int
    """How often the engine looks; large clusters in virtual time are looked at less often."""


def amount(cpu_millis: int, memory_mib: int, gpu_millis: int, pods: int = 1) -> Resources:
    """Make an amount of the three resources that the table and the trace have."""
    extended = ((GPU, gpu_millis),) if gpu_millis else ()
    return Resources(cpu_millis, memory_mib * MIB, 0, pods, extended)


# Statistics of the openb trace (Alibaba; hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0):
# its commonest shapes with how often they occur, and twentieths of the pods' lifetimes.
NODE_SHAPES: Final = (  # cpu, MiB, GPU thousandths, nodes of 64
    (96_000, 393_216, 8_000, 24),
    (104_000, 524_288, 2_000, 17),
    (32_000, 262_144, 0, 7),
    (16_000, 122_880, 2_000, 6),
    (96_000, 524_288, 0, 6),
    (32_000, 131_072, 4_000, 4),
)
POD_SHAPES: Final = (  # cpu, MiB, GPU thousandths, weight
    (3_152, 5_600, 810, 1047),
    (11_300, 49_152, 1_000, 857),
    (11_400, 48_128, 1_000, 534),
    (3_152, 5_600, 1_000, 470),
    (11_908, 47_104, 470, 388),
    (12_500, 57_344, 0, 364),
    (8_000, 30_517, 470, 360),
    (32_000, 49_152, 0, 284),
    (18_708, 64_512, 1_000, 255),
    (11_908, 47_104, 650, 237),
    (9_810, 41_560, 1_000, 195),
    (8_000, 30_517, 0, 163),
    (15_400, 51_200, 0, 120),
    (4_000, 22_888, 320, 111),
    (16_500, 51_200, 0, 95),
    (4_000, 15_258, 320, 78),
    (4_152, 10_600, 550, 72),
)
LIFE_SECONDS: Final = (
    10, 48, 80, 112, 146, 167, 202, 244, 301, 406, 540, 691, 883, 1122, 1422, 1974, 2700, 4006,
    6574, 16_425, 100_800,
)  # fmt: skip
"""0 %, 5 %, ... 95 %, then 99 %: the longest hundredth, weeks, is cut to that."""
PODS_AT_ONCE: Final = 200
"""On average over the day, by Little's law."""
WAVE: Final = 0.45
"""Arrivals swing by this share around their mean, once a day, highest in the afternoon."""


def embedded(seed: int, days: int) -> Workload:
    """Generate the demo's workload: the table's shapes and lifetimes, a daily wave, a seed."""
    chance = random.Random(seed)
    nodes = [
        amount(c, m, g, PODS_PER_NODE) for c, m, g, count in NODE_SHAPES for _ in range(count)
    ]
    shapes = [amount(c, m, g) for c, m, g, _ in POD_SHAPES]
    weights = [weight for *_, weight in POD_SHAPES]
    lives = [_life(chance) for _ in range(20_000)]
    mean_ms = sum(lives) / len(lives)
    arrivals: list[Arrival] = []
    # The population at the start: lives drawn in proportion to their length, some of each gone.
    for _ in range(round(PODS_AT_ONCE * _wave(0))):
        life = chance.choices(lives, weights=lives)[0]
        left = max(1000, round(life * chance.random()))
        shape = chance.choices(shapes, weights)[0]
        arrivals.append(Arrival(0, f"start-{len(arrivals):05}", shape, left))
    now, end = 0.0, days * DAY_MS
    peak = PODS_AT_ONCE * (1 + WAVE) / mean_ms
    while (now := now + chance.expovariate(peak)) < end:
        if chance.random() * (1 + WAVE) < _wave(now):
            shape = chance.choices(shapes, weights)[0]
            arrivals.append(Arrival(round(now), f"pod-{len(arrivals):05}", shape, _life(chance)))
    return Workload("embedded", tuple(nodes), tuple(arrivals), end, tick_ms=60_000)


def _wave(now_ms: float) -> float:
    return 1 + WAVE * math.sin(2 * math.pi * (now_ms / DAY_MS - 0.375))


def _life(chance: random.Random) -> int:
    """Draw a lifetime: evenly between two neighbouring twentieths, on a logarithmic scale."""
    place = chance.random() * (len(LIFE_SECONDS) - 1)
    low, high = LIFE_SECONDS[int(place)], LIFE_SECONDS[int(place) + 1]
    seconds = low * math.pow(high / low, place % 1)
    return round(1000 * seconds)


def bootstrap(
    nodes: Sequence[Resources],
    rows: Sequence[tuple[Resources, int]],
    *,
    seed: int,
    days: int,
    at_once: int,
) -> Workload:
    """Run a trace's rows (requests, life in ms) as a stationary process.

    A start population in proportion to lifetimes with a residue each, then Poisson arrivals drawn
    evenly from the rows, so many that *at_once* pods run on average (Little's law).
    """
    chance = random.Random(seed)
    lives = [max(life, 1000) for _, life in rows]
    mean_ms = sum(lives) / len(lives)
    arrivals: list[Arrival] = []
    for place in chance.choices(range(len(rows)), weights=lives, k=at_once):
        left = max(1000, round(lives[place] * chance.random()))
        arrivals.append(Arrival(0, f"start-{len(arrivals):06}", rows[place][0], left))
    now, end = 0.0, days * DAY_MS
    while (now := now + chance.expovariate(at_once / mean_ms)) < end:
        place = chance.randrange(len(rows))
        name = f"pod-{len(arrivals):06}"
        arrivals.append(Arrival(round(now), name, rows[place][0], lives[place]))
    return Workload("trace", tuple(nodes), tuple(arrivals), end, tick_ms=300_000)
