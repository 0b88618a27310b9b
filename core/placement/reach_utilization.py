"""Compare requests with usable capacity in one reach, or in the whole cluster.

A reach is a set of nodes that some pods can use. Source: thesis 4.2 to 4.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from core.placement.reaches import Reach
from core.placement.usable_capacity import NOTHING, Amount, Share, Totals, Usability
from core.setting_types import value_types

RESOURCE_NAMES: Final = ("cpu", "memory")
LIMITS_MAX: Final = 256
"""Number of formatted limits that are cached."""
DECIMALS_MAX: Final = 12
"""Maximum number of decimals of a percentage; limits in the file have fewer."""


Limit = tuple[int, int, int, int, int, int]
"""A Share and an extra amount as integers: numerator, denominator and extra, for CPU, then memory.
Requests are within the limit if `(used + extra) * denominator <= numerator * capacity`."""


@dataclass(slots=True, eq=False)
class ReachUtilization:
    """Requests and usable capacity of one reach, or of the whole cluster.

    A reach is a set of nodes that some pods can use. Plans check these amounts for every node, so
    `row` contains plain integers: CPU and memory requested, then CPU and memory usable.
    """

    reach: Reach | None
    """Reach, or None for the whole cluster."""
    usability: Usability | None
    enter: Share
    """Thresholds for unmarked nodes."""
    unmark: Share
    """Thresholds for marked nodes: `thresholds` plus `hysteresis`."""
    peak_excess: Amount = NOTHING
    """Highest requests within `stabilizationWindow` minus the current requests."""
    nodes: int = 0
    """Number of schedulable nodes."""
    capacity: Amount = NOTHING
    """Allocatable resources of the schedulable nodes."""
    row: list[int] = field(default_factory=lambda: [0] * COLUMNS)
    limits: tuple[Limit, Limit] = field(init=False)
    """Limits for an unmarked node, and for a marked one."""

    def __post_init__(self) -> None:
        # Computed once, because they are used for every node.
        self.limits = self._limit(marked=False), self._limit(marked=True)

    def totals(self) -> Totals:
        """Return the current number of nodes, capacity, requests and usable capacity."""
        return Totals(
            nodes=self.nodes, capacity=self.capacity, requests=self.requests, usable=self.usable
        )

    @property
    def requests(self) -> Amount:
        """Return the requested CPU and memory."""
        return Amount(self.row[0], self.row[1])

    @property
    def usable(self) -> Amount:
        """Return the usable capacity (docs/glossary.md)."""
        return Amount(self.row[2], self.row[3])

    def peak_excess_for(self, *, marked: bool) -> Amount:
        """Return by how much recent peak requests exceed the current requests.

        The threshold must also hold with this amount added. *marked*: whether the node to be
        removed is marked; then the amount is 0, because the peak was checked before the node was
        marked.
        """
        # A marked node passed the peak check when it was marked. Peak demand of nodes that have
        # left must not unmark it.
        return NOTHING if marked else self.peak_excess

    def exceeds(self, change: Sequence[int], *, marked: bool) -> bool:
        """Report whether requests would exceed the thresholds after the removal of a node.

        *change*: how the removal would change `row`. *marked*: whether the node is marked. If not,
        lower thresholds apply, and the recent peak of requests must be within them too.
        """
        row, limit = self.row, self.limits[marked]
        cpu, memory = row[2] + change[2], row[3] + change[3]
        return (
            cpu <= 0
            or memory <= 0
            or (row[0] + change[0] + limit[2]) * limit[1] > limit[0] * cpu
            or (row[1] + change[1] + limit[5]) * limit[4] > limit[3] * memory
        )

    def thresholds(self, *, marked: bool) -> Share:
        """Return the CPU and memory thresholds for the removal of a marked or an unmarked node."""
        return self.unmark if marked else self.enter

    def _limit(self, *, marked: bool) -> Limit:
        (cpu, memory), extra = self.thresholds(marked=marked), self.peak_excess_for(marked=marked)
        return (
            *(cpu.numerator, cpu.denominator, extra.cpu_millis),
            *(memory.numerator, memory.denominator, extra.memory_bytes),
        )


@dataclass(slots=True, eq=False)
class DeviceUtilization:
    """Requested and offered units of one device, such as nvidia.com/gpu, in one reach."""

    reach: Reach
    resource: str
    """Name of the extended resource."""
    enter: Fraction
    """Threshold for unmarked nodes."""
    unmark: Fraction
    """Threshold for marked nodes."""
    row: list[int] = field(default_factory=lambda: [0, 0])
    """Units requested, and units that the schedulable nodes offer."""

    def exceeds(self, change: Sequence[int], *, marked: bool) -> bool:
        """Report whether requests would exceed the threshold after the removal of a node.

        *change*: how the removal would change `row`. *marked*: whether the node is marked; then a
        higher threshold applies.
        """
        requested, offered = self.row[0] + change[0], self.row[1] + change[1]
        share = self.threshold(marked=marked)
        return requested * share.denominator > share.numerator * offered

    def threshold(self, *, marked: bool) -> Fraction:
        """Return the threshold for the removal of a marked or an unmarked node."""
        return self.unmark if marked else self.enter

    def totals(self) -> "DeviceTotals":
        """Return the current requested and offered units."""
        return DeviceTotals(*self.row)


class DeviceTotals(NamedTuple):
    """Requested and offered units of one extended resource, such as nvidia.com/gpu, in a reach."""

    requested: int
    offered: int


class Exceeded(NamedTuple):
    """A sum of the cluster, a reach or a device that would exceed its threshold without a node."""

    sums: ReachUtilization | DeviceUtilization
    change: Sequence[int]
    """Change of the row."""
    own: bool
    """True for the whole cluster and for reaches that contain the removed node. They are exceeded
    wherever its pods are placed."""


COLUMNS: Final = 4
"""Length of a row."""
Changes = Mapping[ReachUtilization | DeviceUtilization, Sequence[int]]
"""Change of the row of each of the sums."""


def excess(used: Amount, whole: Amount, thresholds: Share) -> str:
    """Return a message that names each of CPU and memory whose share exceeds its threshold.

    *used*: requests. *whole*: capacity. Example: "cpu at 91.2%, over 90%". It is "" if no share
    exceeds its threshold.
    """
    parts = []
    for name, have, total, share in zip(RESOURCE_NAMES, used, whole, thresholds, strict=True):
        if total <= 0 or have * share.denominator > share.numerator * total:
            parts.append(share_over(name, have, total, share))
    return ", ".join(parts)


def share_over(name: str, used: int, whole: int, limit: Fraction) -> str:
    """Return a message such as "cpu at 91.2%, over 90%", for *used* of *whole*.

    *limit*: the 90%. If *whole* is 0, the message is "cpu without capacity".
    """
    if whole <= 0:
        return f"{name} without capacity"
    return f"{name} at {beside(used, whole, limit)}, over {limit_text(limit)}"


def requested(used: Amount, whole: Amount) -> str:
    """Return a text such as "cpu 60%, memory 41.5%" for the requests *used* of *whole*.

    A resource is omitted if its amount in *whole* is 0.
    """
    parts = zip(RESOURCE_NAMES, used, whole, strict=True)
    return ", ".join(f"{name} {percent(part, of)}" for name, part, of in parts if of > 0)


def beside(part: int, whole: int, limit: Fraction) -> str:
    """Format *part* of *whole* as a percentage with the decimals of *limit*, at least one.

    It is rounded up, so that a value over the limit never looks equal to the limit.
    """
    _, _, decimals = limit_text(limit).rstrip("%").partition(".")
    return percent(part, whole, max(1, min(len(decimals), DECIMALS_MAX)))


@lru_cache(maxsize=LIMITS_MAX)
def limit_text(share: Fraction) -> str:
    """Format a share as a percentage, as in the configuration file: "62.5%"."""
    return value_types.percent(share)


def percent(part: int, whole: int, decimals: int = 1) -> str:
    """Format *part* of *whole* as a percentage, rounded up, without trailing zeros."""
    units = -(-part * 100 * 10**decimals // whole)
    head, tail = divmod(units, 10**decimals)
    digits = f"{tail:0{decimals}}".rstrip("0")
    return f"{head}.{digits}%" if digits else f"{head}%"
