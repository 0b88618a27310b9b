"""kube-scheduler's scores for what pods ask, as a profile weighs them; the arithmetic is its own.

Source: kube-scheduler plugins NodeResourcesFit and NodeResourcesBalancedAllocation, 1.36, of which
tests/sim/recorded has answers. Both look at CPU and memory, at equal weights; GPUs do not count.
And PodTopologySpread with the constraints that it has by itself, for pods that name none.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.capacity.usable import Amount
from core.model.pod import Pod
from core.model.resources import Resources
from sim.cluster import Place, counted

SCORE_MAX: Final = 100


class Strategy(StrEnum):
    """What NodeResourcesFit prefers: `scoringStrategy.type`."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of a scheduler's profile that tell nodes apart by what is asked of them."""

    strategy: Strategy = Strategy.LEAST_ALLOCATED
    fit_weight: int = 1
    balanced_weight: int = 1
    """0: the plugin is disabled."""


DEFAULT: Final = Profile()
PACKED: Final = Profile(Strategy.MOST_ALLOCATED, fit_weight=10, balanced_weight=0)
"""What a person would set who wants full nodes."""


def least_allocated(requested: Amount, whole: Amount) -> int:
    """Return the mean share that is left; a resource that the node lacks is left out."""
    return _mean(requested, whole, lambda asked, most: most - asked if asked <= most else 0)


def most_allocated(requested: Amount, whole: Amount) -> int:
    """Return the mean share that is asked for; a resource that the node lacks is left out."""
    return _mean(requested, whole, min)


def _mean(requested: Amount, whole: Amount, counts: Callable[[int, int], int]) -> int:
    scores = [
        counts(asked, most) * SCORE_MAX // most
        for asked, most in zip(requested, whole, strict=True)
        if most
    ]
    return sum(scores) // len(scores) if scores else 0


_FIT: Final[Mapping[Strategy, Callable[[Amount, Amount], int]]] = {
    Strategy.LEAST_ALLOCATED: least_allocated,
    Strategy.MOST_ALLOCATED: most_allocated,
}


def balanced(requested: Amount, allocated: Amount, whole: Amount) -> int:
    """Return how much more alike both shares are with the pod than without: 50 to 100."""
    half = SCORE_MAX // 2
    return half + (half + _balance(requested, whole) - _balance(allocated, whole)) // 2


def _balance(asked: Amount, whole: Amount) -> int:
    """Return 100 less the shares' standard deviation; in floats, as kube-scheduler does it."""
    shares = [min(one / most, 1.0) for one, most in zip(asked, whole, strict=True) if most]
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) == len(whole) else 0.0
    return int((1 - deviation) * SCORE_MAX)


SPREAD_SKEW: Final = 3
"""maxSkew of the constraint by hostname that every ReplicaSet's pod has; nodes have no zones."""


def spread(together: Sequence[int]) -> list[int]:
    """Return the scores of nodes with so many pods of the same ReplicaSet, fewest best."""
    weight = math.log(len(together) + 2)
    counts = [round(count * weight + SPREAD_SKEW - 1) for count in together]
    least, most = min(counts), max(counts)
    return [SCORE_MAX * (most + least - count) // most for count in counts]


class Weighed:
    """A profile's answers."""

    def __init__(self, profile: Profile) -> None:
        self._profile, self._fit = profile, _FIT[profile.strategy]

    def score(self, place: Place, pod: Pod) -> int:
        """Return the sum of both plugins' weighted scores for the pod on that node."""
        profile, whole = self._profile, Amount.of(place.node.allocatable)
        found = profile.fit_weight * self._fit(place.used.plus(counted(pod.requests)), whole)
        if profile.balanced_weight and _asks(pod.requests):
            allocated = whole.minus(Amount.of(place.free))
            with_it = allocated.plus(Amount.of(pod.requests))
            found += profile.balanced_weight * balanced(with_it, allocated, whole)
        return found


def _asks(requests: Resources) -> bool:
    """Say whether the balance is looked at: not for pods that ask for neither resource."""
    return bool(requests.cpu_millis or requests.memory_bytes)
