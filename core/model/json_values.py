"""Check values of JSON that anybody may have written; an invalid value raises ValueError."""

from typing import Final

WHOLE_MAX: Final = 10**12 - 1
"""Maximum of whole numbers; Unix seconds reach it in the year 33658."""


def whole(value: object) -> int:
    """Return a whole number from JSON, but no float and no boolean. Raises: ValueError."""
    if type(value) is int and 0 <= value <= WHOLE_MAX:
        return value
    raise ValueError


def printable(value: object) -> str:
    """Return a printable, one-line text from JSON. Raises: ValueError."""
    if isinstance(value, str) and value.isprintable():
        return value
    raise ValueError
