"""JSON that nests deeper than anybody reads: cut to null before it is decoded.

Decoders skip what they do not know by recursion, so that one value which nests deep enough ends
them, wherever in a body it stands (managedFields of any object: the API server stores what nests
10,000 deep). Here nothing recurses, and the time is linear in the bytes.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar

DEPTH_MAX: Final = 64
"""Of lists and objects in each other; no field that is read lies deeper than 20."""
SLACK: Final = 2
"""What is so shallow in itself is stepped over in one: it may stay although it is that much
deeper."""

STEPS_MAX: Final = 20_000
"""Of cutting one object, or one answer, some 15 ms: the event loop waits for it.

The deepest value that the API server takes (10,000) needs as many, of lists twice as many.
"""

Value_ = TypeVar("Value_")


def _plain(levels: int) -> bytes:
    """Write the pattern of text whose lists and objects nest at most so deep; never steps back."""
    inner = rb'[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"'
    return rb"(?:%b)*+" % (
        inner if not levels else rb"%b|[\[{]%b[\]}]" % (inner, _plain(levels - 1))
    )


_BRACKETS: Final = re.compile(_plain(SLACK) + rb'([\[{]++|[\]}]++|".*+|\Z)', re.DOTALL)
"""Something is found from wherever the last find ended, so that no byte is looked at again; a
string without an end is the rest."""

_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Pairs of surrogates, single ones, and all others, so that a backslash's own is none."""


def decoded(
    decode: Callable[[bytes], Value_], raw: bytes, steps_max: int | None = STEPS_MAX
) -> Value_:
    """Decode; what nests too deep for the decoder is cut first. Raises: as *decode*, `pruned`."""
    try:
        return decode(raw)
    except RecursionError:
        return decode(pruned(raw, steps_max))


def legible(raw: bytes) -> bytes:
    """Return JSON whose escapes of lone surrogates, which are no text, say U+FFFD."""
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], raw)


def pruned(raw: bytes, steps_max: int | None = None) -> bytes:
    """Return JSON whose values deeper than DEPTH_MAX are null; of what is no JSON, something.

    *steps_max*: how many runs of brackets are looked at, a microsecond each; None: all.
    Raises: RecursionError for more.
    """
    parts: list[bytes] = []
    kept = depth = 0
    for step, found in enumerate(_BRACKETS.finditer(raw)):
        if step == steps_max:
            raise RecursionError(f"nests too deep, and has more than {step} runs of brackets")
        start, end = found.span(1)
        before = depth
        bracket = raw[start : start + 1]
        if bracket in (b"[", b"{"):
            depth += end - start
            if before <= DEPTH_MAX < depth:
                parts += (raw[kept : start + DEPTH_MAX - before], b"null")
        elif bracket in (b"]", b"}"):
            depth -= end - start
            if depth <= DEPTH_MAX < before:
                kept = start + before - DEPTH_MAX
    if depth <= DEPTH_MAX:
        parts.append(raw[kept:])
    return b"".join(parts)
