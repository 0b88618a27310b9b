"""Keep the records of surge moves in memory, and in a ConfigMap before each change takes effect.

A surge move adds a pod to a Deployment, and then deletes another pod of it on a marked node. Only
the leader writes. A conflict is a late write of the previous leader, or a change by hand: the
records are read again, and the change is decided again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from core.model.errors import ConflictError
from core.moves.records import MoveRecords, MoveStep, decode, encode
from kube.stores.move_records import StoredRecords
from runtime.logs import fields

TRIES_MAX: Final = 3
"""Maximum number of attempts to write a change while others write too."""

log = logging.getLogger("ebb.moves")


class RecordStore(Protocol):
    """Reads and writes the ConfigMap with the records of surge moves."""

    async def read(self) -> StoredRecords | None:
        """Return the ConfigMap, or None if it does not exist. Raises: UnavailableError."""

    async def write(self, before: StoredRecords, data: dict[str, str]) -> StoredRecords:
        """Replace the data of the ConfigMap, unless it has changed since *before*.

        Returns the ConfigMap as stored. Raises: ConflictError if it has changed, UnavailableError.
        """


class MoveRecordCache:
    """The records of all surge moves, as this leader knows them."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.changed: Callable[[MoveRecords], None] = lambda _: None
        """Called with the records after each change."""
        self._lock = asyncio.Lock()
        self.begin()

    def begin(self) -> None:
        """Forget all records when this replica starts leading."""
        self.records = MoveRecords()
        self._stored: StoredRecords | None = None
        self._own: set[str] = set()
        """UIDs of the Deployments whose record this leader has written."""

    @property
    def exists(self) -> bool:
        """Return whether the ConfigMap of the records exists; without it no surge move begins."""
        return self._stored is not None

    async def load(self) -> None:
        """Read the records from the ConfigMap, if it exists. Raises: UnavailableError."""
        async with self._lock:
            await self._load()

    async def _load(self) -> None:
        self._stored = await self._store.read()
        if self._stored is None:
            return  # the moves in memory can still end
        found = decode(self._stored.data)
        for warning in found.warnings:
            log.warning("a record of a surge move is unusable", extra=fields(reason=warning))
        # No other replica leads, so somebody has removed these records by hand. Without them, the
        # additional replicas would remain.
        lost = {
            uid: move
            for uid, move in self.records.moves.items()
            if uid in self._own and uid not in found.records.moves
            and move.step is not MoveStep.RECORDED
        }  # fmt: skip
        for move in lost.values():
            log.warning(
                "the record of a surge move was removed; Ebb still completes the move",
                extra=fields(deployment=move.deployment_key),
            )
        self._set(replace(found.records, moves={**found.records.moves, **lost}))

    def _set(self, records: MoveRecords) -> None:
        self.records = records
        self._own &= set(records.moves)
        self.changed(records)

    async def change(self, decide: Callable[[MoveRecords], MoveRecords | None]) -> bool:
        """Store the records that *decide* returns for the present records; return whether it did.

        *decide* returns None if the change does not apply any more; nothing is stored then. If the
        ConfigMap does not exist, the change remains in memory, so that moves can end. Raises:
        UnavailableError; ConflictError if others wrote during each attempt.
        """
        async with self._lock:
            for _ in range(TRIES_MAX):
                wanted = decide(self.records)
                if wanted is None:
                    return False
                try:
                    if self._stored is not None:
                        self._stored = await self._store.write(self._stored, encode(wanted))
                except ConflictError:
                    await self._load()
                    continue
                self._own |= set(wanted.moves)
                self._set(wanted)
                return True
        raise ConflictError(f"others changed the records during {TRIES_MAX} attempts")
