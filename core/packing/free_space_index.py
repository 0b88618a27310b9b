"""Index the free space by blocks of nodes, so that full blocks are skipped at once.

If thousands of pending pods have different sizes, each of them would check every full node. The
index has an upper bound of the free space in each block. Since free space only shrinks, an old
bound is still an upper bound.
"""

from collections.abc import Sequence
from copy import copy
from typing import Final

from core.packing.vectors import lane_maximum

BLOCK_NODES: Final = 64
"""Number of nodes in a block. Checking a block costs more than checking a node."""
BLOCK_BITS: Final = (1 << BLOCK_NODES) - 1
VAIN_MAX: Final = 8 * BLOCK_NODES
"""Number of full nodes of a block that pods have checked before the block's bound is recomputed.
Recomputing the bound takes about as long as these checks."""


class FreeSpaceIndex:
    """Upper bound of the free space in each block, by lane (core.packing.vectors)."""

    def __init__(self, free: Sequence[int], guard: int) -> None:
        """Compute the bounds from the *free* vectors."""
        self._guard = guard
        starts = range(0, len(free), BLOCK_NODES)
        self._max_free = [_most(free[at : at + BLOCK_NODES], guard) for at in starts]
        self._misses = [0] * len(self._max_free)

    def fork(self) -> "FreeSpaceIndex":
        """Return a copy of the index, for a copy of the free vectors that it describes."""
        draft = copy(self)
        draft._max_free, draft._misses = [*self._max_free], [*self._misses]  # noqa: SLF001 of this class
        return draft

    def may_fit(self, block: int, request: int) -> bool:
        """Report whether a node of the block may have room for the request."""
        return (self._max_free[block] - request) & self._guard == self._guard

    def raise_to(self, node: int, free: int) -> None:
        """Raise the bound of the node's block to the node's *free* vector."""
        block = node // BLOCK_NODES
        self._max_free[block] = lane_maximum(self._max_free[block], free, self._guard)

    def count_misses(self, block: int, nodes: int, free: Sequence[int]) -> None:
        """Count *nodes* of the block that were found full; after VAIN_MAX recompute the bound."""
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
