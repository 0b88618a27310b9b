"""Publish each state of the page to all browsers that show it."""

import asyncio
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import orjson

from core.model.errors import UnavailableError

CLIENTS_MAX: Final = 16
"""Maximum number of browsers that follow the page at the same time."""


class Hub:
    """The newest state of the page, and the browsers that are notified of a new state."""

    def __init__(self) -> None:
        self.state = b"null"
        self.packed = gzip.compress(self.state)
        """The state, compressed once for all browsers."""
        self._version = 0
        self._connection: dict[str, object] = {"banners": [], "heard": None, "stale": False}
        # A queue holds only the newest message: a slow browser skips the others.
        self._queues: set[asyncio.Queue[bytes | None]] = set()

    async def publish(self, state: bytes) -> None:
        """Replace the state of the page (JSON), and notify each browser."""
        packed = await asyncio.to_thread(gzip.compress, state, 6)
        self.state, self.packed = state, packed
        self._version += 1
        self._send()

    def warn(
        self, banners: Sequence[str], heard_seconds: int | None = None, *, stale: bool = False
    ) -> None:
        """Replace what is known about the connection to the cluster, and notify each browser.

        *heard_seconds*: time of the last answer of the API server. *stale*: that is too long ago.
        Nothing happens if all is the same as before.
        """
        before = self._connection
        self._connection = {"banners": [*banners], "heard": heard_seconds, "stale": stale}
        if self._connection != before:
            self._send()

    def close(self) -> None:
        """Send each browser the message None, the end of its messages."""
        for queue in self._queues:
            _put(queue, None)

    @contextmanager
    def following(self) -> Iterator[asyncio.Queue[bytes | None]]:
        """Yield a queue with the newest message for one browser; the message None is the end.

        A message is JSON with the number of the state, the warnings and the time of the last
        answer of the API server, not the state itself.
        Raises: UnavailableError if too many browsers follow the page.
        """
        if len(self._queues) >= CLIENTS_MAX:
            raise UnavailableError(
                f"{CLIENTS_MAX} browsers, the maximum, follow this page already"
            )
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        queue.put_nowait(self._message())
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def _send(self) -> None:
        message = self._message()
        for queue in self._queues:
            _put(queue, message)

    def _message(self) -> bytes:
        return orjson.dumps({"version": self._version, **self._connection})


def _put(queue: asyncio.Queue[bytes | None], message: bytes | None) -> None:
    with suppress(asyncio.QueueEmpty):
        queue.get_nowait()
    queue.put_nowait(message)
