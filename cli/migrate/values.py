"""Convert values of other tools to values of an EbbConfiguration."""

import re
from collections.abc import Callable
from fractions import Fraction
from reprlib import Repr
from typing import Final, NamedTuple

from cli.input import go_values
from core.config.budgets import NODES_MAX
from core.model.errors import InvalidInputError
from core.setting_types.value_types import (
    DURATION_SECONDS_MAX,
    duration,
    number,
    percent,
    read_share,
)
from runtime.messages import printable

SHOWN_MAX: Final = 80
"""Characters of a key or value that a message shows."""


class ValueType(NamedTuple):
    """A type of setting: how its text is converted, and a text with the allowed values."""

    read: Callable[[str], object]
    """Convert the text to the value in Ebb's file. Raises: ValueError."""
    allowed: str


def text(value: object) -> str:
    """Return a text, number or boolean as text.

    Raises: ValueError for other types, and for more than SHOWN_MAX characters.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float) and len(str(value)) <= SHOWN_MAX:
        return str(value)
    raise ValueError


def read(key: str, value: object, value_type: ValueType) -> object:
    """Convert a value of another tool to a value for an EbbConfiguration.

    *key*: key of the setting, for errors. Raises: InvalidInputError with key, value and the
    allowed values.
    """
    try:
        return value_type.read(text(value))
    except ValueError as fault:
        text_of_value = "missing" if value is None else _SHORT.repr(value)
        raise InvalidInputError(
            shown(key), f"{text_of_value}; allowed: {value_type.allowed}"
        ) from fault


def shown(value: object) -> str:
    """Return a value from a file as printable text of about SHOWN_MAX characters at most."""
    text_of_value = printable(value if isinstance(value, str) else _SHORT.repr(value))
    return text_of_value if len(text_of_value) <= SHOWN_MAX else f"{text_of_value[:SHOWN_MAX]}..."


_SHORT: Final = Repr()
"""Representation of limited length and depth, for values of any nesting."""
_SHORT.maxstring = _SHORT.maxother = SHOWN_MAX


_WHOLE: Final = re.compile(r"[+]?[0-9]{1,9}", re.ASCII)


def _whole(given: str) -> int:
    if not _WHOLE.fullmatch(given):
        raise ValueError
    return int(given)


def _number(given: str) -> object:
    exact, form = go_values.decimal(given), number(positive=False)
    written = str(form.write(exact))
    form.read(written)
    if exact.denominator == 1:
        return int(exact)
    return float(written) if repr(float(written)) == written else written


def _share(given: str) -> str:
    written = percent(go_values.decimal(given))
    read_share(written)
    return written


def _minutes(given: str) -> Fraction:
    return Fraction(_whole(given) * 60) if _WHOLE.fullmatch(given) else go_values.seconds(given)


def _counted(least: int) -> ValueType:
    def read(given: str) -> int:
        count = _whole(given)
        if not least <= count <= NODES_MAX:
            raise ValueError
        return count

    return ValueType(read, f"a whole number from {least} to {NODES_MAX}")


def _lasting(seconds: Callable[[str], Fraction], allowed: str, least: int = 0) -> ValueType:
    def read(given: str) -> object:
        amount = seconds(given)
        if amount.denominator != 1 or not least <= amount <= DURATION_SECONDS_MAX:
            raise ValueError
        return duration().write(int(amount))

    return ValueType(read, f"{allowed}, {least}s to 720h")


COUNT: Final = _counted(0)
COUNT_FROM_1: Final = _counted(1)
NUMBER: Final = ValueType(_number, "a decimal number of at least 0")
SHARE: Final = ValueType(_share, "a decimal number above 0 and up to 1, of at most 11 places")
FLAG: Final = ValueType(go_values.boolean, "true | false")
MODE: Final = ValueType(
    lambda given: "enforce" if go_values.boolean(given) else "observe", "true | false"
)
DURATION: Final = _lasting(go_values.seconds, "a duration of whole seconds")
INTERVAL: Final = _lasting(go_values.seconds, "a duration of whole seconds", 1)
MINUTES: Final = _lasting(_minutes, 'whole minutes such as "10", or a duration such as "10m"')
SECONDS: Final = _lasting(lambda given: Fraction(_whole(given)), "a whole number of seconds")
SECONDS_FROM_1: Final = _lasting(
    lambda given: Fraction(_whole(given)), "a whole number of seconds", 1
)
