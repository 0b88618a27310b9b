"""What arrives: nodes at the start, pods over time; from a small table, or from a trace.

Units: milliseconds of virtual time, millicores, bytes, thousandths of a GPU.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from core.model.constraints import NO_NODE_CONSTRAINTS, DisruptionFacts, NodeConstraints
from core.model.node import Node
from core.model.resources import Resources
from core.model.workload import JOB
from sim.cluster import GPU
from sim.statistics import LIFE_SECONDS, NODE_SHAPES, POD_SHAPES, WAVE_PERCENT

MIB: Final = 1024**2
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PODS_PER_NODE: Final = 110
TICK_MS: Final = 60_000
"""How often the engine looks at so large a cluster as a trace's in virtual time."""
PODS_AT_ONCE: Final = 200
"""Of the embedded workload, on average over the day, by Little's law."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes at a time and runs for a time from the moment it is bound."""

    at_ms: int
    name: str
    requests: Resources
    life_ms: int
    placing: NodeConstraints = NO_NODE_CONSTRAINTS
    owner_kind: str = JOB
    owner_name: str = ""
    """Empty: as the pod."""
    ties: DisruptionFacts | None = None
    """None: nothing else binds it to its node."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Pods that run until a scale-in, a rollout or a restart ends them."""

    name: str
    requests: Resources
    replicas: tuple[tuple[int, int], ...]
    """From when on (ms) how many are wanted, in order of time."""
    rollouts: tuple[int, ...] = ()
    """When its template changes (ms)."""
    restarts: tuple[int, ...] = ()
    """When its oldest pod that is ready is deleted (ms); another one takes its place."""
    startup_ms: int = 10_000
    """From the moment that a pod is bound until it is ready."""
    placing: NodeConstraints = NO_NODE_CONSTRAINTS
    ties: DisruptionFacts | None = None
    """None: nothing else binds its pods to their nodes."""
    ages_ms: tuple[int, ...] = ()
    """How old its first pods are when they come: they were there before the beginning."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes at the start, and arrivals in order of time."""

    name: str
    nodes: tuple[Resources, ...]
    arrivals: tuple[Arrival, ...]
    duration_ms: int
    tick_ms: int | None
    """How often the engine looks; None: at its own interval. Large clusters in virtual time may be
    looked at less often."""
    groups: Mapping[Resources, Node] = field(default_factory=dict, hash=False)
    """Labels, taints and opt-outs of the nodes of a shape; one that is not here has none."""
    deployments: tuple[Deployment, ...] = ()
    largest_first: bool = False
    """Of what comes at one time the largest is placed first; else Jobs are, as they stand here."""

    def in_order(self) -> Sequence[Arrival | Deployment]:
        """Return all that comes, in the order in which what comes at one time is placed."""
        found: Sequence[Arrival | Deployment] = (*self.arrivals, *self.deployments)
        return sorted(found, key=_largest_first) if self.largest_first else found

    @property
    def shapes(self) -> tuple[Resources, ...]:
        """Return those that new nodes may have, each once; opt-outs come with no new node."""
        every = dict.fromkeys((*self.nodes, *self.groups))
        return tuple(shape for shape in every if not self.template(shape).annotations)

    @property
    def templates(self) -> tuple[Node, ...]:
        """Return what the Nodes of each shape look like."""
        return tuple(map(self.template, self.shapes))

    def template(self, shape: Resources) -> Node:
        """Return what every new Node of a shape looks like."""
        return self.groups.get(shape) or Node(name="", allocatable=shape)


def _largest_first(one: Arrival | Deployment) -> tuple[int, int, str, bool]:
    asked = one.requests
    return -asked.cpu_millis, -asked.memory_bytes, one.name, isinstance(one, Deployment)


def amount(cpu_millis: int, memory_mib: int, gpu_millis: int, pods: int = 1) -> Resources:
    """Make an amount of the three resources that the table and the trace have."""
    extended = ((GPU, gpu_millis),) if gpu_millis else ()
    return Resources(cpu_millis, memory_mib * MIB, 0, pods, extended)


