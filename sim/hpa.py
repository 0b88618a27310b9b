"""A HorizontalPodAutoscaler that sees the replicas as they are, those of surge moves included.

A surge move adds a replica to a Deployment for a short time, so that the Deployment can do without
a pod on a marked node. Source: kube-controller-manager's HorizontalPodAutoscaler without
`behavior`, 1.37. Pods that are not Ready are not measured (groupPods), so the load of a new pod
counts for the others. If the utilization is within the tolerance, the HPA recommends the replicas
that it sees, the additional replica included. Otherwise it recommends the replicas that the load
needs, and may lower them during a move. It applies the highest recommendation of the last five
minutes. So after a move it may raise the replicas again, and keeps them if the utilization is
within the tolerance then.

tests/e2e/test_surge.py observes this on the real controller. sim.waves computes the replicas
without moves; both agree if nothing else sets the replicas.
"""

from collections import deque
from fractions import Fraction

from sim.waves import STABILIZATION_MS, TOLERANCE_PARTS, level, scale_out_max


class HorizontalPodAutoscaler:
    """The HPA of one Deployment whose load follows the daily wave of sim.waves."""

    def __init__(self, mean: Fraction, replicas: int) -> None:
        """Create the HPA of a Deployment that has *replicas* at the start.

        *mean*: mean load of the day, as the number of pods that would run exactly at the target.
        """
        self._mean = mean
        self._advised: deque[tuple[int, int]] = deque([(0, replicas)])

    def sync(self, replicas: int, ready: int, at_ms: int) -> int:
        """Return the replicas that the HPA sets at the time *at_ms*.

        *replicas*: replicas until now. *ready*: how many pods are Ready and share the load.
        """
        measured = min(ready, replicas)
        if not measured:
            return replicas  # without a metric the HPA does nothing
        self._advised.append((at_ms, _advice(self._mean * level(at_ms), replicas, measured)))
        while self._advised[0][0] <= at_ms - STABILIZATION_MS:
            self._advised.popleft()
        return min(max(advice for _, advice in self._advised), scale_out_max(replicas))


def _advice(load: Fraction, replicas: int, measured: int) -> int:
    """Return the recommended replicas for a load.

    *load*: number of pods that would run exactly at the target utilization. *measured*: Ready pods
    that share the load.
    """
    if _within_tolerance(load, measured):
        return replicas
    # If the load is too high, pods that are not Ready count as idle. They must not turn the
    # direction.
    if load > measured and (load < replicas or _within_tolerance(load, replicas)):
        return replicas
    return max(1, -(-load // 1))


def _within_tolerance(load: Fraction, pods: int) -> bool:
    return TOLERANCE_PARTS * abs(load - pods) <= pods
