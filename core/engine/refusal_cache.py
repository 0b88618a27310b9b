"""Which refusals go on while other nodes go, so that no pods are packed for nothing.

While a plan is made free space only falls, a pod leaves a node only together with all others, and
such a node takes none any more. So pods that are packed again find the same places as before, as
long as nothing has moved on their node and on those that would receive some of them: a node that
had no room for one has none now, and one that was refused for what stands on it is so still.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from core.capacity.sums import Exceeded
from core.packing.packer import Attempt, Packer


class _Refusal(NamedTuple):
    receivers: Collection[int]
    """The nodes on which pods would find places."""
    over: Exceeded | None
    """Sums of the node's own that would be over a threshold; None: a pod found no place."""


class RefusalCache:
    """The nodes that need not be tried, as things stand."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self._never_fit: set[int] = set()
        """Nodes with a pod that finds no place, and never will while this plan is made."""
        self._until_moved: dict[int, _Refusal] = {}
        """By node; true until pods move on it or on a receiver."""

    def add(
        self,
        node: int,
        attempt: Attempt,
        over: Sequence[Exceeded],
        beside: Attempt | None = None,
        *,
        marked: bool,
    ) -> None:
        """Remember what refused the node: pods without a place, or sums that would be over.

        *attempt* is the one that asks all nodes. For sums of its own a node is refused wherever
        its pods go; a *marked* one is held to two thresholds, so what it was over says too little.
        *beside* is another that was refused, if *attempt* was made without pods that are there.
        """
        packer = self._packer
        if not beside and packer.never_fits(attempt, node):
            self._never_fit.add(node)
        elif packer.is_repeatable(node):
            own = [one for one in over if one.own and not marked]
            if attempt.unassigned or own:
                # The whole comes first, and changes with every node that goes.
                receivers = (
                    {**attempt.free_after, **beside.free_after} if beside else attempt.free_after
                )
                self._until_moved[node] = _Refusal(receivers, own[-1] if own else None)

    def is_still_refused(self, node: int) -> bool:
        """Say whether the node would be refused again; False: it may be, or may not."""
        if node in self._never_fit:
            return True
        found = self._until_moved.get(node)
        if found is None:
            return False
        over = found.over
        return over is None or over.sums.exceeds(over.change, marked=False)

    def invalidate(self, leaving: int, attempt: Attempt) -> None:
        """Forget what no longer holds when the attempt is carried out."""
        moved = {leaving, *attempt.free_after}
        known = self._until_moved
        stale = [n for n, one in known.items() if not moved.isdisjoint(one.receivers)]
        for node in moved.union(stale):
            known.pop(node, None)
