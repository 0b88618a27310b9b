"""A HorizontalPodAutoscaler that sees the replicas as they are, those of surge moves included.

Source: kube-controller-manager's HorizontalPodAutoscaler without `behavior`, 1.37. The pods that
are not Ready are not measured (groupPods), so the load of a new pod counts for the others. If the
utilization is within the tolerance, the HPA recommends the replicas that it sees, and so the
additional one. Otherwise it recommends the replicas that the load needs, and may lower them during
a move. It applies the highest recommendation of the last five minutes. So after a move it may
raise the replicas again, and keeps them if the utilization is within the tolerance then.

tests/e2e/test_surge.py observes this on the real controller. sim.waves computes the replicas
without moves; both agree if nothing else sets the replicas.
"""

from collections import deque
from fractions import Fraction

from sim.waves import STABILIZATION_MS, TOLERANCE_PARTS, level, scale_out_max


class HorizontalPodAutoscaler:
    """The HPA of one Deployment whose load follows the daily wave."""

    def __init__(self, mean: Fraction, replicas: int) -> None:
        """*mean*: mean load, in pods at full target utilization."""
        self._mean = mean
        self._advised: deque[tuple[int, int]] = deque([(0, replicas)])

    def sync(self, replicas: int, ready: int, at_ms: int) -> int:
        """Return the replicas to set; *ready*: how many pods are Ready and share the load."""
        measured = min(ready, replicas)
        if not measured:
            return replicas  # without a metric the HPA does nothing
        self._advised.append((at_ms, _advice(self._mean * level(at_ms), replicas, measured)))
        while self._advised[0][0] <= at_ms - STABILIZATION_MS:
            self._advised.popleft()
        return min(max(advice for _, advice in self._advised), scale_out_max(replicas))


def _advice(load: Fraction, replicas: int, measured: int) -> int:
    """Return the recommendation for a load, in pods at full target utilization."""
    if _within_tolerance(load, measured):
        return replicas
    # If the load is too high, pods that are not Ready count as idle. They must not turn the
    # direction.
    if load > measured and (load < replicas or _within_tolerance(load, replicas)):
        return replicas
    return max(1, -(-load // 1))


def _within_tolerance(load: Fraction, pods: int) -> bool:
    return TOLERANCE_PARTS * abs(load - pods) <= pods
