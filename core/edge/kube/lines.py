"""A stream of bytes to whole lines, bounded in length and in silence."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol

from core.errors import GarbledError, UnavailableError

LINE_BYTES_MAX: Final = 16 * 1024**2
"""etcd takes no object over some megabytes; aiohttp's own readline stops far earlier."""


class Stream(Protocol):
    """Where bytes come from: aiohttp's StreamReader."""

    async def readany(self) -> bytes:
        """Return what has come; nothing at the end."""


async def lines(
    stream: Stream, *, silence_seconds_max: float, bytes_max: int = LINE_BYTES_MAX
) -> AsyncIterator[bytes]:
    """Yield lines without their ends, empty ones not.

    Raises: TimeoutError when nothing comes for *silence_seconds_max*: the connection is half
    open. GarbledError when a line is over *bytes_max*, UnavailableError when the stream ends
    within one.
    """
    parts: list[bytes] = []  # of a line whose end has not come: joined once, however many
    size = 0
    while True:
        async with asyncio.timeout(silence_seconds_max):
            chunk = await stream.readany()
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if others:
            for line in (b"".join(parts), *others[:-1]):
                if line.strip():
                    yield line
            parts = [others[-1]]
            size = len(others[-1])
        if size > bytes_max:
            raise GarbledError(f"API server: a line is over {bytes_max} bytes")
    if b"".join(parts).strip():
        raise UnavailableError("API server: the stream ended within a line")
