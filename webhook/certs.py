"""The webhook's own certificates: a CA in a Secret, a leaf in memory, the CA in the registration.

Every replica signs its own leaf. The CA is changed in stages that the Secret records, so that at
any moment every caBundle holds the CA of every leaf that is served:
(a) `next` is made and put into the bundle beside `ca`; (b) after a soak it becomes `ca` and signs,
the one before stays in the bundle as `old`; (c) `old` goes when its last leaf has ended.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from core.edge import tls
from core.edge.clock import Clock
from core.edge.kube.trust import Secret
from core.edge.logs import fields
from core.edge.tls import Pair, Serving
from core.errors import ConflictError, EbbError, InvalidInputError, UnavailableError

ROTATE_ANNOTATION: Final = "kube-ebb.io/rotate"
"""On the Secret: any value asks for a new CA now; it is taken away when that has begun."""
OLD_SECONDS: Final = tls.LEAF_DAYS * 24 * 3600
BUNDLE_MAX: Final = 8
"""Certificates of one caBundle; others' come after ours and the surplus is left out."""
TRIES_MAX: Final = 5
ROUND_SECONDS: Final = 10.0
"""How often the Secret and the registration are looked at."""
SOON_SECONDS: Final = 1.0
"""The same, as long as the API server would not trust this replica."""

log = logging.getLogger("ebb.certs")


