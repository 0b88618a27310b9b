"""CapacityBuffers for people: capacity reserved for them, and buffers that Ebb publishes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console

from cli.terminal import Table, say
from core.engine.plan import BufferRoom

if TYPE_CHECKING:  # `ebb plan` shows none
    from cli.input.overview import Published

BUFFERS_SHOWN: Final = 12
"""Rows of each table; the others are counted."""


def write(buffers: Sequence[BufferRoom], out: Console) -> None:
    """Write how much capacity is reserved for each CapacityBuffer, and why not for all pods.

    Nothing is written without buffers.
    """
    rows = [
        (
            buffer.buffer,
            f"{buffer.asked:,}",
            f"{buffer.allowed:,}",
            f"{buffer.placed:,}",
            _short(buffer),
        )
        for buffer in buffers
    ]
    headings = "CapacityBuffer", "pods requested", "allowed", "reserved", "why not all"
    _table(headings, rows, out)


def write_published(published: "Sequence[Published]", out: Console) -> None:
    """Write a table of the buffers that Ebb publishes.

    It shows for how many pods of each buffer autoscalers have capacity.
    """
    rows = [
        (buffer.buffer, f"{buffer.pods:,}", f"{buffer.accepted:,}", buffer.why)
        for buffer in published
    ]
    _table(("published by Ebb", "pods", "accepted pods", "why not all"), rows, out)


def _table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], out: Console) -> None:
    if not rows:
        return
    shown, more = [*rows[:BUFFERS_SHOWN]], len(rows) - BUFFERS_SHOWN
    if more > 0:
        shown.append((f"{more:,} more", *[""] * (len(headings) - 1)))
    say(out, "", Table(*headings, rows=shown, left=(0, len(headings) - 1)))


def _short(buffer: BufferRoom) -> str:
    """Return why less capacity is reserved than a buffer requests; empty if it has enough."""
    if buffer.fault or buffer.placed >= buffer.asked:
        return buffer.fault
    if buffer.placed < buffer.allowed:
        return "not enough free capacity"
    return "Ebb reserves at most half of the capacity for all CapacityBuffers"
