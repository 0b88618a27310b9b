"""Credentials that change while a program runs: tokens in files, and what plugins answer."""

import asyncio
from pathlib import Path
from typing import Any, Final

from core.edge.clock import Clock
from core.edge.kube import plugin
from core.model.errors import InvalidInputError, UnavailableError

BEARER: Final = "BearerToken"
"""How the package calls a token that goes with every call, if the configuration has one."""
TOKEN_CHARACTERS_MAX: Final = 100_000
EARLY_SECONDS: Final = 10
"""So long before its answer ends a plugin is asked again."""
ASKED_AFTER_SECONDS_MIN: Final = 10.0
"""Between a plugin's answer and the next question, whatever clocks and the API server say."""


def follow_token(file: Path, settings: Any) -> None:  # noqa: ANN401 the package's own
    """Let the package give every call the token that stands in *file* then.

    The package reads the one of a kubeconfig once, and that of a pod by the wall clock, which may
    jump. Both live for about an hour. While the file is missing, empty or not text, the token
    before goes on.
    """

    def refresh(settings: Any) -> None:  # noqa: ANN401 the package's own
        try:
            with file.open(encoding="utf-8") as opened:
                found = opened.read(TOKEN_CHARACTERS_MAX).strip()
        except (OSError, ValueError):
            return
        if found and found.isprintable():
            settings.api_key[BEARER] = f"Bearer {found}"

    settings.refresh_api_key_hook = refresh


class FromPlugin:
    """What a plugin has answered; it is asked again before that ends, and after a 401.

    As client-go does (plugin/pkg/client/auth/exec). That takes another certificate for new
    connections; a program of Ebb's ends, for whoever supervises it to start it with the new one.
    """

    def __init__(self, asked: plugin.Asked, clock: Clock) -> None:
        self._asked, self._clock = asked, clock
        self._asked_at = clock.monotonic_seconds()
        self._refused = False
        self._asking: asyncio.Task[None] | None = None

    def refused(self) -> None:
        """Take note of a 401."""
        self._refused = True

    async def renew(self, settings: Any) -> None:  # noqa: ANN401 the package's own
        """Give *settings* a new token if it is time, or once the plugin answers that is asked.

        Whoever stops waiting does not end the question: the others wait for its answer.
        Raises: UnavailableError when the plugin fails; until it is asked again the token before
        goes on. InvalidInputError when it answers another certificate.
        """
        if self._asking is None and self._due():
            self._asking = asyncio.create_task(self._ask(settings))
        if self._asking is not None:
            await asyncio.shield(self._asking)

    def _due(self) -> bool:
        ends, now = self._asked.ends_unix_seconds, self._clock.unix_seconds()
        ended = ends is not None and now >= ends - EARLY_SECONDS
        since = self._clock.monotonic_seconds() - self._asked_at
        return (ended or self._refused) and since >= ASKED_AFTER_SECONDS_MIN

    async def _ask(self, settings: Any) -> None:  # noqa: ANN401 the package's own
        before = self._asked
        try:
            asked = await plugin.ask(before.given, before.spec)
        except InvalidInputError as fault:
            raise UnavailableError(str(fault)) from fault
        finally:
            self._asking, self._asked_at = None, self._clock.monotonic_seconds()
        if asked.certificate != before.certificate:
            problem = "it answers another certificate now: the program has to be started again"
            raise InvalidInputError(f"plugin {before.given['command']}", problem)
        self._asked, self._refused = asked, False
        if token := asked.fields.get("token"):
            settings.api_key[BEARER] = f"Bearer {token}"
