"""Parse values of command-line flags as programs in Go do."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

_DECIMAL: Final = re.compile(
    r"(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?", re.ASCII
)
_DURATION: Final = re.compile(r"[+]?(?:(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:ms|[smh]))+")
_PART: Final = re.compile(r"([0-9.]+)(ms|[smh])")
_UNITS: Final[Mapping[str, Fraction]] = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")


def seconds(given: str) -> Fraction:
    """Return the seconds of a Go duration such as 1h30m. Raises: ValueError."""
    if given == "0":
        return Fraction(0)
    if not _DURATION.fullmatch(given):
        raise ValueError
    parts = _PART.findall(given)
    return sum((Fraction(count) * _UNITS[unit] for count, unit in parts), Fraction(0))


def boolean(given: str) -> bool:
    """Return the value of a Go boolean such as true, T or 0. Raises: ValueError."""
    if given not in (*_TRUE, *_FALSE):
        raise ValueError
    return given in _TRUE


def decimal(given: str) -> Fraction:
    """Return the value of a decimal number of limited length, such as 0.5. Raises: ValueError."""
    # A large exponent would take all memory.
    if not _DECIMAL.fullmatch(given):
        raise ValueError
    return Fraction(given)
