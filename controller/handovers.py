"""Record in the Lease of the controller when its leader hands it over, at most once a day."""

from controller.election import Leases
from controller.lease_annotation import annotate
from core.marks.mark import CLOCKS_APART_SECONDS_MAX, seconds_of
from core.model.now import Now
from core.moves.own import HANDOVER_ANNOTATION, HANDOVER_SECONDS_MIN


class Handovers:
    """The last handover of the Lease, under any leader."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    async def record(self, now: Now) -> bool:
        """Record that the leader hands the Lease over now; False if the last one was within a day.

        Raises: UnavailableError, ConflictError.
        """

        def time_of(text: str) -> str | None:
            last = seconds_of(text)
            # No leader with a roughly correct clock can have written a later time.
            possible = last is not None and now.reached(last - CLOCKS_APART_SECONDS_MAX)
            if last is not None and possible and now.before(last + HANDOVER_SECONDS_MIN):
                return None
            return str(now.seconds)

        return await annotate(self._leases, HANDOVER_ANNOTATION, time_of)
