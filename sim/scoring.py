"""Compute the resource scores of a kube-scheduler profile, with kube-scheduler's arithmetic.

Source: kube-scheduler plugins NodeResourcesFit and NodeResourcesBalancedAllocation, 1.36, with
results recorded in tests/sim/recorded. Both use CPU and memory with equal weights; GPUs do not
count. `spread` scores as PodTopologySpread does for pods without constraints of their own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.usable_capacity import Amount
from sim.cluster import Place, scored_requests

SCORE_MAX: Final = 100


class Strategy(StrEnum):
    """The strategy of NodeResourcesFit: `scoringStrategy.type`."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


@dataclass(frozen=True, slots=True)
class Profile:
    """The resource plugins of a scheduler profile."""

    strategy: Strategy = Strategy.LEAST_ALLOCATED
    fit_weight: int = 1
    balanced_weight: int = 1
    """Weight of NodeResourcesBalancedAllocation; 0: the plugin is disabled."""


DEFAULT: Final = Profile()
PACKED: Final = Profile(Strategy.MOST_ALLOCATED, fit_weight=10, balanced_weight=0)
"""The profile that prefers full nodes, as a cluster without Ebb can use it."""


def least_allocated(requested: Amount, allocatable: Amount) -> int:
    """Return the mean free share of CPU and memory, from 0 to 100.

    A resource that the node lacks is left out.
    """
    return _mean(
        requested,
        allocatable,
        lambda used, total: total - used if used <= total else 0,
    )


def most_allocated(requested: Amount, allocatable: Amount) -> int:
    """Return the mean requested share of CPU and memory, from 0 to 100.

    A resource that the node lacks is left out.
    """
    return _mean(requested, allocatable, min)


def _mean(requested: Amount, allocatable: Amount, counts: Callable[[int, int], int]) -> int:
    scores = [
        counts(used, total) * SCORE_MAX // total
        for used, total in zip(requested, allocatable, strict=True)
        if total
    ]
    return sum(scores) // len(scores) if scores else 0


_FIT: Final[Mapping[Strategy, Callable[[Amount, Amount], int]]] = {
    Strategy.LEAST_ALLOCATED: least_allocated,
    Strategy.MOST_ALLOCATED: most_allocated,
}


def balanced(requested: Amount, allocated: Amount, allocatable: Amount) -> int:
    """Return how much a pod improves the balance of CPU and memory on a node: 50 to 100.

    75 means no change. *requested* are the requests on the node with the pod, *allocated* without
    it.
    """
    half = SCORE_MAX // 2
    return half + (half + _balance(requested, allocatable) - _balance(allocated, allocatable)) // 2


def _balance(used: Amount, allocatable: Amount) -> int:
    """Return how equal the requested shares of CPU and memory on a node are: 50 to 100.

    It is NodeResourcesBalancedAllocation's score of a node: 100 minus the standard deviation of
    the requested percentages, computed with floats as in kube-scheduler.
    """
    shares = [
        min(part / total, 1.0) for part, total in zip(used, allocatable, strict=True) if total
    ]
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) == len(allocatable) else 0.0
    return int((1 - deviation) * SCORE_MAX)


SPREAD_SKEW: Final = 3
"""maxSkew of kube-scheduler's default topology spread constraint for kubernetes.io/hostname.

The default constraints apply to pods of ReplicaSets. The one for zones has no effect here, because
simulated nodes have no zones.
"""


def spread(together: Sequence[int]) -> list[int]:
    """Return the score of each node, up to 100: fewer pods of the pod's ReplicaSet score higher.

    *together* is the number of these pods on each node.
    """
    weight = math.log(len(together) + 2)
    counts = [round(count * weight + SPREAD_SKEW - 1) for count in together]
    least, total = min(counts), max(counts)
    return [SCORE_MAX * (total + least - count) // total for count in counts]


class Weighed:
    """Scores nodes for a pod with both resource plugins of a scheduler profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile, self._fit = profile, _FIT[profile.strategy]

    def score(self, place: Place, pod: Pod) -> int:
        """Return the weighted sum of both plugins' scores for the pod on a node."""
        profile, allocatable = self._profile, Amount.of(place.node.allocatable)
        score = profile.fit_weight * self._fit(
            place.used.plus(scored_requests(pod.requests)), allocatable
        )
        if profile.balanced_weight and _is_balance_scored(pod.requests):
            allocated = allocatable.minus(Amount.of(place.free))
            with_pod = allocated.plus(Amount.of(pod.requests))
            score += profile.balanced_weight * balanced(with_pod, allocated, allocatable)
        return score


def _is_balance_scored(requests: Resources) -> bool:
    """Return whether NodeResourcesBalancedAllocation scores the pod.

    It does so for pods that request CPU or memory.
    """
    return bool(requests.cpu_millis or requests.memory_bytes)
