"""Represent all resources of a pod or node as one integer, so that one subtraction compares all.

The integer is called a vector. Each resource has a lane of 64 bits. The top bit of a lane is its
guard bit: `free - request` clears it if the resource does not suffice. A lane of an overcommitted
node is 0, so that pods that request nothing of the resource still fit, as in kube-scheduler.
"""

from collections.abc import Iterable
from typing import Final

from core.model.node import Node
from core.model.resources import Resources
from core.placement.usable_capacity import Amount

LANE_BITS: Final = 64
LANE_MAX: Final = 2 ** (LANE_BITS - 1) - 1


class Vectors:
    """Encode amounts of resources as integers (vectors) with a lane of 64 bits for each resource.

    The lanes are CPU, memory, pods, ephemeral storage, then extended resources. `guard` is the
    integer with the top bit of each lane set.
    """

    def __init__(self, requests: Iterable[Resources], nodes: Iterable[Node]) -> None:
        """Assign a lane to each extended resource that both a request and a node contain.

        All other requested extended resources share one lane.
        """
        requested = {name for request in requests for name, _ in request.extended}
        offered = {name for node in nodes for name, _ in node.allocatable.extended}
        self._extended = sorted(requested & offered)
        # Users may request thousands of resources that no node has. They need not be
        # distinguished.
        self._nowhere = requested - offered
        lanes = 4 + len(self._extended) + bool(self._nowhere)
        self.guard = sum(1 << (lane * LANE_BITS + LANE_BITS - 1) for lane in range(lanes))

    def of(self, amount: Resources) -> int:
        """Return the resources as a vector without guard bits.

        Negative amounts become 0, and amounts above LANE_MAX become LANE_MAX.
        """
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
        """Return CPU and memory of a vector; guard bits are ignored."""
        return Amount(vector & LANE_MAX, vector >> LANE_BITS & LANE_MAX)


def lane_minimum(first: int, other: int, guard: int) -> int:
    """Return a vector with the smaller value of each lane; guard bits are those of *other*.

    *guard*: the guard bits of all lanes.
    """
    return other ^ ((first ^ other) & _larger(other, first, guard))


def lane_maximum(first: int, other: int, guard: int) -> int:
    """Return a vector with the larger value of each lane; guard bits are those of *other*.

    *guard*: the guard bits of all lanes.
    """
    return other ^ ((first ^ other) & _larger(first, other, guard))


def _larger(first: int, other: int, guard: int) -> int:
    """Return a mask of the lanes in which *first* is at least *other*, without guard bits."""
    lanes = (first | guard) - (other & ~guard) & guard
    return lanes - (lanes >> LANE_BITS - 1)
