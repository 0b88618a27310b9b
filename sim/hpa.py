"""A HorizontalPodAutoscaler that sees the replicas as they are, those of surge moves included.

Source: kube-controller-manager's HorizontalPodAutoscaler without `behavior`, 1.36. It measures the
pods that have been Ready for a while (groupPods), so not the new pod of a surge move. If their
utilization is within the tolerance, it recommends the replicas that it sees, and so the additional
one; otherwise it recommends the replicas that the load needs, and may lower them during a move. It
applies the highest recommendation of the last five minutes, so after a move it may raise the
replicas again, for at most that window. sim.waves computes the replicas without such changes; both
agree if nothing else sets the replicas.
"""

from collections import deque
from fractions import Fraction

from sim.waves import FOUR_PODS, STABILIZATION_MS, TOLERANCE_PARTS, level


class HorizontalPodAutoscaler:
    """The HPA of one Deployment whose load follows the daily wave."""

    def __init__(self, mean: Fraction, replicas: int) -> None:
        """*mean*: mean load, in pods at full target utilization."""
        self._mean = mean
        self._advised: deque[tuple[int, int]] = deque([(0, replicas)])

    def sync(self, replicas: int, extra: int, at_ms: int) -> int:
        """Return the replicas to set; *extra* of the current ones are not measured."""
        load, measured = self._mean * level(at_ms), replicas - extra
        off = TOLERANCE_PARTS * abs(load - measured)
        advice = replicas if off <= measured else max(1, -(-load // 1))
        self._advised.append((at_ms, advice))
        while self._advised[0][0] <= at_ms - STABILIZATION_MS:
            self._advised.popleft()
        wanted = max(one for _, one in self._advised)
        return min(wanted, max(2 * replicas, replicas + FOUR_PODS))
