"""Who runs the engine: one replica, by a Lease.

Every replica trusts the monotonic time at which it last saw the record change, never the times
in it. Leading ends before the Lease does for others. Source: client-go's leader election, its
RenewDeadline among it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from controller.stores.lease import Lease
from core.edge.clock import Clock, micro_time
from core.edge.logs import fields
from core.model.errors import ConflictError, UnavailableError

JITTER_FACTOR: Final = 1.2
"""Replicas that wait for the Lease wait up to so many retry periods longer, each its own time."""
RELEASE_TRIES_MAX: Final = 3

log = logging.getLogger("ebb.election")


class Leases(Protocol):
    """Where the record stands."""

    async def read(self) -> Lease | None:
        """Return the record, None when there is none. Raises: UnavailableError."""

    async def write(self, lease: Lease) -> Lease:
        """Create or replace it. Raises: ConflictError when somebody was faster."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; duration > deadline > JITTER_FACTOR x retry, as client-go demands."""

    duration: int
    deadline: float
    retry: float

    @classmethod
    def of(cls, duration: int) -> "Timing":
        """Keep Kubernetes' own proportions: 15 s, 10 s, 2 s."""
        return cls(duration, duration * 2 / 3, duration * 2 / 15)

    @property
    def call(self) -> float:
        """Return how long one call may take: a deadline has room for two of them."""
        return self.deadline / 2


class Elector:
    """Competes for the Lease, and leads while it is held.

    Whatever a call of the API server does, leading ends a deadline after the last renewal that
    succeeded began: no call is waited for longer than that.
    """

    def __init__(
        self,
        leases: Leases,
        identity: str,
        clock: Clock,
        timing: Timing,
        *,
        jitter: Callable[[], float],
    ) -> None:
        self._leases, self._identity, self._clock = leases, identity, clock
        self._timing, self._jitter = timing, jitter
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._until = 0.0
        """Monotonic; leading ends then, unless the Lease is renewed."""
        self._working = False

    @property
    def leading(self) -> bool:
        """Whether this replica may write now; false too when its process has been asleep."""
        return self._working and self._left() > 0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run *lead* whenever the Lease is held, until cancelled; then give the Lease back.

        Raises: what *lead* raises; then too the Lease is given back first.
        """
        while True:
            await self._acquire()
            log.info("leading", extra=fields(identity=self._identity))
            self._working = True
            try:
                await self._lead(lead)
            finally:
                self._working = False

    async def _acquire(self) -> None:
        """Take the Lease, by a write that leaves time for another one as slow."""
        while True:
            if await self._acquired() and self._left() > self._timing.call:
                return
            await asyncio.sleep(self._timing.retry * (1 + JITTER_FACTOR * self._jitter()))

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        holding = [asyncio.ensure_future(self._renew()), asyncio.ensure_future(self._deadline())]
        try:
            await asyncio.wait({work, *holding}, return_when=asyncio.FIRST_COMPLETED)
            for one in (work, *holding):
                if one.done():
                    one.result()
        except BaseException:
            await _ended(work, *holding)
            await self._release()
            raise
        await _ended(work, *holding)
        log.warning("lost the lease", extra=fields(identity=self._identity))

    async def _renew(self) -> None:
        """Renew until somebody else has the Lease, or this process has slept for too long.

        A retry period lies between the beginnings of two tries: after a slow one it is over.
        """
        begun = self._until - self._timing.deadline
        while True:
            due = begun + self._timing.retry
            await asyncio.sleep(max(0.0, due - self._clock.monotonic_seconds()))
            begun = self._clock.monotonic_seconds()
            if self._left() <= 0:
                return
            if not await self._acquired() and self._held_by_another():
                return

    async def _deadline(self) -> None:
        """Wait until the last renewal is too long ago, whatever the next one waits for."""
        while True:
            left = self._left()
            if left <= 0:
                return
            await asyncio.sleep(left)

    def _left(self) -> float:
        return self._until - self._clock.monotonic_seconds()

    def _held_by_another(self) -> bool:
        return self._seen is not None and self._seen.holder not in ("", self._identity)

    async def _acquired(self) -> bool:
        """Take or renew the Lease; no answer, or somebody faster, is False."""
        try:
            return await self._try()
        except ConflictError:
            return False  # the next try reads who it was
        except UnavailableError as fault:
            log.warning("lease", extra=fields(reason=str(fault)))
            return False

    async def _try(self) -> bool:
        if self._working and self._seen is not None and self._is_ours(self._seen):
            with suppress(ConflictError):  # a read says what has become of it
                await self._write(self._seen)
                return True
        found = await self._leases.read()
        now = self._clock.monotonic_seconds()
        if found != self._seen:
            self._seen, self._seen_at = found, now
        before = found or Lease()
        ends = self._seen_at + before.duration_seconds
        if before.holder and not self._is_ours(before) and now < ends:
            return False
        await self._write(before)
        return True

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder == self._identity

    async def _write(self, before: Lease) -> None:
        """Make it ours on the version that was read, and lead from now on."""
        now, ours = self._clock.monotonic_seconds(), self._is_ours(before)
        stamp = micro_time(self._clock.unix_seconds())
        wanted = replace(
            before,
            holder=self._identity,
            duration_seconds=self._timing.duration,
            renewed=stamp,
            acquired=before.acquired if ours else stamp,
            transitions=before.transitions + (before.version != "" and not ours),
        )
        self._seen = await self._leases.write(wanted)
        self._seen_at, self._until = now, now + self._timing.deadline

    async def _release(self) -> None:
        """Empty the Lease, so that the next replica need not wait until it ends."""
        for _ in range(RELEASE_TRIES_MAX):
            try:
                found = await self._leases.read()
                if found is None or found.holder != self._identity:
                    return
                stamp = micro_time(self._clock.unix_seconds())
                await self._leases.write(
                    replace(found, holder="", duration_seconds=1, renewed=stamp, acquired=stamp)
                )
            except ConflictError:
                continue
            except UnavailableError as fault:
                log.warning("lease not released", extra=fields(reason=str(fault)))
                return
            log.info("released the lease", extra=fields(identity=self._identity))
            return


async def _ended(*work: "asyncio.Future[None]") -> None:
    """Cancel and wait, so that nothing is written after the Lease has gone."""
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)
