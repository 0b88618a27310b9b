"""Count the moves of the last hour in the Lease of the controller, before they begin."""

import logging
from dataclasses import replace
from typing import Final

from controller.election import Leases
from core.model.errors import ConflictError
from core.model.now import Now
from core.moves.hourly import (
    MOVES_BEGUN_ANNOTATION,
    begun_within_hour,
    decode,
    encode,
    with_begun,
)
from runtime.logs import fields

TRIES_MAX: Final = 5
"""Maximum number of attempts to write the Lease, which the elector renews at the same time."""

log = logging.getLogger("ebb.hourly-moves")


class HourlyMoves:
    """The number of moves that have begun within the last hour, under any leader."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    async def count(self, now: Now) -> int:
        """Return the number of moves of the last hour. Raises: UnavailableError."""
        lease = await self._leases.read()
        text = lease.annotations.get(MOVES_BEGUN_ANNOTATION, "") if lease else ""
        return begun_within_hour(decode(text), now)

    async def add(self, moves: int, now: Now) -> None:
        """Record that this many *moves* begin now.

        Raises: UnavailableError; ConflictError if the Lease was written during each attempt, or
        does not exist.
        """
        for _ in range(TRIES_MAX):
            lease = await self._leases.read()
            if lease is None:
                break
            text = lease.annotations.get(MOVES_BEGUN_ANNOTATION, "")
            begun = encode(with_begun(decode(text), moves, now))
            annotations = {**lease.annotations, MOVES_BEGUN_ANNOTATION: begun}
            try:
                await self._leases.write(replace(lease, annotations=annotations))
            except ConflictError as fault:
                log.info("the Lease was renewed meanwhile", extra=fields(reason=str(fault)))
                continue
            return
        raise ConflictError("the moves could not be counted in the Lease")
