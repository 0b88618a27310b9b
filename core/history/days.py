"""Define the figures of a day, for operators; no decision depends on them.

Days are those of UTC. Figures are kept by pool: the node group that the labels of a node name, or
else the pool of the configuration.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import add
from typing import Final, NamedTuple

from core.eligibility.scalability import OTHER

DAY_SECONDS: Final = 24 * 3600
MONTH_DAYS: Final = 30
"""Number of days that are shown as a month, the current one included."""
POOLS_MAX: Final = 100
"""Maximum number of pools in the figures of a day that is not over; further ones are in OTHER."""
HISTORY_POOLS_MAX: Final = 20
"""Maximum number of pools in the figures of a past day, beside OTHER."""
CODES_MAX: Final = 40
"""Maximum number of reason codes in the figures of a day."""
NO_COST: Final = Fraction()


class PoolDay(NamedTuple):
    """The figures of a pool on one day."""

    node_seconds: int = 0
    """Time of its nodes, summed over nodes."""
    expected_seconds: int = 0
    """Time of the nodes that plans could remove and of those that count as saved."""
    expected_cost: Fraction = NO_COST
    """Price of these nodes times hours, in the unit of `prices`."""
    saved_seconds: int = 0
    """Time of removed nodes that count as saved (controller.figures.savings)."""
    saved_cost: Fraction = NO_COST
    marks: int = 0
    unmarks: int = 0
    removed: int = 0
    """Nodes that were removed after Ebb had allowed it."""
    moved: int = 0
    """Pods that Ebb moved from its nodes, by surge moves and evictions."""

    def plus(self, other: "PoolDay") -> "PoolDay":
        """Return the sums of two sets of figures."""
        return PoolDay(*map(add, self, other))


NOTHING: Final = PoolDay()


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The figures of one day."""

    number: int
    """Days since 1970-01-01, in UTC."""
    pools: Mapping[str, PoolDay] = field(default_factory=dict)
    unmarks: Mapping[str, int] = field(default_factory=dict)
    """Number of removed marks by the code of the reason."""
    waited_seconds: int = 0
    """Time for which pods were Pending because of a mark, summed over pods."""

    @property
    def total(self) -> PoolDay:
        """Return the sums over all pools."""
        return total(self.pools.values())

    def plus(self, figures: Mapping[str, PoolDay]) -> "Day":
        """Return the day with further figures by pool."""
        pools = dict(self.pools)
        for pool, more in sorted(figures.items()):
            name = pool if pool in pools or len(pools) < POOLS_MAX else OTHER
            pools[name] = pools.get(name, NOTHING).plus(more)
        return replace(self, pools=pools)

    def with_unmark(self, code: str) -> "Day":
        """Return the day with one more removed mark, for the reason *code*."""
        if code not in self.unmarks and len(self.unmarks) >= CODES_MAX:
            code = OTHER
        return replace(self, unmarks={**self.unmarks, code: self.unmarks.get(code, 0) + 1})

    def summed_up(self) -> "Day":
        """Return the day with its largest pools by name, and OTHER for the rest."""
        named = [name for name in self.pools if name != OTHER]
        named.sort(key=lambda name: (-self.pools[name].node_seconds, name))
        pools = {name: self.pools[name] for name in sorted(named[:HISTORY_POOLS_MAX])}
        others = [*named[HISTORY_POOLS_MAX:], *(OTHER for name in self.pools if name == OTHER)]
        if others:
            pools[OTHER] = total(self.pools[name] for name in others)
        return replace(self, pools=pools)


def total(rows: Iterable[PoolDay]) -> PoolDay:
    """Return the sums of the figures of several pools."""
    summed = NOTHING
    for row in rows:
        summed = summed.plus(row)
    return summed


def summed(days: Iterable[Day], number: int) -> Day:
    """Return the sums of several days as one; *number*: its day."""
    whole = Day(number=number)
    for day in days:
        codes = set(whole.unmarks) | set(day.unmarks)
        unmarks = {
            code: whole.unmarks.get(code, 0) + day.unmarks.get(code, 0) for code in sorted(codes)
        }
        waited = whole.waited_seconds + day.waited_seconds
        whole = replace(whole.plus(day.pools), unmarks=unmarks, waited_seconds=waited)
    return whole
