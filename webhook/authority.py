"""Rotate the CA that signs the webhook's serving certificates, in stages.

A Secret stores the CAs. Pure, except that it creates keys. Because of the stages, every caBundle
always contains the CA of every serving certificate:
(a) Ebb creates `next`, and adds it to every caBundle beside `ca`.
(b) After a soak time `next` becomes `ca`, and the previous `ca` becomes one of `old`.
(c) Ebb removes `old` from the caBundles when the last certificate of these CAs has expired.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from core.marks.mark import SECONDS_DIGITS_MAX
from core.model.errors import InvalidInputError
from serving import tls, tls_contexts
from serving.tls import Pair

OLD_SECONDS: Final = tls.LEAF_DAYS * 24 * 3600
"""Time for which `old` is kept: the validity of a serving certificate."""
OLD_MAX: Final = 6
"""Maximum number of CAs in `old`. With `ca` and `next` they fit into one caBundle (BUNDLE_MAX)."""
KEYS: Final = frozenset({"ca.crt", "ca.key", "next.crt", "next.key", "old.crt", "old.until"})
"""The keys of the Secret that belong to Ebb; other keys are kept as they are."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The CAs that the Secret contains: the signing CA, its successor, and replaced CAs."""

    ca: Pair
    """CA that signs the certificate of a replica without one."""
    next: Pair | None = None
    """CA of the next stage; None while no rotation is in progress."""
    old: tuple[bytes, ...] = ()
    """Certificates of CAs that Ebb has replaced. Replicas may still serve certificates of these
    CAs."""
    old_until: int = 0
    """Unix second from which `old` may be removed."""

    def bundle(self) -> list[bytes]:
        """Return the certificates that every caBundle must contain: all CAs, each once."""
        certificates = [
            self.ca.certificate,
            *([self.next.certificate] if self.next else []),
            *self.old,
        ]
        return [*dict.fromkeys(certificates)]

    def encode(self) -> dict[str, bytes]:
        """Return the CAs as the data of the Secret, by the Secret's keys."""
        data = {"ca.crt": self.ca.certificate, "ca.key": self.ca.key}
        if self.next:
            data |= {"next.crt": self.next.certificate, "next.key": self.next.key}
        if self.old:
            data |= {"old.crt": b"".join(self.old), "old.until": str(self.old_until).encode()}
        return data

    @classmethod
    def decode(cls, data: Mapping[str, bytes], now: int) -> "Trust":
        """Read the CAs from the data of the Secret; *now*: Unix seconds.

        Invalid parts other than `ca` are omitted or corrected. Then `encode` of the result differs
        from *data*, so the caller writes the Secret. Raises: InvalidInputError if `ca` cannot be
        used.
        """
        trust = cls(_pair(data, "ca", now))
        with suppress(InvalidInputError):
            trust = replace(trust, next=_pair(data, "next", now, may_begin_later=True))
        old = [
            certificate
            for certificate in tls.split(data.get("old.crt", b""))
            if tls_contexts.is_root(certificate, now)
        ]
        if old:
            latest = now + OLD_SECONDS
            until = _number(data.get("old.until"), latest, default=latest)
            trust = replace(trust, old=tuple(old[:OLD_MAX]), old_until=until)
        return trust


def begin(now: int) -> Trust:
    """Return a new CA that is valid from *now* (Unix seconds), for a Secret without a valid CA."""
    return Trust(tls.make_ca(now))


def adopt(trust: Trust, served: Iterable[bytes], now: int) -> Trust:
    """Return *trust* with CAs added to `old`: the CAs in *served* that *trust* lacks.

    *served*: CAs whose certificates replicas may serve now. *now*: Unix seconds. `old` has at most
    OLD_MAX CAs. If none is added, *trust* itself is returned.
    """
    known = trust.bundle()
    missing = [certificate for certificate in dict.fromkeys(served) if certificate not in known]
    added = missing[: OLD_MAX - len(trust.old)]
    if not added:
        return trust
    return replace(trust, old=(*trust.old, *added), old_until=now + OLD_SECONDS)


def advance(
    trust: Trust, now: int, *, requested: bool, next_trusted: bool, old_unused: bool
) -> Trust:
    """Return *trust* in the next stage of the rotation if that is due, else *trust* itself.

    *now*: Unix seconds. *requested*: a user requests a new CA. *next_trusted*: every caBundle has
    contained `next` for the whole soak time. *old_unused*: this replica has observed the same
    `old` for so long that every replica that can reach the API server now serves a certificate of
    `ca`.
    """
    # Two conditions, because the clock of the replica that wrote `old_until` may be wrong, and the
    # clock of this replica too.
    if trust.old and now >= trust.old_until and old_unused:
        return replace(trust, old=(), old_until=0)
    # Both stages below need room in `old` for the replaced CA, which may be in use for days.
    if trust.next is not None:
        begins, ends = tls.life(trust.next.certificate)
        if not next_trusted or not begins <= now < ends or len(trust.old) >= OLD_MAX:
            return trust
        old = tuple(dict.fromkeys((trust.ca.certificate, *trust.old)))
        return Trust(trust.next, old=old, old_until=now + OLD_SECONDS)
    begins, ends = tls.life(trust.ca.certificate)
    due = requested or (ends - now) * 3 < ends - begins
    if due and len(trust.old) < OLD_MAX:
        return replace(trust, next=tls.make_ca(now))
    return trust


def _pair(
    data: Mapping[str, bytes], name: str, now: int, *, may_begin_later: bool = False
) -> Pair:
    certificates = tls.split(data.get(f"{name}.crt", b""))
    if not certificates:
        raise InvalidInputError(f"{name}.crt", "is not a certificate")
    pair = Pair(certificates[0], data.get(f"{name}.key", b""))
    if may_begin_later:
        # The clock of the replica that created this CA may be ahead. If this replica removed the
        # CA, the other replica would create another one, and so on.
        now = max(now, tls.life(pair.certificate)[0])
    tls_contexts.check_ca(pair, now)
    return pair


def _number(text: bytes | None, seconds_max: int, *, default: int) -> int:
    """Parse a time in Unix seconds; return *default* if it is invalid or above *seconds_max*."""
    if text is None or not text.isdigit() or len(text) > SECONDS_DIGITS_MAX:
        return default
    return int(text) if int(text) <= seconds_max else default
