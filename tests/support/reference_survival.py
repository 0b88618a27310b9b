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
MUTANTS = (
    "forgets the living",
    "sees all from birth",
    "no pod more",
    "one more lives on",
    "in all namespaces",
)
POD = Fraction(1, 2**20)
"""Parts of pods at risk are rounded down to it."""
MUTANTS_OF_LOOKS = (*MUTANTS, "counts the first end", "counts keepers")
"""Of what one look tells."""


class Life(NamedTuple):
    """A pod that was seen; None: it lives."""

    namespace: str
    kind: str
    name: str
    created: int
    ended: int | None


class Group(NamedTuple):
    """Those that a pod is judged by, and from when on their ends were seen."""

    lives: Sequence[Life]
    since: int


class Watch(NamedTuple):
    """What was seen, from when on (None: of each group from its first end) and until when."""

    lives: Sequence[Life]
    since: int | None
    now: int
    mutant: str = ""

    def like(self, one: Life) -> Group | None:
        """Return those that a pod is judged by: nine of its workload, or else of its kind."""
        kind = [
            life
            for life in self.lives
            if life.kind == one.kind
            and (life.namespace == one.namespace or self.mutant == "in all namespaces")
        ]
        own = [life for life in kind if life.name == one.name]
        for lives in (own, kind):
            since = self.begins(lives)
            found = [life for life in lives if life.ended is None or life.ended > since]
            if sum(life.ended is not None for life in found) >= 9:
                return Group(found, since)
        return None

    def begins(self, lives: Sequence[Life]) -> int:
        """Return from when on the ends of a group were seen."""
        if self.since is not None:
            return self.since
        ends = [life.ended for life in lives if life.ended is not None]
        return min(ends, default=self.now) if self.mutant != "counts the first end" else -1

    def shares(self, like: Group) -> list[Fraction]:
        """Return the shares that reach the beginning of each step."""
        found = [Fraction(1)]
        counts = [self.counted(like, begin, end) for begin, end in pairwise(BOUNDS)]
        for step in range(len(counts)):
            share = found[-1] * (1 - self.hazard(counts, step))
            found.append(max(rounded(share), UNIT))
        return found

    def hazard(self, counts: Sequence[tuple[int, Fraction]], step: int) -> Fraction:
        """Return the share of those at risk in a step that ended in it, with one pod more."""
        ended, risk = counts[step]
        if not risk:
            return Fraction(0)
        near = counts[max(step - 4, 0) : step + 5]
        around = Fraction(sum(one for one, _ in near)) / (sum(one for _, one in near) or 1)
        if self.mutant == "one more lives on":
            around = Fraction(0)
        if self.mutant == "no pod more":
            return Fraction(ended) / risk
        return (ended + around * min(risk, Fraction(1))) / (risk + 1)

    def counted(self, like: Group, begin: int, end: int) -> tuple[int, Fraction]:
        """Return how many ended in a step, and how many were at risk there."""
        ended, seen = 0, 0
        for life in like.lives:
            first, last = self.seen(life, like.since)
            if life.ended is not None and begin <= last < end:
                ended += 1
                seen += end - begin
            elif life.ended is not None or self.mutant != "forgets the living":
                seen += max(0, min(last, end) - max(first, begin))
        return ended, Fraction(seen, end - begin) // POD * POD

    def seen(self, life: Life, since: int) -> tuple[int, int]:
        """Return the ages from which and to which it was seen."""
        last = self.now if life.ended is None else life.ended
        first = 0 if self.mutant == "sees all from birth" else aged(life.created, since)
        return first, aged(life.created, last)

    def empty(self, living: Sequence[Life], share: Fraction) -> int | None:
        """Return the first second by which all of them have ended with that chance."""
        likes = [found for life in living if (found := self.like(life))]
        if len(likes) < len(living):
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
