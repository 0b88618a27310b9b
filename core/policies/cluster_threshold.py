"""Propose nodes for removal while requests stay within thresholds without them.

The thresholds apply to the cluster and to every reach (a set of nodes that some pods can use).
Unmarked nodes are checked against `thresholds`, marked nodes against `thresholds` plus
`hysteresis`. Source: thesis 4.4 (candidate_check) and 4.5.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from core.model.reason import Blocker, DeferredText, Reason
from core.placement.reach_utilization import DeviceUtilization, Exceeded, excess, share_over
from core.placement.usable_capacity import Amount, Share
from core.placement.utilization_ledger import RemovalEffect
from core.policies.policy import Order, Policy, PolicyInput

LAST_NODE: Final = Reason(
    "last-node",
    "Without the node, the cluster would have no node that pods can use.",
    "none needed",
    "the cluster has another node that pods can use",
)
THRESHOLD: Final = Reason(
    "threshold",
    "Without the node, the cluster's requests would exceed a threshold of its capacity.",
    "wait for requests to fall, lower requests that pods do not use, or raise `thresholds` in the "
    "configuration",
    "requests without the node are within `thresholds` of the capacity without it",
)
PEAK_DEMAND: Final = Reason(
    "peak-demand",
    "Current requests are within `thresholds` without the node, but the highest requests within "
    "`stabilizationWindow` are not.",
    "wait; or shorten `stabilizationWindow` in the configuration",
    "the highest requests within `stabilizationWindow` are within `thresholds` without the node",
)
USABLE_THRESHOLD: Final = Reason(
    "usable-threshold",
    "The total capacity without the node is sufficient, but too much of it is free in amounts "
    "that no pod can use.",
    "raise `thresholds`, or check whether `usableCapacity` fits your pods; `ebb plan` prints its "
    "values",
    "requests are within `thresholds` of the usable capacity without the node",
)
REACH_THRESHOLD: Final = Reason(
    "reach-threshold",
    "Without the node, requests in a reach would exceed its thresholds. A reach is the set of "
    "nodes that the constraints of some pods admit.",
    "wait for requests on these nodes to fall, relax the constraints of the pods, or raise "
    "`thresholds`; docs/reaches.md explains reaches",
    "requests in the reach, without the node, are within its thresholds",
)


_AT_PEAK: Final = "without the node, at the highest requests within `stabilizationWindow`,"


class ClusterThreshold(Policy):
    """Remove nodes while requests stay within thresholds of the capacity that remains.

    Nodes that movable pods can use come first, then expensive nodes, then nodes that will be empty
    soon.
    """

    name: ClassVar[str] = "ClusterThreshold"
    thresholds: ClassVar[bool] = True
    hysteresis: ClassVar[bool] = True

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger

    def level(self, node: int) -> Order:
        """Return a sort key: nodes that movable pods can use come first, then expensive nodes."""
        return not self._ledger.is_reached(node), -self._input.price(
            self._input.nodes[node].labels
        )

    def rank(self, node: int) -> Order:
        """Return a sort key: nodes that can be empty soon come first, then wasteful ones.

        The first have few long-lived pods. The others have requests that are worth little of the
        node's cost, then few pods to move. Among equal nodes, the last in first-fit order comes
        first, so that its pods go to nodes that remain, and not to the next node to be removed.
        """
        name = self._input.nodes[node].name
        long_lived = self._input.long_lived_pods.get(name, 0)
        # Surge moves empty a node at once, except for the pods that they cannot replace.
        not_replaceable = self._input.pods_not_replaceable.get(name, 0)
        return (
            long_lived,
            not_replaceable,
            self._input.cost_share(node),
            self._input.count_to_move(node),
            -node,
        )

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Report whether requests of the cluster stay within the thresholds without the node.

        This is the check of thesis 4.4: requests of the cluster against its capacity. True is not
        enough for a removal: `exceeded` also checks usable capacity and reaches. If no movable pod
        can use the node, the answer is True, unless no other node would remain. *marked*: whether
        `hysteresis` is added to the thresholds; if not, the recent peak of requests must be within
        the thresholds too.
        """
        ledger = self._ledger
        if not ledger.is_reached(node):
            return not ledger.is_last(node)
        requests, capacity = ledger.totals_without(node)
        whole = ledger.total
        thresholds = whole.thresholds(marked=marked)
        return requests.plus(whole.peak_excess_for(marked=marked)).within(thresholds, capacity)

    def is_candidate(self, node: int, *, was: bool) -> bool:  # noqa: ARG002 it makes no difference
        """Report whether `nominates` holds for the unmarked node; *was* is ignored."""
        return self.nominates(node, marked=False)

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Return the reason why `nominates` is False, as a single Blocker.

        It names the thresholds that the cluster would exceed without the node, or says that no
        other node would remain.
        """
        if self._ledger.is_last(node):
            return (Blocker(LAST_NODE, "no other node that pods can use would remain"),)
        whole = self._ledger.total
        requests, capacity = self._ledger.totals_without(node)
        demand = _Demand("the cluster", requests, capacity, whole.thresholds(marked=marked))
        return (_blocker(demand, THRESHOLD, whole.peak_excess),)

    def exceeded(self, trial: RemovalEffect, *, marked: bool) -> tuple[Exceeded, ...]:
        """Return the sums that would exceed a threshold after the removal *trial* (thesis 4.5).

        The sums of the cluster and of every reach that loses the node or receives its pods are
        checked. An empty result means that the removal is within all thresholds.
        """
        return tuple(self._ledger.exceeded(trial, marked=marked))

    def surely_within(self, pods: int) -> bool:
        """Report whether no removal of an unmarked node can exceed a threshold.

        The least usable capacity that may remain is checked, so False also means unknown. *pods*:
        the largest number of pods on a node.
        """
        return self._ledger.surely_within(pods)

    def explain_exceeded(self, found: Exceeded, *, marked: bool) -> Blocker:
        """Return a Blocker that names the threshold that the sum *found* would exceed.

        *marked*: whether the node is marked, so that the threshold includes `hysteresis`.
        """
        sums, change, _ = found
        if isinstance(sums, DeviceUtilization):
            limit = sums.threshold(marked=marked)
            used, whole = sums.row[0] + change[0], sums.row[1] + change[1]
            over = share_over(sums.resource, used, whole, limit)
            return Blocker(
                REACH_THRESHOLD, f"without the node, reach {sums.reach.name} would have {over}"
            )
        where = "the cluster" if sums.reach is None else f"reach {sums.reach.name}"
        demand = _Demand(
            where,
            sums.requests.plus(Amount(change[0], change[1])),
            sums.usable.plus(Amount(change[2], change[3])),
            sums.thresholds(marked=marked),
            " of usable capacity" if sums.reach is None else "",
        )
        reason = USABLE_THRESHOLD if sums.reach is None else REACH_THRESHOLD
        return _blocker(demand, reason, sums.peak_excess)


class _Demand(NamedTuple):
    """The requests of the cluster or a reach without a node, with the remaining capacity."""

    where: str
    """The cluster, or the reach."""
    requests: Amount
    capacity: Amount
    thresholds: Share
    base: str = ""
    """Text about the capacity that follows it in messages."""

    def text(self, premise: str) -> str:
        """Return a message with the thresholds that the requests would exceed.

        *premise*: the beginning of the message, such as "without the node,".
        """
        over = excess(self.requests, self.capacity, self.thresholds)
        return f"{premise} {self.where} would have {over}{self.base}"


def _blocker(demand: _Demand, reason: Reason, peak_excess: Amount) -> Blocker:
    """Return a Blocker with *reason*, if the requests exceed the thresholds.

    If they exceed them only with *peak_excess* added, the reason is PEAK_DEMAND.
    """
    if not demand.requests.within(demand.thresholds, demand.capacity):
        return Blocker(reason, DeferredText(_Demand.text, demand, "without the node,"))
    demand = demand._replace(requests=demand.requests.plus(peak_excess))
    return Blocker(PEAK_DEMAND, DeferredText(_Demand.text, demand, _AT_PEAK))
