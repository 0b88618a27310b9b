"""Decode and check fields of API objects: JSON, amounts, times, names; errors name the field."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import chain
from sys import getsizeof, intern
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from core.model.errors import InvalidInputError
from core.model.quantity import millis, whole
from kube.decode.json_depth import STEPS_MAX, decoded

NAME_MAX: Final = 253
NAMES_MAX: Final = 65_536
"""Maximum number of cached names; each name of a node or namespace is checked only once."""
SHOWN_MAX: Final = 80
"""Maximum length of a name in an error."""
TOO_DEEP: Final = "is nested too deeply"
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoders for invalid input."""

NULL_BYTES: Final = b"null"
NULL: Final = msgspec.Raw(NULL_BYTES)
RESOURCE_NAME_MAX: Final = 317
"""Maximum length of a resource name or label key: a prefix of 253 characters, "/" and 63 more."""

Bytes = bytes | msgspec.Raw
Value_ = TypeVar("Value_")
ApiName = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
"""A name, or another short text. Decoders reject a longer text before it is stored."""


class BoundedField(Generic[Value_]):
    """A limit for a field whose size the API does not limit.

    The struct of an object keeps such a field as JSON:
    `taints: Annotated[msgspec.Raw, TAINTS] = NULL`. `decode` rejects JSON with too many bytes or
    items before it decodes anything. msgspec's own `max_length` would be checked only after the
    whole list has been built.
    """

    def __init__(
        self,
        shape: type[Value_],
        *,
        bytes_max: int | None = None,
        items_max: int | None = None,
        of: bytes = b"{",
    ) -> None:
        """Create a limit for fields of type *shape*; at least one of the limits is given.

        *items_max*: how often the bytes *of* may occur in the JSON. The default of *of* counts
        opening braces, so it limits the number of objects.
        """
        self.shape, self.bytes_max, self.items_max, self._of = shape, bytes_max, items_max, of
        # A field with at most so many bytes cannot exceed a limit, so `decode` does not check it.
        self._unchecked_max = min(limit for limit in (bytes_max, items_max) if limit is not None)
        self._decode: Callable[[Any], Value_ | None] = msgspec.json.Decoder(shape | None).decode

    def decode(self, raw: Bytes, field: str) -> Value_ | None:
        """Decode the JSON of a field; None if the field is null or missing.

        Raises: InvalidInputError with the path of the fault, also if the field exceeds the limit.
        """
        if raw is NULL:
            return None
        if len(raw) > self._unchecked_max and (problem := self.why_too_large(raw)):
            raise InvalidInputError(field, problem)
        try:
            return self._decode(raw)
        except DECODE_ERRORS as fault:
            problem, path = _problem_and_path(fault)
            raise InvalidInputError(f"{field}{path}", problem) from fault

    def why_too_large(self, raw: Bytes) -> str:
        """Return why the field exceeds the limit; empty if it does not."""
        if self.bytes_max is not None and len(raw) > self.bytes_max:
            return f"{len(raw):,} bytes, the limit is {self.bytes_max:,}"
        if self.items_max is not None and bytes(raw).count(self._of) > self.items_max:
            return f"more than {self.items_max:,} items"
        return ""


def decode_json(
    decode: Callable[[bytes], Value_],
    raw: Bytes,
    where: str,
    hint: str = "",
    steps_max: int | None = STEPS_MAX,
) -> Value_:
    """Decode JSON with *decode*, with values that are nested too deeply cut to null.

    *where*: place for errors. *hint*: end of the error message. *steps_max*: maximum number of
    steps for the cut; None: unlimited. Raises: InvalidInputError with *where*, and the field or
    position of the fault.
    """
    try:
        return decoded(decode, raw, steps_max)
    except DECODE_ERRORS as fault:
        problem, path = _problem_and_path(fault)
        if isinstance(fault, msgspec.DecodeError) and not isinstance(
            fault, msgspec.ValidationError
        ):
            # msgspec reports no position for truncated input.
            cut = f" after {len(bytes(raw))} bytes" if "truncated" in problem else ""
            problem = f"is not complete, valid JSON: {problem}{cut}"
        message = f"{problem}; {hint}" if hint else problem
        raise InvalidInputError(join(where, path.lstrip(".")), message) from fault


