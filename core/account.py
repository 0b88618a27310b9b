"""The sums that thresholds are checked on, kept up to date as nodes go (thesis 4.2 to 4.5).

Nodes have the ids of the Packer beside which an Account stands. Nodes that an autoscaler is
already deleting count as gone: their capacity is in no sum, their pods' requests stay in.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from core.capacity import NOTHING, Amount, Share, Totals, Usability, capacity, usable_capacity
from core.model import Node
from core.policies.cluster_threshold import nominated

RESOURCE_NAMES: Final = ("cpu", "memory")


class Account:
    """Capacity, requests and usable capacity of every node and of all of them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        used: Sequence[Amount],
        daemon: Sequence[Amount],
        usability: Usability | None,
        closed: frozenset[str],
        gone: frozenset[str],
    ) -> None:
        """Sum up; nodes named in *closed* take no pods, so what is free there is not usable."""
        self._usability = usability
        self._closed = [node.name in closed for node in nodes]
        self._capacity = [capacity(node) for node in nodes]
        self._used = list(used)
        self._daemon = daemon
        self._gone = [node.name in gone for node in nodes]
        self._usable = [self._usable_of(n, self._used[n]) for n in range(len(nodes))]
        here = [n for n in range(len(nodes)) if not self._gone[n]]
        self.count = len(here)
        self.capacity = _sum(self._capacity[n] for n in here)
        self.usable = _sum(self._usable[n] for n in here)
        self.requests = _sum(self._used[n] for n in here)

    def totals(self) -> Totals:
        """Return the sums as they stand."""
        return Totals(
            nodes=self.count,
            capacity=self.capacity,
            requests=self.requests,
            usable=self.usable,
        )

    def nominated(self, node: int, thresholds: Share) -> bool:
        """Ask thesis 4.4 of the node, O(1)."""
        return nominated(
            requests=self.requests,
            capacity=self.capacity,
            daemon=self._daemon[node],
            node=self._capacity[node],
            thresholds=thresholds,
        )

    def without(self, node: int) -> tuple[Amount, Amount]:
        """Return requests and capacity of the cluster without the node."""
        return (
            self.requests.minus(self._daemon[node]),
            self.capacity.minus(self._capacity[node]),
        )

    def usable_after(self, node: int, received: Iterable[tuple[int, Amount]]) -> Amount:
        """Return the usable capacity once *node* is gone and others *received* its pods."""
        cpu, memory = self.usable.minus(self._usable[node])
        for receiver, amount in received:
            after = self._usable_of(receiver, self._used[receiver].plus(amount))
            before = self._usable[receiver]
            cpu += after[0] - before[0]
            memory += after[1] - before[1]
        return Amount(cpu, memory)

    def remove(self, node: int, received: Iterable[tuple[int, Amount]]) -> None:
        """Let the node go: its daemons vanish, its other pods go to the receivers."""
        self.receive(received)
        self.count -= 1
        self.requests = self.requests.minus(self._used[node])
        self.capacity = self.capacity.minus(self._capacity[node])
        self.usable = self.usable.minus(self._usable[node])

    def receive(self, received: Iterable[tuple[int, Amount]]) -> None:
        """Add pods to nodes."""
        for receiver, amount in received:
            used = self._used[receiver] = self._used[receiver].plus(amount)
            usable = self._usable_of(receiver, used)
            self.usable = self.usable.plus(usable).minus(self._usable[receiver])
            self._usable[receiver] = usable
            self.requests = self.requests.plus(amount)

    def _usable_of(self, node: int, used: Amount) -> Amount:
        if self._closed[node]:
            return used
        return usable_capacity(self._capacity[node], used, self._usability)


def excess(used: Amount, whole: Amount, thresholds: Share) -> str:
    """Say which resources are over their threshold, as a person writes it; empty: none."""
    parts = []
    for name, have, total, share in zip(RESOURCE_NAMES, used, whole, thresholds, strict=True):
        if total <= 0:
            parts.append(f"{name} without capacity")
        elif have * share.denominator > share.numerator * total:
            limit = percent(share.numerator, share.denominator)
            parts.append(f"{name} at {percent(have, total)}, over {limit}")
    return ", ".join(parts)


def percent(part: int, whole: int) -> str:
    """Write a share with one decimal, rounded up, so that what is over a limit looks so."""
    tenths = -(-part * 1000 // whole)
    return f"{tenths // 10}.{tenths % 10}%" if tenths % 10 else f"{tenths // 10}%"


def _sum(amounts: Iterable[Amount]) -> Amount:
    total = NOTHING
    for amount in amounts:
        total = total.plus(amount)
    return total
