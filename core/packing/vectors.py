"""All amounts of one pod or node as one integer, so that one subtraction compares them all.

Each resource has a lane of 64 bits, whose top bit is a guard: one that `free - request` clears
tells that the resource did not suffice. A lane of an overcommitted node is 0, so that pods that
ask nothing of that resource still fit, as kube-scheduler has it.
"""

from collections.abc import Iterable
from typing import Final

from core.capacity.usable import Amount
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources

LANE_BITS: Final = 64
LANE_MAX: Final = 2 ** (LANE_BITS - 1) - 1


class Vectors:
    """Amounts as lanes of one integer: CPU, memory, pods, ephemeral storage, then extended."""

    def __init__(self, pods: Iterable[Pod], nodes: Iterable[Node]) -> None:
        """Make a lane for all that pods ask and nodes have, and one for what no node has.

        Anybody may ask for a thousand things that nobody has: they are not told apart.
        """
        asked = {name for pod in pods for name, _ in pod.requests.extended}
        offered = {name for node in nodes for name, _ in node.allocatable.extended}
        self._extended = sorted(asked & offered)
        self._nowhere = asked - offered
        lanes = 4 + len(self._extended) + bool(self._nowhere)
        self.guard = sum(1 << (lane * LANE_BITS + LANE_BITS - 1) for lane in range(lanes))

    def of(self, amount: Resources) -> int:
        """Return the vector without guards; negative lanes become 0, huge ones LANE_MAX."""
        lanes = [amount.cpu_millis, amount.memory_bytes, amount.pods, amount.ephemeral_bytes]
        if self._extended:
            extended = dict(amount.extended)
            lanes += [extended.get(name, 0) for name in self._extended]
        if self._nowhere:
            wanted = (units for name, units in amount.extended if name in self._nowhere)
            lanes.append(max(wanted, default=0))
        vector = 0
        for lane in reversed(lanes):
            vector = vector << LANE_BITS | min(max(lane, 0), LANE_MAX)
        return vector

    @staticmethod
    def amount(vector: int) -> Amount:
        """Read CPU and memory back from a vector or a difference of two guarded ones."""
        return Amount(vector & LANE_MAX, vector >> LANE_BITS & LANE_MAX)


def lane_minimum(one: int, other: int, guard: int) -> int:
    """Return the smaller of two vectors, lane by lane; with guards if *other* has them."""
    return other ^ ((one ^ other) & _larger(other, one, guard))


def lane_maximum(one: int, other: int, guard: int) -> int:
    """Return the larger of two vectors, lane by lane; with guards if *other* has them."""
    return other ^ ((one ^ other) & _larger(one, other, guard))


def _larger(one: int, other: int, guard: int) -> int:
    """Return a vector of ones in each lane of which *one* has at least as much, and else zeros."""
    lanes = (one | guard) - (other & ~guard) & guard
    return lanes - (lanes >> LANE_BITS - 1)
