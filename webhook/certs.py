"""Keep certificates: the CA in a Secret and in caBundles, the serving certificate in memory.

Every replica signs a serving certificate for itself. Every replica may create or rotate the CA;
the resourceVersion of the Secret decides which replica did. These rules replace a leader:

- A replica writes the Secret before the caBundles. It writes a caBundle on the version that it
  read before the Secret. So an old view of the Secret never overwrites a newer caBundle.
- A replica records the CA of its serving certificate in the Secret if the Secret has lost it.
- A replica replaces its serving certificate by one of another CA only after every caBundle has
  contained that CA for the whole soak time, without a gap. A replica without a serving certificate
  signs one at once.
- The content of the caBundles depends on the Secret alone, so replicas agree about it.

docs/decisions/0018-certificates-without-a-leader.md has the reasons.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from core.model.errors import ConflictError, EbbError, InvalidInputError, UnavailableError
from kube.stores.ca_store import Registered, Registration, Secret, SecretStore
from runtime.clock import Clock
from runtime.logs import fields
from serving import tls, tls_contexts
from serving.tls_contexts import ServingCertificate
from webhook.authority import KEYS, OLD_SECONDS, Trust, adopt, advance, begin

ROTATE_ANNOTATION: Final = "kube-ebb.io/rotate"
"""Annotation of the Secret: any value requests a new CA. Ebb removes it when `next` exists."""
REPLACED: Final = "CertificateAuthorityReplaced"
BUNDLE_MAX: Final = 8
"""Maximum number of certificates in a caBundle: those of Ebb first, then those of others."""
TRIES_MAX: Final = 5
ROUND_SECONDS: Final = 10.0
"""Interval at which a replica reads the Secret and the webhook configuration."""
SOON_SECONDS: Final = 1.0
"""Interval while the API server does not trust this replica, and after a repair."""
REPAIR_WATCH_SECONDS: Final = 600.0
"""How long a replica reads the caBundles every SOON_SECONDS after it has repaired one.

Most likely the writer that removed Ebb's CA, such as a GitOps tool, removes it again."""
GAP_SECONDS: Final = 60.0
"""Maximum time between two reads of the caBundles; after a longer gap the soak time restarts."""
UNUSED_SECONDS: Final = 2 * 3600
"""A replica removes `old` after it has observed `old` unchanged for this time and the soak time.

Meanwhile all other replicas sign new leaves, even if they cannot reach the API server for an
hour."""

log = logging.getLogger("ebb.certs")


