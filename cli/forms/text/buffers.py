"""CapacityBuffers for people: what room others are kept, and what autoscalers are told by Ebb."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from cli.input.overview import Published
from cli.terminal import Table, say
from core.engine.plan import BufferRoom

BUFFERS_SHOWN: Final = 12
"""Of each table."""


def write(buffers: Sequence[BufferRoom], out: Console) -> None:
    """Say for which buffers of others there is room, which is kept, and why not for others."""
    rows = [
        (one.buffer, f"{one.asked:,}", f"{one.allowed:,}", f"{one.placed:,}", _short(one))
        for one in buffers
    ]
    headings = "room for CapacityBuffer", "asked", "allowed", "kept", "why not all"
    _table(headings, rows, out)


def write_published(published: Sequence[Published], out: Console) -> None:
    """Say what Ebb asks autoscalers for, and whether they do it."""
    rows = [(one.buffer, f"{one.asked:,}", f"{one.accepted:,}", one.why) for one in published]
    _table(("asked for by Ebb", "pods", "accepted", "why not all"), rows, out)


def _table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], out: Console) -> None:
    if not rows:
        return
    shown, more = [*rows[:BUFFERS_SHOWN]], len(rows) - BUFFERS_SHOWN
    if more > 0:
        shown.append((f"{more:,} more", *[""] * (len(headings) - 1)))
    say(out, "", Table(*headings, rows=shown, left=(0, len(headings) - 1)))


def _short(one: BufferRoom) -> str:
    """Say why room is not kept for all that a buffer asks for."""
    if one.fault or one.placed >= one.asked:
        return one.fault
    if one.placed < one.allowed:
        return "no more room is free"
    return "more than the share that is kept for buffers (reserve.buffers)"
