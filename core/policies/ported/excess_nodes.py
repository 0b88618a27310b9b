"""Remove nodes while the free capacity is worth more than a number of nodes (Node Refiner).

The excess is the free capacity of all counted nodes divided by the capacity of the candidate, for
CPU or memory, whichever is smaller. A node is counted if it is schedulable, has CPU and memory,
and has no taint except Ebb's and taints such as not-ready that describe a temporary state. Source:
Node Refiner's README, and the weights in its code (pkg/types). Requests are those of the plan in
progress, so moved pods count on their new nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Annotated, Any, ClassVar, Final

from core.model.node_lifecycle import others_taint
from core.model.reason import Blocker, Reason
from core.placement.reach_utilization import requested
from core.placement.usable_capacity import NOTHING, Amount
from core.policies.policy import Order, Policy, PolicyGauge, PolicyInput, PolicyMetric
from core.setting_types.value_types import number

WEIGHTS: Final = Fraction(4, 5), Fraction(1, 5)
"""Weights of the requested shares of CPU and memory, as in Node Refiner. The candidate is the node
with the smallest weighted sum."""
SLACK: Final = Fraction(1, 2)
"""Number of nodes by which the excess may fall below the threshold before a mark is removed."""
SCORE_SCALE: Final = 2**128
"""Denominator of scores; finer differences count as equal."""
_GAUGE: Final = PolicyGauge(
    "ebb_excess_nodes",
    "Free capacity of the schedulable unmarked nodes, in multiples of the capacity of "
    "the node that the policy would remove next.",
)

NO_EXCESS: Final = Reason(
    "no-excess",
    "The free capacity of all counted nodes, measured in nodes like this one, is not above "
    "`excessNodes.threshold`.",
    "wait for requests to fall, lower requests that pods do not use, or lower "
    "`excessNodes.threshold`",
    "the free capacity, measured in nodes like this one, is above `excessNodes.threshold`",
)
NOT_COUNTED: Final = Reason(
    "not-counted",
    "Policy ExcessNodes does not count the node: it has a taint that Ebb did not set, is not "
    "schedulable, or has no CPU or memory.",
    "none needed; to remove such nodes, use another policy",
    "the node is schedulable, has CPU and memory, and no taint except Ebb's and transient ones",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of policy ExcessNodes."""

    threshold: Annotated[Fraction, number(positive=False)] = Fraction(2)
    """Nodes are removed while the excess (free capacity, in nodes) is above this number. Marks are
    removed when the excess is below this number minus 0.5. Raise it if more free nodes must
    remain for peaks."""


