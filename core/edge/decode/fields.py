"""Decode bytes, fields and names; errors say where the fault is."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final, TypeVar

import msgspec

from core.edge.decode.json_depth import STEPS_MAX, decoded
from core.model.errors import InvalidInputError
from core.model.quantity import millis, whole

NAME_MAX: Final = 253
NAMES_MAX: Final = 65_536
"""Maximum number of cached names of nodes and namespaces, so that each is checked once."""
SHOWN_MAX: Final = 80
"""Maximum length of a name in an error."""
TOO_DEEP: Final = "is nested too deeply"
FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoders for invalid input."""

Bytes = bytes | msgspec.Raw
Value_ = TypeVar("Value_")


def strictly(
    decode: Callable[[bytes], Value_],
    raw: Bytes,
    where: str,
    hint: str = "",
    steps_max: int | None = STEPS_MAX,
) -> Value_:
    """Decode, or raise InvalidInputError with the field or position; *steps_max*: see `pruned`."""
    try:
        return decoded(decode, bytes(raw), steps_max)
    except FAULTS as fault:
        problem, path = _problem_and_path(fault)
        if isinstance(fault, msgspec.DecodeError) and not isinstance(
            fault, msgspec.ValidationError
        ):
            # msgspec reports no position for truncated input.
            cut = f" after {len(bytes(raw))} bytes" if "truncated" in problem else ""
            problem = f"is not complete, valid JSON: {problem}{cut}"
        message = f"{problem}; {hint}" if hint else problem
        raise InvalidInputError(join(where, path.lstrip(".")), message) from fault


def read_field(decode: Callable[[bytes], Value_], raw: bytes, field: str) -> Value_:
    """Decode the bytes of a field. Raises: InvalidInputError with the path of the fault."""
    try:
        return decode(raw)
    except FAULTS as fault:
        problem, path = _problem_and_path(fault)
        raise InvalidInputError(f"{field}{path}", problem) from fault


def _problem_and_path(fault: Exception) -> tuple[str, str]:
    """Return the problem, and the path of the part with the fault."""
    if isinstance(fault, msgspec.DecodeError):
        problem, _, path = str(fault).partition(" - at `$")
        return problem, path.rstrip("`")
    return "is not UTF-8" if isinstance(fault, UnicodeDecodeError) else TOO_DEEP, ""


def where_of(source: str, kind: str, namespace: str | None, name: str) -> str:
    """Return the name of an object and its source, printable and short."""
    shown = (f"{namespace}/{name}" if namespace else name)[:SHOWN_MAX]
    return join(source, f"{kind} {shown if shown.isprintable() else ascii(shown)}".strip())


def join(where: str, what: str) -> str:
    """Join a place and a text with a colon; either may be empty."""
    return f"{where}: {what}" if where and what else where or what


def read_quantity(name: str, written: str | float, field: str) -> int:
    """Return CPU in millicores, other resources in whole units. Raises: InvalidInputError."""
    try:
        return millis(written) if name == "cpu" else whole(written)
    except InvalidInputError as fault:
        raise InvalidInputError(field, fault.problem) from fault


def read_amounts(amounts: Mapping[str, str | float], field: str) -> dict[str, int]:
    """Return amounts by resource, as `read_quantity`. Raises: InvalidInputError."""
    return {
        intern(name): read_quantity(name, written, f"{field}.{name}")
        for name, written in amounts.items()
    }


def unix_seconds(written: str | None) -> int | None:
    """Parse a time of the API to Unix seconds; None if it is missing or invalid."""
    try:
        return int(datetime.fromisoformat(written).timestamp()) if written else None
    except (ValueError, OverflowError):
        return None


def checked(text: str, field: str) -> str:
    """Return a name if the API server would accept it; Ebb prints and sorts by names.

    Raises: InvalidInputError with the field.
    """
    if 0 < len(text) <= NAME_MAX and text.isascii() and text.isprintable() and " " not in text:
        return text
    shown = f"{text[:40]!r} is not a valid name" if text else "missing"
    allowed = f"1 to {NAME_MAX} ASCII letters, digits, '-' and '.'"
    raise InvalidInputError(field, f"{shown}; allowed: {allowed}")


@lru_cache(maxsize=NAMES_MAX)
def shared(text: str, field: str) -> str:
    """Check a name that many objects have, and return one shared object for equal names."""
    return intern(checked(text, field))
