"""Cut deeply nested JSON values to null before decoding.

Nothing here is recursive, and the time is linear in the number of bytes.
"""

# Decoders skip unknown values recursively. One value that is nested deeply enough, anywhere in the
# body, would stop them, for example in managedFields: the API server stores 10,000 levels.

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

DEPTH_MAX: Final = 64
"""Maximum nesting depth of lists and objects; no field that Ebb reads is deeper than 20."""
SLACK: Final = 2
"""Nesting depth of a value that one step skips as a whole, so it may exceed DEPTH_MAX."""

STEPS_MAX: Final = 20_000
"""Maximum number of steps to cut one object or answer; about 15 ms of the event loop.

The deepest value that the API server accepts (10,000 levels) needs as many steps, a list of such
values twice as many."""

Value_ = TypeVar("Value_")


def _plain(levels: int) -> bytes:
    """Return a regex for text with at most *levels* levels of nesting; it never backtracks."""
    inner = rb'[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"'
    return rb"(?:%b)*+" % (
        inner if not levels else rb"%b|[\[{]%b[\]}]" % (inner, _plain(levels - 1))
    )


_BRACKETS: Final = re.compile(_plain(SLACK) + rb'([\[{]++|[\]}]++|".*+|\Z)', re.DOTALL)
"""Matches from the end of the previous match, so that no byte is scanned twice.

An unterminated string matches up to the end."""

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
    parts: list[bytes] = []
    kept = depth = 0
    for step, match in enumerate(_BRACKETS.finditer(raw)):
        if step == steps_max:
            raise RecursionError(f"is nested too deeply, with more than {step} runs of brackets")
        start, end = match.span(1)
        before = depth
        bracket = raw[start] if start < end else 0
        if bracket in _OPENING:
            depth += end - start
            if before <= DEPTH_MAX < depth:
                parts += (raw[kept : start + DEPTH_MAX - before], b"null")
        elif bracket in _CLOSING:
            depth -= end - start
            if depth <= DEPTH_MAX < before:
                kept = start + before - DEPTH_MAX
    if depth <= DEPTH_MAX:
        parts.append(raw[kept:])
    return b"".join(parts)
