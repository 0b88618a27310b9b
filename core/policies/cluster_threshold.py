"""The thesis's rule: the cluster, and every reach, stays under its thresholds without the node.

Source: thesis 4.4 (candidate_check) and 4.5. A node that is not marked goes if all stay within
the thresholds for entering; one that is marked stays marked within those for leaving.
"""

from typing import ClassVar

from core.capacity.account import Trial
from core.capacity.sums import Exceeded, excess
from core.capacity.usable import Amount
from core.policies.policy import Look, Order
from core.reason import Blocker


class ClusterThreshold:
    """Nodes that pods reach first, dear before cheap; then those that empty soonest."""

    name: ClassVar[str] = "ClusterThreshold"

    def __init__(self, look: Look) -> None:
        self._look, self._account = look, look.account

    def level(self, node: int) -> Order:
        """Return whether nobody reaches it, and the price, dear first."""
        return not self._account.reached(node), -self._look.price(self._look.nodes[node].labels)

    def rank(self, node: int) -> Order:
        """Return what tells how soon it empties."""
        name = self._look.nodes[node].name
        sticky = self._look.sticky.get(name, 0)
        return sticky, self._look.to_move(node), self._look.share(node), name

    def nominated(self, node: int, *, marked: bool) -> bool:
        """Ask thesis 4.4 of the node; nobody asks for a node that no movable pod reaches.

        Necessary, never sufficient: usable capacity is at most capacity. The last node fails,
        because nothing would be left (thesis repair m).
        """
        account = self._account
        if not account.reached(node):
            return not account.is_last(node)
        requests, capacity = account.without(node)
        whole = account.whole
        thresholds = whole.leave if marked else whole.enter
        return requests.plus(whole.reserve).within(thresholds, capacity)

    def why_not(self, node: int, *, marked: bool) -> Blocker:
        """Say what the cluster would be over."""
        if self._account.is_last(node):
            return Blocker("last-node", "no other node would be left")
        whole = self._account.whole
        requests, capacity = self._account.without(node)
        thresholds = whole.leave if marked else whole.enter
        if over := excess(requests, capacity, thresholds):
            return Blocker("threshold", f"without it the cluster would have {over}")
        over = excess(requests.plus(whole.reserve), capacity, thresholds)
        message = f"without it the window's busiest moment would have had {over}"
        return Blocker("peak-demand", message)

    def exceeded(self, trial: Trial, *, marked: bool) -> tuple[Exceeded, ...]:
        """Ask thesis 4.5 of the whole and of every reach that loses the node or gains pods."""
        return tuple(self._account.exceeded(trial, marked=marked))

    def why_exceeded(self, found: Exceeded, *, marked: bool) -> Blocker:
        """Say what would be too full."""
        sums, change, _ = found
        requests = sums.requests.plus(Amount(change[0], change[1]))
        usable = sums.usable.plus(Amount(change[2], change[3]))
        thresholds = sums.leave if marked else sums.enter
        where = "what would be usable" if sums.reach is None else f"reach {sums.reach.name}"
        over = excess(requests, usable, thresholds)
        if not over:
            over = excess(requests.plus(sums.reserve), usable, thresholds)
            message = f"without it the window's busiest moment would have had {over} of {where}"
            return Blocker("peak-demand", message)
        if sums.reach is None:
            return Blocker("usable-threshold", f"of what would be usable without it, {over}")
        return Blocker("reach-threshold", f"without it {where} would have {over}")
