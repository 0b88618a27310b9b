"""Store what Ebb has done and saved in two ConfigMaps, so that the next leader continues.

`ebb-today` is written soon after a replica has begun to lead and then at most once a minute,
`ebb-history` once a day. Each write is for the version that was read. So if the previous leader
writes late, this one reads that and counts on from there. Nothing is decided from the ConfigMaps
but how many pods the reserve expects: without them, or without the permission, figures and
arrivals are in memory only.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from controller.decisions import DecisionLog
from core.history.days import NO_COST, NOTHING, Day, PoolDay
from core.history.packing import pack_history, pack_today, read_history, read_today
from core.history.today import Today
from core.model.errors import ConflictError, EbbError, UnavailableError
from kube.stores.packed_config_map import Packed
from runtime.logs import fields

STORE_SECONDS: Final = 60
"""Time from one turn to the next."""
FIRST_SECONDS: Final = 5
"""Time from one turn to the next until this leader has counted on from what it has read.

Without a write soon, leaders that are killed each minute would never store anything."""
UNCHANGED_SECONDS_MAX: Final = 300
"""Time after which figures are stored that grow only because time passes.

The next leader lets them grow for the time in which nobody counted, at most GAP_SECONDS_MAX."""
LAST_SECONDS_MAX: Final = 2.0
"""Time limit of the write when this replica stops leading."""
TRIES_MAX: Final = 3
"""Maximum number of attempts to write a ConfigMap that others change at the same time."""

log = logging.getLogger("ebb.history")


class PackedStore(Protocol):
    """Reads and writes the packed content of one ConfigMap."""

    key: str
    """Namespace and name."""

    async def read(self) -> Packed | None:
        """Return the content; None if there is no ConfigMap. Raises: UnavailableError."""

    async def write(self, content: bytes, version: str) -> Packed:
        """Replace the content if the ConfigMap still has this version, and return it as stored.

        Raises: ConflictError, UnavailableError.
        """


class Counted(Protocol):
    """Counts what happens; see controller.reconciler."""

    @property
    def to_store(self) -> Today | None:
        """Return what the next leader needs; None while that is not known."""

    def restore(self, stored: Today) -> None:
        """Continue the figures that a leader has stored, with the next reconciliation."""


@dataclass(frozen=True, kw_only=True)
class HistoryStores:
    """The ConfigMaps `ebb-today` and `ebb-history`."""

    today: PackedStore
    history: PackedStore


class Historian:
    """Store the figures of this leader, and let it continue those of the previous one."""

    def __init__(
        self,
        stores: HistoryStores,
        source: Counted,
        decisions: DecisionLog,
        *,
        identity: str,
        leading: Callable[[], bool],
    ) -> None:
        """Take the stores and what is stored.

        *identity*: of this replica, in `ebb-today`. *leading*: returns whether it leads.
        """
        self._stores, self._source, self._decisions = stores, source, decisions
        self._identity, self._leading = identity, leading
        self._complained = ""
        self.begin()

    def begin(self) -> None:
        """Forget what was stored when this replica starts leading."""
        self._version: str | None = None
        """Version of `ebb-today` that was read or written last; None before the first read."""
        self._has_counted = False
        """Whether this leader has counted on from what it has read."""
        self._stored: Today | None = None
        """What this leader has stored or continued last; None before."""
        self._kept: tuple[Day, ...] | None = None
        """Past days that `ebb-history` is known to have; None before it was first read."""
        self.past: Mapping[int, PoolDay] | None = None
        """Sums of the days in `ebb-history`, by number of the day; None while they are unknown."""

    async def run(self) -> None:
        """Store the figures soon and then every minute until cancelled, and then once more."""
        self.begin()
        try:
            while True:
                await self._try()
                awaits_count = self._version is not None and not self._has_counted
                await asyncio.sleep(FIRST_SECONDS if awaits_count else STORE_SECONDS)
        finally:
            if self._leading():  # a rollout loses nothing then
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_SECONDS_MAX):
                        await self._try(is_last=True)

    async def _try(self, *, is_last: bool = False) -> None:
        try:
            await self.turn(is_last=is_last)
        except EbbError as fault:
            self._complain(str(fault))
        except Exception:
            log.exception("cannot store the figures of the day; retrying")

    async def turn(self, *, is_last: bool = False) -> None:
        """Read what the previous leader has stored, or store the figures if that is due.

        *is_last*: this replica stops leading. It stores the figures even if only time has passed,
        so that the next leader knows that no pod arrived. Raises: ConflictError, UnavailableError.
        """
        if self._version is None:
            await self._load()
        elif (today := self._source.to_store) is not None:
            self._has_counted = True
            today = replace(today, writer=self._identity, decisions=self._decisions.entries)
            if is_last or self._is_due(today):
                await self._keep_days(today.earlier)
                await self._store(today)

    async def _load(self) -> None:
        found = await self._stores.today.read()
        if found is None:
            key = self._stores.today.key
            self._complain(f"the ConfigMap {key} does not exist; apply Ebb's manifests again")
            return
        stored = await asyncio.to_thread(read_today, found.content)
        if stored is None and found.content:
            log.warning(
                "the ConfigMap has unreadable figures; the figures of today start from zero",
                extra=fields(configmap=self._stores.today.key),
            )
        self._version = found.version
        days: tuple[Day, ...] = ()
        # A ConfigMap that was missing meanwhile may be back with what this leader had stored.
        if stored is not None and (self._stored is None or self._is_further(stored)):
            self._continue(stored)
            days = stored.earlier
        await self._keep_days(days)

    def _continue(self, stored: Today) -> None:
        # Arrivals are added to those of this leader, so a second time would count them twice.
        arrivals = stored.arrivals if self._stored is None else None
        self._source.restore(replace(stored, arrivals=arrivals))
        self._stored = stored
        self._decisions.restore(stored.decisions)

    def _is_further(self, other: Today) -> bool:
        """Return whether another leader has counted further than what this one has stored.

        What this leader has written without an answer, and what somebody has restored, is older
        than what it has in memory.
        """
        counted = self._stored.counted_until if self._stored else 0
        return other.writer != self._identity and other.counted_until > counted

    def _is_due(self, today: Today) -> bool:
        stored = self._stored
        return (
            stored is None
            or today.counted_until - stored.counted_until >= UNCHANGED_SECONDS_MAX
            or _events(today) != _events(stored)
        )

    async def _store(self, today: Today) -> None:
        content = await asyncio.to_thread(pack_today, today)
        for _ in range(TRIES_MAX):
            try:
                written = await self._stores.today.write(content, self._version or "")
            except ConflictError:
                if await self._is_continued():
                    return
                continue
            self._version, self._stored = written.version, today
            return
        raise ConflictError(f"{self._stores.today.key}: other writers keep changing the ConfigMap")

    async def _is_continued(self) -> bool:
        """Read `ebb-today` after a conflict; return whether another leader has counted further."""
        self._version, found = None, await self._stores.today.read()
        if found is None:
            return True  # deleted; the next turn reads again
        self._version = found.version
        other = await asyncio.to_thread(read_today, found.content)
        if other is None or not self._is_further(other):
            return False
        log.info(
            "another leader has stored later figures of today; this leader continues from them",
            extra=fields(writer=other.writer),
        )
        self._continue(other)
        return True

    async def _keep_days(self, days: tuple[Day, ...]) -> None:
        """Add past days to `ebb-history`, unless it has them. An error is only logged."""
        if days == self._kept:
            return
        try:
            for _ in range(TRIES_MAX):
                if await self._added(days):
                    self._kept = days
                    return
            raise ConflictError("other writers keep changing the ConfigMap")
        except EbbError as fault:
            self._kept = self.past = None  # days that are not stored would be missing in the sums
            self._complain(f"{self._stores.history.key}: {fault}")

    async def _added(self, days: tuple[Day, ...]) -> bool:
        """Read `ebb-history`, and add the days; return False if somebody else wrote meanwhile.

        Raises: UnavailableError.
        """
        found = await self._stores.history.read()
        if found is None:
            raise UnavailableError("the ConfigMap does not exist")
        before = await asyncio.to_thread(read_history, found.content)
        after = before | {day.number: day for day in days}
        if found.content and not before:
            log.warning(
                "the content of ConfigMap ebb-history is unreadable; the history starts anew"
            )
        else:
            self.past = await asyncio.to_thread(_sums, after)
        if after != before:
            content = await asyncio.to_thread(pack_history, after)
            try:
                await self._stores.history.write(content, found.version)
            except ConflictError:
                return False
        return True

    def _complain(self, problem: str) -> None:
        if problem != self._complained:
            self._complained = problem
            log.warning(
                "the figures of the day are not stored; retrying", extra=fields(reason=problem)
            )


def _sums(days: Mapping[int, Day]) -> Mapping[int, PoolDay]:
    return {number: day.total for number, day in days.items()}


def _events(today: Today) -> Today:
    """Return *today* without what grows only because time passes."""
    pools = {
        name: row._replace(
            node_seconds=0,
            expected_seconds=0,
            expected_cost=NO_COST,
            saved_seconds=0,
            saved_cost=NO_COST,
        )
        for name, row in today.day.pools.items()
    }
    pools = {name: row for name, row in pools.items() if row != NOTHING}
    removed = (one._replace(saved_seconds=0, saved_cost=NO_COST) for one in today.removed)
    return replace(
        today,
        counted_until=0,
        writer="",
        day=replace(today.day, pools=pools, waited_seconds=0),
        removed=tuple(removed),
        samples=(),
        arrivals=replace(today.arrivals, at=0) if today.arrivals else None,
    )
