"""Estimate what Ebb saves, in node-seconds and in money.

Expected savings count every node that the plan can remove, as if it were gone at once, and every
removed node. So they also show in mode observe what mode enforce would save.

Real savings count only removed nodes: Ebb had released the node to the autoscaler, and the node is
gone. It counts until its pool has as many nodes again as before, at most CREDIT_SECONDS_MAX. This
is an estimate: nobody knows which nodes would exist without Ebb. A new leader starts with no
removed nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, NamedTuple

from core.engine.reconcile import ReconcileResult
from core.engine.snapshot import NO_POOL, ClusterSnapshot
from core.marks.mark import is_scale_down_allowed

CREDIT_SECONDS_MAX: Final = 24 * 3600
"""Maximum time for which a removed node counts as saved."""
CREDITS_MAX: Final = 20_000
"""Maximum number of removed nodes that count as saved; the oldest ones end first."""
HOUR_SECONDS: Final = 3600
NO_COST: Final = Fraction()


class Saved(NamedTuple):
    """An amount of savings."""

    node_seconds: int = 0
    cost: Fraction = NO_COST
    """Price of the nodes times hours, in the unit of `prices`."""

    def plus(self, prices: Iterable[Fraction], seconds: int) -> "Saved":
        """Return the amount after nodes with these prices were saved for some seconds."""
        found = list(prices)
        cost = sum(found, NO_COST) * seconds / HOUR_SECONDS
        return Saved(self.node_seconds + len(found) * seconds, self.cost + cost)


class AllowedScaleDown(NamedTuple):
    """A node that is released to the autoscaler."""

    since: int
    """Time of the first reconciliation that saw the release, unix seconds."""
    pool: str
    price: Fraction


class CountedSaving(NamedTuple):
    """A removed node that counts as saved."""

    pool: str
    nodes_before: int
    """Number of nodes of the pool before the removal."""
    price: Fraction
    until: int
    """Latest end, unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsFigures:
    """The savings so far, and the nodes that count from now on."""

    expected: Saved = field(default_factory=Saved)
    real: Saved = field(default_factory=Saved)
    removable: tuple[Fraction, ...] = ()
    """Prices of the nodes that the last plan can remove."""
    released: Mapping[str, AllowedScaleDown] = field(default_factory=dict)
    """Existing nodes that are released to the autoscaler, by name. A node that is being deleted
    remains here, although Ebb has removed its mark."""
    credits: tuple[CountedSaving, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes by pool in the last reconciliation."""

    @property
    def oldest_allowed(self) -> int | None:
        """Return since when a node has been released to the autoscaler, unix seconds, or None."""
        return min((one.since for one in self.released.values()), default=None)

    def observe(self, found: ReconcileResult, seconds: int) -> "SavingsFigures":
        """Return the account after a reconciliation; *seconds* since the last one count."""
        prices = [one.price for one in self.credits]
        figures = replace(
            self,
            expected=self.expected.plus([*prices, *self.removable], seconds),
            real=self.real.plus(prices, seconds),
        )
        if found.skipped:
            return replace(figures, credits=_current(figures.credits, self.nodes, found.at))
        snapshot = found.snapshot
        nodes = _count_nodes(snapshot)
        earned = (*self.credits, *self._new_credits(snapshot, found.at))
        return replace(
            figures,
            removable=_removable(found),
            released=_released(self.released, snapshot, found.at),
            credits=_current(earned, nodes, found.at)[-CREDITS_MAX:],
            nodes=nodes,
        )

    def _new_credits(self, snapshot: ClusterSnapshot, at: int) -> Iterable[CountedSaving]:
        """Yield a credit for each released node that is gone."""
        left, existing = Counter(self.nodes), snapshot.node_order.ids
        for name, one in sorted(self.released.items()):
            if name not in existing:
                until = at + CREDIT_SECONDS_MAX
                yield CountedSaving(one.pool, left[one.pool], one.price, until)
                left[one.pool] -= 1


def _current(
    found: Iterable[CountedSaving], nodes: Mapping[str, int], at: int
) -> tuple[CountedSaving, ...]:
    """Return the credits that have not ended; *nodes*: current number of nodes by pool."""
    return tuple(
        one for one in found if nodes.get(one.pool, 0) < one.nodes_before and at < one.until
    )


def _count_nodes(snapshot: ClusterSnapshot) -> Mapping[str, int]:
    names = snapshot.pool_names
    return Counter(
        names.get(node.name, NO_POOL) for node in snapshot.cluster.nodes if not node.virtual
    )


def _removable(found: ReconcileResult) -> tuple[Fraction, ...]:
    snapshot = found.snapshot
    nodes, ids = snapshot.node_order.nodes, snapshot.node_order.ids
    return tuple(
        snapshot.config.price_of(nodes[ids[removal.node]].labels)
        for removal in found.plan.removals
    )


def _released(
    before: Mapping[str, AllowedScaleDown], snapshot: ClusterSnapshot, at: int
) -> Mapping[str, AllowedScaleDown]:
    """Return the released nodes, with the time at which each was first seen released."""
    released = {}
    for node in snapshot.cluster.nodes:
        name, known = node.name, before.get(node.name)
        if known and (name in snapshot.leaving_nodes or is_scale_down_allowed(node)):
            released[name] = known
        elif name in snapshot.marks and is_scale_down_allowed(node):
            pool = snapshot.pool_names.get(name, NO_POOL)
            released[name] = AllowedScaleDown(at, pool, snapshot.config.price_of(node.labels))
    return released
