"""Reading one field of an object; its fault names the field."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from core.errors import InvalidInputError, InvalidQuantityError
from core.model.quantity import millis, whole

Value_ = TypeVar("Value_")


def read_field(decode: Callable[[bytes], Value_], raw: bytes, field: str) -> Value_:
    """Decode the field's bytes. Raises: InvalidInputError with the path of the faulty part."""
    try:
        return decode(raw)
    except msgspec.DecodeError as fault:
        problem, _, place = str(fault).partition(" - at `$")
        raise InvalidInputError(f"{field}{place.rstrip('`')}", problem) from fault
    except UnicodeDecodeError as fault:
        raise InvalidInputError(field, "is not UTF-8") from fault
    except RecursionError as fault:
        raise InvalidInputError(field, "is nested too deeply") from fault


def read_quantity(name: str, written: str | float, field: str) -> int:
    """Return cpu in millicores, everything else in ones. Raises: InvalidInputError."""
    try:
        return millis(written) if name == "cpu" else whole(written)
    except InvalidQuantityError as fault:
        raise InvalidInputError(field, fault.problem) from fault
