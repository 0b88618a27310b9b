"""Compute how much of a cluster's free capacity pods can really use.

Units: CPU millicores, memory bytes. Source: thesis 4.2 (capacity, requests) and 4.3 (usable
capacity), with one repair: a node whose free capacity is unusable counts with its requests instead
of with nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple

from core.model.resources import Resources

CPU_MILLIS_PER_CORE: Final = 1000
BYTES_PER_GB: Final = 10**9


class Amount(NamedTuple):
    """CPU and memory, the two resources that have thresholds."""

    cpu_millis: int
    memory_bytes: int

    @staticmethod
    def of(resources: Resources) -> "Amount":
        """Return CPU and memory of the resources."""
        return Amount(resources.cpu_millis, resources.memory_bytes)

    def plus(self, other: "Amount") -> "Amount":
        """Return the sum of both amounts, for each resource."""
        return Amount(self[0] + other[0], self[1] + other[1])

    def minus(self, other: "Amount") -> "Amount":
        """Return this amount minus the other, for each resource; it may be negative."""
        return Amount(self[0] - other[0], self[1] - other[1])

    def at_most(self, other: "Amount") -> "Amount":
        """Return the smaller value of both amounts, for each resource."""
        return Amount(min(self[0], other[0]), min(self[1], other[1]))

    def within(self, share: "Share", whole: "Amount") -> bool:
        """Report whether this amount is at most *share* of *whole*, in CPU and in memory.

        False if *whole* has no CPU or no memory (thesis 4.4).
        """
        cpu, memory = share
        return (
            whole[0] > 0
            and whole[1] > 0
            and self[0] * cpu.denominator <= cpu.numerator * whole[0]
            and self[1] * memory.denominator <= memory.numerator * whole[1]
        )


NOTHING: Final = Amount(0, 0)


class Share(NamedTuple):
    """A share of CPU and a share of memory, as exact fractions, such as a threshold of 4/5."""

    cpu: Fraction
    memory: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Usability:
    """Settings that say how much of a node's free capacity pods can use (thesis 4.3, UT)."""

    min_cpu_millis: int
    """Minimum free CPU."""
    min_memory_bytes: int
    """Minimum free memory."""
    max_cpu_per_gb: Fraction
    """Usable cores per 10^9 bytes of free memory."""
    max_gb_per_cpu: Fraction
    """Usable memory in 10^9 bytes per free core."""

    def usable_free(self, free: Amount) -> Amount:
        """Return the part of the free capacity *free* of one node that pods can use, rounded down.

        It is nothing if CPU or memory is below its minimum.
        """
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
    """Number of nodes, capacity, requests and usable capacity of a cluster or reach."""

    nodes: int
    """Number of schedulable nodes."""
    capacity: Amount
    """Allocatable resources of the schedulable nodes; the thesis (4.2.1) calls them capacity."""
    requests: Amount
    """Requests of the pods on the nodes, without pending pods (thesis 4.2.2)."""
    usable: Amount
    """Usable capacity."""


def usable_capacity(whole: Amount, used: Amount, usability: Usability | None) -> Amount:
    """Return the usable capacity of a node with allocatable *whole* and requests *used*.

    It is the requests plus the usable free capacity (thesis 4.3). An overcommitted node has its
    requests only. If *usability* is None, everything allocatable is usable.
    """
    free = whole.minus(used)
    if free.cpu_millis < 0 or free.memory_bytes < 0:
        return used
    return whole if usability is None else used.plus(usability.usable_free(free))


class UsabilityEvaluator:
    """Computes the usable capacity of a node with several usability settings at once.

    The results are those of `usable_capacity`, computed without fractions. If the free capacity of
    a node is below every minimum, a single comparison decides for all settings.
    """

    def __init__(self, usabilities: Sequence[Usability | None]) -> None:
        self._count = len(usabilities)
        self._all = [
            None if usability is None else _Bounds.of(usability) for usability in usabilities
        ]
        self._least = Amount(
            min(usability.min_cpu_millis if usability else 0 for usability in usabilities),
            min(usability.min_memory_bytes if usability else 0 for usability in usabilities),
        )
        """Free capacity below this is unusable with every setting."""

    def usable(self, whole: Amount, used: tuple[int, int]) -> tuple[Amount, ...]:
        """Return the usable capacity of a node for each of the settings, in their order.

        *whole*: allocatable resources. *used*: requested CPU in millicores and memory in bytes.
        """
        cpu, memory = whole[0] - used[0], whole[1] - used[1]
        if cpu < self._least[0] or memory < self._least[1]:
            return (Amount(*used),) * self._count
        return tuple(
            [whole if bounds is None else bounds.usable(used, cpu, memory) for bounds in self._all]
        )


