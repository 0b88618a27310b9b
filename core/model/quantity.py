"""Convert Kubernetes quantities ("1500m", "1.5Gi", "1e3") to whole numbers, and format them.

Fractions are rounded up, away from zero, as Kubernetes does when it reads a quantity's value
(k8s.io/apimachinery pkg/api/resource, ScaledValue). A request is never understated.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from core.model.errors import InvalidInputError

QUANTITY_MAX: Final = 2**63 - 1
"""Largest quantity; Kubernetes stores quantities in 64 bits and caps larger ones."""
QUANTITY_TEXT_MAX: Final = 64
"""Longest text that is parsed; real quantities have fewer than 25 characters."""
QUANTITY_CACHE_MAX: Final = 65_536

QUANTITY: Final = (
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:([eE][+-]?[0-9]{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?"
)
_PATTERN: Final = re.compile(QUANTITY)
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_ALLOWED: Final = 'a Kubernetes quantity of at least 0, such as "100m", "2", "1.5Gi" or "1e3"'


def parse_quantity(text: str | float) -> Fraction:
    """Return the exact value of a quantity: "1500m" is 3/2, "1Ki" is 1024.

    JSON numbers are read by their decimal text, as the API server does. Raises: InvalidInputError
    for invalid text and for negative values.
    """
    written = str(text) if not isinstance(text, bool) else ""
    match = _PATTERN.fullmatch(written) if len(written) <= QUANTITY_TEXT_MAX else None
    if match is None:
        raise InvalidInputError("", f"{written[:QUANTITY_TEXT_MAX]!r} is not {_ALLOWED}")
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif suffix:
        value *= _SUFFIXES[suffix]
    if sign == "-" and value:
        raise InvalidInputError("", f"{written!r} is negative; allowed: {_ALLOWED}")
    return value


@lru_cache(maxsize=QUANTITY_CACHE_MAX, typed=True)
def whole(text: str | float) -> int:
    """Return a quantity in whole units (bytes, devices), rounded up, at most QUANTITY_MAX.

    Raises: InvalidInputError for invalid text and for negative values.
    """
    value = parse_quantity(text)
    return min(-(-value.numerator // value.denominator), QUANTITY_MAX)


@lru_cache(maxsize=QUANTITY_CACHE_MAX, typed=True)
def millis(text: str | float) -> int:
    """Return a quantity in thousandths (millicores), rounded up, at most QUANTITY_MAX.

    Raises: InvalidInputError for invalid text and for negative values.
    """
    value = parse_quantity(text) * 1000
    return min(-(-value.numerator // value.denominator), QUANTITY_MAX)


def format_millis(cpu_millis: int) -> str:
    """Format millicores for people: 2 for whole cores, 1500m below 10 cores, 12.3 above."""
    cores, rest = divmod(cpu_millis, 1000)
    if cores >= 100 or not rest:
        return f"{round(cpu_millis / 1000):,}"
    return f"{cpu_millis}m" if cores < 10 else f"{cpu_millis / 1000:.1f}"


def format_bytes(memory_bytes: int) -> str:
    """Format bytes with the largest binary unit that leaves a digit before the point: 1.5Gi."""
    value, unit = float(memory_bytes), ""
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        if abs(value) < 1024 or unit == "Ei":
            break
        value /= 1024
    return f"{value:.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"
