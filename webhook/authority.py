"""The CA that the Secret records, and the stages of its rotation. Pure, except that it makes keys.

A rotation has stages, so that every caBundle always has the CA of every serving certificate:
(a) `next` is made, and every caBundle gets it beside `ca`;
(b) after a soak `next` becomes `ca`, and the CA before it becomes one of `old`;
(c) `old` leaves the caBundles when the last serving certificate of these CAs has expired.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from core.edge import serving, tls
from core.edge.tls import Pair
from core.marks.mark import SECONDS_DIGITS_MAX
from core.model.errors import InvalidInputError

OLD_SECONDS: Final = tls.LEAF_DAYS * 24 * 3600
"""How long `old` is kept: the life of a serving certificate."""
OLD_MAX: Final = 6
"""CAs in `old`. With `ca` and `next` they fit into one caBundle (webhook.certs.BUNDLE_MAX)."""
KEYS: Final = frozenset({"ca.crt", "ca.key", "next.crt", "next.key", "old.crt", "old.until"})
"""The keys of the Secret that belong to Ebb; other keys are kept as they are."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The content of the Secret."""

    ca: Pair
    """Signs the certificate of a replica that has none yet."""
    next: Pair | None = None
    old: tuple[bytes, ...] = ()
    """CAs without their keys, whose serving certificates may still be in use."""
    old_until: int = 0
    """When `old` may be dropped, unix seconds."""

    def bundle(self) -> list[bytes]:
        """Return the CAs that every caBundle must have."""
        found = [self.ca.certificate, *([self.next.certificate] if self.next else []), *self.old]
        return [*dict.fromkeys(found)]

    def encode(self) -> dict[str, bytes]:
        """Return the data of the Secret."""
        data = {"ca.crt": self.ca.certificate, "ca.key": self.ca.key}
        if self.next:
            data |= {"next.crt": self.next.certificate, "next.key": self.next.key}
        if self.old:
            data |= {"old.crt": b"".join(self.old), "old.until": str(self.old_until).encode()}
        return data

    @classmethod
    def decode(cls, data: Mapping[str, bytes], now: int) -> "Trust":
        """Read the data of the Secret. Raises: InvalidInputError if `ca` cannot be used.

        Other parts that cannot be used are left out or corrected; the result then encodes to
        other data.
        """
        found = cls(_pair(data, "ca", now))
        with suppress(InvalidInputError):
            found = replace(found, next=_pair(data, "next", now, may_begin_later=True))
        old = [one for one in tls.split(data.get("old.crt", b"")) if serving.is_root(one, now)]
        if old:
            latest = now + OLD_SECONDS
            until = _number(data.get("old.until"), latest, default=latest)
            found = replace(found, old=tuple(old[:OLD_MAX]), old_until=until)
        return found


def begin(now: int) -> Trust:
    """Make a CA where the Secret has none that can be used."""
    return Trust(tls.make_ca(now))


def adopt(trust: Trust, served: Iterable[bytes], now: int) -> Trust:
    """Add to `old` the CAs of certificates that may be served, if they are missing.

    Those that find no room are left out.
    """
    known = trust.bundle()
    missing = [one for one in dict.fromkeys(served) if one not in known]
    added = missing[: OLD_MAX - len(trust.old)]
    if not added:
        return trust
    return replace(trust, old=(*trust.old, *added), old_until=now + OLD_SECONDS)


def advance(trust: Trust, now: int, *, asked: bool, next_trusted: bool, old_unused: bool) -> Trust:
    """Return the next stage if it is due, else *trust* itself.

    *asked*: somebody wants a new CA. *next_trusted*: every caBundle has had `next` for the whole
    soak. *old_unused*: this replica has seen the same `old` for so long that every replica that
    reaches the API server serves a certificate of `ca` by now.
    """
    # Both conditions: the clock that `old_until` was written by may be wrong, and so may ours.
    if trust.old and now >= trust.old_until and old_unused:
        return replace(trust, old=(), old_until=0)
    # Both stages below need room in `old` for the CA that is replaced: it may be in use for days.
    if trust.next is not None:
        begins, ends = tls.life(trust.next.certificate)
        if not next_trusted or not begins <= now < ends or len(trust.old) >= OLD_MAX:
            return trust
        old = tuple(dict.fromkeys((trust.ca.certificate, *trust.old)))
        return Trust(trust.next, old=old, old_until=now + OLD_SECONDS)
    begins, ends = tls.life(trust.ca.certificate)
    due = asked or (ends - now) * 3 < ends - begins
    if due and len(trust.old) < OLD_MAX:
        return replace(trust, next=tls.make_ca(now))
    return trust


def _pair(
    data: Mapping[str, bytes], name: str, now: int, *, may_begin_later: bool = False
) -> Pair:
    certificates = tls.split(data.get(f"{name}.crt", b""))
    if not certificates:
        raise InvalidInputError(f"{name}.crt", "is no certificate")
    found = Pair(certificates[0], data.get(f"{name}.key", b""))
    if may_begin_later:
        # The clock of the replica that made it may be ahead of ours. If we dropped it, that
        # replica would make another one, and so on.
        now = max(now, tls.life(found.certificate)[0])
    serving.check_ca(found, now)
    return found


def _number(text: bytes | None, most: int, *, default: int) -> int:
    """Read a time; if it is no number, or later than *most*, return the default."""
    if text is None or not text.isdigit() or len(text) > SECONDS_DIGITS_MAX:
        return default
    return int(text) if int(text) <= most else default
