"""Serve the leader's report as JSON on 127.0.0.1; `ebb` reads it through a port-forward."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from controller import leader_report
from controller.leader_report import LeaderFacts, Report
from core.config.document import built_in
from core.config.schema import changed
from core.config.settings import Config
from runtime.clock import Clock
from runtime.version import ebb_version
from serving import http
from serving.limits import PortLimits

HOST: Final = "127.0.0.1"
CACHE_SECONDS: Final = 1.0
"""Time for which a report is cached: in a large cluster it takes milliseconds of the event loop,
which also renews the Lease."""
LIMITS: Final = PortLimits(connections=8, crowd=8, held_bytes=16 * 1024**2)
"""Limits of the port. Its connections are port-forwards of people who run `ebb`."""


class ReportServer:
    """Answer HTTP requests with the report of this replica; see controller.leader_report."""

    def __init__(
        self,
        clock: Clock,
        *,
        identity: str,
        leader: Callable[[], str],
        config: Callable[[], Config],
        facts: Callable[[], LeaderFacts | None],
    ) -> None:
        """Take the functions that provide the content of the report.

        *identity*: this replica. *leader* returns the identity of the leader, *config* the
        configuration in force. *facts* returns what only the leader knows, or None while this
        replica does not lead.
        """
        self._clock, self._identity, self._leader = clock, identity, leader
        self._config, self._facts = config, facts
        self._encoded_at, self._body = -math.inf, b""
        self._written: tuple[Config | None, dict[str, Any]] = (None, {})
        """A configuration, and its settings that differ from the defaults."""

    def app(self) -> web.Application:
        """Return the HTTP application, whose only resource is the report."""
        app = web.Application()
        app.router.add_get(leader_report.PATH, self._answer)
        return app

    async def _answer(self, _: web.Request) -> web.Response:
        settings = await self._settings()
        now = self._clock.monotonic_seconds()
        if now - self._encoded_at >= CACHE_SECONDS:
            self._encoded_at, self._body = now, self._report(settings)
        return http.json_response(self._body)

    async def _settings(self) -> dict[str, Any]:
        config = self._config()
        if self._written[0] is not config:
            # The schema is created on first use, which takes a fraction of a second.
            document = await asyncio.to_thread(lambda: changed(config, built_in(config.policy)))
            self._written = config, document
        return self._written[1]

    def _report(self, settings: dict[str, Any]) -> bytes:
        facts = self._facts()
        report = Report(
            version=ebb_version(),
            at_seconds=self._clock.unix_seconds(),
            identity=self._identity,
            leader=self._leader(),
            leading=facts is not None,
            configuration=settings,
            facts=facts,
        )
        return msgspec.json.encode(report)
