"""Credentials that change while a program runs: tokens and certificates of files and plugins."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from core.model.errors import InvalidInputError, UnavailableError
from kube import plugin
from runtime.clock import Clock

BEARER: Final = "BearerToken"
"""Key under which the kubernetes package stores the token that it sends with every call."""
TOKEN_CHARACTERS_MAX: Final = 100_000
CERTIFICATE_BYTES_MAX: Final = 1024 * 1024
EARLY_SECONDS: Final = 10
"""Time before the expiration of credentials at which the plugin is run again."""
RUN_AFTER_SECONDS_MIN: Final = 10.0
"""Minimum time between two runs of a plugin, regardless of clocks and of answers with 401."""

CERTIFICATE_FIELDS: Final = ("client-certificate-data", "client-key-data")


class ClientCertificate(NamedTuple):
    """A client certificate and its key in PEM."""

    certificate: bytes
    key: bytes


Reconnect = Callable[[ClientCertificate], None]
"""Uses a client certificate for new connections. Raises: OSError, ValueError if it is invalid."""


def use_token_file(file: Path, settings: Any) -> None:  # noqa: ANN401 the package's own
    """Make every call send the current token in *file*.

    *settings*: Configuration of the kubernetes package. While the file is missing, empty or not
    text, the previous token is sent.
    """
    # The package reads the token file of a kubeconfig only once. It reads the token file of a pod
    # again when the wall clock says so, which may jump. Both tokens are valid for about an hour.

    def refresh(settings: Any) -> None:  # noqa: ANN401 the package's own
        try:
            with file.open(encoding="utf-8") as opened:
                token = opened.read(TOKEN_CHARACTERS_MAX).strip()
        except (OSError, ValueError):
            return
        if token and token.isprintable():
            settings.api_key[BEARER] = f"Bearer {token}"

    settings.refresh_api_key_hook = refresh


class RenewableCredentials(Protocol):
    """Credentials that a client renews before each call."""

    def refused(self) -> None:
        """Record that the API server rejected the credentials (status 401)."""

    async def renew(self, settings: Any, reconnect: Reconnect) -> None:  # noqa: ANN401 the package's own
        """Renew the credentials if necessary, and set a new token in *settings*.

        *settings*: Configuration of the kubernetes package. *reconnect*: called with a new client
        certificate. Raises: UnavailableError.
        """


class CertificateFiles:
    """A client certificate and its key in files of a kubeconfig; changed files are read again.

    Source: transport/cert_rotation.go of client-go.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._used: ClientCertificate | None = None

    def refused(self) -> None:
        """Do nothing: the files are read before each call anyway."""

    async def renew(self, settings: Any, reconnect: Reconnect) -> None:  # noqa: ANN401, ARG002 the package's own
        """Use the current certificate and key in the files for new connections.

        While the files are missing, or do not belong together, the previous certificate is used.
        """
        # Reading two small files costs less than a call, so no clock decides when to read them.
        with suppress(OSError, ValueError):  # an ssl.SSLError is an OSError
            pair = ClientCertificate(*map(_content, self._files))
            if pair != self._used:
                reconnect(pair)
                self._used = pair


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(CERTIFICATE_BYTES_MAX)


class PluginCredentials:
    """Credentials of an exec plugin; the plugin runs again before they expire, and after a 401.

    Source: plugin/pkg/client/auth/exec of client-go.
    """

    def __init__(self, run: plugin.PluginRun, clock: Clock) -> None:
        self._run, self._clock = run, clock
        self._run_at = clock.monotonic_seconds()
        self._rejected = False
        self._running: asyncio.Task[None] | None = None

    def refused(self) -> None:
        """Record that the API server rejected the credentials (status 401)."""
        self._rejected = True

    async def renew(self, settings: Any, reconnect: Reconnect) -> None:  # noqa: ANN401 the package's own
        """Run the plugin if necessary; set the token in *settings*.

        It is necessary if the credentials expire soon or were rejected. If the plugin is running
        already, wait for it. A new client certificate is used for new connections. *settings*:
        Configuration of the kubernetes package. Raises: UnavailableError if the plugin fails; the
        previous token then remains in use until the next run.
        """
        if self._running is None and self._due():
            self._running = asyncio.create_task(self._run_again(settings, reconnect))
        if self._running is not None:
            # A cancelled caller must not stop the plugin, because other callers wait for it too.
            await asyncio.shield(self._running)

    def _due(self) -> bool:
        ends, now = self._run.ends_unix_seconds, self._clock.unix_seconds()
        ended = ends is not None and now >= ends - EARLY_SECONDS
        since = self._clock.monotonic_seconds() - self._run_at
        return (ended or self._rejected) and since >= RUN_AFTER_SECONDS_MIN

    async def _run_again(self, settings: Any, reconnect: Reconnect) -> None:  # noqa: ANN401 the package's own
        before = self._run
        try:
            run = await plugin.run(before.given, before.spec)
        except InvalidInputError as fault:
            raise UnavailableError(str(fault)) from fault
        finally:
            self._running, self._run_at = None, self._clock.monotonic_seconds()
        if run.certificate is not None and run.certificate != before.certificate:
            _use_certificate(run, reconnect)
        self._run, self._rejected = run, False
        if token := run.fields.get("token"):
            settings.api_key[BEARER] = f"Bearer {token}"


def _use_certificate(run: plugin.PluginRun, reconnect: Reconnect) -> None:
    """Use the client certificate that a run of the plugin returned, for new connections.

    Raises: UnavailableError if it is invalid.
    """
    try:
        certificate, key = (base64.b64decode(run.fields[name]) for name in CERTIFICATE_FIELDS)
        reconnect(ClientCertificate(certificate, key))
    except (OSError, ValueError) as fault:  # an ssl.SSLError is an OSError
        problem = "returned a client certificate that cannot be used"
        raise UnavailableError(f"plugin {run.given['command']}: {problem}") from fault
