"""HTTP server of every program: health, metrics, error responses, graceful shutdown."""

import asyncio
import logging
import math
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

import orjson
from aiohttp import web

from core.model.errors import InvalidInputError
from runtime.clock import Clock
from runtime.logs import RateLimitedLog, fields
from runtime.metrics import CONTENT_TYPE, Metrics
from serving.connections import Connection, ConnectionLimiter, TooMuchError
from serving.fast_path import Answer, FastPath
from serving.intake import Intake
from serving.limits import LIMITS, PortLimits

REASON_CHARACTERS_MAX: Final = 300
"""Maximum length of the reason for a rejected request, in the response and the log."""
DRAIN_SECONDS: Final = 5.0
"""Time after SIGTERM in which Kubernetes removes the program from the endpoints of its Service."""
SHUTDOWN_SECONDS: Final = 10.0
"""Time after DRAIN_SECONDS in which running requests may finish."""
SCRAPE_SECONDS: Final = 0.25
"""Time for which the metrics text is cached.

The text takes a millisecond or more of the event loop, which also answers calls and reviews."""

log = logging.getLogger("ebb.http")

Ready = Callable[[], str | None]
"""Returns None if the program is ready, else the reason why it is not."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Health:
    """The readiness of a program: named checks, of which one fails during shutdown.

    Each check returns None, or the reason why the program is not ready.
    """

    def __init__(self) -> None:
        self.leaving = False
        self.checks: dict[str, Ready] = {
            "shutdown": lambda: "shutting down" if self.leaving else None
        }

    def report(self) -> tuple[bool, str]:
        """Return whether all checks succeed, and a text with a line for each check.

        The text has the form of `/readyz?verbose` of the API server.
        """
        problems = {name: check() for name, check in self.checks.items()}
        lines = [
            f"[+]{n} ok" if problem is None else f"[-]{n} {problem}"
            for n, problem in problems.items()
        ]
        ready = all(problem is None for problem in problems.values())
        return ready, "\n".join([*lines, "ready" if ready else "not ready", ""])


class _CachedMetrics:
    """The metrics text, created at most once per SCRAPE_SECONDS."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._made_at, self._text = -math.inf, b""

    async def answer(self, _: web.Request) -> web.Response:
        now = self._clock.monotonic_seconds()
        if now - self._made_at >= SCRAPE_SECONDS:
            self._made_at, self._text = now, self._metrics.text()
        return web.Response(body=self._text, headers={"Content-Type": CONTENT_TYPE})


def base_app(health: Health, clock: Clock, metrics: Metrics | None = None) -> web.Application:
    """Return an application with the routes /livez, /readyz and /healthz.

    It also has /metrics if *metrics* are given. The programs add their own routes. An
    InvalidInputError of a handler becomes status 400.
    """
    faults = _InvalidRequests(clock)
    app = web.Application(middlewares=[faults.answer])
    app[_INVALID_REQUESTS] = faults

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        good, report = health.report()
        text = report if not good or "verbose" in request.query else "ok"
        return web.Response(text=text, status=200 if good else 503)

    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/healthz", ready)
    if metrics is not None:
        app.router.add_get("/metrics", _CachedMetrics(metrics, clock).answer)
    return app


def answer_at_once(
    app: web.Application,
    path: str,
    intake: Intake,
    answer: Callable[[bytes, str], bytes | None],
    abandoned: Callable[[], None],
) -> None:
    """Let *answer* answer POST requests of *path* before aiohttp processes them.

    aiohttp still gets requests with unusual headers, and those that *intake* refuses; the
    application's route for *path* must have the same *intake*. *answer* gets the body and the
    address of the client, whose turn it is. It returns JSON of at most LARGE_BYTES, or None if the
    application's route must answer; an InvalidInputError becomes status 400. *abandoned* is called
    if a connection is lost before the whole body has arrived.
    """
    faults = app[_INVALID_REQUESTS]

    def answered(body: bytes, address: str) -> Answer | None:
        try:
            json = answer(body, address)
        except InvalidInputError as fault:
            return Answer(HTTPStatus.BAD_REQUEST, faults.rejection(path, fault))
        return None if json is None else Answer(HTTPStatus.OK, json)

    app[_FAST_PATH] = FastPath(path, intake, answered, abandoned)


