"""Kaplan and Meier's curve over steps of age: how many are still there at which age.

Of each step it counts who ended in it and how long all were seen in it; a pod that is seen late
(it was there before the program) counts from the age on at which it was seen first, and one that
lives counts up to its age now. The pod that is asked about is at risk as well, so each step counts
one pod more than was seen there; it ends as often as those that were seen within a doubling of its
age. If it always lived on, steps with few pods would make pods live longer than they do, and more
so for several pods together; if it were left out, one early end would say that nobody gets older.
Source: Kaplan and Meier, Journal of the American Statistical Association 53 (1958).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from core.survival.ages import BOUNDS, STEPS, WIDTHS, step_of

WHOLE: Final = 1 << 128
"""All, in the unit of `Curve.alive`; fine enough for a small share of a small share."""
ONE: Final = 1 << 20
"""A pod that is at risk for all of a step."""


@dataclass(frozen=True, slots=True)
class Curve:
    """How long pods of a workload live."""

    alive: tuple[int, ...]
    """Of WHOLE, those that reach the age at which each step begins; at least 1."""
    ended: int
    """How many ends it is made of."""

    def at(self, age_seconds: int) -> int:
        """Return how many of WHOLE reach an age; straight between two steps."""
        step = step_of(age_seconds)
        if step == len(WIDTHS):
            return self.alive[-1]
        before, after = self.alive[step], self.alive[step + 1]
        return before - (before - after) * (age_seconds - BOUNDS[step]) // WIDTHS[step]


@dataclass(slots=True)
class Lives:
    """What was seen of the pods of a workload."""

    ended: list[int] = field(default_factory=lambda: [0] * len(WIDTHS))
    """Ends in each step."""
    through: list[int] = field(default_factory=lambda: [0] * (len(WIDTHS) + 1))
    """How many more pods than in the step before were seen for all of it."""
    partly: list[int] = field(default_factory=lambda: [0] * (len(WIDTHS) + 1))
    """Seconds, of pods that were seen for a part of a step."""

    @property
    def ends(self) -> int:
        """Return how many ended."""
        return sum(self.ended)

    def lives(self, first: int, age: int) -> None:
        """Count a pod that was seen from one age to another, and has not ended there."""
        begin, last = step_of(first), step_of(age)
        if begin == last:
            self.partly[begin] += age - first
            return
        self.partly[begin] += BOUNDS[begin + 1] - first
        self.partly[last] += age - BOUNDS[last]
        self.through[begin + 1] += 1
        self.through[last] -= 1

    def ends_at(self, first: int, age: int) -> None:
        """Count a pod that was seen from one age on and ended at another.

        In the step in which it ended it was at risk all the time, as Kaplan and Meier count.
        """
        step = step_of(age)
        self.ended[step] += 1
        self.lives(min(first, BOUNDS[step]), BOUNDS[step + 1])

    def _seconds(self) -> list[int]:
        """Return for how long pods were seen in each step, all together."""
        whole = accumulate(self.through)
        parts = zip(self.partly, whole, WIDTHS, strict=False)
        return [part + many * width for part, many, width in parts]

    def with_living(self, others: "Lives") -> "Lives":
        """Return both together."""
        return Lives(*(_sums(getattr(self, one), getattr(others, one)) for one in self.__slots__))

    def curve(self) -> Curve:
        """Return how many reach which age.

        With d that ended of n in a step, and D of N within a doubling, d + D / N of n + 1 end
        there; where less than one was seen, as much less. So where nobody was seen nobody ends.
        """
        risks = [ONE * seen // width for seen, width in zip(self._seconds(), WIDTHS, strict=True)]
        steps = zip(self.ended, risks, _around(self.ended), _around(risks), strict=True)
        alive = [WHOLE]
        for ended, risk, ended_near, risk_near in steps:
            gone = ONE * (ended * risk_near + min(risk, ONE) * ended_near)
            whole = max(risk_near, 1) * (risk + ONE)
            alive.append(max(alive[-1] * (whole - gone) // whole, 1))
        return Curve(tuple(alive), self.ends)


def _around(values: Sequence[int]) -> list[int]:
    """Return for each step the sum over those within a doubling."""
    upto = [*(0,) * (STEPS + 1), *accumulate(values)]
    upto += upto[-1:] * STEPS
    return [after - before for before, after in zip(upto, upto[2 * STEPS + 1 :], strict=False)]


def _sums(ones: Sequence[int], others: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(ones, others, strict=True)]
