"""The webhook's own certificates: a CA in a Secret, a leaf in memory, the CA in the caBundles.

Every replica signs a leaf (a serving certificate) for itself, and every replica may make or
rotate the CA: the Secret's resourceVersion decides who did. These rules hold without a leader:

- The Secret is changed before the caBundles, and a caBundle is written on the version that was
  read before the Secret. So an old view of the Secret never overwrites a newer caBundle.
- A replica whose leaf is signed by a CA that the Secret has lost records that CA in the Secret.
- A replica replaces its leaf by one of another CA only after it has seen that CA in every
  caBundle for the whole soak, without a gap. A replica without a leaf signs at once.
- What belongs in the caBundles follows from the Secret alone, so no two replicas write different
  caBundles for long.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from core.edge import serving as wire
from core.edge import tls
from core.edge.clock import Clock
from core.edge.logs import fields
from core.edge.serving import Serving
from core.model.errors import ConflictError, EbbError, InvalidInputError, UnavailableError
from webhook.authority import KEYS, OLD_SECONDS, Trust, adopt, advance, begin
from webhook.ca_store import Registered, Registration, Secret, SecretStore

ROTATE_ANNOTATION: Final = "kube-ebb.io/rotate"
"""On the Secret: any value asks for a new CA. It is removed when `next` has been made."""
REPLACED: Final = "CertificateAuthorityReplaced"
BUNDLE_MAX: Final = 8
"""Certificates in one caBundle: Ebb's first, then those of others as far as there is room."""
TRIES_MAX: Final = 5
ROUND_SECONDS: Final = 10.0
"""How often the Secret and the registration are read."""
SOON_SECONDS: Final = 1.0
"""The same, as long as the API server would not trust this replica."""
REPAIRED_SECONDS: Final = 600.0
"""After a repair, the caBundles are read every SOON_SECONDS for this long: the writer that removed
Ebb's CA, such as a GitOps tool, will most likely do so again."""
GAP_SECONDS: Final = 60.0
"""After a longer time without a look at the caBundles a soak begins again."""
UNUSED_SECONDS: Final = 2 * 3600
"""`old` is dropped by a replica that has watched it unchanged for this and the soak. Meanwhile
other replicas sign anew, also one that cannot reach the API server for an hour."""

log = logging.getLogger("ebb.certs")


class Stores(NamedTuple):
    """The two objects in the cluster that hold certificates."""

    secrets: SecretStore
    registration: Registration


class Reports(NamedTuple):
    """What the certificates report."""

    tell: Callable[[str, str], None] = lambda *_: None
    """Takes an Event's reason and a note for people."""
    repaired: Callable[[], None] = lambda: None
    """Called when this replica has restored a CA that was removed from a caBundle."""


NO_REPORTS: Final = Reports()


