"""TLS contexts: a serving certificate that can be replaced, and checks of CAs."""

import logging
import ssl
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from core.model.errors import InvalidInputError
from runtime.clock import Clock
from runtime.file_changes import FILES_SECONDS, FileChanges
from runtime.logs import fields
from serving import tls
from serving.tls import Pair, reading

AHEAD_SECONDS_MAX: Final = 24 * 3600
"""Maximum clock skew between replicas; a CA that becomes valid later is rejected."""
FILE_BYTES_MAX: Final = 1024**2
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
"""Names of the files, as in a mounted Secret of the type kubernetes.io/tls."""
CHECKED_MAX: Final = 16
"""Maximum number of CAs whose successful check is cached: those of two full caBundles."""
TURNS_MAX: Final = 10
"""Maximum number of steps of a handshake in memory, which takes three."""
_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
"""X509_V_FLAG_NO_CHECK_TIME: skip the check of the time. The ssl module has no name for it."""

log = logging.getLogger("ebb.http")


class ServingCertificate:
    """The serving certificate of a server; it can be replaced while the server listens.

    New handshakes use the new certificate; open connections continue.
    """

    # Each certificate has a context of its own, which a handshake receives when it begins. So an
    # unusable pair, or a key of another type, cannot affect the certificate in use.

    def __init__(self, client_ca: str | None = None) -> None:
        """Create the TLS context of the server, without a certificate.

        *client_ca*: PEM file of the CAs that sign client certificates, read again with each pair;
        a certificate that a client presents must be signed by one of them. None: clients are not
        asked for a certificate. Raises: InvalidInputError.
        """
        self.client_ca = client_ca
        self._current: ssl.SSLContext | None = None
        self.context = self._new_context()
        self.context.sni_callback = self._choose_context
        self.valid_until = 0
        """End of the certificate's validity in Unix seconds; 0 if none has been loaded."""

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_ca is not None:
            certificates = b"".join(tls.split(_content(self.client_ca))).decode()
            if not certificates:
                raise InvalidInputError(self.client_ca, "not PEM certificates")
            with reading(self.client_ca):
                context.load_verify_locations(cadata=certificates)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _choose_context(
        self, handshake: ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        if self._current is not None:
            handshake.context = self._current

    def why_not_valid(self, unix_seconds: int) -> str | None:
        """Return why clients would reject the certificate at *unix_seconds*, or None."""
        return None if unix_seconds < self.valid_until else "no valid certificate"

    def load(self, pair: Pair) -> None:
        """Use the certificate and key of *pair* for new handshakes.

        Raises: InvalidInputError; then the previous certificate remains in use.
        """
        self._load(pair, self._new_context())

    def _load(self, pair: Pair, context: ssl.SSLContext) -> None:
        valid_until = tls.life(pair.certificate)[1]
        with reading("certificate and key"), tempfile.NamedTemporaryFile() as file:
            # The ssl module needs a file. Without a password it would prompt for one.
            file.write(pair.certificate + b"\n" + pair.key)
            file.flush()
            context.load_cert_chain(file.name, password="")
        self._current, self.valid_until = context, valid_until

    def load_files(self, certificate: str, key: str, unix_seconds: int) -> None:
        """Use the certificate and key of PEM files for new handshakes.

        A pair that is not valid at *unix_seconds* is rejected while the previous pair is valid.
        Raises: InvalidInputError that names the files.
        """
        pair, context = Pair(_content(certificate), _content(key)), self._new_context()
        try:
            since, until = tls.life(pair.certificate)
            usable = since <= unix_seconds < until or unix_seconds >= self.valid_until
            if usable:
                self._load(pair, context)
        except InvalidInputError as fault:
            raise InvalidInputError(f"{certificate}, {key}", f"not a PEM pair: {fault}") from fault
        if not usable:
            raise InvalidInputError(certificate, "is not valid now")


class ServingCertificateFiles:
    """A serving certificate and key in PEM files, and the optional CA of client certificates."""

    def __init__(self, serving: ServingCertificate, directory: str, clock: Clock) -> None:
        """Load the certificate and the key in *directory* into *serving*.

        Raises: InvalidInputError.
        """
        self.serving, self._clock = serving, clock
        self._files = f"{directory}/{CERTIFICATE_FILE}", f"{directory}/{KEY_FILE}"
        self._changes = FileChanges(filter(None, (*self._files, serving.client_ca)))
        self._load()

    def _load(self) -> None:
        self.serving.load_files(*self._files, self._clock.unix_seconds())

    async def run(self, every_seconds: float = FILES_SECONDS) -> None:
        """Reload the files when they change, until cancelled.

        An invalid pair is logged and loaded again later; the previous pair stays in use.
        """
        await self._changes.run(self._reload, every_seconds)

    async def _reload(self) -> bool:
        try:
            self._load()
        except InvalidInputError as fault:
            log.warning(
                "cannot load the changed certificate; keeping the previous one",
                extra=fields(reason=str(fault)),
            )
            return False
        until = self.serving.valid_until
        log.info("serving a new certificate", extra=fields(valid_until=until))
        return True


def server_context(pair: Pair) -> ssl.SSLContext:
    """Return the TLS context of a server whose certificate does not change."""
    server = ServingCertificate()
    server.load(pair)
    return server.context


def client_context(ca: bytes) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts only this CA. Raises: InvalidInputError."""
    with reading("CA"):
        return ssl.create_default_context(cadata=ca.decode("ascii"))


def check_ca(ca: Pair, unix_seconds: int) -> None:
    """Check that clients that trust the CA would accept certificates that it signs now.

    *unix_seconds*: the present time. Raises: InvalidInputError if the CA is damaged, is not a CA,
    is not self-signed, has another key, or is not valid now.
    """
    since, until = tls.life(ca.certificate)
    if not since - AHEAD_SECONDS_MAX <= unix_seconds < until:
        raise InvalidInputError("CA", "is not valid now")
    _check_at_any_time(ca)


@lru_cache(CHECKED_MAX)
def _check_at_any_time(ca: Pair) -> None:
    """Check a CA except for its validity period. Raises: InvalidInputError."""
    # A check takes 7 ms of the event loop, and each round checks every CA, so successes are
    # cached.
    tls.signs_itself(ca.certificate)
    since, _ = tls.life(ca.certificate)
    _shake_hands(tls.make_leaf(ca, ["localhost"], since), "localhost")


def lasts(certificate: bytes, unix_seconds: int) -> bool:
    """Return whether TLS can read the certificate, and it has not expired at *unix_seconds*."""
    try:
        _check_readable(certificate)
        return unix_seconds < tls.life(certificate)[1]
    except InvalidInputError:
        return False


def is_root(certificate: bytes, unix_seconds: int) -> bool:
    """Return whether the certificate is self-signed, readable by TLS, and not expired.

    *unix_seconds*: the present time.
    """
    with suppress(InvalidInputError):
        tls.signs_itself(certificate)
        return lasts(certificate, unix_seconds)
    return False


@lru_cache(CHECKED_MAX)
def _check_readable(certificate: bytes) -> None:
    client_context(certificate)


def _shake_hands(leaf: Pair, name: str) -> None:
    """Check by a TLS handshake in memory that a client that trusts only the leaf's CA accepts it.

    *name*: server name that the client expects. Raises: InvalidInputError.
    """
    trust = client_context(leaf.ca)
    trust.verify_flags |= _NO_CHECK_TIME
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    with reading("CA"):
        waiting = [
            trust.wrap_bio(to_client, to_server, server_hostname=name),
            server_context(leaf).wrap_bio(to_server, to_client, server_side=True),
        ]
        for _ in range(TURNS_MAX):
            for end in tuple(waiting):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                waiting.remove(end)
    if waiting:
        raise InvalidInputError("CA", "the TLS handshake does not complete")


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except FileNotFoundError as fault:
        raise InvalidInputError(path, "no such file") from fault
    except OSError as fault:
        raise InvalidInputError(path, str(fault)) from fault
