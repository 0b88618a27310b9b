"""Node Refiner's rule: nodes go while the free capacity is worth more than so many nodes.

Excess is the smaller, by CPU and memory, of what is free on all nodes that count over what the
candidate has. A node counts that takes pods, carries no taint of others and has CPU and memory.
Source: Node Refiner's README; the weights of its source (pkg/types). Requests are those of the
plan in the making, so what one removal moves is counted before the next is judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Annotated, Any, ClassVar, Final

from core.capacity.sums import requested
from core.capacity.usable import NOTHING, Amount
from core.fields.structure import where
from core.fields.value_types import number
from core.model.node_lifecycle import others_taint
from core.model.reason import Blocker, Reason
from core.policies.policy import Order, Policy, PolicyGauge, PolicyInput, PolicyMetric

SLACK: Final = Fraction(1, 2)
"""Nodes: so much less excess than it takes to go still lets a marked one stay marked."""
SCORE_SCALE: Final = 2**128
"""Scores are compared as whole parts of this; finer differences count as ties."""
_GAUGE: Final = PolicyGauge(
    "ebb_excess_nodes", "Free capacity of nodes that count, in nodes like the candidate."
)

NO_EXCESS: Final = Reason(
    "no-excess",
    "What is free on all nodes is not worth more nodes like the candidate than the threshold.",
    "wait for requests to fall, lower what pods ask for beyond their use, or set "
    "`excessNodes.threshold` lower",
    "what is free is worth more nodes like the candidate than `excessNodes.threshold`",
)
NOT_COUNTED: Final = Reason(
    "not-counted",
    "Policy ExcessNodes leaves the node out: a taint of others keeps it for some pods, it takes "
    "none now, or it has no CPU or no memory.",
    "nothing to do; to let such nodes go, use another policy",
    "it takes pods, has CPU and memory, and no taint but Ebb's and those that pass by themselves",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each share counts; their sum need not be 1."""

    cpu: Annotated[Fraction, number(positive=False)] = Fraction(4, 5)
    """Of the share of CPU that is asked for."""
    memory: Annotated[Fraction, number(positive=False)] = Fraction(1, 5)
    """Of the share of memory that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What policy ExcessNodes reads."""

    threshold: Annotated[Fraction, number(positive=False)] = Fraction(2)
    """Nodes go while the excess is above this; a marked one stays marked down to 0.5 less."""
    weights: Annotated[
        Weights,
        where(lambda found: found.cpu + found.memory > 0, "weights of which one is above 0"),
    ] = Weights()
    """The candidate is the node with the least weighted sum of CPU's and memory's shares."""