class _Bounds(NamedTuple):
    """The conditions of a Usability as integers, in millicores and bytes."""

    min_cpu_millis: int
    min_memory_bytes: int
    cpu_numerator: int
    """Usable CPU is at most free memory * `cpu_numerator` // `cpu_denominator`."""
    cpu_denominator: int
    memory_numerator: int
    """Usable memory is at most free CPU * `memory_numerator` // `memory_denominator`."""
    memory_denominator: int

    @staticmethod
    def of(usability: Usability) -> "_Bounds":
        cpu, gb = usability.max_cpu_per_gb, usability.max_gb_per_cpu
        return _Bounds(
            usability.min_cpu_millis,
            usability.min_memory_bytes,
            cpu.numerator * CPU_MILLIS_PER_CORE,
            cpu.denominator * BYTES_PER_GB,
            gb.numerator * BYTES_PER_GB,
            gb.denominator * CPU_MILLIS_PER_CORE,
        )

    def usable(self, used: tuple[int, int], cpu: int, memory: int) -> Amount:
        """Return the usable capacity of a node: the requests *used* plus its usable free capacity.

        *cpu*, *memory*: its free capacity.
        """
        min_cpu, min_memory, cpu_up, cpu_down, memory_up, memory_down = self
        if cpu < min_cpu or memory < min_memory:
            return Amount(*used)
        return Amount(
            used[0] + min(cpu, memory * cpu_up // cpu_down),
            used[1] + min(memory, cpu * memory_up // memory_down),
        )


LOW_PERCENT: Final = 5
"""Percentage of a reach's pods that may be smaller than the minimum usable amount."""
PODS_MIN: Final = 3
"""Minimum number of pods from which the smallest pod alone does not decide the minimum."""


class PooledRatios:
    """The largest usable ratios of CPU to memory, and the reverse, among reaches that share nodes.

    A reach is a set of nodes that some pods can use. If each reach had only the ratios of its own
    pods, capacity that a few small pods of one shape cannot use would count as unusable, although
    pods of another reach fill it.
    """

    def __init__(self, known: Iterable[tuple[frozenset[int], Usability]]) -> None:
        """Sort the ratios of all reaches.

        *known*: for each reach, its nodes and the usability derived from its pods.
        """
        reaches = list(known)
        self._cpu = _ranked((usability.max_cpu_per_gb, nodes) for nodes, usability in reaches)
        self._memory = _ranked((usability.max_gb_per_cpu, nodes) for nodes, usability in reaches)

    def ratios(self, own: Usability, nodes: frozenset[int]) -> Usability:
        """Return *own* with the largest ratios of all reaches that share a node with *nodes*.

        *nodes*: the nodes of a reach. *own*: the usability derived from its pods.
        """
        cpu, memory = (
            next(ratio for ratio, others in ranked if not nodes.isdisjoint(others))
            for ranked in (self._cpu, self._memory)
        )
        return replace(own, max_cpu_per_gb=cpu, max_gb_per_cpu=memory)


def _ranked(
    found: Iterable[tuple[Fraction, frozenset[int]]],
) -> list[tuple[Fraction, frozenset[int]]]:
    return sorted(found, key=lambda one: one[0], reverse=True)


def derive_usability(shapes: Mapping[tuple[int, int], int]) -> Usability | None:
    """Derive the usability settings from the requests of pods (`usableCapacity: auto`).

    *shapes*: number of pods by CPU and memory request. Pods that do not request both are ignored;
    return None if no pod remains.

    Thesis 4.3: the minimum is slightly below the smallest typical request (its example: 0.1
    becomes 0.09, nine tenths). Here it is nine tenths of the 5th percentile by nearest rank. Among
    three or more pods the smallest one does not decide. Otherwise one tiny pod would make even the
    smallest free amounts usable, and Ebb might remove marks when this pod ends. The ratios are the
    largest of any pod.
    """
    complete = {shape: count for shape, count in shapes.items() if shape[0] > 0 and shape[1] > 0}
    if not complete:
        return None
    per_core, per_gb = CPU_MILLIS_PER_CORE, BYTES_PER_GB
    return Usability(
        min_cpu_millis=_low([(cpu, n) for (cpu, _), n in complete.items()]) * 9 // 10,
        min_memory_bytes=_low([(memory, n) for (_, memory), n in complete.items()]) * 9 // 10,
        max_cpu_per_gb=max(Fraction(c * per_gb, m * per_core) for c, m in complete),
        max_gb_per_cpu=max(Fraction(m * per_core, c * per_gb) for c, m in complete),
    )


def _low(counted: Iterable[tuple[int, int]]) -> int:
    """Return the 5th percentile (LOW_PERCENT) of *counted*, pairs of value and number of pods.

    With PODS_MIN or more pods it is not the value of the smallest pod alone.
    """
    ordered = sorted(counted)
    pods = sum(count for _, count in ordered)
    rank = max(-(-pods * LOW_PERCENT // 100), 1 if pods < PODS_MIN else 2)
    for value, count in ordered:
        rank -= count
        if rank <= 0:
            return value
    raise AssertionError("the rank is at most the sum of the counts")