class Certificates:
    """Keeps the server's certificate valid and the API server's trust in it."""

    def __init__(
        self,
        stores: Stores,
        serving: Serving,
        names: Sequence[str],
        clock: Clock,
        *,
        soak_seconds: int,
        reports: Reports = NO_REPORTS,
    ) -> None:
        self._secrets, self._registration = stores
        self._serving, self._names, self._clock = serving, names, clock
        self._soak, self._reports = soak_seconds, reports
        self._repaired_at = -math.inf
        self._signed_by = b""
        self._good_from = self._renew_at = 0
        self._untrusted: str | None = "its CA has not been looked for in the registration yet"
        self._bundled_since: dict[bytes, float] = {}
        """By CA of the Secret the monotonic time since when every caBundle has had it."""
        self._bundles_read_at = 0.0
        self._old: tuple[bytes, ...] = ()
        self._old_watched_seconds = 0.0

    @property
    def signed_by(self) -> bytes:
        """Return the CA of the leaf that is served; empty: there is none."""
        return self._signed_by

    def why_not_ready(self) -> str | None:
        """Return why the API server would not trust this replica, or None."""
        return self._serving.why_not_valid(self._clock.unix_seconds()) or self._untrusted

    async def keep(self) -> None:
        """Renew and repair until cancelled; a fault is logged and the next round tries again."""
        while True:
            try:
                await self.round()
            except EbbError as fault:
                log.warning("certificates", extra=fields(reason=str(fault)))
            await asyncio.sleep(self.pause_seconds())

    def pause_seconds(self) -> float:
        """Return the time until the next round."""
        repaired = self._clock.monotonic_seconds() - self._repaired_at < REPAIRED_SECONDS
        ready = self.why_not_ready() is None
        return ROUND_SECONDS if ready and not repaired else SOON_SECONDS

    async def round(self) -> None:
        """Look once at the Secret, the caBundles and the leaf, and write what must change."""
        # Before anything is read: if another replica replaces the CA while this round goes on,
        # the Secret keeps that CA in `old` for longer than a leaf of this time is valid.
        now = self._clock.unix_seconds()
        if self._signed_by and self._is_due(now):
            await self._renew(now)
        registered = await self._registration.read()
        removed = registered is not None and self._lacks_our_ca(registered.bundles)
        trust = await self._agree(registered.bundles if registered else [])
        bundles = await self._cover(registered, trust, removed=removed) if registered else []
        self._note(trust, bundles)
        self._sign(trust, now)
        self._judge(bundles)

    async def _agree(self, bundles: Sequence[bytes]) -> Trust:
        """Return the CA, after what the Secret lacks has been written to it.

        Raises: UnavailableError.
        """
        for _ in range(TRIES_MAX):
            secret, now = await self._secrets.read(), self._clock.unix_seconds()
            before, why = _decoded(secret, now)
            trust = adopt(before or begin(now), self._served(before, bundles), now)
            if before:
                self._note(before, bundles)
                trust = self._advanced(trust, now, asked=ROTATE_ANNOTATION in secret.annotations)
            if trust.encode() == _ours(secret):
                return trust
            try:
                await self._write(secret, before, trust)
            except ConflictError:
                continue  # another replica was faster: read what it wrote
            if not before:
                log.warning("made a CA", extra=fields(reason=why))
                if _ours(secret):
                    self._reports.tell(REPLACED, why)
            return trust
        raise UnavailableError("the Secret with the CA changes all the time")

    def _served(self, trust: Trust | None, bundles: Sequence[bytes]) -> list[bytes]:
        """Return the CAs whose leaves may be in use, as far as this replica can know."""
        ours = [self._signed_by] if self._signed_by else []
        found = dict.fromkeys(one for bundle in bundles for one in tls.split(bundle))
        if trust is None or trust.ca.certificate not in found:
            # Somebody has replaced the Secret: in the course of a rotation, `ca` is in the
            # caBundles. Then other replicas may serve leaves of any CA there.
            now = self._clock.unix_seconds()
            ours += [one for one in found if tls.is_ours(one) and wire.is_root(one, now)]
        return ours

    def _advanced(self, trust: Trust, now: int, *, asked: bool) -> Trust:
        watched = self._old_watched_seconds if trust.old == self._old else 0
        return advance(
            trust,
            now,
            asked=asked,
            next_trusted=trust.next is not None and self._is_soaked(trust.next.certificate),
            old_unused=watched >= UNUSED_SECONDS + self._soak,
        )

    async def _write(self, secret: Secret, before: Trust | None, trust: Trust) -> None:
        annotations = dict(secret.annotations)
        if before and trust.next and not before.next:
            annotations.pop(ROTATE_ANNOTATION, None)
        theirs = {name: value for name, value in secret.data.items() if name not in KEYS}
        await self._secrets.write(secret, theirs | trust.encode(), annotations)
        log.info("wrote the CA", extra=fields(next=bool(trust.next), old=len(trust.old)))

    def _lacks_our_ca(self, bundles: Sequence[bytes]) -> bool:
        """Return whether a caBundle has lost a CA that all of them had at the last look."""
        found = [set(tls.split(bundle)) for bundle in bundles]
        return any(ca not in bundle for bundle in found for ca in self._bundled_since)

    async def _cover(
        self, registered: Registered, trust: Trust, *, removed: bool
    ) -> list[bytes]:  # fmt: skip
        """Write the caBundles if they differ from what they must be; return them as they are.

        *removed*: another writer has removed one of our CAs.
        """
        wanted = self._wanted(trust, registered.bundles)
        if all(bundle == wanted for bundle in registered.bundles):
            return registered.bundles
        try:
            await self._registration.write(registered, wanted)
        except ConflictError:
            return registered.bundles  # another replica was faster: the next round reads again
        log.info("wrote the caBundle", extra=fields(certificates=len(tls.split(wanted))))
        if removed:
            self._repaired_at = self._clock.monotonic_seconds()
            self._reports.repaired()
            log.warning("another writer had removed Ebb's CA from the caBundle")
        return [wanted for _ in registered.bundles]

    def _wanted(self, trust: Trust, bundles: Sequence[bytes]) -> bytes:
        """Return our CAs, and after them those of others that have not expired."""
        now = self._clock.unix_seconds()
        found = dict.fromkeys(one for bundle in bundles for one in tls.split(bundle))
        others = [one for one in found if wire.lasts(one, now) and not tls.is_ours(one)]
        return b"".join([*dict.fromkeys((*trust.bundle(), *others))][:BUNDLE_MAX])

    def _note(self, trust: Trust, bundles: Sequence[bytes]) -> None:
        """Note since when every caBundle has had each CA, and for how long `old` is as it is.

        Without a registration nobody trusts by caBundle, so that no CA is missing.
        """
        now = self._clock.monotonic_seconds()
        passed, self._bundles_read_at = now - self._bundles_read_at, now
        if passed > GAP_SECONDS:
            self._bundled_since = {}
        found = [set(tls.split(bundle)) for bundle in bundles]
        self._bundled_since = {
            ca: self._bundled_since.get(ca, now)
            for ca in trust.bundle()
            if all(ca in certificates for certificates in found)
        }
        # A gap does not count: perhaps no replica could reach the API server, and none signed.
        self._old_watched_seconds += min(passed, GAP_SECONDS)
        if trust.old != self._old:
            self._old, self._old_watched_seconds = trust.old, 0.0

    def _is_soaked(self, ca: bytes) -> bool:
        """Say whether every caBundle has had the CA for the whole soak."""
        now, since = self._clock.monotonic_seconds(), self._bundled_since.get(ca)
        seen = now - self._bundles_read_at <= GAP_SECONDS
        return seen and since is not None and now - since >= self._soak

    def _judge(self, bundles: Sequence[bytes]) -> None:
        """Note whether the registration, if there is one, trusts the CA of our leaf."""
        trusted = all(self._signed_by in tls.split(bundle) for bundle in bundles)
        self._untrusted = None if trusted else "its CA is not in the registration's caBundle yet"

    async def _renew(self, now: int) -> None:
        """Sign a new leaf without a look at the registration, which may not be readable."""
        trust, _ = _decoded(await self._secrets.read(), now)
        if trust:
            self._sign(trust, now)

    def _is_due(self, now: int) -> bool:
        """Say whether another leaf is to be signed, also because a clock that was ahead is set."""
        return not self._good_from <= now < self._renew_at

    def _sign(self, trust: Trust, now: int) -> None:
        """Sign a leaf if there is none, or it is due, or the CA is another one and has soaked."""
        ca = trust.ca.certificate
        valid = self._good_from <= now < self._serving.valid_until
        if ca == self._signed_by:
            due = self._is_due(now)
        elif valid and self._signed_by in trust.bundle():
            due = self._is_soaked(ca)
        else:  # nobody trusts the leaf any more
            due = True
        if not due:
            return
        leaf = tls.make_leaf(trust.ca, self._names, now)
        self._serving.load(leaf)
        self._signed_by = ca
        self._good_from = now - tls.BACKDATE_SECONDS
        self._renew_at = now + OLD_SECONDS * 2 // 3
        log.info("serving a new certificate", extra=fields(valid_until=self._serving.valid_until))


def _ours(secret: Secret) -> Mapping[str, bytes]:
    return {name: value for name, value in secret.data.items() if name in KEYS}


def _decoded(secret: Secret, now: int) -> tuple[Trust | None, str]:
    """Return what the Secret records; None if its CA cannot be used, and why."""
    if not _ours(secret):
        return None, "there was none"
    try:
        return Trust.decode(secret.data, now), ""
    except InvalidInputError as fault:
        return None, f"the one in the Secret cannot be used: {fault}"
