"""Store the free space of all nodes while pods are placed.

Only the methods of FreeSpace change free space. All of them except `give_back` take room. As long
as room is only taken, a node without room for a request never gets room for it, so the node need
not be checked again. `give_back` increases `version`: then all nodes must be checked again.

If thousands of pending pods have different sizes, each of them would check every full node. So
FreeSpace stores an upper bound of the free space of a node for each block of nodes, and skips full
blocks at once. The upper bound remains valid while room is taken.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final

from core.placement.node_order import NodeOrder
from core.placement.vectors import Vectors, lane_maximum

BLOCK_NODES: Final = 64
"""Number of nodes in a block. Checking the bound of a block takes longer than checking a node."""
MISSES_MAX: Final = 8 * BLOCK_NODES
"""Number of checks of full nodes in a block after which the bound of the block is recomputed.

Recomputing the bound takes about as long as these checks."""


class FreeSpace:
    """The free resources of every node while pods are placed, as one integer for each node.

    The integer, a vector, contains all resources of the node (core.placement.vectors).
    """

    def __init__(self, free: list[int], guard: int) -> None:
        """Store *free*, the free vectors by node id, without copying the list.

        *guard*: the top bit of each resource in a vector. Each of the free vectors has these bits
        set.
        """
        self.guard = guard
        self._free = free
        self.free: Sequence[int] = free
        """Free vectors by node id, to be read only."""
        self.version = 0
        """Number of calls of `give_back`. Full nodes remain full while it is the same."""
        self.changes = 0
        """Number of all changes. All free vectors are the same while it is the same."""
        starts = range(0, len(free), BLOCK_NODES)
        self._max_free = [_upper_bound(free[at : at + BLOCK_NODES], guard) for at in starts]
        """Upper bound of the free vector of a node, by block."""
        self._misses = [0] * len(self._max_free)
        """Number of checks of full nodes since the bound was computed, by block."""

    @staticmethod
    def of(vectors: Vectors, node_order: NodeOrder) -> "FreeSpace":
        """Return the free space of the nodes: allocatable minus the requests of their pods.

        Nodes that *node_order* lists as unschedulable have no free space.
        """
        free = [
            vectors.guard
            | (
                0
                if node.name in node_order.unschedulable_nodes
                else vectors.of(node.allocatable - used)
            )
            for node, used in zip(node_order.nodes, node_order.used, strict=True)
        ]
        return FreeSpace(free, vectors.guard)

    def fork(self) -> "FreeSpace":
        """Return a copy; changes to the copy or the original do not affect the other."""
        fork = copy(self)
        fork.free = fork._free = [*self._free]  # noqa: SLF001 of this class
        fork._max_free, fork._misses = [*self._max_free], [*self._misses]  # noqa: SLF001
        return fork

    def take(self, free_after: Mapping[int, int]) -> None:
        """Replace free vectors of nodes by smaller ones; *free_after*: vector by node id."""
        self.changes += 1
        for node, vector in free_after.items():
            self._free[node] = vector

    def close(self, node: int) -> None:
        """Take all room of the node, so that the node accepts no more pods."""
        self.take({node: self.guard})

    def give_back(self, node: int, request: int) -> None:
        """Add the resources of *request*, a vector, to the free space of the node.

        Results about full nodes are invalid afterwards.
        """
        self.changes += 1
        self.version += 1
        self._free[node] += request
        block = node // BLOCK_NODES
        self._max_free[block] = lane_maximum(self._max_free[block], self._free[node], self.guard)

    def fits(self, node: int, request: int) -> bool:
        """Report whether the node has room for *request*, a vector."""
        if (self._free[node] - request) & self.guard == self.guard:
            return True
        self._count_misses(node // BLOCK_NODES, 1)
        return False

    def may_fit(self, node: int, request: int) -> bool:
        """Report whether some node in the block of this node may have room for the request.

        A block is BLOCK_NODES consecutive nodes. False is certain: all nodes of the block are too
        full.
        """
        return (self._max_free[node // BLOCK_NODES] - request) & self.guard == self.guard

    def with_room_in_block(self, nodes: Sequence[int], request: int) -> list[int]:
        """Return the ids in *nodes* of the nodes that have room for the request.

        All *nodes* must belong to one block of BLOCK_NODES consecutive node ids.
        """
        if not self.may_fit(nodes[0], request):
            return []
        guard, free = self.guard, self._free
        with_room = [node for node in nodes if (free[node] - request) & guard == guard]
        if not with_room:
            self._count_misses(nodes[0] // BLOCK_NODES, len(nodes))
        return with_room

    def _count_misses(self, block: int, nodes: int) -> None:
        # After MISSES_MAX checks of full nodes, the bound of the block is recomputed.
        self._misses[block] += nodes
        if self._misses[block] >= MISSES_MAX:
            start = block * BLOCK_NODES
            self._max_free[block] = _upper_bound(
                self._free[start : start + BLOCK_NODES], self.guard
            )
            self._misses[block] = 0


def _upper_bound(free: Sequence[int], guard: int) -> int:
    bound = guard
    for vector in free:
        bound = lane_maximum(bound, vector, guard)
    return bound
