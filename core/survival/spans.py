"""Times as scores tell them apart: by doublings."""

from typing import Final

from core.survival.ages import AGE_SECONDS_MAX

EMPTY: Final = 0
"""Nothing is there that would have to leave."""
FAR: Final = AGE_SECONDS_MAX.bit_length() + 1
"""Later than is known."""


def span(seconds: int | None) -> int:
    """Return the doubling in which a time lies: 1 for 1 s, 2 for 2 and 3 s, 3 for 4 to 7 s."""
    return FAR if seconds is None else max(seconds, 1).bit_length()
