"""Count the moves of the last hour in the Lease of the controller, before they begin."""

from controller.election import Leases
from controller.lease_annotation import annotate
from core.model.now import Now
from core.moves.hourly import (
    MOVES_BEGUN_ANNOTATION,
    begun_within_hour,
    decode,
    encode,
    with_begun,
)


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
        """Record that this many *moves* begin now. Raises: UnavailableError, ConflictError."""
        await annotate(
            self._leases,
            MOVES_BEGUN_ANNOTATION,
            lambda text: encode(with_begun(decode(text), moves, now)),
        )