class ExcessNodes(Policy):
    """The least utilized node goes while there are more nodes than enough."""

    name: ClassVar[str] = "ExcessNodes"
    Settings: ClassVar[type[Any] | None] = Settings
    section: ClassVar[str] = "excess_nodes"
    defaults: ClassVar[Mapping[str, Any]] = {
        "delay": "0s",
        "budgets": {"minNodes": 2, "minUntaintedNodes": 2},
        "spacing": "10m",
        "cooldown": {"afterNodeAdd": "60m"},
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
        """By what nodes have: those that count and nothing else keeps."""
        for node in self._counted:
            if not policy_input.is_blocked(node):
                self._by_capacity.setdefault(self._ledger.capacity(node), []).append(node)
        self._changes_seen = -1
        """How much had changed in the account when the next three were worked out."""
        self._free_on: dict[int, Amount] = {}
        """By node that counts; nothing on one that has gone."""
        self._free = NOTHING
        self._first_without_excess: Order | None = None
        """The rank of the first node, in order, that there is too little excess for."""

    def _counts(self, node: int) -> bool:
        """Say whether the node counts; whether it has gone, the account says."""
        cpu, memory = self._ledger.capacity(node)
        taken = others_taint(self._input.nodes[node]) is None
        return taken and cpu > 0 and memory > 0 and self._ledger.is_schedulable(node)

    def rank(self, node: int) -> Order:
        """Return how little is asked for on the node now."""
        return self._score(node), self._input.nodes[node].name

    def _score(self, node: int) -> int:
        """Return the weighted shares in parts of SCORE_SCALE; of what is not there, none."""
        used, known = self._ledger.used(node), self._scores.get(node)
        if known is None or known[0] != used:
            weights, whole = self._settings.weights, self._ledger.capacity(node)
            parts = zip((weights.cpu, weights.memory), used, whole, strict=True)
            share = sum(
                (one * Fraction(part, of) for one, part, of in parts if of > 0), Fraction()
            )
            known = self._scores[node] = used, int(share * SCORE_SCALE)
        return known[1]

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Say whether there is more excess than the threshold with the node as the candidate.

        So must there be for each before it in order that nothing else keeps: it is the candidate
        first. A marked node is judged with itself counted back, which it is until it goes.
        """
        if node not in self._counted_set:
            return False
        self._update()
        if marked:
            return self._excess(node) >= self._settings.threshold - SLACK
        return self._first_without_excess is None or self.rank(node) < self._first_without_excess

    def _update(self) -> None:
        """Follow what has changed; what fails for one node fails for all that have as much."""
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

    def _remaining(self) -> Iterable[int]:
        return (node for node in self._counted if not self._ledger.is_removed(node))

    def _free_of(self, node: int) -> Amount:
        return self._ledger.capacity(node).minus(self._ledger.used(node))

    def _nodes_worth(self, whole: Amount) -> Fraction:
        return _worth(self._free.minus(self._ledger.displaced_requests), whole)

    def _excess(self, node: int) -> Fraction:
        return self._nodes_worth(self._ledger.capacity(node))

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Say how much excess there is, or that the node does not count."""
        if node not in self._counted_set:
            key = others_taint(self._input.nodes[node])
            why = f"it has the taint {key}" if key else "it takes no pods, or has no CPU or memory"
            return (Blocker(NOT_COUNTED, why),)
        self._update()
        excess, least = self._excess(node), self._settings.threshold
        message = f"the excess is {_decimal(excess)} nodes"
        if marked:
            return (Blocker(NO_EXCESS, f"{message}, under {_decimal(least - SLACK)} with it"),)
        if excess > least:
            return (Blocker(NO_EXCESS, "there is too little for a node that would go before it"),)
        return (Blocker(NO_EXCESS, f"{message}, not above {_decimal(least)}"),)

    def describe(self, node: int) -> str:
        """Say how much is asked for on it, and how much excess there is with it as candidate."""
        message = requested(self._ledger.used(node), self._ledger.capacity(node))
        if node not in self._counted_set:
            return f"{message} requested; it does not count"
        self._update()
        return f"{message} requested, excess {_decimal(self._excess(node))} nodes like it"

    @staticmethod
    def due_at(since: int, delay_seconds: int) -> int:
        """Return the unix second at which the delay ends."""
        return since + delay_seconds

    def metrics(self) -> Iterable[PolicyMetric]:
        """Tell the excess over unmarked nodes, with the first that nothing keeps as candidate."""
        nodes = [node for node in self._remaining() if node not in self._input.marked]
        if going := [node for node in nodes if not self._input.is_blocked(node)]:
            first = min(going, key=self.rank)
            free = reduce(Amount.plus, map(self._free_of, nodes), NOTHING)
            yield PolicyMetric(_GAUGE.name, (), _worth(free, self._ledger.capacity(first)))


def _worth(free: Amount, whole: Amount) -> Fraction:
    """Return how many nodes that have so much the free capacity is worth."""
    return min(Fraction(part, total) for part, total in zip(free, whole, strict=True))


def _decimal(value: Fraction) -> str:
    """Write a number of nodes for people, rounded to 0.01."""
    return f"{float(round(value, 2)):g}"
