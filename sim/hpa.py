"""A HorizontalPodAutoscaler that sees the pods as they are, those of surge moves included.

An HPA counts pods by the selector of the Deployment. While a surge move has a detached pod, the
selector matches one pod more than the Deployment wants, and once the new pod is Ready, all of them
share the load. If the utilization is then below the tolerance, the HPA sets the number of pods
that the load needs, which may be one more than the replicas. Source: kube-controller-manager's
HorizontalPodAutoscaler without `behavior`, 1.37 (GetResourceReplicas, groupPods,
stabilizeRecommendation):

- Pods that are not Ready are not measured. If the others have too much load, they count as idle,
  but must not turn the direction.
- If the utilization is within the tolerance, the recommendation is `spec.replicas`. Otherwise it
  is the number of pods that the load needs.
- The highest recommendation of the last five minutes is applied, also if it is above the replicas.

Metrics are exact and immediate. With a metrics server, a pod is measured only once a metric covers
one window after its readiness, so a real HPA sees the additional pod later or not at all.

tests/e2e/test_surge.py observes this on the real controller. sim.waves computes the replicas
without moves; both agree if nothing else sets the replicas, and all pods are Ready.
"""

import math
from collections import deque
from fractions import Fraction

from sim.deployments import Scaled
from sim.waves import STABILIZATION_MS, TOLERANCE_PARTS, level, scale_out_max


class HorizontalPodAutoscaler:
    """The HPA of one Deployment whose load follows the daily wave of sim.waves."""

    def __init__(self, mean: Fraction, replicas: int) -> None:
        """Create the HPA of a Deployment that has *replicas* at the start.

        *mean*: mean load of the day, as the number of pods that would run exactly at the target.
        """
        self._mean = mean
        self._advised: deque[tuple[int, int]] = deque([(0, replicas)])

    def sync(self, scaled: Scaled, at_ms: int) -> int:
        """Return the replicas that the HPA sets at the time *at_ms*."""
        if not scaled.ready:
            return scaled.replicas  # without a metric the HPA does nothing
        self._advised.append((at_ms, _advice(self._mean * level(at_ms), scaled)))
        while self._advised[0][0] <= at_ms - STABILIZATION_MS:
            self._advised.popleft()
        return min(max(advice for _, advice in self._advised), scale_out_max(scaled.replicas))


def _advice(load: Fraction, scaled: Scaled) -> int:
    """Return the recommended replicas for a load.

    *load*: number of pods that would run exactly at the target utilization.
    """
    replicas, pods, ready = scaled
    if _within_tolerance(load, ready):
        return replicas
    needed = max(1, math.ceil(load))
    if load < ready or pods == ready:
        return needed
    if load < pods or _within_tolerance(load, pods):
        return replicas
    return max(needed, replicas)


def _within_tolerance(load: Fraction, pods: int) -> bool:
    # Integers, because Fraction would normalize each difference, 115,000 times a simulated day.
    many, parts = load.as_integer_ratio()
    return TOLERANCE_PARTS * abs(many - pods * parts) <= pods * parts
