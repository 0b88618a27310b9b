"""How much a cluster has, how much is asked for, and how much of the rest a pod could really use.

Units: CPU millicores, memory bytes. Source: thesis 4.2 (capacity, requests) and 4.3 (usable
capacity), with the repairs: an unusable node counts with its requests, not with nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from core.model import Node, Pod

CPU_MILLIS_PER_CORE: Final = 1000
BYTES_PER_GB: Final = 10**9


class Amount(NamedTuple):
    """The two resources that thresholds speak of."""

    cpu_millis: int
    memory_bytes: int

    def plus(self, other: "Amount") -> "Amount":
        """Add, resource by resource."""
        return Amount(self[0] + other[0], self[1] + other[1])

    def minus(self, other: "Amount") -> "Amount":
        """Subtract, resource by resource."""
        return Amount(self[0] - other[0], self[1] - other[1])

    def within(self, share: "Share", whole: "Amount") -> bool:
        """Say whether this is at most *share* of *whole* in both resources; no share of nothing.

        Thesis 4.4: `<=`, and a cluster without capacity fails. Compared by cross-multiplication.
        """
        return all(
            total > 0 and used * part.denominator <= part.numerator * total
            for used, total, part in zip(self, whole, share, strict=True)
        )


NOTHING: Final = Amount(0, 0)


class Share(NamedTuple):
    """A threshold: the largest allowed part of each resource, exact."""

    cpu: Fraction
    memory: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Usability:
    """When free capacity is of use to a pod (thesis 4.3, UT)."""

    min_cpu_millis: int
    min_memory_bytes: int
    max_cpu_per_gb: Fraction
    """Cores per 10^9 bytes: no pod asks for more CPU beside its memory than this."""
    max_gb_per_cpu: Fraction
    """10^9 bytes per core."""

    def usable_free(self, free: Amount) -> Amount:
        """Return the part of *free* that pods can use; rounds down, so it never overstates."""
        if free.cpu_millis < self.min_cpu_millis or free.memory_bytes < self.min_memory_bytes:
            return NOTHING
        cpu, gb = self.max_cpu_per_gb, self.max_gb_per_cpu
        cpu_bound = free.memory_bytes * cpu.numerator * CPU_MILLIS_PER_CORE
        memory_bound = free.cpu_millis * gb.numerator * BYTES_PER_GB
        return Amount(
            min(free.cpu_millis, cpu_bound // (cpu.denominator * BYTES_PER_GB)),
            min(free.memory_bytes, memory_bound // (gb.denominator * CPU_MILLIS_PER_CORE)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A cluster in sums."""

    nodes: int
    capacity: Amount
    """Allocatable, all nodes."""
    requests: Amount
    """Of the pods on the nodes; pending pods are not in it (thesis 4.2.2)."""
    usable: Amount


def capacity(node: Node) -> Amount:
    """Return what the node offers to pods: allocatable (thesis 4.2.1 says capacity)."""
    return Amount(node.allocatable.cpu_millis, node.allocatable.memory_bytes)


def requests(pods: Iterable[Pod]) -> Amount:
    """Return what the pods ask for together (thesis 4.2.2)."""
    cpu = memory = 0
    for pod in pods:
        cpu += pod.requests.cpu_millis
        memory += pod.requests.memory_bytes
    return Amount(cpu, memory)


def usable_capacity(whole: Amount, used: Amount, usability: Usability | None) -> Amount:
    """Return the usable capacity of one node with allocatable *whole* and requests *used*.

    Thesis 4.3: free usable plus requests. Overcommitted nodes return their requests. Without
    usability settings everything allocatable is usable, as far as it is not overcommitted.
    """
    free = whole.minus(used)
    if free.cpu_millis < 0 or free.memory_bytes < 0:
        return used
    return whole if usability is None else used.plus(usability.usable_free(free))


def derive_usability(pods: Iterable[Pod]) -> Usability | None:
    """Derive the four numbers from live pods: `usability: auto`; None when no pod says anything.

    Thesis 4.3: the minimum lies just under the smallest pod (its example: 0.1 becomes 0.09, so
    nine tenths), the ratios are the largest that any pod has. DaemonSet and mirror pods do not
    look for room and are left out; so are pods that do not ask for both resources.
    """
    distinct = {id(pod.requests): pod.requests for pod in pods if not pod.stays_with_node}
    shapes = {
        (asked.cpu_millis, asked.memory_bytes)
        for asked in distinct.values()
        if asked.cpu_millis > 0 and asked.memory_bytes > 0
    }
    if not shapes:
        return None
    per_core, per_gb = CPU_MILLIS_PER_CORE, BYTES_PER_GB
    return Usability(
        min_cpu_millis=min(cpu for cpu, _ in shapes) * 9 // 10,
        min_memory_bytes=min(memory for _, memory in shapes) * 9 // 10,
        max_cpu_per_gb=max(Fraction(c * per_gb, m * per_core) for c, m in shapes),
        max_gb_per_cpu=max(Fraction(m * per_core, c * per_gb) for c, m in shapes),
    )
