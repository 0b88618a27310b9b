"""Elect the replica that reconciles, by a Lease.

Source: k8s.io/client-go/tools/leaderelection, including its RenewDeadline.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from core.model.errors import ConflictError, UnavailableError
from kube.stores.lease import Lease
from runtime.clock import Clock, micro_time
from runtime.logs import fields

JITTER_FACTOR: Final = 1.2
"""Maximum jitter in retry periods, so that waiting replicas do not all try at the same time."""
RELEASE_TRIES_MAX: Final = 3
HANDOVER_DURATIONS: Final = 2
"""Durations of a Lease for which a replica that has handed it over does not try to take it."""

log = logging.getLogger("ebb.election")


class Leases(Protocol):
    """Reads and writes the Lease by which replicas elect their leader."""

    async def read(self) -> Lease | None:
        """Return the Lease, or None if it does not exist. Raises: UnavailableError."""

    async def write(self, lease: Lease) -> Lease:
        """Create or replace the Lease, and return it as stored.

        Raises: ConflictError if it has changed since it was read; UnavailableError.
        """


@dataclass(frozen=True, slots=True)
class Timing:
    """The periods of an election in seconds.

    client-go requires duration > deadline > jitter x retry.
    """

    duration: int
    """Time after the last renewal after which other replicas may take the Lease."""
    deadline: float
    """Time after the last renewal after which the leader stops leading."""
    retry: float
    """Time between two attempts to take or renew the Lease."""

    @classmethod
    def of(cls, duration: int) -> "Timing":
        """Return the periods for a Lease of *duration* seconds, in the usual proportions.

        Components of Kubernetes use 15 s, 10 s and 2 s for duration, deadline and retry.
        """
        return cls(duration, duration * 2 / 3, duration * 2 / 15)

    @property
    def call(self) -> float:
        """Return the timeout of a call to the API server, in seconds: half of the deadline."""
        return self.deadline / 2


class Elector:
    """Compete for the Lease, and lead while this replica holds it.

    Leading ends one deadline after the start of the last successful renewal, even while a call to
    the API server hangs.
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
        self._leases, self.identity, self._clock = leases, identity, clock
        self._timing, self._jitter = timing, jitter
        self._observed: Lease | None = None
        # The clocks of replicas may differ. So the times in the Lease do not count, but the local
        # time at which this replica last saw the Lease change.
        self._observed_at = 0.0
        """Monotonic time at which the observed Lease was first read or written."""
        self._leads_until = 0.0
        """Monotonic time at which leading ends unless the Lease is renewed."""
        self._working = False
        self._handing_over = asyncio.Event()

    @property
    def leading(self) -> bool:
        """Return whether this replica leads, and may therefore write now."""
        # A process that was suspended may still run the work of the leader after its deadline.
        return self._working and self._left() > 0

    @property
    def holder(self) -> str:
        """Return the identity of the leader as last read or written; empty if none is known."""
        return self._observed.holder if self._observed is not None else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run *lead* whenever this replica holds the Lease, until cancelled; then give it up.

        When the Lease is lost, *lead* is cancelled. Raises: any exception of *lead*, after the
        Lease has been given up.
        """
        while True:
            await self._acquire()
            log.info("started leading", extra=fields(identity=self.identity))
            self._working = True
            self._handing_over.clear()
            try:
                await self._lead(lead)
            finally:
                self._working = False
            if self._handing_over.is_set():
                await asyncio.sleep(HANDOVER_DURATIONS * self._timing.duration)

    def hand_over(self) -> None:
        """End leading soon, and let another replica take the Lease.

        If none takes it, this replica leads again after some time.
        """
        self._handing_over.set()

    async def _acquire(self) -> None:
        while True:
            # After a slow call, the deadline may be too close for the first renewal.
            if await self._try_hold() and self._left() > self._timing.call:
                return
            await asyncio.sleep(self._timing.retry * (1 + JITTER_FACTOR * self._jitter()))

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        holding = [
            asyncio.ensure_future(self._renew()),
            asyncio.ensure_future(self._deadline()),
            asyncio.ensure_future(self._until_handed_over()),
        ]
        try:
            await asyncio.wait({work, *holding}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, *holding):
                if task.done():
                    task.result()
        except BaseException:
            await _cancel(work, *holding)
            await self._release()
            raise
        await _cancel(work, *holding)
        if self._handing_over.is_set():
            await self._release()
            return
        log.warning(
            "lost the Lease; this replica stops writing", extra=fields(identity=self.identity)
        )

    async def _renew(self) -> None:
        """Renew the Lease until another replica holds it, or until the deadline has passed."""
        # The retry period runs from the start of an attempt: after a slow attempt it is over.
        begun = self._leads_until - self._timing.deadline
        while True:
            due = begun + self._timing.retry
            await asyncio.sleep(max(0.0, due - self._clock.monotonic_seconds()))
            begun = self._clock.monotonic_seconds()
            if self._left() <= 0:
                return
            if not await self._try_hold() and self._held_by_another():
                return

    async def _until_handed_over(self) -> None:
        await self._handing_over.wait()

    async def _deadline(self) -> None:
        while True:
            left = self._left()
            if left <= 0:
                return
            await asyncio.sleep(left)

    def _left(self) -> float:
        return self._leads_until - self._clock.monotonic_seconds()

    def _held_by_another(self) -> bool:
        return self._observed is not None and self._observed.holder not in ("", self.identity)

    async def _try_hold(self) -> bool:
        try:
            return await self._take_or_renew()
        except ConflictError:
            return False  # the next attempt reads the holder
        except UnavailableError as fault:
            log.warning("cannot take or renew the Lease", extra=fields(reason=str(fault)))
            return False

    async def _take_or_renew(self) -> bool:
        if self._working and self._observed is not None and self._is_ours(self._observed):
            # A renewal needs no read, unless somebody else has changed the Lease.
            with suppress(ConflictError):
                await self._write(self._observed)
                return True
        lease = await self._leases.read()
        now = self._clock.monotonic_seconds()
        if lease != self._observed:
            self._observed, self._observed_at = lease, now
        before = lease or Lease()
        ends = self._observed_at + before.duration_seconds
        if before.holder and not self._is_ours(before) and now < ends:
            return False
        await self._write(before)
        return True

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder == self.identity

    async def _write(self, before: Lease) -> None:
        # The deadline counts from before the call, because the Lease may be renewed at any time
        # during it.
        now, ours = self._clock.monotonic_seconds(), self._is_ours(before)
        stamp = micro_time(self._clock.unix_seconds())
        wanted = replace(
            before,
            holder=self.identity,
            duration_seconds=self._timing.duration,
            renewed=stamp,
            acquired=before.acquired if ours else stamp,
            transitions=before.transitions + (before.version != "" and not ours),
        )
        self._observed = await self._leases.write(wanted)
        self._observed_at, self._leads_until = now, now + self._timing.deadline

    async def _release(self) -> None:
        """Remove this replica as the holder of the Lease, so that another can take it at once."""
        for _ in range(RELEASE_TRIES_MAX):
            try:
                lease = await self._leases.read()
                if lease is None or not self._is_ours(lease):
                    return
                stamp = micro_time(self._clock.unix_seconds())
                await self._leases.write(
                    replace(lease, holder="", duration_seconds=1, renewed=stamp, acquired=stamp)
                )
            except ConflictError:
                continue
            except UnavailableError as fault:
                log.warning(
                    "cannot release the Lease; other replicas wait until it expires",
                    extra=fields(reason=str(fault)),
                )
                return
            log.info("released the Lease", extra=fields(identity=self.identity))
            return


async def _cancel(*work: "asyncio.Future[None]") -> None:
    # Nothing may be written after the Lease is released or lost.
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
