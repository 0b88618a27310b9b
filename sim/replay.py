"""Simulate variants (settings of Ebb, or no Ebb) with several seeds, and recommend one."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from sim.processes import OnProgress, Run, run_each
from sim.recording import Recording
from sim.report import BY_MARK, COST, EVICTED, PENDING, RUN_METRICS, RunMetric
from sim.scenario import MOST_ALLOCATED, Scenario, recorded
from sim.simulated_load import Deployment, SimulatedLoad
from sim.simulator import Result
from sim.variants import Variant

COMPARED_TO: Final = MOST_ALLOCATED.name
"""Name of the variant without Ebb to which the recommendation is compared."""

LoadOfSeed = Callable[[int], SimulatedLoad]
"""Returns the load for a seed."""


class MetricSummary(NamedTuple):
    """Mean, least and greatest value of one metric over runs that differ only in their seed."""

    mean: Fraction
    least: Fraction
    most: Fraction

    @classmethod
    def of(cls, values: Sequence[Fraction]) -> "MetricSummary":
        """Return the summary of the values, which must not be empty."""
        return cls(sum(values, Fraction()) / len(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Metrics of a variant over its runs with all seeds."""

    variant: Variant
    figures: Mapping[RunMetric, MetricSummary | None]
    """Summary of each metric; None if the metric is undefined in a run."""
    recording: Recording | None = None
    """Frames of the run with the first seed; None: it was not recorded."""

    def mean(self, metric: RunMetric) -> Fraction:
        """Return the mean of a metric over the seeds; 0 if it is undefined."""
        found = self.figures[metric]
        return found.mean if found is not None else Fraction()

    def worst(self, metric: RunMetric) -> Fraction:
        """Return the maximum of a metric over the seeds; 0 if it is undefined."""
        found = self.figures[metric]
        return found.most if found is not None else Fraction()


def run_variants(
    variants: Iterable[Variant],
    load: LoadOfSeed,
    seeds: Sequence[int],
    on_progress: OnProgress,
    *,
    record: bool = False,
) -> list[Outcome]:
    """Run every variant with every seed; return an Outcome for each variant.

    *load* returns the load for a seed. *record*: record frames of the run with the first seed.
    Variants of a sweep are not recorded, as there may be hundreds. *on_progress* is called with
    the name of a run and its simulated hours. Raises: UnavailableError when a process ends early.
    """
    variants = list(variants)
    loads = {seed: load(seed) for seed in seeds}

    def scenario_of(variant: Variant, seed: int) -> Scenario:
        recording = record and seed == seeds[0] and not variant.settings
        return recorded(variant.scenario) if recording else variant.scenario

    runs = [
        Run(_name(variant, seed), scenario_of(variant, seed), loads[seed], seed, variant.config)
        for variant in variants
        for seed in seeds
    ]
    results = run_each(runs, on_progress)
    return [
        _outcome(variant, [results[_name(variant, seed)] for seed in seeds])
        for variant in variants
    ]


def _name(variant: Variant, seed: int) -> str:
    return f"{variant.name}, seed {seed}"


def _outcome(variant: Variant, results: Sequence[Result]) -> Outcome:
    figures = {metric: _summary(metric, results) for metric in RUN_METRICS}
    return Outcome(variant, figures, results[0].recording)


def _summary(metric: RunMetric, results: Iterable[Result]) -> MetricSummary | None:
    values = [metric.value(result) for result in results]
    known = [value for value in values if value is not None]
    return MetricSummary.of(known) if len(known) == len(values) else None


def part(load: SimulatedLoad, *, every: int, seed: int) -> SimulatedLoad:
    """Return the load with one in N nodes, pods and replicas, where N is *every*.

    Each seed selects other nodes, pods and replicas.
    """
    if every == 1:
        return load
    offset = seed % every
    nodes = sorted(load.nodes, key=lambda one: (one.cpu_millis, one.memory_bytes, one.extended))
    return replace(
        load,
        nodes=tuple(nodes[offset::every]) or load.nodes[:1],
        arrivals=load.arrivals[offset::every],
        deployments=tuple(_parts(load.deployments, every, offset)),
    )


def _parts(deployments: Iterable[Deployment], every: int, offset: int) -> Iterator[Deployment]:
    """Yield each Deployment with one in N of its replicas, where N is *every*."""
    # Sampling whole Deployments would distort the load: most are small, and a few are most of it.
    for index, deployment in enumerate(deployments):
        first = (offset + index) % every
        counts = ((at_ms, len(range(first, count, every))) for at_ms, count in deployment.replicas)
        replicas = tuple(next(same) for _, same in groupby(counts, key=itemgetter(1)))
        if any(count for _, count in replicas):
            yield replace(
                deployment,
                replicas=replicas,
                restarts=tuple(_restarts(deployment, every, first)),
                ages_ms=deployment.ages_ms[first::every],
            )


def _restarts(deployment: Deployment, every: int, first: int) -> Iterator[int]:
    """Yield the times in ms of the restarts that affect a sampled replica.

    The restarts of a Deployment are assumed to affect its replicas in turn. Every *every*-th
    replica is sampled, from the replica with index *first* on.
    """
    for number, at_ms in enumerate(deployment.restarts):
        step = bisect_right(deployment.replicas, at_ms, key=itemgetter(0))
        _, count = deployment.replicas[step - 1]
        if count and number % count % every == first:
            yield at_ms


# Recommendation


def pareto_front(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes on the Pareto front of mean cost and mean Pending time, cheapest first.

    An outcome is on the front if none with lower cost has an equal or shorter Pending time, and
    none with a shorter Pending time has an equal or lower cost.
    """
    best: list[Outcome] = []
    for outcome in sorted(outcomes, key=_cost_and_waits):
        if not best or outcome.mean(PENDING) < best[-1].mean(PENDING) or _alike(outcome, best[-1]):
            best.append(outcome)
    return best


def _cost_and_waits(outcome: Outcome) -> tuple[Fraction, Fraction, str]:
    return outcome.mean(COST), outcome.mean(PENDING), outcome.variant.name


def _alike(outcome: Outcome, other: Outcome) -> bool:
    return _cost_and_waits(outcome)[:2] == _cost_and_waits(other)[:2]


class Choice(NamedTuple):
    """The recommended outcome and the reason."""

    outcome: Outcome
    why: str


def choose(outcomes: Sequence[Outcome]) -> Choice | None:
    """Return the recommended variant of Ebb, or None if all variants disturb pods.

    A variant disturbs pods if pods are evicted, or are Pending because of a mark. The recommended
    variant is the cheapest one in which pods are Pending no longer than without Ebb (COMPARED_TO),
    or else the one with the shortest Pending time.
    """
    compared = [outcome for outcome in outcomes if outcome.variant.name == COMPARED_TO]
    undisturbed = [
        outcome
        for outcome in outcomes
        if outcome.variant.document is not None
        and not outcome.worst(EVICTED)
        and not outcome.worst(BY_MARK)
    ]
    if not undisturbed:
        return None
    fast_enough = [
        outcome
        for outcome in undisturbed
        if compared and outcome.mean(PENDING) <= compared[0].mean(PENDING)
    ]
    if fast_enough:
        best = min(fast_enough, key=_cost_and_waits)
        return Choice(
            best,
            f"the cheapest variant in which pods wait no longer than with {COMPARED_TO}",
        )
    best = min(
        undisturbed,
        key=lambda outcome: (outcome.mean(PENDING), outcome.mean(COST), outcome.variant.name),
    )
    return Choice(
        best,
        f"the variant with the shortest Pending time, which is longer than with {COMPARED_TO}",
    )
