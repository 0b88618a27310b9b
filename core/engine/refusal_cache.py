"""Remember nodes that cannot be removed, so that one plan does not try them again too soon.

While a plan is made, free space only shrinks. The pods of a node leave only together, and a
removed node accepts no pods. So the pods of a node find the same places as before until pods move
on the node itself or on one of the receiving nodes.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from core.placement.packer import Attempt, Packer
from core.placement.reach_utilization import Exceeded


class _Refusal(NamedTuple):
    """Why the removal of a node was refused; valid until pods move on the node or a receiver."""

    receivers: Collection[int]
    """Nodes that would receive pods."""
    over: Exceeded | None
    """Sums of the node's own reach that would exceed a threshold; None if a pod had no place."""


class RefusalCache:
    """Nodes whose removal was refused and would be refused again, as nothing relevant changed."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self._never_fit: set[int] = set()
        """Nodes with a pod that finds no place for the rest of this plan."""
        self._until_moved: dict[int, _Refusal] = {}
        """Refusals by node, valid until pods move on it or on a receiver."""

    def add(
        self,
        node: int,
        attempt: Attempt,
        over: Sequence[Exceeded],
        beside: Attempt | None = None,
        *,
        marked: bool,
    ) -> None:
        """Remember that the removal of the node was refused, if it would be refused again.

        *attempt*: the attempt to place its pods. *over*: sums that would exceed a threshold; empty
        if a pod had no place. *beside*: the failed attempt that left room for headroom, if
        *attempt* was made without headroom. *marked*: whether the node is marked.
        """
        packer = self._packer
        if not beside and packer.never_fits(attempt, node):
            self._never_fit.add(node)
        elif packer.is_repeatable(node):
            # A threshold of the node's own reaches is exceeded wherever its pods are placed. A
            # marked node is checked against two thresholds, so one exceeded threshold does not
            # decide.
            own = [exceeded for exceeded in over if exceeded.own and not marked]
            if attempt.unassigned or own:
                receivers = (
                    {**attempt.free_after, **beside.free_after} if beside else attempt.free_after
                )
                # The sums of the cluster come first and change with every removal: take the last.
                self._until_moved[node] = _Refusal(receivers, own[-1] if own else None)

    def is_still_refused(self, node: int) -> bool:
        """Report whether the removal of the node would certainly be refused again.

        False also means unknown.
        """
        if node in self._never_fit:
            return True
        refusal = self._until_moved.get(node)
        if refusal is None:
            return False
        over = refusal.over
        return over is None or over.sums.exceeds(over.change, marked=False)

    def invalidate(self, leaving: int, attempt: Attempt) -> None:
        """Drop the refusals that a removal may change.

        *leaving*: id of the removed node. *attempt*: the new places of its pods.
        """
        moved = {leaving, *attempt.free_after}
        refusals = self._until_moved
        stale = [
            node for node, refusal in refusals.items() if not moved.isdisjoint(refusal.receivers)
        ]
        for node in moved.union(stale):
            refusals.pop(node, None)
