"""Ages are told apart by steps, four to a doubling; whole seconds."""

from bisect import bisect_right
from itertools import pairwise
from typing import Final

STEPS: Final = 4
"""To a doubling: a step is at most a quarter longer than the one before."""
DOUBLINGS: Final = 23
BOUNDS: Final = (
    0,
    *((STEPS + step) << doubling for doubling in range(DOUBLINGS) for step in range(STEPS)),
    STEPS << DOUBLINGS,
)
"""Where steps begin: 0, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 and so on; the last one is the end."""
AGE_SECONDS_MAX: Final = BOUNDS[-1] - 1
"""A good year: what is older counts as that old."""
WIDTHS: Final = tuple(after - before for before, after in pairwise(BOUNDS))
"""How long each step is."""


def age(since_seconds: int, now_seconds: int) -> int:
    """Return the age at *now_seconds* of what began then; a clock that is behind makes none."""
    return min(max(now_seconds - since_seconds, 0), AGE_SECONDS_MAX)


def step_of(age_seconds: int) -> int:
    """Return the step of an age, 0 to AGE_SECONDS_MAX."""
    return bisect_right(BOUNDS, age_seconds) - 1
