"""The number of examples of a test with hypothesis, which depends on the profile."""

from typing import Final

from hypothesis import settings

PER_HUNDRED: Final = settings().max_examples
"""Examples of a test that gives no number: 100 in the profile `default`."""


def examples(count: int) -> int:
    """Return the number of examples where the profile `default` has `count`, at least 1."""
    return max(1, count * PER_HUNDRED // 100)
