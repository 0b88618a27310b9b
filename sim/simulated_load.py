"""Loads: nodes at the start and pods over time, built in or from a trace.

Units: milliseconds of virtual time, millicores, bytes, thousandths of a GPU.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final

from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    DisruptionFacts,
    NodeConstraints,
    PodConstraints,
)
from core.model.node import Node
from core.model.pod import JOB
from core.model.resources import Resources
from sim.cluster import GPU
from sim.statistics import LIFE_SECONDS, NODE_SHAPES, POD_SHAPES, WAVE_PERCENT

MIB: Final = 1024**2
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PODS_PER_NODE: Final = 110
TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
TRACE_INTERVAL_MS: Final = 60_000
"""Time between reconciliations for the large cluster of a trace."""
PODS_AT_ONCE: Final = 200
"""Pods of the built-in load that run concurrently, on average over the day."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that is created at a time, and ends a given time after it was bound to a node."""

    at_ms: int
    name: str
    requests: Resources
    life_ms: int
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS
    owner_kind: str = JOB
    owner_name: str = ""
    """Name of the owner; empty: the name of the pod."""
    disruption_facts: DisruptionFacts | None = None
    """Facts that block an eviction; None: there are none."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment whose pods run until a scale-in, a rollout or a restart deletes them."""

    name: str
    requests: Resources
    replicas: tuple[tuple[int, int], ...]
    """(start in ms, desired replicas), in order of time."""
    rollouts: tuple[int, ...] = ()
    """Times of changes of the pod template, in ms."""
    restarts: tuple[int, ...] = ()
    """Times at which the oldest Ready pod is deleted and replaced, in ms."""
    startup_ms: int = 10_000
    """Time from binding to readiness."""
    min_ready_ms: int = 0
    """Time from readiness to availability: `minReadySeconds`."""
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS
    pod_constraints: PodConstraints = NO_POD_CONSTRAINTS
    """Required constraints on other pods; the pods have the label `app` with the name."""
    disruption_facts: DisruptionFacts | None = None
    """Facts that block an eviction; None: there are none."""
    ages_ms: tuple[int, ...] = ()
    """Ages of the first pods at their arrival: they existed before the start."""
    wave_mean: Fraction | None = None
    """Mean of the daily wave (sim.waves.level) that an HPA follows, in pods at full target
    utilization; None if no HPA scales the Deployment."""


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """Input of a simulation: nodes at the start, and pods and Deployments in order of time."""

    name: str
    nodes: tuple[Resources, ...]
    arrivals: tuple[Arrival, ...]
    duration_ms: int
    interval_ms: int | None
    """Time between reconciliations, which may be longer for large clusters; None: the configured
    interval."""
    groups: Mapping[Resources, Node] = field(default_factory=dict, hash=False)
    """Template Node of a shape, with labels, taints and opt-out annotations; others have none."""
    deployments: tuple[Deployment, ...] = ()
    largest_first: bool = False
    """Order of arrivals at one time. True: the largest first; False: in the order of `arrivals`,
    then `deployments`."""

    def in_order(self) -> Sequence[Arrival | Deployment]:
        """Return all pods and Deployments; at equal times they are scheduled in this order."""
        arrivals: Sequence[Arrival | Deployment] = (*self.arrivals, *self.deployments)
        return sorted(arrivals, key=_largest_first) if self.largest_first else arrivals

    @property
    def shapes(self) -> tuple[Resources, ...]:
        """Return the shapes (allocatable resources) of nodes that the autoscaler can add.

        Shapes whose nodes opt out of scale-down by an annotation are left out.
        """
        every = dict.fromkeys((*self.nodes, *self.groups))
        return tuple(shape for shape in every if not self.template(shape).annotations)

    @property
    def templates(self) -> tuple[Node, ...]:
        """Return a template Node for each shape of nodes that the autoscaler can add."""
        return tuple(map(self.template, self.shapes))

    def template(self, shape: Resources) -> Node:
        """Return the template of Nodes with this shape (allocatable resources)."""
        return self.groups.get(shape) or Node(name="", allocatable=shape)


def _largest_first(arrival: Arrival | Deployment) -> tuple[int, int, str, bool]:
    requests = arrival.requests
    is_deployment = isinstance(arrival, Deployment)
    return -requests.cpu_millis, -requests.memory_bytes, arrival.name, is_deployment


def amount(cpu_millis: int, memory_mib: int, gpu_millis: int, pods: int = 1) -> Resources:
    """Return Resources for an amount in millicores, MiB of memory, and thousandths of a GPU."""
    extended = ((GPU, gpu_millis),) if gpu_millis else ()
    return Resources(cpu_millis, memory_mib * MIB, 0, pods, extended)


def embedded(seed: int, days: int, at_once: int = PODS_AT_ONCE) -> SimulatedLoad:
    """Generate the demo's load from the shapes, lifetimes and daily wave in sim.statistics.

    On average over the day *at_once* pods run concurrently; Little's law gives the arrival rate.
    Arrivals are drawn from one longest lifetime before the start. The pods that still run at the
    start form the initial population, each with its remaining lifetime.
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
    return SimulatedLoad("embedded", tuple(nodes), tuple(arrivals), end, interval_ms=None)


def _moments(
    chance: random.Random, rate: float, wave: Sequence[int], begin: float, end: float
) -> Iterator[float]:
    """Yield random arrival times in ms between *begin* and *end*.

    *wave* has the relative arrivals of each hour. *rate*: arrivals per ms in its highest hour.
    """
    now, highest = begin, max(wave)
    while (now := now + chance.expovariate(rate)) < end:
        if chance.random() * highest < wave[math.floor(now / HOUR_MS) % len(wave)]:
            yield now


def _life(chance: random.Random) -> int:
    """Draw a lifetime in ms: uniform between two adjacent quantiles, on a logarithmic scale."""
    place = chance.random() * (len(LIFE_SECONDS) - 1)
    low, high = LIFE_SECONDS[int(place)], LIFE_SECONDS[int(place) + 1]
    seconds = low * math.pow(high / low, place % 1)
    return round(1000 * seconds)


def mean_life_ms() -> float:
    """Return the mean of randomly drawn lifetimes of pods, in milliseconds.

    It is the average over the intervals of quantiles of their logarithmic mean.
    """
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
) -> SimulatedLoad:
    """Generate a load with a daily wave from random pods of a trace.

    *nodes*: allocatable of the nodes. *rows*: (requests, lifetime in ms) of each pod of the trace.
    *at_once* pods run concurrently on average (Little's law). *wave* has the relative arrivals of
    each hour. The initial population is drawn in proportion to lifetimes; each pod has a random
    part of its lifetime left. Later arrivals are a Poisson process of random pods of the trace.
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
    return SimulatedLoad("trace", tuple(nodes), tuple(arrivals), end, TRACE_INTERVAL_MS)
