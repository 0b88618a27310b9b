"""Check values of JSON that anybody may have written; an invalid value raises ValueError."""

from typing import Final

WHOLE_MAX: Final = 10**12 - 1
"""Maximum of whole numbers; Unix seconds reach it in the year 33658."""


def whole(value: object) -> int:
    """Return *value* if it is a whole number from 0 to WHOLE_MAX.

    Raises: ValueError for any other value, including floats and booleans.
    """
    if type(value) is int and 0 <= value <= WHOLE_MAX:
        return value
    raise ValueError


def printable(value: object) -> str:
    """Return *value* if it is a printable text of one line.

    Raises: ValueError for any other value.
    """
    if isinstance(value, str) and value.isprintable():
        return value
    raise ValueError
