"""How long pods live, plainly: from all lives ever seen, each time anew, in fractions."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import NamedTuple

BOUNDS = [0, *(quarters << power for power in range(23) for quarters in (4, 5, 6, 7)), 4 << 23]
"""Ages where steps begin: four to a doubling; the last is the end."""
AGE_SECONDS_MAX = 2**25 - 1
UNIT = Fraction(1, 2**128)
"""Shares are rounded down to it, and what is taken off within a step too."""
MUTANTS = ("forgets the living", "sees all from birth", "no pod more", "in all namespaces")


class Life(NamedTuple):
    """A pod that was seen; None: it lives."""

    namespace: str
    kind: str
    name: str
    created: int
    ended: int | None


class Watch(NamedTuple):
    """What was seen, from when on and until when."""

    lives: Sequence[Life]
    since: int
    now: int
    mutant: str = ""

    def like(self, one: Life) -> list[Life]:
        """Return those that a pod is judged by: nine of its workload, or else of its kind."""
        kind = [
            life
            for life in self.lives
            if life.kind == one.kind
            and (life.namespace == one.namespace or self.mutant == "in all namespaces")
        ]
        own = [life for life in kind if life.name == one.name]
        for found in (own, kind):
            if sum(life.ended is not None for life in found) >= 9:
                return found
        return []

    def shares(self, like: Sequence[Life]) -> list[Fraction]:
        """Return the shares that reach the beginning of each step."""
        found = [Fraction(1)]
        for begin, end in pairwise(BOUNDS):
            share = found[-1] * (1 - self.hazard(like, begin, end))
            found.append(max(rounded(share), UNIT))
        return found

    def hazard(self, like: Sequence[Life], begin: int, end: int) -> Fraction:
        """Return the share of those at risk in a step that ended in it."""
        ended, seen = 0, 0
        for life in like:
            first, last = self.seen(life)
            if life.ended is not None and begin <= last < end:
                ended += 1
                seen += end - begin
            elif life.ended is not None or self.mutant != "forgets the living":
                seen += max(0, min(last, end) - max(first, begin))
        more = 0 if self.mutant == "no pod more" else 1
        risk = Fraction(seen, end - begin) + more
        return Fraction(ended) / risk if ended else Fraction(0)

    def seen(self, life: Life) -> tuple[int, int]:
        """Return the ages from which and to which it was seen."""
        last = self.now if life.ended is None else life.ended
        first = 0 if self.mutant == "sees all from birth" else aged(life.created, self.since)
        return first, aged(life.created, last)

    def empty(self, living: Sequence[Life], share: Fraction) -> int | None:
        """Return the first second by which all of them have ended with that chance."""
        likes = [self.like(life) for life in living]
        if not all(likes):
            return None
        ages = [aged(life.created, self.now) for life in living]
        pods = [(age, self.shares(like)) for age, like in zip(ages, likes, strict=True)]

        def gone(after: int) -> Fraction:
            chance = Fraction(1)
            for age, shares in pods:
                chance *= 1 - reach(shares, min(age + after, AGE_SECONDS_MAX)) / reach(shares, age)
            return chance

        low, high = -1, AGE_SECONDS_MAX
        if gone(high) < share:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if gone(middle) >= share else (middle, high)
        return high


def reach(shares: Sequence[Fraction], age: int) -> Fraction:
    """Return the share that reaches an age; straight between two steps."""
    step = max(number for number, begin in enumerate(BOUNDS) if begin <= age)
    part = Fraction(age - BOUNDS[step], BOUNDS[step + 1] - BOUNDS[step])
    return shares[step] - rounded((shares[step] - shares[step + 1]) * part)


def aged(created: int, second: int) -> int:
    """Return the age at a second; at most the oldest that is told apart."""
    return min(max(second - created, 0), AGE_SECONDS_MAX)


def rounded(share: Fraction) -> Fraction:
    """Round down to a unit."""
    return floor(share / UNIT) * UNIT