class ExcessNodes(Policy):
    """Remove the least utilized node while the excess is above the threshold.

    The excess is the free capacity of the cluster, in nodes of the size of the candidate.
    """

    name: ClassVar[str] = "ExcessNodes"
    Settings: ClassVar[type[Any] | None] = Settings
    section: ClassVar[str] = "excess_nodes"
    defaults: ClassVar[Mapping[str, Any]] = {
        "unneededTime": "0s",
        "maxJobAge": "never",
        "budgets": {"minNodes": 2, "minUntaintedNodes": 2},
        "markInterval": "10m",
        "cooldown": {"delayAfterAdd": "60m"},
        "controller": {"interval": "1m"},
    }
    reorders: ClassVar[bool] = True
    reasons = (NO_EXCESS, NOT_COUNTED)
    gauges = (_GAUGE,)

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger
        self._settings: Settings = policy_input.settings
        self._counted = [n for n in range(len(policy_input.nodes)) if self._counts(n)]
        self._counted_set = frozenset(self._counted)
        self._scores: dict[int, tuple[Amount, int]] = {}
        self._by_capacity: dict[Amount, list[int]] = {}
        """Counted nodes that nothing else blocks, by capacity."""
        for node in self._counted:
            if not policy_input.is_blocked(node):
                self._by_capacity.setdefault(self._ledger.capacity(node), []).append(node)
        self._changes_seen = -1
        """Length of `ledger.changed` when the next three values were computed."""
        self._free_on: dict[int, Amount] = {}
        """Free capacity by counted node; none on removed nodes."""
        self._free = NOTHING
        self._first_without_excess: Order | None = None
        """Rank of the first node, in the order of removal, for which the excess is too small."""

    def _counts(self, node: int) -> bool:
        cpu, memory = self._ledger.capacity(node)
        untainted = others_taint(self._input.nodes[node]) is None
        return untainted and cpu > 0 and memory > 0 and self._ledger.is_schedulable(node)

    def rank(self, node: int) -> Order:
        """Return a sort key, the weighted requested share of the node, then its name.

        Nodes with low utilization come first.
        """
        return self._score(node), self._input.nodes[node].name

    def _score(self, node: int) -> int:
        """Return the weighted sum of the requested shares, in units of 1 / SCORE_SCALE."""
        used, known = self._ledger.used(node), self._scores.get(node)
        if known is None or known[0] != used:
            parts = zip(WEIGHTS, used, self._ledger.capacity(node), strict=True)
            share = sum(
                (weight * Fraction(part, of) for weight, part, of in parts if of > 0), Fraction()
            )
            known = self._scores[node] = used, int(share * SCORE_SCALE)
        return known[1]

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Report whether the free capacity is worth more nodes like this one than the threshold.

        The free capacity must also be above the threshold for each removable node that ranks
        earlier, because the policy removes these first. For a marked node, which counts as not
        removed, it may be SLACK nodes below the threshold. A node that is not counted is never
        proposed.
        """
        if node not in self._counted_set:
            return False
        self._update()
        if marked:
            return self._excess(node) >= self._settings.threshold - SLACK
        return self._first_without_excess is None or self.rank(node) < self._first_without_excess

    def _update(self) -> None:
        """Recompute the free capacity and the first node without excess, if nodes have changed.

        Nodes with equal capacity have the same excess.
        """
        changed = self._ledger.changed
        if self._changes_seen == len(changed):
            return
        for node in self._counted if self._changes_seen < 0 else changed[self._changes_seen :]:
            if node in self._counted_set:
                now = NOTHING if self._ledger.is_removed(node) else self._free_of(node)
                self._free = self._free.plus(now).minus(self._free_on.get(node, NOTHING))
                self._free_on[node] = now
        self._changes_seen = len(changed)
        failing = (
            self.rank(node)
            for whole, nodes in self._by_capacity.items()
            if self._nodes_worth(whole) <= self._settings.threshold
            for node in nodes
            if not self._ledger.is_removed(node)
        )
        self._first_without_excess = min(failing, default=None)

    def _free_of(self, node: int) -> Amount:
        return self._ledger.capacity(node).minus(self._ledger.used(node))

    def _nodes_worth(self, whole: Amount) -> Fraction:
        return _worth(self._free.minus(self._ledger.displaced_requests), whole)

    def _excess(self, node: int) -> Fraction:
        return self._nodes_worth(self._ledger.capacity(node))

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Return the reason why `nominates` is False, as a single Blocker.

        It names the excess, or says why the node is not counted.
        """
        if node not in self._counted_set:
            key = others_taint(self._input.nodes[node])
            why = (
                f"the node has the taint {key}"
                if key
                else "the node is not schedulable, or offers no CPU or no memory"
            )
            return (Blocker(NOT_COUNTED, why),)
        self._update()
        excess, least = self._excess(node), self._settings.threshold
        message = f"the excess (free capacity) is {_decimal(excess)} nodes"
        if marked:
            below = f"{message}, counting this node, and below {_decimal(least - SLACK)}"
            return (Blocker(NO_EXCESS, below),)
        if excess > least and (first := self._first_without_excess) is not None:
            before = f"the policy would first remove node {first[1]}"
            return (Blocker(NO_EXCESS, f"{before}, and the excess is too small for {first[1]}"),)
        return (
            Blocker(
                NO_EXCESS, f"{message}, not above `excessNodes.threshold` ({_decimal(least)})"
            ),
        )

    def describe(self, node: int) -> str:
        """Return a text with the requests on the node, and the excess in nodes like this one."""
        message = requested(self._ledger.used(node), self._ledger.capacity(node))
        if node not in self._counted_set:
            return f"{message} requested; the policy does not count the node"
        self._update()
        return f"{message} requested, excess {_decimal(self._excess(node))} nodes like this one"

    @staticmethod
    def due_at(since: int, unneeded_time_seconds: int) -> int:
        """Return the time (unix seconds) at which the node may be removed.

        *since*: the time (unix seconds) since which it has been a candidate. It must have been a
        candidate for *unneeded_time_seconds*.
        """
        return since + unneeded_time_seconds

    def metrics(self) -> Iterable[PolicyMetric]:
        """Yield the excess: the free capacity of the unmarked nodes, as a number of nodes.

        It counts nodes of the size of the node that the policy would remove next. Yield nothing if
        there is no such node.
        """
        nodes = [
            node
            for node in self._counted
            if not self._ledger.is_removed(node) and node not in self._input.marked
        ]
        if removable := [node for node in nodes if not self._input.is_blocked(node)]:
            first = min(removable, key=self.rank)
            free = reduce(Amount.plus, map(self._free_of, nodes), NOTHING)
            yield PolicyMetric(_GAUGE.name, (), _worth(free, self._ledger.capacity(first)))


def _worth(free: Amount, whole: Amount) -> Fraction:
    """Return how many nodes of capacity *whole* the free capacity is worth, in CPU or memory.

    The smaller of the two numbers counts.
    """
    return min(Fraction(part, total) for part, total in zip(free, whole, strict=True))


def _decimal(value: Fraction) -> str:
    """Format a number of nodes as text, rounded to 0.01."""
    return f"{float(round(value, 2)):g}"
