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

from serving.intake import Intake

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


AnswerNow = Callable[[bytes, str], Answer | None]
"""Answers a body from an address; None if aiohttp must pass the request to its handler."""


class Incoming:
    """A request whose headers have arrived, and perhaps a part of its body."""

    __slots__ = ("_chunks", "_length", "_length_at", "head", "missing")

    def __init__(self, head: "re.Match[bytes]", begin: bytes) -> None:
        """Create a request.

        *head*: request line and headers, with the length of the body as its group. *begin*: bytes
        received after the head.
        """
        self.head = head[0]
        self._length_at = head.span(1)
        self._length = int(head[1])
        self._chunks = [begin]
        self.missing = self._length - len(begin)
        """Bytes of the body that have not arrived; negative if other bytes follow the body."""

    def add(self, chunk: bytes) -> None:
        """Add received bytes to the body."""
        self._chunks.append(chunk)
        self.missing -= len(chunk)

    def take_body(self) -> tuple[bytes, bytes]:
        """Remove and return the complete body, and the bytes received after it."""
        whole = b"".join(self._chunks)
        self.drop_body()  # so that a large body is in memory once while it is decoded
        return (whole[: self._length], whole[self._length :]) if self.missing else (whole, b"")

    def drop_body(self) -> None:
        """Remove all bytes received after the headers."""
        self._chunks.clear()

    def head_without_body(self) -> bytes:
        """Return the request line and headers of the same request with an empty body."""
        begin, end = self._length_at
        return b"%b0%b" % (self.head[:begin], self.head[end:])


class FastPath:
    """A recognizer of the POST requests of one path, with the function that answers them."""

    def __init__(
        self, path: str, intake: Intake, answer: AnswerNow, abandoned: Callable[[], None]
    ) -> None:
        """Create a fast path for POST requests of *path*.

        *intake*: limits of the path; aiohttp gets the requests that it refuses. *answer*: returns
        the answer to a complete body, or None if aiohttp must answer. *abandoned* is called if a
        connection is lost before the whole body has arrived.
        """
        self.answer, self.abandoned = answer, abandoned
        self._intake = intake
        # aiohttp gets all other requests, which may be valid too. With one length and no other
        # coding, no part of a request can be taken for another request.
        self._head = re.compile(
            rb"POST %b HTTP/1\.1\r\n%bContent-Length: ([0-9]{1,%d})\r\n%b\r\n"
            % (re.escape(path.encode()), _HEADERS, _LENGTH_DIGITS_MAX, _HEADERS)
        )

    def begin(self, data: bytes, transport: asyncio.BaseTransport | None) -> Incoming | None:
        """Return the request that begins with *data*; None if aiohttp must process it.

        The body of the returned request may be incomplete.
        """
        head = self._head.match(data)
        if head is None or self._intake.refusal(int(head[1]), transport) is not None:
            return None
        return Incoming(head, data[head.end() :])
