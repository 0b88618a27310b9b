"""Estimate the savings by Ebb, in node-seconds and in money.

Expected savings count every node that the plan can remove, as if it were gone at once, and every
removed node. So they also show in mode observe what mode enforce would save.

Real savings count only removed nodes: Ebb had allowed the scale-down of the node, and the node no
longer exists. It counts until its pool has as many nodes again as before, at most
CREDIT_SECONDS_MAX. This is an estimate: nobody knows which nodes would exist without Ebb. A new
leader continues with the removed nodes that the previous one has stored (core.history.today).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, NamedTuple

from core.eligibility.scalability import group_name
from core.engine.reconcile import ReconcileResult
from core.engine.snapshot import NO_POOL, ClusterSnapshot
from core.history.today import AllowedNode, Credit
from core.marks.mark import is_scale_down_allowed

CREDIT_SECONDS_MAX: Final = 24 * 3600
"""Maximum time for which a removed node counts as saved."""
CREDITS_MAX: Final = 20_000
"""Maximum number of removed nodes that count as saved; the oldest ones end first."""
HOUR_SECONDS: Final = 3600
NO_COST: Final = Fraction()


class Saved(NamedTuple):
    """An amount of savings: node-seconds, and the price of the nodes for this time."""

    node_seconds: int = 0
    cost: Fraction = NO_COST
    """Price of the nodes times hours, in the unit of `prices`."""

    def plus(self, prices: Iterable[Fraction], seconds: int) -> "Saved":
        """Return the amount after further nodes were saved for *seconds*.

        *prices*: price of each of these nodes for an hour.
        """
        listed = list(prices)
        cost = sum(listed, NO_COST) * seconds / HOUR_SECONDS
        return Saved(self.node_seconds + len(listed) * seconds, self.cost + cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsFigures:
    """The savings so far, and the nodes for which savings are counted from now on."""

    expected: Saved = field(default_factory=Saved)
    real: Saved = field(default_factory=Saved)
    removable: Mapping[str, Fraction] = field(default_factory=dict)
    """Prices of the nodes that the last plan can remove, by name."""
    allowed: Mapping[str, AllowedNode] = field(default_factory=dict)
    """Existing nodes whose scale-down is allowed, by name. A node that is being deleted stays in
    the mapping, although Ebb has unmarked it."""
    credits: tuple[Credit, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes by pool in the last reconciliation."""

    @property
    def oldest_allowed(self) -> int | None:
        """Return the earliest time at which the scale-down of an existing node became allowed.

        In Unix seconds; None if there is no such node.
        """
        return min((node.since for node in self.allowed.values()), default=None)

    def observe(self, result: ReconcileResult, seconds: int) -> "SavingsFigures":
        """Return the savings after a reconciliation, *seconds* after the previous one."""
        prices = [credit.price for credit in self.credits]
        figures = replace(
            self,
            expected=self.expected.plus([*prices, *self.removable.values()], seconds),
            real=self.real.plus(prices, seconds),
        )
        if result.skipped:
            return replace(figures, credits=_current(figures.credits, self.nodes, result.at))
        snapshot = result.snapshot
        nodes = _count_nodes(snapshot)
        earned = (*self.credits, *self._new_credits(snapshot, result.at))
        return replace(
            figures,
            removable=_removable(result),
            allowed=_allowed(self.allowed, snapshot, result.at),
            credits=_current(earned, nodes, result.at)[-CREDITS_MAX:],
            nodes=nodes,
        )

    def _new_credits(self, snapshot: ClusterSnapshot, at: int) -> Iterable[Credit]:
        """Yield a saving for each node that was removed after Ebb had allowed its scale-down.

        *at*: time of the reconciliation in Unix seconds.
        """
        left, existing = Counter(self.nodes), snapshot.node_order.ids
        for name, node in sorted(self.allowed.items()):
            if name not in existing:
                until = at + CREDIT_SECONDS_MAX
                pool = node.limit_pool
                yield Credit(name, pool, node.pool, left[pool], node.price, until)
                left[pool] -= 1


def _current(savings: Iterable[Credit], nodes: Mapping[str, int], at: int) -> tuple[Credit, ...]:
    """Return the savings that still count at the Unix second *at*.

    A saving ends when its pool has as many nodes as before the removal. *nodes*: current number of
    nodes by pool.
    """
    return tuple(
        saving
        for saving in savings
        if nodes.get(saving.limit_pool, 0) < saving.nodes_before and at < saving.until
    )


def _count_nodes(snapshot: ClusterSnapshot) -> Mapping[str, int]:
    names = snapshot.pool_names
    return Counter(
        names.get(node.name, NO_POOL) for node in snapshot.cluster.nodes if not node.virtual
    )


def _removable(result: ReconcileResult) -> Mapping[str, Fraction]:
    snapshot = result.snapshot
    nodes, ids = snapshot.node_order.nodes, snapshot.node_order.ids
    return {
        removal.node: snapshot.config.price_of(nodes[ids[removal.node]].labels)
        for removal in result.plan.removals
        if removal.node not in snapshot.unpromised_nodes
    }


def _allowed(
    before: Mapping[str, AllowedNode], snapshot: ClusterSnapshot, at: int
) -> Mapping[str, AllowedNode]:
    """Return the nodes whose scale-down is allowed, by name, with the time since when it is.

    *before*: the result of the previous reconciliation. *at*: Unix second of this one.
    """
    allowed = {}
    for node in snapshot.cluster.nodes:
        name, known = node.name, before.get(node.name)
        if known and (name in snapshot.leaving_nodes or is_scale_down_allowed(node)):
            allowed[name] = known
        elif name in snapshot.marks and is_scale_down_allowed(node):
            pool = snapshot.pool_names.get(name, NO_POOL)
            price = snapshot.config.price_of(node.labels)
            allowed[name] = AllowedNode(at, pool, group_name(node, pool), price)
    return allowed
