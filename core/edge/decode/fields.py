"""Reading bytes, fields and names; a fault says where in what it is."""

from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import Final, TypeVar

import msgspec

from core.edge.decode.depth import decoded
from core.errors import InvalidInputError, InvalidQuantityError
from core.model.quantity import millis, whole

NAME_MAX: Final = 253
NAMES_MAX: Final = 65_536
"""Names of nodes and namespaces that are kept, so that each is checked once."""
SHOWN_MAX: Final = 80
"""Characters of a name that a fault repeats."""
FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise on bytes that are not what they should be."""

Bytes = bytes | msgspec.Raw
Value_ = TypeVar("Value_")


def strictly(decode: Callable[[bytes], Value_], raw: Bytes, where: str, hint: str = "") -> Value_:
    """Decode, or raise InvalidInputError with the field or the position."""
    try:
        return decoded(decode, bytes(raw))
    except msgspec.ValidationError as fault:
        problem, _, path = str(fault).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise InvalidInputError(join(where, field), _hinted(problem, hint)) from fault
    except UnicodeDecodeError as fault:
        raise InvalidInputError(where, _hinted("is not UTF-8", hint)) from fault
    except RecursionError as fault:
        raise InvalidInputError(where, _hinted("is nested too deeply", hint)) from fault
    except msgspec.DecodeError as fault:
        # Only this one comes without a position.
        cut = f"{fault} after {len(bytes(raw))} bytes" if "truncated" in str(fault) else str(fault)
        raise InvalidInputError(where, _hinted(f"is not whole JSON: {cut}", hint)) from fault


def where_of(source: str, kind: str, namespace: str | None, name: str) -> str:
    """Name an object in its source, printable and short."""
    shown = (f"{namespace}/{name}" if namespace else name)[:SHOWN_MAX]
    return join(source, f"{kind} {shown if shown.isprintable() else ascii(shown)}".strip())


def join(where: str, what: str) -> str:
    """Put a place before what stands there; either may be empty."""
    return f"{where}: {what}" if where and what else where or what


def _hinted(problem: str, hint: str) -> str:
    return f"{problem}; {hint}" if hint else problem


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


def checked(text: str, field: str) -> str:
    """Refuse names that no API server would take; the rest of Ebb prints and sorts by them."""
    if 0 < len(text) <= NAME_MAX and text.isascii() and text.isprintable() and " " not in text:
        return text
    shown = f"{text[:40]!r} is no name" if text else "missing"
    allowed = f"1 to {NAME_MAX} ASCII letters, digits, '-' and '.'"
    raise InvalidInputError(field, f"{shown}; allowed: {allowed}")


@lru_cache(maxsize=NAMES_MAX)
def shared(text: str, field: str) -> str:
    """Check a name that many objects have, and return one object for equal ones."""
    return intern(checked(text, field))
