"""Who runs the engine: one replica, by a Lease.

Every replica trusts the monotonic time at which it last saw the record change, never the times
in it. Leading ends before the Lease does for others. Source: client-go's leader election.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from core.edge.clock import Clock
from core.edge.kube.lease import Lease, micro_time
from core.edge.logs import fields
from core.errors import ConflictError, UnavailableError

JITTER_FACTOR: Final = 1.2
"""Replicas that wait for the Lease wait up to so many retry periods longer, each its own time."""
RELEASE_TRIES_MAX: Final = 3

log = logging.getLogger("ebb.election")

Wait = Callable[[float], Awaitable[object]]


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


class Elector:
    """Competes for the Lease, and leads while it is held."""

    def __init__(
        self,
        leases: Leases,
        identity: str,
        clock: Clock,
        timing: Timing,
        *,
        wait: Wait = asyncio.sleep,
        jitter: Callable[[], float],
    ) -> None:
        self._leases, self._identity, self._clock = leases, identity, clock
        self._timing, self._wait, self._jitter = timing, wait, jitter
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self.leading = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run *lead* whenever the Lease is held, until cancelled; then give the Lease back.

        Raises: what *lead* raises; then too the Lease is given back first.
        """
        while True:
            while not await self._acquired():
                await self._wait(self._timing.retry * (1 + JITTER_FACTOR * self._jitter()))
            log.info("leading", extra=fields(identity=self._identity))
            self.leading = True
            try:
                await self._lead(lead)
            finally:
                self.leading = False

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        try:
            await self._hold(work)
        except BaseException:
            await _ended(work)
            await self._release()
            raise
        log.warning("lost the lease", extra=fields(identity=self._identity))
        await _ended(work)

    async def _hold(self, work: "asyncio.Future[None]") -> None:
        """Renew until the Lease is lost. Raises: what the work raises."""
        renewed = self._clock.monotonic_seconds()
        while True:
            pause = asyncio.ensure_future(self._wait(self._timing.retry))
            either: set[asyncio.Future[Any]] = {work, pause}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
            if work.done():
                work.result()
                raise AssertionError("leading never ends by itself")
            begun = self._clock.monotonic_seconds()
            if await self._acquired():
                renewed = begun
            elif self._held_by_another() or begun - renewed >= self._timing.deadline:
                return

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
        found = await self._leases.read()
        now = self._clock.monotonic_seconds()
        if found != self._seen:
            self._seen, self._seen_at = found, now
        before = found or Lease()
        ours = before.holder == self._identity
        if before.holder and not ours and now < self._seen_at + before.duration_seconds:
            return False
        stamp = micro_time(self._clock.unix_seconds())
        wanted = replace(
            before,
            holder=self._identity,
            duration_seconds=self._timing.duration,
            renewed=stamp,
            acquired=before.acquired if ours else stamp,
            transitions=before.transitions + (found is not None and not ours),
        )
        self._seen = await self._leases.write(wanted)
        self._seen_at = now
        return True

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


async def _ended(work: "asyncio.Future[None]") -> None:
    """Cancel and wait, so that nothing is written after the Lease has gone."""
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
