"""Serve the page on 127.0.0.1 to browsers that know the token of its URL.

Other users of the machine can connect to 127.0.0.1 too, and any web site can send requests there
from a browser. Each request needs the token. The Host header must name this server, because a web
site can let its own name resolve to 127.0.0.1 (DNS rebinding).
"""

import asyncio
import gzip
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self

from aiohttp import hdrs, web

from cli.formats.page import content_security_policy, page
from cli.page import what_if
from cli.page.hub import Hub
from cli.page.worker import Worker
from core.model.errors import InvalidInputError, UnavailableError
from serving import http
from serving.connections import Connection, TooMuchError
from serving.intake import Intake

HOST: Final = "127.0.0.1"
TOKEN_BYTES: Final = 32
BODY_BYTES_MAX: Final = 4096
INTAKE: Final = Intake(BODY_BYTES_MAX)
NAME_CHARS_MAX: Final = 300
PING_SECONDS: Final = 20.0
"""Interval of comments to a browser, by which the server notices that it has left."""
ANSWER_SECONDS_MAX: Final = 60.0
"""Maximum time of an answer to a request with the token; a plan may take some seconds."""
OWN: Final = "'self'"
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{content_security_policy(OWN)}; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """The HTTP server of one page, as an async context manager that starts and stops it."""

    def __init__(self, hub: Hub, worker: Worker, port: int = 0) -> None:
        """Create a server of the page whose state is in *hub*.

        *worker*: process that answers questions about nodes and what-ifs. *port*: 0 for any free
        port.
        """
        self._hub, self._worker = hub, worker
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._computing = asyncio.Lock()
        app = web.Application(middlewares=[self._checked])
        app.router.add_get("/", self._page)
        app.router.add_get("/state", self._state)
        app.router.add_get("/node", self._node)
        app.router.add_get("/events", self._events)
        app.router.add_post("/what-if", self._what_if)
        self._server = http.Server(app, f"{HOST}:{port}", flag="--port")

    @property
    def _origins(self) -> tuple[str, ...]:
        return tuple(f"http://{name}:{self._server.port}" for name in (HOST, "localhost"))

    @property
    def url(self) -> str:
        """Return the URL of the page with its token; the server must have been started."""
        return f"{self._origins[0]}/?token={self._token}"

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hub.close()
        await self._server.stop()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request if it has the token and comes from the page itself; else status 403.

        Errors become responses, and every response gets HEADERS.
        """
        try:
            self._check(request)
            response = await handler(request)
        except web.HTTPException as fault:
            response = web.Response(status=fault.status, text=fault.text)
        except InvalidInputError as fault:
            response = web.Response(status=400, text=str(fault))
        except (TooMuchError, UnavailableError) as fault:
            response = web.Response(status=503, text=str(fault))
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _check(self, request: web.Request) -> None:
        """Raise HTTPForbidden for a foreign Host or Origin, or a wrong token."""
        if f"http://{request.headers.get(hdrs.HOST, '')}" not in self._origins:
            raise web.HTTPForbidden(text="the header Host does not name this server")
        origin = request.headers.get(hdrs.ORIGIN)
        # Browsers send an Origin with every POST, and with no GET of the same origin.
        if origin not in self._origins and (origin or request.method != hdrs.METH_GET):
            raise web.HTTPForbidden(text="the header Origin does not name this server")
        given = request.query.get("token", "").encode("utf-8", "replace")
        if not secrets.compare_digest(given, self._token.encode()):
            raise web.HTTPForbidden(text="the token is wrong; use the URL that `ebb page` prints")
        _prolong(request, ANSWER_SECONDS_MAX)

    async def _page(self, request: web.Request) -> web.Response:
        html = page(self._hub.state, OWN).encode()
        body = await asyncio.to_thread(gzip.compress, html, 6) if _takes_gzip(request) else html
        return _response(body, "text/html", packed=body is not html)

    async def _state(self, request: web.Request) -> web.Response:
        packed = _takes_gzip(request)
        body = self._hub.packed if packed else self._hub.state
        return _response(body, "application/json", packed=packed)

    async def _node(self, request: web.Request) -> web.Response:
        name = request.query.get("name", "")[:NAME_CHARS_MAX]
        return _response(await self._worker.detail(name), "application/json")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send each message of the hub as a server-sent event, until the browser leaves.

        Returns: the finished response.
        """
        with self._hub.following() as messages:
            response = web.StreamResponse(
                headers={**HEADERS, hdrs.CONTENT_TYPE: "text/event-stream"}
            )
            await response.prepare(request)
            _prolong(request, 2 * PING_SECONDS)
            with suppress(ConnectionError):  # the browser has left
                while True:
                    sent = b""
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PING_SECONDS):
                            message = await messages.get()
                            if message is None:
                                break
                            sent = b"data: " + message
                    await response.write((sent or b":") + b"\n\n")
                    _prolong(request, 2 * PING_SECONDS)
            return response

    async def _what_if(self, request: web.Request) -> web.Response:
        if self._computing.locked():
            raise web.HTTPTooManyRequests(text="another what-if is being computed")
        async with self._computing:
            change = what_if.read(await http.read_body(request, INTAKE))
            return _response(await self._worker.what_if(change), "application/json")


def _prolong(request: web.Request, seconds: float) -> None:
    """Let the connection wait *seconds* from now, before the server closes it."""
    if isinstance(request.protocol, Connection):
        request.protocol.wait(seconds)


def _takes_gzip(request: web.Request) -> bool:
    return "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "")


def _response(body: bytes, content_type: str, *, packed: bool = False) -> web.Response:
    headers = {hdrs.CONTENT_ENCODING: "gzip"} if packed else {}
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)