class Secrets(Protocol):
    """Where the CA is kept."""

    async def read(self) -> Secret:
        """Return the Secret. Raises: UnavailableError."""

    async def write(
        self, read: Secret, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> Secret:
        """Replace what was read. Raises: ConflictError."""


class Bundles(Protocol):
    """Where the API server reads which CA to trust."""

    async def bundles(self) -> list[bytes] | None:
        """Return each webhook's caBundle; None when there is no registration."""

    async def write(self, bundles: list[bytes], wanted: bytes) -> None:
        """Give every webhook this caBundle, if they still are *bundles*. Raises: ConflictError."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What the Secret records; times are unix seconds."""

    ca: Pair
    next: Pair | None = None
    next_since: int = 0
    old: bytes = b""
    old_until: int = 0

    def bundle(self) -> list[bytes]:
        """Return the CAs that must be trusted now."""
        found = [self.ca.certificate, self.next.certificate if self.next else b"", self.old]
        return [certificate for certificate in found if certificate]

    def encode(self) -> dict[str, bytes]:
        """Write the Secret's data."""
        data = {"ca.crt": self.ca.certificate, "ca.key": self.ca.key}
        if self.next:
            data |= {"next.crt": self.next.certificate, "next.key": self.next.key}
            data["next.since"] = str(self.next_since).encode()
        if self.old:
            data |= {"old.crt": self.old, "old.until": str(self.old_until).encode()}
        return data

    @classmethod
    def decode(cls, data: Mapping[str, bytes]) -> "Trust | None":
        """Read the Secret's data; None when it is empty. Raises: InvalidInputError."""
        if not data:
            return None
        try:
            coming = Pair(data["next.crt"], data["next.key"]) if "next.crt" in data else None
            return cls(
                Pair(data["ca.crt"], data["ca.key"]),
                coming,
                int(data.get("next.since", b"0")),
                data.get("old.crt", b""),
                int(data.get("old.until", b"0")),
            )
        except (KeyError, ValueError) as fault:
            problem = f"{fault}; empty its data to have a new CA made"
            raise InvalidInputError("Secret with the CA", problem) from fault


def advance(trust: Trust, now: int, soak_seconds: int, *, asked: bool, trusted: bool) -> Trust:
    """Return the next stage if its time has come, else the same.

    *asked*: somebody wants a new CA. *trusted*: every caBundle holds all of `trust.bundle()`.
    """
    if trust.old and now >= trust.old_until:
        return replace(trust, old=b"", old_until=0)
    if trust.next is not None:
        if not trusted or now - trust.next_since < soak_seconds:
            return trust
        return Trust(trust.next, old=trust.ca.certificate, old_until=now + OLD_SECONDS)
    start, end = tls.life(trust.ca.certificate)
    if asked or (end - now) * 3 < end - start:
        return replace(trust, next=tls.make_ca(now), next_since=now)
    return trust


class Certificates:
    """Keeps the server's certificate valid and the API server's trust in it."""

    def __init__(
        self,
        secrets: Secrets,
        registration: Bundles,
        serving: Serving,
        names: Sequence[str],
        clock: Clock,
        *,
        soak_seconds: int,
    ) -> None:
        self._secrets, self._registration, self._serving = secrets, registration, serving
        self._names, self._clock, self._soak = names, clock, soak_seconds
        self._signed_by = b""
        self._renew_at = 0
        self._trusted: str | None = "its CA has not been looked for in the registration yet"

    def why_not_ready(self) -> str | None:
        """Return why the API server would not trust this replica, or None."""
        if self._clock.unix_seconds() >= self._serving.valid_until:
            return "no valid certificate"
        return self._trusted

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
        """Look once: the Secret, the leaf, and as the leader the stage and the caBundle."""
        trust = await self._load()
        bundles = await self._registration.bundles()
        if leading:
            trust = await self._advance(trust, bundles or ())
        if leading and bundles is not None:
            wanted = self._wanted(trust, bundles)
            if any(bundle != wanted for bundle in bundles):
                await self._registration.write(bundles, wanted)
                log.info("wrote the caBundle", extra=fields(certificates=len(tls.split(wanted))))
                bundles = [wanted for _ in bundles]
        await self._sign(trust)
        self._judge(bundles)

    def _judge(self, bundles: list[bytes] | None) -> None:
        """Note whether the registration, if there is one, trusts the CA of our leaf."""
        self._trusted = None
        for bundle in bundles or ():
            if self._signed_by not in tls.split(bundle):
                self._trusted = "its CA is not in the registration's caBundle yet"

    async def _load(self) -> Trust:
        for _ in range(TRIES_MAX):
            secret = await self._secrets.read()
            trust = Trust.decode(secret.data)
            if trust is not None:
                return trust
            made = Trust(tls.make_ca(self._clock.unix_seconds()))
            try:
                await self._secrets.write(secret, made.encode(), secret.annotations)
            except ConflictError:
                continue  # another replica was faster: its CA is the one
            log.info("made a CA")
            return made
        raise UnavailableError("the Secret with the CA changes all the time")

    async def _advance(self, trust: Trust, bundles: Sequence[bytes]) -> Trust:
        secret = await self._secrets.read()
        if Trust.decode(secret.data) != trust:
            raise ConflictError("the Secret with the CA has changed")
        asked = ROTATE_ANNOTATION in secret.annotations
        trusted = all(set(trust.bundle()) <= set(tls.split(bundle)) for bundle in bundles)
        now = self._clock.unix_seconds()
        after = advance(trust, now, self._soak, asked=asked, trusted=trusted)
        if after != trust:
            keep = dict(secret.annotations)
            if after.next is not None:
                keep.pop(ROTATE_ANNOTATION, None)
            await self._secrets.write(secret, after.encode(), keep)
            log.info("the CA's next stage", extra=fields(certificates=len(after.bundle())))
        return after

    def _wanted(self, trust: Trust, bundles: Sequence[bytes]) -> bytes:
        """Return our CAs, and after them whatever else is trusted and has not ended."""
        now, ours = self._clock.unix_seconds(), trust.bundle()
        others = []
        for certificate in (one for bundle in bundles for one in tls.split(bundle)):
            if tls.is_ours(certificate) or tls.life(certificate)[1] <= now:
                continue
            if certificate not in others:
                others.append(certificate)
        return b"".join((*ours, *others)[:BUNDLE_MAX])

    async def _sign(self, trust: Trust) -> None:
        now = self._clock.unix_seconds()
        if trust.ca.certificate == self._signed_by and now < self._renew_at:
            return
        leaf = tls.make_leaf(trust.ca, self._names, now)
        self._serving.load(leaf)
        self._signed_by = trust.ca.certificate
        self._renew_at = now + OLD_SECONDS * 2 // 3
        log.info("serving a new certificate", extra=fields(valid_until=self._serving.valid_until))