async def read_body(request: web.Request, intake: Intake) -> bytes:
    """Receive and return the body of a request, which counts until the request is answered.

    Raises: InvalidInputError, TooMuchError, HTTPForbidden, or HTTPRequestEntityTooLarge. The
    client then gets status 400, 503, 403 or 413.
    """
    connection = request.protocol
    if not isinstance(connection, Connection):
        raise TypeError("read_body() needs a request that was received by serving.http.Server")
    refusal = intake.refusal(request.content_length or 0, request.transport)
    if refusal is not None:
        raise refusal
    return await connection.body(request, intake.body_bytes_max)


def json_response(body: bytes, status: int = 200) -> web.Response:
    """Return a response whose body is the complete JSON in *body*, with a Content-Length."""
    return web.Response(body=body, status=status, content_type="application/json")


class _InvalidRequests:
    """Turn errors about requests into responses, and log invalid requests at a limited rate."""

    def __init__(self, clock: Clock) -> None:
        self._warnings = RateLimitedLog(
            log, "rejected an invalid request", clock.monotonic_seconds
        )

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Call *handler*; answer InvalidInputError with status 400 and TooMuchError with 503."""
        try:
            return await handler(request)
        except InvalidInputError as fault:
            return json_response(self.rejection(request.path, fault), HTTPStatus.BAD_REQUEST)
        except TooMuchError as fault:
            raise web.HTTPServiceUnavailable(text=str(fault)) from fault

    def rejection(self, path: str, fault: InvalidInputError) -> bytes:
        """Log an invalid request of *path*, and return JSON with the reason for the response."""
        reason = str(fault)[:REASON_CHARACTERS_MAX]
        self._warnings.warn(path=path, reason=reason)
        return orjson.dumps({"error": reason})


_INVALID_REQUESTS: Final = web.AppKey("_INVALID_REQUESTS", _InvalidRequests)
_FAST_PATH: Final = web.AppKey("_FAST_PATH", FastPath)


class Server:
    """A server of an application on one TCP port, with the limits of `PortLimits`."""

    def __init__(
        self,
        app: web.Application,
        listen: str,
        tls: ssl.SSLContext | None = None,
        limits: PortLimits = LIMITS,
        *,
        flag: str = "--listen",
        failed: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        """Create a server that does not listen yet.

        *listen*: address as host:port. *tls*: None for plain HTTP. *flag*: name of the flag
        that has the address, for error messages. *failed* is called with the error of each failed
        TLS handshake.
        """
        self._listen, self._flag = listen, flag
        self._fast_path = app.get(_FAST_PATH)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            handler_cancellation=True,  # else handlers for closed peers accumulate
        )
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._tls, self._limits, self._failed = tls, limits, failed
        self._limiter: ConnectionLimiter | None = None
        self.port = 0
        """The bound port; known after start."""

    async def start(self) -> None:
        """Begin to listen. Raises: InvalidInputError if the address cannot be used."""
        await self._runner.setup()
        server = cast("web.Server", self._runner.server)
        self._limiter = ConnectionLimiter(
            server, self._tls, self._limits, self._failed, self._fast_path
        )
        try:
            self.port = await self._limiter.open(self._host, self._port)
        except (
            OSError,
            UnicodeError,
        ) as fault:  # UnicodeError: the host name is not valid in IDNA
            problem = f"{self._listen!r}: {_why_not(fault)}; allowed: a free host:port"
            raise InvalidInputError(self._flag, problem) from fault
        log.info("listening", extra=fields(host=self._host, port=self.port, tls=bool(self._tls)))

    async def stop(self) -> None:
        """Accept no more connections, finish running requests, and close all connections."""
        if self._limiter is not None:
            await self._limiter.close()
        await self._runner.cleanup()
        if self._limiter is not None:
            self._limiter.abort()


def _why_not(fault: Exception) -> str:
    # asyncio's text depends on the Python version, the operating system's message does not.
    if isinstance(fault, OSError) and fault.errno is not None:
        known = not isinstance(fault, socket.gaierror)
        message = os.strerror(fault.errno) if known else fault.strerror or str(fault)
        return message[:1].lower() + message[1:]
    return str(fault)


async def until_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


async def drain(health: Health, seconds: float = DRAIN_SECONDS) -> None:
    """Make readiness fail, then serve for *seconds* more, so that clients notice in time."""
    health.leaving = True
    log.info("shutting down", extra=fields(drain_seconds=seconds))
    await asyncio.sleep(seconds)
