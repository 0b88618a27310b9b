"""The CA that the Secret records, and its stages; pure but for what makes keys.

The CA is changed in stages, so that at any moment every caBundle holds the CA of every leaf that
is served: (a) `next` is made and put into the bundle beside `ca`; (b) after a soak it becomes
`ca` and signs, the one before stays in the bundle as `old`; (c) `old` goes when its last leaf has
ended.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from core.edge import serving, tls
from core.edge.tls import Pair
from core.marks.mark import SECONDS_DIGITS_MAX
from core.model.errors import InvalidInputError

OLD_SECONDS: Final = tls.LEAF_DAYS * 24 * 3600
KEYS: Final = frozenset(
    {"ca.crt", "ca.key", "next.crt", "next.key", "next.since", "old.crt", "old.until"}
)
"""What is ours in the Secret; whatever else stands there stays."""


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
    def decode(cls, data: Mapping[str, bytes], now: int) -> "Trust":
        """Read the Secret's data. Raises: InvalidInputError when its CA cannot be used.

        What else cannot be used is left out or put right, so that it differs when it is written.
        """
        ca = _pair(data, "ca", now)
        found = cls(ca)
        since = _number(data.get("next.since"), now, default=now)
        with suppress(InvalidInputError):
            found = replace(found, next=_pair(data, "next", now), next_since=since)
        old = tls.split(data.get("old.crt", b""))[:1]
        if old and serving.lasts(old[0], now):
            latest = now + OLD_SECONDS
            until = _number(data.get("old.until"), latest, default=latest)
            found = replace(found, old=old[0], old_until=until)
        return found


def advance(
    trust: Trust, now: int, soak_seconds: int, *, asked: bool, trusted_since: int | None
) -> Trust:
    """Return the next stage if its time has come, else the same.

    *asked*: somebody wants a new CA. *trusted_since*: from when on, unix seconds, every caBundle
    has held all of `trust.bundle()`; None: one does not.
    """
    if trust.old and now >= trust.old_until:
        return replace(trust, old=b"", old_until=0)
    if trust.next is not None:
        if trusted_since is None or now - max(trusted_since, trust.next_since) < soak_seconds:
            return trust
        return Trust(trust.next, old=trust.ca.certificate, old_until=now + OLD_SECONDS)
    start, end = tls.life(trust.ca.certificate)
    if asked or (end - now) * 3 < end - start:
        return replace(trust, next=tls.make_ca(now), next_since=now)
    return trust


def begin(now: int, before: bytes) -> Trust:
    """Make a CA that signs at once; the one *before*, if any, is trusted as long as its leaves."""
    return Trust(tls.make_ca(now), old=before, old_until=now + OLD_SECONDS if before else 0)


def _pair(data: Mapping[str, bytes], name: str, now: int) -> Pair:
    certificates = tls.split(data.get(f"{name}.crt", b""))
    if not certificates:
        raise InvalidInputError(f"{name}.crt", "is no certificate")
    found = Pair(certificates[0], data.get(f"{name}.key", b""))
    serving.check_ca(found, now)
    return found


def _number(text: bytes | None, most: int, *, default: int) -> int:
    """Read a time; one that is none, or later than any that is written, is the default."""
    if text is None or not text.isdigit() or len(text) > SECONDS_DIGITS_MAX:
        return default
    return int(text) if int(text) <= most else default
