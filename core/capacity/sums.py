"""What is asked for and what is usable in one reach, or in the whole, held to its thresholds.

Source: thesis 4.2 to 4.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from core.capacity.reaches import Reach
from core.capacity.usable import NOTHING, Amount, Share, Totals, Usability
from core.fields import value_types

RESOURCE_NAMES: Final = ("cpu", "memory")
LIMITS_MAX: Final = 256
"""Texts of limits that are kept."""
DECIMALS_MAX: Final = 12
"""Of a percentage; limits in the file have fewer."""


Limit = tuple[int, int, int, int, int, int]
"""A Share as whole numbers, part and of, and what is kept beside what is used: `(used + kept) * of
<= part * whole`; for CPU, then for memory."""


@dataclass(slots=True, eq=False)
class ReachUtilization:
    """Of one reach, or of the whole.

    The checks are asked for every node of every plan, so the sums are plain whole numbers:
    CPU and memory requested, CPU and memory usable.
    """

    reach: Reach | None
    """None: the whole."""
    usability: Usability | None
    enter: Share
    release: Share
    """For nodes that carry a mark."""
    peak_excess: Amount = NOTHING
    """What the busiest moment needed beyond what is asked for now."""
    nodes: int = 0
    capacity: Amount = NOTHING
    row: list[int] = field(default_factory=lambda: [0] * COLUMNS)
    limits: tuple[Limit, Limit] = field(init=False)
    """For a node without a mark, and for one that carries one."""

    def __post_init__(self) -> None:
        """Work out once what is asked for every node."""
        self.limits = self._limit(marked=False), self._limit(marked=True)

    def totals(self) -> Totals:
        """Return the sums as they stand."""
        return Totals(
            nodes=self.nodes, capacity=self.capacity, requests=self.requests, usable=self.usable
        )

    @property
    def requests(self) -> Amount:
        """Return what is asked for."""
        return Amount(self.row[0], self.row[1])

    @property
    def usable(self) -> Amount:
        """Return the usable capacity."""
        return Amount(self.row[2], self.row[3])

    def peak_excess_for(self, *, marked: bool) -> Amount:
        """Return what is kept beside what is asked for: nothing under a node that carries a mark.

        It stood the busiest moment then, or came after it; and what was asked for at that moment
        may have gone since together with its nodes.
        """
        return NOTHING if marked else self.peak_excess

    def exceeds(self, change: Sequence[int], *, marked: bool) -> bool:
        """Say whether the *change* would bring the requests, with the reserve, over the limit."""
        row, limit = self.row, self.limits[marked]
        cpu, memory = row[2] + change[2], row[3] + change[3]
        return (
            cpu <= 0
            or memory <= 0
            or (row[0] + change[0] + limit[2]) * limit[1] > limit[0] * cpu
            or (row[1] + change[1] + limit[5]) * limit[4] > limit[3] * memory
        )

    def thresholds(self, *, marked: bool) -> Share:
        """Return those that hold for a node that carries a mark, or for one without."""
        return self.release if marked else self.enter

    def _limit(self, *, marked: bool) -> Limit:
        (cpu, memory), kept = self.thresholds(marked=marked), self.peak_excess_for(marked=marked)
        return (
            *(cpu.numerator, cpu.denominator, kept.cpu_millis),
            *(memory.numerator, memory.denominator, kept.memory_bytes),
        )


class Exceeded(NamedTuple):
    """Sums that would be over their thresholds."""

    sums: ReachUtilization
    change: Sequence[int]
    """By how much its row would change."""
    own: bool
    """They are the whole's, or those of a reach of the node that would go: wherever its pods go,
    this stays so."""


COLUMNS: Final = 4
Changes = Mapping[ReachUtilization, Sequence[int]]
"""By sums: what is added to their row."""


def excess(used: Amount, whole: Amount, thresholds: Share) -> str:
    """Say which resources are over their threshold, as a person writes it; empty: none."""
    parts = []
    for name, have, total, share in zip(RESOURCE_NAMES, used, whole, thresholds, strict=True):
        if total <= 0:
            parts.append(f"{name} without capacity")
        elif have * share.denominator > share.numerator * total:
            parts.append(f"{name} at {beside(have, total, share)}, over {limit_text(share)}")
    return ", ".join(parts)


def requested(used: Amount, whole: Amount) -> str:
    """Say how much of each resource that is there is asked for."""
    parts = zip(RESOURCE_NAMES, used, whole, strict=True)
    return ", ".join(f"{name} {percent(part, of)}" for name, part, of in parts if of > 0)


def beside(part: int, whole: int, limit: Fraction) -> str:
    """Write a share with the decimals that its limit has, so that what is over it looks so."""
    _, _, decimals = limit_text(limit).rstrip("%").partition(".")
    return percent(part, whole, max(1, min(len(decimals), DECIMALS_MAX)))


@lru_cache(maxsize=LIMITS_MAX)
def limit_text(share: Fraction) -> str:
    """Write a limit as it stands in the file."""
    return value_types.percent(share)


def percent(part: int, whole: int, decimals: int = 1) -> str:
    """Write a share, rounded up, so that what is over a limit looks so; no zeros at the end."""
    units = -(-part * 100 * 10**decimals // whole)
    head, tail = divmod(units, 10**decimals)
    digits = f"{tail:0{decimals}}".rstrip("0")
    return f"{head}.{digits}%" if digits else f"{head}%"
