"""Formats of values in the configuration file: durations, shares, numbers, quantities, labels.

A format reads and writes a value, and describes it in JSON Schema: its pattern is the one used for
reading, its title is for people. Pydantic itself reads flags and whole numbers.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from core.model.errors import InvalidInputError
from core.model.quantity import QUANTITY, QUANTITY_TEXT_MAX

DURATION_SECONDS_MAX: Final = 30 * 24 * 3600
TEXT_MAX: Final = 4096
NUMBER_MAX: Final = 10**15 - 1

_SHARE: Final = r"(?:100(?:\.0{1,9})?|0?[0-9]{1,2}(?:\.[0-9]{1,9})?)%"
_SHARE_BELOW_ONE: Final = r"0?[0-9]{1,2}(?:\.[0-9]{1,9})?%"
_ZERO_SHARE: Final = r"[0.]+%"
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,12})?"
_DURATION: Final = (
    r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?(?:([0-9]{0,6}000|0{1,2})ms)?"
)
_EMPTY: Final = "$"
SHARE_ALLOWED: Final = 'a percentage above 0% and up to 100%, such as "80%" or "62.5%"'


@dataclass(frozen=True, slots=True, eq=False)
class ValueFormat:
    """An annotation that says how a setting is read, written and described in JSON Schema.

    It is needed where the type of the setting does not determine its format in the file.
    """

    read: Callable[[Any], object]
    """Convert a value of the file. Raises: ValueError if it is invalid."""
    write: Callable[[Any], object]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        writer = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self.read, serialization=writer)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.schema)


Flag = Annotated[bool, Strict()]


def not_allowed(allowed: str) -> PydanticCustomError:
    """Return the pydantic error for an invalid value; *allowed* says which values are allowed."""
    return PydanticCustomError("not_allowed", "{allowed}", {"allowed": allowed})


def matched(
    pattern: str, value: object, most: int = TEXT_MAX, excluded: str = ""
) -> re.Match[str]:
    """Return the match of the pattern with the whole text *value*.

    *most*: maximum length. *excluded*: pattern; texts that begin with it are invalid. Raises:
    ValueError if the value is not a text, is too long, is excluded or does not match.
    """
    readable = isinstance(value, str) and len(value) <= most
    match = re.fullmatch(pattern, str(value)) if readable else None
    if match is None or (excluded and re.match(excluded, match[0])):
        raise ValueError
    return match


def texts(pattern: str, *, excluded: str = "", **more: object) -> dict[str, Any]:
    """Return the JSON Schema of a text that must match the pattern as a whole.

    *excluded*: pattern; texts that begin with it are invalid. *more*: further schema keywords.
    """
    schema = {"type": "string", "pattern": f"^(?:{pattern})$", **more}
    if excluded:
        # Not a lookahead in the pattern: Helm checks values with RE2, which has none.
        schema["not"] = {"type": "string", "pattern": f"^(?:{excluded})"}
    return schema


def text(pattern: str, allowed: str, most: int = TEXT_MAX, *, excluded: str = "") -> ValueFormat:
    """Return the format of a text that must match the pattern as a whole.

    *allowed*: description for people. *most*: maximum length. *excluded*: pattern; texts that
    begin with it are invalid.
    """
    schema = texts(pattern, excluded=excluded, maxLength=most, title=allowed)
    return ValueFormat(lambda value: matched(pattern, value, most, excluded)[0], str, schema)


def duration(least: int = 0, *, never: bool = False) -> ValueFormat:
    """Return the format of a Go duration such as "1h30m", which is read as a number of seconds.

    *least*: minimum in seconds. *never*: whether "never" is allowed, which is read as None.
    """

    def read(value: object) -> int | None:
        if never and value == "never":
            return None
        parts = [int(part or 0) for part in matched(_DURATION, value, excluded=_EMPTY).groups()]
        seconds = parts[0] * 3600 + parts[1] * 60 + parts[2] + parts[3] // 1000
        if not least <= seconds <= DURATION_SECONDS_MAX:
            raise ValueError
        return seconds

    allowed = f'a duration of whole seconds, {least}s to 720h, such as "10m" or "1h30m"'
    pattern = f"never|{_DURATION}" if never else _DURATION
    schema = texts(pattern, excluded=_EMPTY, title="never, or " * never + allowed)
    return ValueFormat(read, _duration, schema)


_PORT: Final = r"(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})"
PORT: Final = ValueFormat(
    lambda value: int(matched(_PORT, value)[0]),
    str,
    texts(_PORT, title="a port from 0 to 65535"),
)
"""Format of a port, which is read as a number."""
ADDRESS: Final = text(
    rf"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):{_PORT}", "host:port, the port at most 65535"
)
"""Format of an address to listen on."""


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "never"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def read_share(value: object) -> Fraction:
    """Parse a percentage such as "62.5%"; a Fraction is returned unchanged.

    Raises: ValueError if it is not above 0% and up to 100%.
    """
    if isinstance(value, Fraction):
        return value
    return Fraction(matched(_SHARE, value, excluded=_ZERO_SHARE)[0].removesuffix("%")) / 100


def percent(share: Fraction) -> str:
    """Format a share as a percentage: 5/8 is "62.5%"."""
    return f"{_decimal(share * 100)}%"


def raised(share: Fraction, hysteresis: Fraction) -> Fraction:
    """Return the limit for marked nodes: *share* plus *hysteresis*, at most 1."""
    return min(share + hysteresis, Fraction(1))


def _read_share_below_one(value: object) -> Fraction:
    if isinstance(value, Fraction):
        return value
    return Fraction(matched(_SHARE_BELOW_ONE, value)[0].removesuffix("%")) / 100


SHARE: Final = ValueFormat(
    read_share, percent, texts(_SHARE, excluded=_ZERO_SHARE, title=SHARE_ALLOWED)
)
SHARE_BELOW_ONE: Final = ValueFormat(
    _read_share_below_one,
    percent,
    texts(_SHARE_BELOW_ONE, title='a percentage from 0% to below 100%, such as "5%" or "2.5%"'),
)


def whole_number(least: int, most: int) -> FieldInfo:
    """Return the format of a whole number from *least* to *most*."""
    bounds: FieldInfo = Field(strict=True, ge=least, le=most)
    return bounds


def words(allowed: Collection[str]) -> ValueFormat:
    """Return the format of a text that must be one of the allowed words."""
    return ValueFormat(
        lambda value: matched("|".join(map(re.escape, allowed)), value)[0],
        str,
        {"enum": [*allowed]},
    )


def number(*, positive: bool) -> ValueFormat:
    """Return the format of a decimal number, which is read as an exact Fraction.

    In the configuration file it is a number or a text. *positive*: whether 0 is not allowed.
    """
    excluded = "[0.]+$" if positive else ""
    least = {"exclusiveMinimum" if positive else "minimum": 0, "maximum": NUMBER_MAX}
    allowed = f"a decimal number {'above' if positive else 'of at least'} 0"
    schema = texts(_NUMBER, excluded=excluded, title=allowed) | least
    schema |= {"type": ["string", "number"]}
    return ValueFormat(
        lambda value: Fraction(matched(_NUMBER, _plain(value), excluded=excluded)[0]),
        _decimal,
        schema,
    )


def quantity(whole: Callable[[str | float], int], unit: str = "") -> ValueFormat:
    """Return the format of a Kubernetes quantity of at least 0, which is read as an integer.

    *whole*: converts the quantity to the integer. *unit*: suffix of the quantity when the integer
    is written back, such as "m" for millicores.
    """

    def read(value: object) -> int:
        try:
            return whole(_written(value))
        except InvalidInputError as fault:
            raise ValueError from fault

    allowed = 'a Kubernetes quantity, such as "100m" or "90M"'
    schema = texts(QUANTITY, excluded="-[0.]*[1-9]", maxLength=QUANTITY_TEXT_MAX, title=allowed)
    schema |= {"minimum": 0, "type": ["string", "number"]}
    return ValueFormat(read, lambda value: f"{value}{unit}", schema)


def _written(value: object) -> str:
    """Return the value as text. Raises: ValueError unless it is a number or a text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError  # noqa: TRY004 what pydantic takes for a fault of the value
    return str(value)


