"""Nodes by blocks of first-fit order, and what is free on those of one at most.

Where thousands of pods wait that have each a size of their own, each would ask every node that is
full. A block is asked first: one whose most is too little in some resource has no room for the
pod. Free space only falls, so what was the most once is never too little.
"""

from collections.abc import Sequence
from copy import copy
from typing import Final

from core.packing.vectors import lane_maximum

BLOCK_NODES: Final = 64
"""Nodes of a block: asking one costs more than asking a node."""
BLOCK_BITS: Final = (1 << BLOCK_NODES) - 1
VAIN_MAX: Final = 8 * BLOCK_NODES
"""So many nodes of a block are asked in vain before its most is looked up anew, at that price."""


class FreeSpaceIndex:
    """The most that is free in each block, lane by lane; see core.packing.vectors."""

    def __init__(self, free: Sequence[int], guard: int) -> None:
        """Look at the *free* vectors, which are read anew whenever they have changed."""
        self._guard = guard
        starts = range(0, len(free), BLOCK_NODES)
        self._max_free = [_most(free[at : at + BLOCK_NODES], guard) for at in starts]
        self._misses = [0] * len(self._max_free)

    def fork(self) -> "FreeSpaceIndex":
        """Return those of other free vectors, which are the same up to now."""
        draft = copy(self)
        draft._max_free, draft._misses = [*self._max_free], [*self._misses]  # noqa: SLF001 of this class
        return draft

    def may_fit(self, block: int, request: int) -> bool:
        """Say whether a node of the block may have room, as far as is known."""
        return (self._max_free[block] - request) & self._guard == self._guard

    def raise_to(self, node: int, free: int) -> None:
        """See to it that so much more is *free* on the node now."""
        block = node // BLOCK_NODES
        self._max_free[block] = lane_maximum(self._max_free[block], free, self._guard)

    def count_misses(self, block: int, nodes: int, free: Sequence[int]) -> None:
        """Count so many *nodes* of the block as asked in vain, and look at what is *free* anew."""
        self._misses[block] += nodes
        if self._misses[block] >= VAIN_MAX:
            start = block * BLOCK_NODES
            self._max_free[block] = _most(free[start : start + BLOCK_NODES], self._guard)
            self._misses[block] = 0


def _most(free: Sequence[int], guard: int) -> int:
    most = guard
    for vector in free:
        most = lane_maximum(most, vector, guard)
    return most
