"""How values are written in the file: durations, shares, numbers, quantities, labels, texts.

A form reads and writes, and says in JSON Schema what it takes: its pattern is the one by which it
reads, and its title tells people. Words, flags and whole numbers are read by pydantic itself.
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

_SHARE: Final = r"(?![0.]+%)(?:100(?:\.0{1,9})?|0?[0-9]{1,2}(?:\.[0-9]{1,9})?)%"
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,12})?"
_DURATION: Final = (
    r"(?=.)(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?"
    r"(?:([0-9]{0,6}000|0{1,2})ms)?"
)
SHARE_ALLOWED: Final = 'a percentage above 0% and up to 100%, such as "80%" or "62.5%"'


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What a setting is annotated with whose type does not say how it is written."""

    read: Callable[[Any], object]
    """Raises: ValueError."""
    write: Callable[[Any], object]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic read and write by this form alone."""
        writer = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self.read, serialization=writer)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Say what is taken."""
        return dict(self.schema)


Flag = Annotated[bool, Strict()]


def not_allowed(allowed: str) -> PydanticCustomError:
    """Make the fault of a value that would be allowed beside others."""
    return PydanticCustomError("not_allowed", "{allowed}", {"allowed": allowed})


def matched(pattern: str, value: object, most: int = TEXT_MAX) -> re.Match[str]:
    """Match the whole of a text. Raises: ValueError."""
    readable = isinstance(value, str) and len(value) <= most
    if found := re.fullmatch(pattern, str(value)) if readable else None:
        return found
    raise ValueError


def texts(pattern: str, **more: object) -> dict[str, Any]:
    """Say in JSON Schema that a text matches as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$", **more}


def text(pattern: str, allowed: str, most: int = TEXT_MAX) -> Form:
    """Take a text that matches as a whole."""
    schema = texts(pattern, maxLength=most, title=allowed)
    return Form(lambda value: matched(pattern, value, most)[0], str, schema)


def duration(least: int = 0, *, never: bool = False) -> Form:
    """Take a Go duration of whole seconds; or, if asked for, `never`: None."""

    def read(value: object) -> int | None:
        if never and value == "never":
            return None
        parts = [int(part or 0) for part in matched(_DURATION, value).groups()]
        seconds = parts[0] * 3600 + parts[1] * 60 + parts[2] + parts[3] // 1000
        if not least <= seconds <= DURATION_SECONDS_MAX:
            raise ValueError
        return seconds

    allowed = f'a duration of whole seconds, {least}s to 720h, such as "10m" or "1h30m"'
    pattern = f"never|{_DURATION}" if never else _DURATION
    return Form(read, _duration, texts(pattern, title="never, or " * never + allowed))


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "never"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def read_share(value: object) -> Fraction:
    """Read a percentage; one that is read already stays. Raises: ValueError."""
    if isinstance(value, Fraction):
        return value
    return Fraction(matched(_SHARE, value)[0].removesuffix("%")) / 100


def percent(share: Fraction) -> str:
    """Write a share as it is read."""
    return f"{_decimal(share * 100)}%"


def eased(share: Fraction) -> Fraction:
    """Return the share up to which what is marked stays so, where nothing else is said."""
    return min(share + SLACK, Fraction(1))


SLACK: Final = Fraction(1, 20)
"""By how much that stands above the one up to which nodes are marked."""
SHARE: Final = Form(read_share, percent, texts(_SHARE, title=SHARE_ALLOWED))


def whole_number(least: int, most: int) -> FieldInfo:
    """Take a whole number within bounds."""
    found: FieldInfo = Field(strict=True, ge=least, le=most)
    return found


def words(allowed: Collection[str]) -> Form:
    """Take one of these words."""
    return Form(
        lambda value: matched("|".join(map(re.escape, allowed)), value)[0],
        str,
        {"enum": [*allowed]},
    )


def number(*, positive: bool) -> Form:
    """Take a decimal number as a text or as itself, exact."""
    pattern = f"(?![0.]+$){_NUMBER}" if positive else _NUMBER
    least = {"exclusiveMinimum" if positive else "minimum": 0, "maximum": NUMBER_MAX}
    allowed = f"a decimal number {'above' if positive else 'of at least'} 0"
    schema = texts(pattern, title=allowed) | least | {"type": ["string", "number"]}
    return Form(lambda value: Fraction(matched(pattern, _plain(value))[0]), _decimal, schema)


def quantity(whole: Callable[[str | float], int], unit: str = "") -> Form:
    """Take a Kubernetes quantity, of at least 0; *unit* is what the whole numbers count."""

    def read(value: object) -> int:
        try:
            return whole(_written(value))
        except InvalidInputError as fault:
            raise ValueError from fault

    allowed = 'a Kubernetes quantity, such as "100m" or "90M"'
    schema = texts(rf"(?!-[0.]*[1-9]){QUANTITY}", maxLength=QUANTITY_TEXT_MAX, title=allowed)
    schema |= {"minimum": 0, "type": ["string", "number"]}
    return Form(read, lambda value: f"{value}{unit}", schema)


def _written(value: object) -> str:
    """Return a number as it is written. Raises: ValueError for what is neither that nor text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError  # noqa: TRY004 what pydantic takes for a fault of the value
    return str(value)


def _plain(value: object) -> str:
    """Return a number as it is written without an exponent. Raises: ValueError as `_written`."""
    return without_exponent(value) if isinstance(value, float) else _written(value)


def without_exponent(value: float) -> str:
    """Write it in digits alone; Python has 5e-05 for what stands in a file as 0.00005."""
    return format(Decimal(str(value)), "f")


def _decimal(value: Fraction) -> str:
    return format(Decimal(value.numerator) / value.denominator, "f")


_DNS_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_LABEL_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
QUALIFIED_KEY: Final = text(
    rf"(?:(?=[^/]{{1,253}}/){_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_LABEL_NAME}",
    "a qualified label key",
)
"""What Kubernetes takes for a label's or a taint's key."""
LABEL_VALUE: Final = text(
    rf"(?:{_LABEL_NAME})?", "a value that a label may have, in quotes if it looks like a number"
)


def _selector(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not value:
        raise ValueError
    if not all(isinstance(part, str) for label in value.items() for part in label):
        raise ValueError
    return tuple(sorted(value.items()))


SELECTOR: Final = Form(
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
