"""Recognize POST requests of one path that a program answers at once, without aiohttp.

A request is answered as soon as its last byte has arrived. aiohttp gets all other requests, for
example requests with unusual headers.
"""

# aiohttp takes 0.1 ms for a small request, in two tasks and several turns of the event loop, and
# 6 ms for a body of 4 MB, which it receives in small pieces.

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp.helpers import rfc822_formatted_time

_HEADERS: Final = rb"(?:(?:Accept|Accept-Encoding|Content-Type|Host|User-Agent): [ -~]*+\r\n)*+"
"""Headers that do not change the meaning of a request, as Go's HTTP client writes them."""
_LENGTH_DIGITS_MAX: Final = 10


class Answer(NamedTuple):
    """A response of the fast path: HTTP status and JSON body."""

    status: HTTPStatus
    body: bytes

    def response(self) -> bytes:
        """Return the whole response to send: status line, headers and body."""
        return (
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Date: %b\r\n\r\n%b"
        ) % (
            self.status,
            self.status.phrase.encode(),
            len(self.body),
            rfc822_formatted_time().encode(),
            self.body,
        )


AnswerNow = Callable[[bytes, str, asyncio.BaseTransport], Answer | None]
"""Answers a body from an address; None if aiohttp must pass the request to its handler."""


class Incoming:
    """A request whose headers have arrived, and perhaps a part of its body."""

    __slots__ = ("_chunks", "head", "missing")

    def __init__(self, head: bytes, begin: bytes, length: int) -> None:
        """Create a request.

        *head*: request line and headers. *begin*: bytes received after the head. *length*: length
        of the whole body in bytes.
        """
        self.head = head
        self._chunks = [begin]
        self.missing = length - len(begin)
        """Bytes of the body that have not arrived; negative if other bytes follow the body."""

    def add(self, chunk: bytes) -> None:
        """Add received bytes to the body."""
        self._chunks.append(chunk)
        self.missing -= len(chunk)

    def take_body(self) -> bytes:
        """Remove and return all bytes received after the headers, perhaps more than the body."""
        whole = b"".join(self._chunks)
        self._chunks.clear()  # so that a large body is in memory once while it is decoded
        return whole


class FastPath:
    """A recognizer of the POST requests of one path, with the function that answers them."""

    def __init__(
        self, path: str, body_bytes_max: int, answer: AnswerNow, abandoned: Callable[[], None]
    ) -> None:
        """Create a fast path for POST requests of *path*.

        *body_bytes_max*: maximum size of a body; aiohttp gets larger ones, and rejects them.
        *answer*: returns the answer to a complete body, or None if aiohttp must answer.
        *abandoned* is called if a connection is lost before the whole body has arrived.
        """
        self.answer, self.abandoned = answer, abandoned
        self._body_bytes_max = body_bytes_max
        # aiohttp gets all other requests, which may be valid too. With one length and no other
        # coding, no part of a request can be taken for another request.
        self._head = re.compile(
            rb"POST %b HTTP/1\.1\r\n%bContent-Length: ([0-9]{1,%d})\r\n%b\r\n"
            % (re.escape(path.encode()), _HEADERS, _LENGTH_DIGITS_MAX, _HEADERS)
        )

    def begin(self, data: bytes) -> Incoming | None:
        """Return the request that begins with *data*; None if aiohttp must process it.

        The body of the returned request may be incomplete.
        """
        head = self._head.match(data)
        if head is None or (length := int(head[1])) > self._body_bytes_max:
            return None
        return Incoming(head[0], data[head.end() :], length)