def _plain(value: object) -> str:
    """Return the value as text, without an exponent.

    Raises: ValueError unless it is a number or a text.
    """
    return without_exponent(value) if isinstance(value, float) else _written(value)


def without_exponent(value: float) -> str:
    """Format a number without an exponent; Python writes 5e-05 for 0.00005."""
    return format(Decimal(str(value)), "f")


def _decimal(value: Fraction) -> str:
    return format(Decimal(value.numerator) / value.denominator, "f")


_DNS_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_LABEL_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
QUALIFIED_KEY: Final = text(
    rf"(?:{_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_LABEL_NAME}",
    "a qualified label key",
    excluded="[^/]{254,}/",
)
"""Format of the key of a label or taint in Kubernetes."""
LABEL_VALUE: Final = text(
    rf"(?:{_LABEL_NAME})?", "a value that a label may have, in quotes if it looks like a number"
)


def _selector(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not value:
        raise ValueError
    if not all(isinstance(part, str) for label in value.items() for part in label):
        raise ValueError
    return tuple(sorted(value.items()))


SELECTOR: Final = ValueFormat(
    _selector,
    dict,
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "string"},
        "title": "a mapping with at least one label, text to text",
    },
)
Selector = Annotated[tuple[tuple[str, str], ...], SELECTOR]