def embedded(seed: int, days: int, at_once: int = PODS_AT_ONCE) -> Workload:
    """Generate the demo's workload: the table's shapes, lifetimes and daily wave, and a seed.

    So many pods run at once on average over the day, by Little's law.

    Arrivals begin as long before the start as the longest life, so that those who are still
    there make up the population at the start, each with what is left of its life.
    """
    chance = random.Random(seed)
    nodes = [
        amount(c, m, g, PODS_PER_NODE) for c, m, g, count in NODE_SHAPES for _ in range(count)
    ]
    shapes = [amount(c, m, g) for c, m, g, _ in POD_SHAPES]
    weights = [weight for *_, weight in POD_SHAPES]
    rate = at_once / mean_life_ms() * max(WAVE_PERCENT) * len(WAVE_PERCENT) / sum(WAVE_PERCENT)
    begin, end = -1000.0 * LIFE_SECONDS[-1], days * DAY_MS
    arrivals: list[Arrival] = []
    for now in _moments(chance, rate, WAVE_PERCENT, begin, end):
        shape, at = chance.choices(shapes, weights)[0], round(now)
        left = _life(chance) + min(at, 0)
        if left > 0:
            name = f"pod-{len(arrivals):05}"
            arrivals.append(Arrival(max(at, 0), name, shape, left))
    return Workload("embedded", tuple(nodes), tuple(arrivals), end, tick_ms=None)


def _moments(
    chance: random.Random, rate: float, wave: Sequence[int], begin: float, end: float
) -> Iterator[float]:
    """Yield when pods come, ms: at that rate in the wave's highest hour, else at a part of it."""
    now, highest = begin, max(wave)
    while (now := now + chance.expovariate(rate)) < end:
        if chance.random() * highest < wave[math.floor(now / HOUR_MS) % len(wave)]:
            yield now


def _life(chance: random.Random) -> int:
    """Draw a lifetime: evenly between two neighbouring twentieths, on a logarithmic scale."""
    place = chance.random() * (len(LIFE_SECONDS) - 1)
    low, high = LIFE_SECONDS[int(place)], LIFE_SECONDS[int(place) + 1]
    seconds = low * math.pow(high / low, place % 1)
    return round(1000 * seconds)


def mean_life_ms() -> float:
    """Return the mean of the lifetimes that are drawn: of each twentieth its logarithmic mean."""
    means = [(high - low) / math.log(high / low) for low, high in pairwise(LIFE_SECONDS)]
    return 1000 * sum(means) / len(means)


def bootstrap(
    nodes: Sequence[Resources],
    rows: Sequence[tuple[Resources, int]],
    *,
    seed: int,
    days: int,
    at_once: int,
    wave: Sequence[int],
) -> Workload:
    """Run a trace's rows (requests, life in ms) as a process that follows a daily wave.

    A start population in proportion to lifetimes with a residue each, then Poisson arrivals drawn
    evenly from the rows, so many that *at_once* pods run on average (Little's law). *wave*: how
    many of them come in each hour, relative to each other.
    """
    chance = random.Random(seed)
    lives = [max(life, 1000) for _, life in rows]
    mean_ms = sum(lives) / len(lives)
    arrivals: list[Arrival] = []
    for place in chance.choices(range(len(rows)), weights=lives, k=at_once):
        left = max(1000, round(lives[place] * chance.random()))
        name = f"start-{len(arrivals):06}"
        arrivals.append(Arrival(0, name, rows[place][0], left))
    end = days * DAY_MS
    rate = at_once / mean_ms * (max(wave) * len(wave) / sum(wave))
    for now in _moments(chance, rate, wave, 0.0, end):
        place = chance.randrange(len(rows))
        name = f"pod-{len(arrivals):06}"
        arrivals.append(Arrival(round(now), name, rows[place][0], lives[place]))
    return Workload("trace", tuple(nodes), tuple(arrivals), end, TICK_MS)
