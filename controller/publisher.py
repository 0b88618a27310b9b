"""Tells any autoscaler what is to be expected: keeps Ebb's CapacityBuffers, on the leader.

After each pass, and every ten seconds, what is there is read, and what differs materially is
written. In mode observe, and where the setting does not ask for it, all of Ebb's goes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from controller.periodic import run_on_change
from core.config.settings import Config
from core.edge.kube.client import ApiError
from core.edge.logs import fields
from core.engine.leader_state import LeaderState
from core.engine.reconcile import PassResult
from core.model.errors import ConflictError, UnavailableError
from core.model.now import Now
from core.model.resources import Resources
from core.writes.capacity_buffers import Alike, Change, Found, Wanted, changes, wanted

ROUND_SECONDS: Final = 10.0

log = logging.getLogger("ebb.publisher")


class Store(Protocol):
    """Where the buffers are: the API server, or a stand-in."""

    async def found(self) -> Found:
        """Return what of Ebb's is there. Raises: UnavailableError."""

    async def carry_out(self, change: Change) -> None:
        """Write. Raises: ConflictError, UnavailableError."""


class PassSource(Protocol):
    """What the engine has found out."""

    config: Config
    judged: asyncio.Event
    """Set when there is another pass."""

    @property
    def last(self) -> PassResult | None:
        """The last pass of this lead; None: there was none."""


class _Seen(NamedTuple):
    """What a turn goes by of a pass; the rest is let go meanwhile, piece by piece."""

    memory: LeaderState
    machines: Resources
    short: frozenset[str]
    at: int


class Publisher:
    """Writes while this replica leads, and remembers what the leader before has told."""

    def __init__(self, store: Store, told: PassSource) -> None:
        self._store, self._told = store, told
        self._gone = self._absent = False
        self._since: int | None = None
        self._inherited: Mapping[Alike, int] = {}
        """What was told when arrivals began to be counted, at that unix second."""

    async def keep(self, stale: Callable[[], str | None]) -> None:
        """Take turns until cancelled; *stale*: why the view cannot be trusted, or None."""
        self._gone = False
        turn = partial(self.turn, stale)
        await run_on_change(self._told.judged, ROUND_SECONDS, "capacity buffers", turn)

    async def turn(self, stale: Callable[[], str | None] = lambda: None) -> None:
        """Look once. Raises: EbbError: the next turn goes on."""
        config = self._told.config
        if not config.publishes:
            await self._clear()
            return
        self._gone = False
        seen = _seen(self._told.last)
        if seen is None or stale() is not None:
            return
        found = await self._store.found()
        if found.absent and not self._absent:
            log.warning("no CapacityBuffers here: the cluster has no such kind, or no right to it")
        self._absent = found.absent
        if found.absent:
            return
        self._inherit(found, seen.memory.arrivals.counting_since)
        await self._write(found, await asyncio.to_thread(_wanted, config, seen, self._inherited))

    def _inherit(self, found: Found, since: int | None) -> None:
        """Remember what was told before this leader counted, or counted anew by other settings."""
        if since != self._since:
            self._since, self._inherited = since, found.told

    async def _clear(self) -> None:
        if self._gone and not self._sees_some():
            return
        self._since = None
        found = await self._store.found()
        await self._write(found, {})
        self._gone = found.empty

    def _sees_some(self) -> bool:
        """Say whether the last pass saw some of Ebb's: a leader of before may write late."""
        last = self._told.last
        buffers = last.snapshot.cluster.buffers if last else ()
        return any(one.published is not None for one in buffers)

    async def _write(self, found: Found, asked: dict[str, Wanted]) -> None:
        """Write. Raises: UnavailableError, when all is tried: what one is refused others are not.

        Of what was refused nothing more is written: a buffer needs its template. A server that
        does not answer at all ends the turn.
        """
        refused: dict[str, str] = {}
        for change in changes(asked, found):
            if change.name in refused:
                continue
            try:
                await self._store.carry_out(change)
            except (ApiError, ConflictError) as fault:
                refused[change.name] = f"{change.act.value} {change.name}: {fault}"
                continue
            told = fields(name=change.name, pods=change.replicas)
            log.info(change.act.value, extra=told)
        if refused:
            raise UnavailableError("; ".join(refused.values()))


def _seen(last: PassResult | None) -> _Seen | None:
    if last is None:
        return None
    return _Seen(last.state, last.snapshot.total_allocatable, last.short_reaches, last.at)


def _wanted(config: Config, seen: _Seen, inherited: Mapping[Alike, int]) -> dict[str, Wanted]:
    """Return what is asked for: of reaches that are short of room all, of others nothing.

    So what is missing is missing at once, and an autoscaler adds few large nodes for it, not a
    small one for each pod that takes some of the room. Who has seen all that counts asks no more
    for what is *inherited*.
    """
    reserve = config.budgets.reserve
    counts = seen.memory.expected_pods(seen.machines, Now(seen.at))
    counts = {kind: many for kind, many in counts.items() if kind.reach in seen.short}
    since = seen.memory.arrivals.counting_since
    if since is None or seen.at - since >= reserve.lookback_seconds:
        inherited = {}
    return wanted(counts, seen.machines, reserve.max_buffers, inherited)
