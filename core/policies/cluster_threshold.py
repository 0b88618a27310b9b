"""The thesis's rule: the cluster, and every reach, stays under its thresholds without the node.

Source: thesis 4.4 (candidate_check) and 4.5. A node that is not marked goes if all stay within
the thresholds for entering; one that is marked stays marked within those for leaving.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from core.capacity.sums import Exceeded, excess
from core.capacity.usable import Amount
from core.capacity.utilization import RemovalEffect
from core.model.reason import Blocker, Reason
from core.policies.policy import Order, Policy, PolicyInput

LAST_NODE: Final = Reason(
    "last-node",
    "No other node would be left that pods can use.",
    "nothing to do",
    "the cluster has another node that counts",
)
THRESHOLD: Final = Reason(
    "threshold",
    "Without the node, the cluster's requests would exceed a threshold of its capacity.",
    "wait for requests to fall, lower what pods ask for beyond their use, or raise "
    "`thresholds` in the configuration",
    "requests without the node are within `thresholds` of the capacity without it",
)
PEAK_DEMAND: Final = Reason(
    "peak-demand",
    "Requests of now would do without the node, but those of the busiest moment in the "
    "window that is looked back on would not.",
    "wait; or set `peakWindow` shorter in the configuration",
    "the busiest moment has left the window, or would be within `thresholds` too",
)
USABLE_THRESHOLD: Final = Reason(
    "usable-threshold",
    "Capacity without the node would do in sum, but too much of it is in pieces that no pod "
    "can use.",
    "raise `thresholds`, or see whether `usability` describes your pods: the plan prints it",
    "requests are within `thresholds` of the usable capacity without the node",
)
REACH_THRESHOLD: Final = Reason(
    "reach-threshold",
    "The nodes that some of the cluster's pods can use would be too full: other nodes, behind "
    "taints or other labels, are of no use to them.",
    "wait for requests there to fall, give those nodes' pods a wider choice, or raise "
    "`thresholds`; docs/reaches.md explains reaches",
    "requests on the reach's nodes are within its thresholds of their usable capacity",
)


class ClusterThreshold(Policy):
    """Nodes that pods reach first, dear before cheap; then those that empty soonest."""

    name: ClassVar[str] = "ClusterThreshold"
    thresholds: ClassVar[bool] = True

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger

    def level(self, node: int) -> Order:
        """Return whether nobody reaches it, and the price, dear first."""
        return not self._ledger.is_reached(node), -self._input.price(
            self._input.nodes[node].labels
        )

    def rank(self, node: int) -> Order:
        """Return what tells how soon it empties."""
        name = self._input.nodes[node].name
        sticky = self._input.long_lived_pods.get(name, 0)
        return sticky, self._input.count_to_move(node), self._input.share(node), name

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Ask thesis 4.4 of the node; nobody asks for a node that no movable pod reaches.

        Necessary, never sufficient: usable capacity is at most capacity. The last node fails,
        because nothing would be left (thesis repair m).
        """
        account = self._ledger
        if not account.is_reached(node):
            return not account.is_last(node)
        requests, capacity = account.totals_without(node)
        whole = account.total
        thresholds = whole.thresholds(marked=marked)
        return requests.plus(whole.peak_excess_for(marked=marked)).within(thresholds, capacity)

    def is_candidate(self, node: int, *, was: bool) -> bool:  # noqa: ARG002 it makes no difference
        """Ask the same."""
        return self.nominates(node, marked=False)

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Say what the cluster would be over."""
        if self._ledger.is_last(node):
            return (Blocker(LAST_NODE, "no other node would be left"),)
        whole = self._ledger.total
        requests, capacity = self._ledger.totals_without(node)
        thresholds = whole.thresholds(marked=marked)
        if over := excess(requests, capacity, thresholds):
            return (Blocker(THRESHOLD, f"without it the cluster would have {over}"),)
        over = excess(requests.plus(whole.peak_excess), capacity, thresholds)
        message = f"without it the window's busiest moment would have had {over}"
        return (Blocker(PEAK_DEMAND, message),)

    def exceeded(self, trial: RemovalEffect, *, marked: bool) -> tuple[Exceeded, ...]:
        """Ask thesis 4.5 of the whole and of every reach that loses the node or gains pods."""
        return tuple(self._ledger.exceeded(trial, marked=marked))

    def explain_exceeded(self, found: Exceeded, *, marked: bool) -> Blocker:
        """Say what would be too full."""
        sums, change, _ = found
        requests = sums.requests.plus(Amount(change[0], change[1]))
        usable = sums.usable.plus(Amount(change[2], change[3]))
        thresholds = sums.thresholds(marked=marked)
        where = "what would be usable" if sums.reach is None else f"reach {sums.reach.name}"
        over = excess(requests, usable, thresholds)
        if not over:
            over = excess(requests.plus(sums.peak_excess), usable, thresholds)
            message = f"without it the window's busiest moment would have had {over} of {where}"
            return Blocker(PEAK_DEMAND, message)
        if sums.reach is None:
            return Blocker(USABLE_THRESHOLD, f"of what would be usable without it, {over}")
        return Blocker(REACH_THRESHOLD, f"without it {where} would have {over}")
