"""How long it takes until pods are gone, given how old they are now; and a node is empty.

Each pod's curve is taken up at its age (who has lived long is no average pod), and pods count as
independent of each other: the chance that all are gone by a time is the product of theirs.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from core.survival.ages import AGE_SECONDS_MAX, BOUNDS
from core.survival.curve import Curve

EXPECTED: Final = Fraction(1, 2)
"""It is as likely to take longer as not."""
EARLY, LATE = Fraction(1, 10), Fraction(9, 10)
"""The range: it should hold four times out of five."""
FINE: Final = 1 << 256
"""Certain, in the unit of a product of chances: an exact one has 128 bits more with each pod."""


class Aged(NamedTuple):
    """A pod, as far as it matters here."""

    curve: Curve
    age_seconds: int


class Left(NamedTuple):
    """How long it takes until a node is empty, seconds; None: longer than pods like it were seen.

    With nothing on it, 0.
    """

    early: int | None
    expected: int | None
    late: int | None


def within(pods: Sequence[Aged], share: Fraction) -> int | None:
    """Return by when all are gone with that chance; None: later than is known."""
    have = [(curve, age, curve.at(age)) for curve, age in pods]
    seconds = bisect_left(range(BOUNDS[-1]), 1, key=lambda after: _gone(have, after, share))
    return None if seconds == BOUNDS[-1] else seconds


def _gone(have: Iterable[tuple[Curve, int, int]], after: int, share: Fraction) -> bool:
    """Say whether all are gone after so many seconds with at least that chance."""
    gone, least = FINE, share.numerator * FINE
    for curve, age, now in have:
        one = now - curve.at(min(age + after, AGE_SECONDS_MAX))
        gone = -(-gone * one // now)  # up, so that exactly that chance is enough
        if gone * share.denominator < least:  # with each pod more the chance only falls
            return False
    return True


def left(pods: Iterable[Aged]) -> Left:
    """Return how long it takes until all are gone."""
    every = tuple(pods)
    if not every:
        return Left(0, 0, 0)
    return Left(within(every, EARLY), within(every, EXPECTED), within(every, LATE))
