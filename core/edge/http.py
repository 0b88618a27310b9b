"""The base of every program's servers: health, metrics, faults to replies, orderly shutdown."""

import asyncio
import logging
import math
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

import orjson
from aiohttp import web

from core.edge.changes import FILES_SECONDS, Changes
from core.edge.clock import Clock
from core.edge.connections import Connection, ConnectionLimiter, TooMuchError
from core.edge.limits import LIMITS, Limits
from core.edge.logs import RateLimitedLog, fields
from core.edge.metrics import CONTENT_TYPE, Metrics
from core.edge.serving import Serving
from core.model.errors import InvalidInputError

REASON_CHARACTERS_MAX: Final = 300
"""Of why a request was refused, in the reply and the log; it may repeat what was sent."""
DRAIN_SECONDS: Final = 5.0
"""After SIGTERM: time for endpoints to notice that the program is not ready any more."""
SHUTDOWN_SECONDS: Final = 10.0
"""Then, for requests that are under way."""
SCRAPE_SECONDS: Final = 0.25
"""For so long the text of metrics is kept: it takes a millisecond or more of the loop that answers
calls and reviews."""

log = logging.getLogger("ebb.http")

Ready = Callable[[], str | None]
"""Returns None when ready, else why not."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Health:
    """Whether the program is ready, from named checks, and whether it is leaving."""

    def __init__(self) -> None:
        self.leaving = False
        self.checks: dict[str, Ready] = {
            "shutdown": lambda: "shutting down" if self.leaving else None
        }

    def report(self) -> tuple[bool, str]:
        """Return the verdict and a line a check, as Kubernetes' ?verbose has it."""
        found = {name: check() for name, check in self.checks.items()}
        lines = [f"[+]{n} ok" if why is None else f"[-]{n} {why}" for n, why in found.items()]
        ready = all(why is None for why in found.values())
        return ready, "\n".join([*lines, "ready" if ready else "not ready", ""])


class _Series:
    """The text of metrics, which is made at most once in SCRAPE_SECONDS, however many ask."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._made, self._text = -math.inf, b""

    async def answer(self, _: web.Request) -> web.Response:
        now = self._clock.monotonic_seconds()
        if now - self._made >= SCRAPE_SECONDS:
            self._made, self._text = now, self._metrics.text()
        return web.Response(body=self._text, headers={"Content-Type": CONTENT_TYPE})


def base_app(health: Health, clock: Clock, metrics: Metrics | None = None) -> web.Application:
    """Return an application with health, and *metrics* if any; the program adds its own routes."""
    app = web.Application(middlewares=[_Faults(clock).told])

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
        app.router.add_get("/metrics", _Series(metrics, clock).answer)
    return app


async def read_body(request: web.Request, most_bytes: int) -> bytes:
    """Return a request's body; what has none, or too much, is refused in `_Faults`."""
    line = request.protocol
    if not isinstance(line, Connection):
        raise TypeError("served by something else than Server")
    return await line.body(request, most_bytes)


def json_response(body: bytes, status: int = 200) -> web.Response:
    """Answer with a complete body, so that Content-Length is set and the connection is kept."""
    return web.Response(body=body, status=status, content_type="application/json")


class _Faults:
    """What a caller did wrong, told to it at once and in the log now and then."""

    def __init__(self, clock: Clock) -> None:
        self._seldom = RateLimitedLog(log, "refused a request", clock.monotonic_seconds)

    @web.middleware
    async def told(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn what a caller did wrong into 400 with the reason, and what is too much into 503."""
        try:
            return await handler(request)
        except InvalidInputError as fault:
            reason = str(fault)[:REASON_CHARACTERS_MAX]
            self._seldom.warn(path=request.path, reason=reason)
            return json_response(orjson.dumps({"error": reason}), status=400)
        except TooMuchError as fault:
            raise web.HTTPServiceUnavailable(text=str(fault)) from fault


class Server:
    """One listening port of one application."""

    def __init__(
        self,
        app: web.Application,
        listen: str,
        tls: ssl.SSLContext | None = None,
        limits: Limits = LIMITS,
        *,
        setting: str = "listen",
        failed: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        """Make it; *setting* is what faults call the address, *failed* hears of handshakes."""
        self._listen, self._setting = listen, setting
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            handler_cancellation=True,  # or what waits for a peer that has gone would pile up
        )
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._tls, self._limits, self._failed = tls, limits, failed
        self._door: ConnectionLimiter | None = None
        self.port = 0
        """The port that is really bound; known after start."""

    async def start(self) -> None:
        """Listen. Raises: InvalidInputError when that cannot be done at this address."""
        await self._runner.setup()
        server = cast("web.Server", self._runner.server)
        self._door = ConnectionLimiter(server, self._tls, self._limits, self._failed)
        try:
            self.port = await self._door.open(self._host, self._port)
        except (OSError, UnicodeError) as fault:  # a host's name can be none that IDNA knows
            problem = f"{self._listen!r}: {_why_not(fault)}; allowed: a free host:port"
            raise InvalidInputError(self._setting, problem) from fault
        log.info("listening", extra=fields(host=self._host, port=self.port, tls=bool(self._tls)))

    async def stop(self) -> None:
        """Finish what is under way and close."""
        if self._door is not None:
            await self._door.close()
        await self._runner.cleanup()
        if self._door is not None:
            self._door.abort()


def _why_not(fault: Exception) -> str:
    """Return the system's own words; asyncio puts others around them, of each Python its own."""
    if isinstance(fault, OSError) and fault.errno is not None:
        known = not isinstance(fault, socket.gaierror)
        told = os.strerror(fault.errno) if known else fault.strerror or str(fault)
        return told[:1].lower() + told[1:]
    return str(fault)


class PairFiles:
    """A certificate and its key in files, as they are served; and the CA of callers, if one is."""

    def __init__(self, serving: Serving, certificate: str, key: str, clock: Clock) -> None:
        """Load them. Raises: InvalidInputError."""
        self.serving, self._files, self._clock = serving, (certificate, key), clock
        self._changes = Changes(filter(None, (*self._files, serving.client_ca)))
        self._load()

    def _load(self) -> None:
        self.serving.load_files(*self._files, self._clock.unix_seconds())

    async def follow(self, every_seconds: float = FILES_SECONDS) -> None:
        """Load them anew whenever they have changed, until cancelled.

        A pair that cannot be used is logged and tried again, and the one before is served on.
        """
        await self._changes.follow(self._load_anew, every_seconds)

    async def _load_anew(self) -> bool:
        try:
            self._load()
        except InvalidInputError as fault:
            log.warning("certificate not changed", extra=fields(reason=str(fault)))
            return False
        until = self.serving.valid_until
        log.info("serving a new certificate", extra=fields(valid_until=until))
        return True


async def until_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


async def drain(health: Health, seconds: float = DRAIN_SECONDS) -> None:
    """Fail readiness, and go on serving for *seconds* while callers notice."""
    health.leaving = True
    log.info("leaving", extra=fields(drain_seconds=seconds))
    await asyncio.sleep(seconds)
