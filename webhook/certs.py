"""The webhook's own certificates: a CA in a Secret, a leaf in memory, the CA in the registration.

Every replica signs its own leaf. What others may have written over ours, in the Secret or in the
registration, is checked before it is used, and the leader puts in its place what works. Where the
leader does not, as it serves files, a replica that is not trusted does, and adds its own.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from core.edge import serving as wire
from core.edge import tls
from core.edge.clock import Clock
from core.edge.kube.stores.trust import Registration, Secret, SecretStore
from core.edge.logs import fields
from core.edge.serving import Serving
from core.model.errors import ConflictError, EbbError, InvalidInputError, UnavailableError
from webhook.authority import KEYS, OLD_SECONDS, Trust, advance, begin

ROTATE_ANNOTATION: Final = "kube-ebb.io/rotate"
"""On the Secret: any value asks for a new CA now; it is taken away when that has begun."""
REPLACED: Final = "CertificateAuthorityReplaced"
BUNDLE_MAX: Final = 8
"""Certificates of one caBundle; others' come after ours and the surplus is left out."""
TRIES_MAX: Final = 5
ROUND_SECONDS: Final = 10.0
"""How often the Secret and the registration are looked at."""
SOON_SECONDS: Final = 1.0
"""The same, as long as the API server would not trust this replica."""
UNTRUSTED_SECONDS: Final = 30.0
"""A replica that the API server has not trusted for so long does not wait for the leader."""

log = logging.getLogger("ebb.certs")


class Stores(NamedTuple):
    """The two objects in the cluster that hold certificates."""

    secrets: SecretStore
    registration: Registration


