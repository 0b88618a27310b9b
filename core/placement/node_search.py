"""Find nodes with room for pods with equal requests and node constraints.

All pods of such an equivalence group share one search. While free space only shrinks, the search
never checks a full node again. There are two ways to search. For pods without inter-pod rules
(such as pod affinity) it is a list of nodes with room in first-fit order, which is extended on
demand. For pods with inter-pod rules it is a bit set of nodes (core.placement.bits), because the
rules may admit only one of thousands of nodes.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from core.placement.bits import set_bits
from core.placement.equivalence_groups import EquivalenceGroup
from core.placement.free_space import BLOCK_NODES, FreeSpace

BLOCK_BITS: Final = (1 << BLOCK_NODES) - 1


class Searches(dict[EquivalenceGroup, "NodeSearch"]):
    """The NodeSearch of each equivalence group of pods, created at its first lookup."""

    def __init__(self, space: FreeSpace) -> None:
        super().__init__()
        self._space, self._version = space, space.version

    def valid_in(self, space: FreeSpace) -> "Searches":
        """Return this object if its results are still valid in *space*, else an empty Searches.

        The results are invalid in another FreeSpace, and after `FreeSpace.give_back`.
        """
        valid = self._space is space and self._version == space.version
        return self if valid else Searches(space)

    def __missing__(self, group: EquivalenceGroup) -> "NodeSearch":
        search = self[group] = NodeSearch(self._space, group)
        return search


class NodeSearch:
    """Search for nodes with room for a pod of one equivalence group, while free space shrinks.

    All pods of the group share the results, so no full node is checked again.
    """

    __slots__ = ("_counted", "_open", "_space", "feasible", "first", "group", "unscanned")

    def __init__(self, space: FreeSpace, group: EquivalenceGroup) -> None:
        self._space, self.group = space, group
        self.feasible: list[int] = []
        """Scanned candidates that had room when they were scanned."""
        self.first = 0
        """Position in `feasible`; the nodes before it are full."""
        self.unscanned = len(group.nodes.candidates)
        """Number of candidates that have not been scanned; they are the last ones."""
        self._open: int | None = None
        """Candidates that were not found full, as bits; None before the first use."""
        self._counted = (-1, 0, 0)
        """Latest count of nodes with room: `FreeSpace.changes` at that time, the number at which
        counting stopped, and the number of nodes found."""

    def skip_full(self) -> int:
        """Set `first` to the position of the first node that still has room, and return it.

        The position is in `feasible`; if no node there has room, it is the length of `feasible`.
        """
        feasible, first, request = self.feasible, self.first, self.group.request
        free, guard = self._space.free, self._space.guard
        while first < len(feasible) and (free[feasible[first]] - request) & guard != guard:
            first += 1
        self.first = first
        return first

    def extend(self) -> int:
        """Scan more blocks of nodes until a block has nodes with room; append these to `feasible`.

        Return the new length of `feasible`, which is the old one if no further node has room.
        """
        candidates, known = self.group.nodes.candidates, len(self.feasible)
        while len(self.feasible) == known and self.unscanned:
            start = len(candidates) - self.unscanned
            end = bisect_left(
                candidates, (candidates[start] // BLOCK_NODES + 1) * BLOCK_NODES, start
            )
            self.feasible += self._space.with_room_in_block(
                candidates[start:end], self.group.request
            )
            self.unscanned = len(candidates) - end
        return len(self.feasible)

    def open_nodes(self) -> int:
        """Return the nodes that had room initially and were not found full since, as a bit set."""
        if self._open is None:
            self._open = self.group.nodes.candidate_bits
        return self._open

    def with_room(self, nodes: int) -> Iterator[int]:
        """Yield the ids of the nodes with room for a pod of the group among *nodes*, ascending.

        *nodes* is a bit set. Full nodes that are found on the way are removed from `open_nodes`.
        """
        space, request = self._space, self.group.request
        while nodes:
            start = ((nodes & -nodes).bit_length() - 1) // BLOCK_NODES * BLOCK_NODES
            block = nodes & BLOCK_BITS << start
            nodes ^= block
            if not space.may_fit(start, request):
                self._note_full(block)
                continue
            for offset in set_bits(block >> start):
                if space.fits(start + offset, request):
                    yield start + offset
                else:
                    self._note_full(1 << start + offset)

    def _note_full(self, nodes: int) -> None:
        self._open = self.open_nodes() & ~nodes

    def has_room_on(self, count: int) -> bool:
        """Report whether at least *count* nodes have room for a pod of the group."""
        changes, counted_to, with_room = self._counted
        if changes != self._space.changes or counted_to <= with_room < count:
            feasible, position, request = self.feasible, self.skip_full(), self.group.request
            free, guard, with_room = self._space.free, self._space.guard, 0
            while with_room < count and (position < len(feasible) or self.extend() > position):
                with_room += (free[feasible[position]] - request) & guard == guard
                position += 1
            self._counted = self._space.changes, count, with_room
        return with_room >= count

    def may_fit_beside(self, node: int) -> bool:
        """Report whether a node other than *node* has room, or some node was not scanned yet.

        False is certain: no pod of the group fits on another node.
        """
        not_full = self.feasible[self.skip_full() :]
        return self.unscanned > 0 or any(
            other != node and self._space.fits(other, self.group.request) for other in not_full
        )
