"""Cut deeply nested JSON values to null before decoding.

Nothing here is recursive, and the time is linear in the number of bytes.
"""

# Decoders skip unknown values recursively. One value that is nested deeply enough, anywhere in the
# body, would stop them, for example in managedFields: the API server stores 10,000 levels.

import re
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar, cast

import msgspec

DEPTH_MAX: Final = 64
"""Maximum nesting depth of lists and objects; no field that Ebb reads is deeper than 20."""
SLACK: Final = 2
"""Nesting depth of a value that one step skips as a whole, so it may exceed DEPTH_MAX."""

STEPS_MAX: Final = 20_000
"""Maximum number of steps to cut one object or answer; about 15 ms of the event loop.

The deepest value that the API server accepts (10,000 levels) needs as many steps, a list of such
values twice as many."""
PIECE_BYTES: Final = 64 * 1024
"""Bytes after which `pruning` pauses; 1 ms, or 15 ms if there are only brackets."""

Value_ = TypeVar("Value_")


def _plain(levels: int) -> bytes:
    """Return a regex for text with at most *levels* levels of nesting; it never backtracks."""
    inner = rb'[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"'
    return rb"(?:%b)*+" % (
        inner if not levels else rb"%b|[\[{]%b[\]}]" % (inner, _plain(levels - 1))
    )


_BRACKETS: Final = re.compile(_plain(SLACK) + rb'([\[{]++|[\]}]++|".*+|\Z)', re.DOTALL)
"""Matches from the end of the previous match, so that no byte is scanned again and again.

An unterminated string matches up to the end."""

_TEXT: Final = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
"""Matches the rest of a string, with its closing quote if it is there."""
_OPENING: Final = tuple(b"[{")
_CLOSING: Final = tuple(b"]}")
_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Escapes of surrogate pairs, of lone surrogates, and all others, so that `\\\\` is not
misread."""


def decoded(
    decode: Callable[[Any], Value_],
    raw: bytes | msgspec.Raw,
    steps_max: int | None = STEPS_MAX,
) -> Value_:
    """Decode JSON; if it is nested too deeply, decode it with the deep values cut to null.

    *steps_max*: maximum number of steps for the cut; None: unlimited. Raises: as *decode*;
    RecursionError if the cut needs more steps.
    """
    try:
        return decode(raw)  # without a copy: copying the JSON of a pod takes as long as reading it
    except RecursionError:
        return decode(pruned(bytes(raw), steps_max))


def legible(raw: bytes) -> bytes:
    """Return JSON in which U+FFFD replaces escapes of lone surrogates, which are not text."""
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], raw)


def pruned(raw: bytes, steps_max: int | None = None) -> bytes:
    """Return JSON with null for values deeper than DEPTH_MAX; for invalid JSON, any text.

    *steps_max*: maximum number of runs of brackets, a microsecond each; None: unlimited. Raises:
    RecursionError if there are more.
    """
    return at_once(pruning(raw, steps_max))


def pruning(
    raw: bytes, steps_max: int | None = None, piece_bytes: int = PIECE_BYTES
) -> Generator[None, None, bytes]:
    """Do what `pruned` does, and pause (yield) every *piece_bytes*."""
    parts: list[bytes] = []
    kept = depth = steps = begin = 0
    while begin < len(raw):
        until = begin + piece_bytes
        for match in _BRACKETS.finditer(raw, begin, until):
            start, end = match.span(1)
            if start == end:
                continue
            if steps == steps_max:
                raise RecursionError(f"is nested too deeply at more than {steps} places")
            steps += 1
            before = depth
            bracket = raw[start]
            if bracket in _OPENING:
                depth += end - start
                if before <= DEPTH_MAX < depth:
                    parts += (raw[kept : start + DEPTH_MAX - before], b"null")
            elif bracket in _CLOSING:
                depth -= end - start
                if depth <= DEPTH_MAX < before:
                    kept = start + before - DEPTH_MAX
            else:  # a string that ends in another piece
                until = yield from _end_of_string(raw, start + 1, piece_bytes)
        begin = until
        yield
    if depth <= DEPTH_MAX:
        parts.append(raw[kept:])
    return b"".join(parts)


def _end_of_string(raw: bytes, begin: int, piece_bytes: int) -> Generator[None, None, int]:
    """Return the index after the string whose text begins at *begin*; pause as `pruning`."""
    while (found := _TEXT.match(raw, begin, begin + piece_bytes)) and found.end() > begin:
        begin = found.end()
        if found[1]:
            return begin
        yield
    return len(raw)


def at_once(pieces: Generator[None, None, Value_]) -> Value_:
    """Return the result of a generator, without its pauses."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return cast("Value_", end.value)