Tell = Callable[[str, str], None]
"""Takes an Event's reason and a note for people."""


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
        tell: Tell = lambda *_: None,
    ) -> None:
        self._secrets, self._registration = stores
        self._serving, self._names, self._clock = serving, names, clock
        self._soak, self._tell = soak_seconds, tell
        self._signed_by = b""
        self._good_from = self._renew_at = 0
        self._trusted: str | None = "its CA has not been looked for in the registration yet"
        self._trusted_at = clock.monotonic_seconds()
        self._all_trusted_since: int | None = None

    def why_not_ready(self) -> str | None:
        """Return why the API server would not trust this replica, or None."""
        return self._serving.why_not_valid(self._clock.unix_seconds()) or self._trusted

    async def keep(self, leading: Callable[[], bool]) -> None:
        """Renew and repair until cancelled; a fault is logged and the next round tries again."""
        while True:
            try:
                await self.round(leading=leading())
            except EbbError as fault:
                log.warning("certificates", extra=fields(reason=str(fault)))
            ready = self.why_not_ready() is None
            await asyncio.sleep(ROUND_SECONDS if ready else SOON_SECONDS)

    async def round(self, *, leading: bool) -> None:
        """Look once: the Secret, the leaf, and as the leader the stage and the caBundle.

        Who has waited too long for the leader makes a CA where there is none of use, and adds to
        the caBundle.
        """
        if self._signed_by and self._is_due(self._clock.unix_seconds()):
            await self._renew()
        bundles = await self._registration.bundles()
        acting = leading or self._waits_too_long()
        secret, trust = await self._load(self._before(bundles or ()), acting=acting)
        self._note_all_trusted(trust, bundles or ())
        if leading:
            trust = await self._advance(secret, trust)
        if acting and bundles is not None:
            wanted = self._wanted(trust, bundles, adding=not leading)
            if any(bundle != wanted for bundle in bundles):
                await self._registration.write(bundles, wanted)
                log.info("wrote the caBundle", extra=fields(certificates=len(tls.split(wanted))))
                bundles = [wanted for _ in bundles]
        self._sign(trust)
        self._judge(bundles)

    def _note_all_trusted(self, trust: Trust, bundles: Sequence[bytes]) -> None:
        """Note since when every caBundle has held all our CAs, which who leads next must know."""
        if not all(set(trust.bundle()) <= set(tls.split(bundle)) for bundle in bundles):
            self._all_trusted_since = None
        elif self._all_trusted_since is None:
            self._all_trusted_since = self._clock.unix_seconds()

    def _judge(self, bundles: list[bytes] | None) -> None:
        """Note whether the registration, if there is one, trusts the CA of our leaf."""
        self._trusted = None
        for bundle in bundles or ():
            if self._signed_by not in tls.split(bundle):
                self._trusted = "its CA is not in the registration's caBundle yet"
        if self._trusted is None:
            self._trusted_at = self._clock.monotonic_seconds()

    def _waits_too_long(self) -> bool:
        waited_seconds = self._clock.monotonic_seconds() - self._trusted_at
        return self._trusted is not None and waited_seconds >= UNTRUSTED_SECONDS

    def _before(self, bundles: Sequence[bytes]) -> bytes:
        """Return the CA whose leaves may still be served, should a new one have to be made."""
        if self._signed_by:
            return self._signed_by
        found = (one for bundle in bundles for one in tls.split(bundle))
        now = self._clock.unix_seconds()
        return next((one for one in found if wire.lasts(one, now) and tls.is_ours(one)), b"")

    async def _load(self, before: bytes, *, acting: bool) -> tuple[Secret, Trust]:
        """Return the CA, and the Secret as it is now; make one where there is none of use.

        Whoever finds the Secret empty makes one, only who is *acting* puts one in garbage's place.
        The one *before* stays trusted. Raises: UnavailableError, InvalidInputError.
        """
        for _ in range(TRIES_MAX):
            secret, now = await self._secrets.read(), self._clock.unix_seconds()
            why, garbage = "there was none", not KEYS.isdisjoint(secret.data)
            if garbage:
                try:
                    return secret, Trust.decode(secret.data, now)
                except InvalidInputError as fault:
                    why = f"the one in the Secret cannot be used: {fault}"
                    if not acting:
                        raise UnavailableError(f"{why}; the leader makes a new one") from fault
            made = begin(now, before)
            try:
                written = await self._write(secret, made, secret.annotations)
            except ConflictError:
                continue  # another replica was faster: its CA is the one
            log.warning("made a CA", extra=fields(reason=why))
            if garbage:
                self._tell(REPLACED, why)
            return written, made
        raise UnavailableError("the Secret with the CA changes all the time")

    async def _write(self, secret: Secret, trust: Trust, annotations: Mapping[str, str]) -> Secret:
        theirs = {name: value for name, value in secret.data.items() if name not in KEYS}
        return await self._secrets.write(secret, theirs | trust.encode(), annotations)

    async def _advance(self, secret: Secret, trust: Trust) -> Trust:
        """Go to the next stage, and write what was put right when it was read."""
        asked = ROTATE_ANNOTATION in secret.annotations
        now, since = self._clock.unix_seconds(), self._all_trusted_since
        after = advance(trust, now, self._soak, asked=asked, trusted_since=since)
        ours = {name: value for name, value in secret.data.items() if name in KEYS}
        if after.encode() != ours:
            keep = dict(secret.annotations)
            if after.next is not None:
                keep.pop(ROTATE_ANNOTATION, None)
            await self._write(secret, after, keep)
            log.info("the CA's next stage", extra=fields(certificates=len(after.bundle())))
        return after

    def _wanted(self, trust: Trust, bundles: Sequence[bytes], *, adding: bool) -> bytes:
        """Return our CAs, and after them whatever else is trusted and has not ended.

        *adding*: then the rest too, which others may need and only the leader takes away.
        """
        now = self._clock.unix_seconds()
        found = dict.fromkeys(one for bundle in bundles for one in tls.split(bundle))
        others = [one for one in found if wire.lasts(one, now) and not tls.is_ours(one)]
        wanted = dict.fromkeys((*trust.bundle(), *others, *(found if adding else ())))
        return b"".join([*wanted][:BUNDLE_MAX])

    async def _renew(self) -> None:
        """Sign anew by the CA that has signed before: the registration has no part in it."""
        data = (await self._secrets.read()).data
        with suppress(InvalidInputError):  # which is the rest of the round's
            trust = Trust.decode(data, self._clock.unix_seconds())
            if trust.ca.certificate == self._signed_by:
                self._sign(trust)

    def _is_due(self, now: int) -> bool:
        """Say whether another leaf is to be signed, also because a clock that was ahead is set."""
        return not self._good_from <= now < self._renew_at

    def _sign(self, trust: Trust) -> None:
        now = self._clock.unix_seconds()
        if trust.ca.certificate == self._signed_by and not self._is_due(now):
            return
        leaf = tls.make_leaf(trust.ca, self._names, now)
        self._serving.load(leaf)
        self._signed_by = trust.ca.certificate
        self._good_from = now - tls.BACKDATE_SECONDS
        self._renew_at = now + OLD_SECONDS * 2 // 3
        log.info("serving a new certificate", extra=fields(valid_until=self._serving.valid_until))