class Certificates:
    """Keep the serving certificate of this replica valid and trusted by the API server."""

    def __init__(
        self,
        secrets: SecretStore,
        registration: Registration,
        serving: ServingCertificate,
        *,
        names: Sequence[str],
        clock: Clock,
        soak_seconds: int,
        record_event: Callable[[str, str], None] = lambda *_: None,
        count_repair: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without a serving certificate, which `round` signs.

        *serving*: gets each new certificate. *names*: DNS names and IP addresses to sign for.
        *soak_seconds*: time for which every caBundle must contain a new CA before it signs.
        *record_event* writes an Event about the Secret, with a reason and a note. *count_repair*
        counts a CA that this replica restored in a caBundle.
        """
        self._secrets, self._registration = secrets, registration
        self._serving, self._names, self._clock = serving, names, clock
        self._soak = soak_seconds
        self._record_event, self._count_repair = record_event, count_repair
        self._repaired_at = -math.inf
        self.signed_by, self.ca_valid_until = b"", 0
        """CA of the serving certificate, and when the CA expires in Unix seconds; empty and 0 if
        there is no serving certificate."""
        self._good_from = self._renew_at = 0
        self._untrusted: str | None = "the caBundle of the webhook has not been read yet"
        self._bundled_since: dict[bytes, float] = {}
        """Monotonic time since which every caBundle has contained a CA, by CA."""
        self._bundles_read_at = 0.0
        self._old: tuple[bytes, ...] = ()
        self._old_watched_seconds = 0.0

    def why_not_ready(self) -> str | None:
        """Return why the API server does not trust this replica; None if it does."""
        return self._serving.why_not_valid(self._clock.unix_seconds()) or self._untrusted

    async def run(self) -> None:
        """Check the certificates repeatedly until cancelled; log errors and retry."""
        while True:
            try:
                await self.round()
            except EbbError as fault:
                log.warning(
                    "cannot check the certificates; retrying", extra=fields(reason=str(fault))
                )
            await asyncio.sleep(self.pause_seconds())

    def pause_seconds(self) -> float:
        """Return the seconds until the next check of the certificates.

        The time is short while the API server does not trust this replica, and after a repair.
        """
        since_repair = self._clock.monotonic_seconds() - self._repaired_at
        calm = self.why_not_ready() is None and since_repair >= REPAIR_WATCH_SECONDS
        return ROUND_SECONDS if calm else SOON_SECONDS

    async def round(self) -> None:
        """Check the certificates once: read the Secret and the caBundles, write necessary changes.

        The serving certificate is signed anew if it is due.
        """
        # The time is read first. If another replica replaces the CA during this round, the Secret
        # keeps that CA in `old` for longer than a serving certificate from this time is valid.
        now = self._clock.unix_seconds()
        if self.signed_by and self._is_due(now):
            await self._renew(now)
        registered = await self._registration.read()
        # Before _agreed_trust, which records the CAs that the caBundles contain now.
        removed = registered is not None and self._lacks_known_ca(registered.bundles)
        trust = await self._agreed_trust(registered.bundles if registered else [])
        bundles = (
            await self._write_bundles(registered, trust, removed=removed) if registered else []
        )
        self._observe(trust, bundles)
        self._sign(trust, now)
        self._check_trust(bundles)

    async def _agreed_trust(self, bundles: Sequence[bytes]) -> Trust:
        """Update the CAs in the Secret, and return them.

        Missing CAs are added, and the next stage of the rotation begins if it is due. *bundles*:
        the caBundles of the webhook configuration. Raises: UnavailableError.
        """
        for _ in range(TRIES_MAX):
            secret, now = await self._secrets.read(), self._clock.unix_seconds()
            before, reason = _decoded(secret, now)
            trust = adopt(before or begin(now), self._served(before, bundles), now)
            if before:
                self._observe(before, bundles)
                trust = self._advanced(
                    trust, now, requested=ROTATE_ANNOTATION in secret.annotations
                )
            if trust.encode() == _ours(secret):
                return trust
            try:
                await self._write(secret, before, trust)
            except ConflictError:
                continue  # another replica was faster: read what it wrote
            if not before:
                log.warning("created a CA", extra=fields(reason=reason))
                if _ours(secret):  # not for the first CA after the installation
                    self._record_event(REPLACED, f"created a new CA: {reason}")
            return trust
        raise UnavailableError(f"the Secret with the CA changed during {TRIES_MAX} attempts")

    def _served(self, trust: Trust | None, bundles: Sequence[bytes]) -> list[bytes]:
        """Return the CAs that have signed serving certificates which replicas may use now.

        Only CAs that this replica knows are returned. *trust*: the CAs of the Secret; None if they
        cannot be used. *bundles*: the caBundles.
        """
        ours = [self.signed_by] if self.signed_by else []
        bundled = dict.fromkeys(ca for bundle in bundles for ca in tls.split(bundle))
        if trust is None or trust.ca.certificate not in bundled:
            # A rotation never leaves `ca` out of the caBundles. So someone else has replaced the
            # Secret, and other replicas may serve leaves of any CA in the caBundles.
            now = self._clock.unix_seconds()
            ours += [ca for ca in bundled if tls.is_ours(ca) and tls_contexts.is_root(ca, now)]
        return ours

    def _advanced(self, trust: Trust, now: int, *, requested: bool) -> Trust:
        watched = self._old_watched_seconds if trust.old == self._old else 0
        return advance(
            trust,
            now,
            requested=requested,
            next_trusted=trust.next is not None and self._is_soaked(trust.next.certificate),
            old_unused=watched >= UNUSED_SECONDS + self._soak,
        )

    async def _write(self, secret: Secret, before: Trust | None, trust: Trust) -> None:
        annotations = dict(secret.annotations)
        if before and trust.next and not before.next:
            annotations.pop(ROTATE_ANNOTATION, None)
        theirs = {name: value for name, value in secret.data.items() if name not in KEYS}
        await self._secrets.write(secret, theirs | trust.encode(), annotations)
        log.info(
            "wrote the Secret with the CA",
            extra=fields(next=bool(trust.next), old=len(trust.old)),
        )

    def _lacks_known_ca(self, bundles: Sequence[bytes]) -> bool:
        """Return whether a caBundle lacks a CA that all caBundles had at the last read."""
        certificates_by_bundle = _certificates(bundles)
        return any(
            ca not in bundle for bundle in certificates_by_bundle for ca in self._bundled_since
        )

    async def _write_bundles(
        self, registered: Registered, trust: Trust, *, removed: bool
    ) -> list[bytes]:
        """Write the caBundles if they differ from *trust*, the CAs of the Secret; return them.

        If another replica writes them at the same time, nothing is written, and the caBundles of
        *registered* are returned. *removed*: a caBundle has lost a CA since the last read, so the
        write is counted as a repair.
        """
        wanted = self._bundle(trust, registered.bundles)
        if all(bundle == wanted for bundle in registered.bundles):
            return registered.bundles
        try:
            await self._registration.write(registered, wanted)
        except ConflictError:
            return registered.bundles  # another replica was faster: the next round reads again
        log.info("wrote the caBundle", extra=fields(certificates=len(tls.split(wanted))))
        if removed:
            self._repaired_at = self._clock.monotonic_seconds()
            self._count_repair()
            log.warning("another writer removed Ebb's CA from the caBundle; restored it")
        return [wanted for _ in registered.bundles]

    def _bundle(self, trust: Trust, bundles: Sequence[bytes]) -> bytes:
        """Return the caBundle to write: Ebb's CAs in *trust*, then other CAs in *bundles*.

        CAs of other programs are kept until they expire, up to BUNDLE_MAX certificates in all.
        """
        now = self._clock.unix_seconds()
        bundled = dict.fromkeys(ca for bundle in bundles for ca in tls.split(bundle))
        others = [ca for ca in bundled if tls_contexts.lasts(ca, now) and not tls.is_ours(ca)]
        return b"".join([*dict.fromkeys((*trust.bundle(), *others))][:BUNDLE_MAX])

    def _observe(self, trust: Trust, bundles: Sequence[bytes]) -> None:
        """Record since when every caBundle contains each CA, and how long `old` has not changed.

        Without a webhook configuration there is no caBundle, so no CA is missing.
        """
        now = self._clock.monotonic_seconds()
        passed, self._bundles_read_at = now - self._bundles_read_at, now
        if passed > GAP_SECONDS:
            self._bundled_since = {}
        certificates_by_bundle = _certificates(bundles)
        self._bundled_since = {
            ca: self._bundled_since.get(ca, now)
            for ca in trust.bundle()
            if all(ca in certificates for certificates in certificates_by_bundle)
        }
        # A gap counts only in part: perhaps no replica could reach the API server, and none signed
        # a new serving certificate.
        self._old_watched_seconds += min(passed, GAP_SECONDS)
        if trust.old != self._old:
            self._old, self._old_watched_seconds = trust.old, 0.0

    def _is_soaked(self, ca: bytes) -> bool:
        """Return whether every caBundle has contained the CA for the whole soak time."""
        now, since = self._clock.monotonic_seconds(), self._bundled_since.get(ca)
        is_recent = now - self._bundles_read_at <= GAP_SECONDS
        return is_recent and since is not None and now - since >= self._soak

    def _check_trust(self, bundles: Sequence[bytes]) -> None:
        trusted = all(self.signed_by in tls.split(bundle) for bundle in bundles)
        self._untrusted = (
            None if trusted else "the caBundle of the webhook does not contain the CA yet"
        )

    async def _renew(self, now: int) -> None:
        """Sign a new serving certificate with the CA in the Secret, if the Secret has a valid CA.

        The webhook configuration is not read: if reading it fails, the certificate must still be
        renewed.
        """
        trust, _ = _decoded(await self._secrets.read(), now)
        if trust:
            self._sign(trust, now)

    def _is_due(self, now: int) -> bool:
        """Return whether the serving certificate must be replaced at *now* (Unix seconds).

        It must also be replaced if its validity begins later, because the clock has been set back.
        """
        return not self._good_from <= now < self._renew_at

    def _sign(self, trust: Trust, now: int) -> None:
        """Sign and load a serving certificate if there is none, or if it must be replaced.

        It must be replaced if it is due, if its CA is not trusted any more, or if every caBundle
        has contained a new `ca` of *trust* for the soak time.
        """
        ca = trust.ca.certificate
        valid = self._good_from <= now < self._serving.valid_until
        if ca == self.signed_by:
            due = self._is_due(now)
        elif valid and self.signed_by in trust.bundle():
            due = self._is_soaked(ca)
        else:  # not trusted any more
            due = True
        if not due:
            return
        self._serving.load(tls.make_leaf(trust.ca, self._names, now))
        self.signed_by, (_, self.ca_valid_until) = ca, tls.life(ca)
        self._good_from = now - tls.BACKDATE_SECONDS
        self._renew_at = now + OLD_SECONDS * 2 // 3
        log.info("serving a new certificate", extra=fields(valid_until=self._serving.valid_until))


def _certificates(bundles: Iterable[bytes]) -> list[set[bytes]]:
    return [set(tls.split(bundle)) for bundle in bundles]


def _ours(secret: Secret) -> Mapping[str, bytes]:
    return {name: value for name, value in secret.data.items() if name in KEYS}


def _decoded(secret: Secret, now: int) -> tuple[Trust | None, str]:
    """Return the CAs of the Secret and an empty text; or None, and why they cannot be used."""
    if not _ours(secret):
        return None, "the Secret contained no CA"
    try:
        return Trust.decode(secret.data, now), ""
    except InvalidInputError as fault:
        return None, f"the CA in the Secret cannot be used: {fault}"