def _problem_and_path(fault: Exception) -> tuple[str, str]:
    if isinstance(fault, msgspec.DecodeError):
        problem, _, path = str(fault).partition(" - at `$")
        return problem, path.rstrip("`")
    return "is not UTF-8" if isinstance(fault, UnicodeDecodeError) else TOO_DEEP, ""


def location_of(source: str, kind: str, namespace: str | None, name: str) -> str:
    """Return a text with source, kind and name of an object for messages, printable and short."""
    shown = (f"{namespace}/{name}" if namespace else name)[:SHOWN_MAX]
    return join(source, f"{kind} {shown if shown.isprintable() else ascii(shown)}".strip())


def check_memory(value: object, bytes_max: int) -> None:
    """Check that a value takes at most *bytes_max* bytes of memory. Raises: InvalidInputError."""
    taken = memory_of(value)
    if taken > bytes_max:
        raise InvalidInputError("", f"takes {taken:,} bytes of memory, the limit is {bytes_max:,}")


def memory_of(value: object) -> int:
    """Return the bytes of memory of a value and everything in it; shared values count each time.

    Only texts, numbers, mappings, tuples, lists and objects with slots are searched.
    """
    if isinstance(value, str | int | float) or value is None:
        return getsizeof(value)
    if isinstance(value, Mapping):
        parts: Iterable[object] = chain(value, value.values())
    elif isinstance(value, tuple | list):
        parts = value
    else:
        parts = (getattr(value, name) for name in getattr(type(value), "__slots__", ()))
    return getsizeof(value) + sum(map(memory_of, parts))


def join(where: str, text: str) -> str:
    """Join a place and a text with a colon and a space; either may be empty."""
    return f"{where}: {text}" if where and text else where or text


def read_quantity(name: str, written: str | float, field: str) -> int:
    """Convert an amount of the resource *name*: CPU to millicores, others to whole units.

    *written*: a quantity of Kubernetes. Raises: InvalidInputError with *field*.
    """
    if len(name) > RESOURCE_NAME_MAX:
        field = f"{field[:SHOWN_MAX]}..."
        problem = f"a resource name of {len(name):,} characters; allowed: {RESOURCE_NAME_MAX}"
        raise InvalidInputError(field, problem)
    try:
        return millis(written) if name == "cpu" else whole(written)
    except InvalidInputError as fault:
        raise InvalidInputError(field, fault.problem) from fault


def read_amounts(amounts: Mapping[str, str | float], field: str) -> dict[str, int]:
    """Convert the amount of each resource: CPU to millicores, others to whole units.

    Raises: InvalidInputError with *field* and the name of the resource.
    """
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


def checked_name(text: str, field: str) -> str:
    """Return *text* if it is printable ASCII without spaces, not empty and not too long.

    So Ebb can print names and sort by them. Raises: InvalidInputError with *field*.
    """
    if 0 < len(text) <= NAME_MAX and text.isascii() and text.isprintable() and " " not in text:
        return text
    shown = f"{text[:40]!r} is not a valid name" if text else "missing"
    allowed = f"1 to {NAME_MAX} ASCII letters, digits, '-' and '.'"
    raise InvalidInputError(field, f"{shown}; allowed: {allowed}")


@lru_cache(maxsize=NAMES_MAX)
def shared_name(text: str, field: str) -> str:
    """Check a name as `checked_name` does; return one shared string for equal names.

    Use it for a name that many objects contain, such as that of a node. Raises: InvalidInputError
    with *field*.
    """
    return intern(checked_name(text, field))
