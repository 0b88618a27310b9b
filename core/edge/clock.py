"""The only place that reads the time."""

import datetime as dt
import logging
import time
from typing import Final, Protocol

from core.edge.logs import fields


class Clock(Protocol):
    """Tells time; handed in, never looked up."""

    def unix_seconds(self) -> int:
        """Return the seconds since 1970, for what is written on objects."""

    def monotonic_seconds(self) -> float:
        """Return seconds that never run backwards, for waits and ages."""


class SystemClock:
    """The machine's clock."""

    def unix_seconds(self) -> int:
        """Return the seconds since 1970."""
        return int(time.time())

    def monotonic_seconds(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()


def micro_time(unix_seconds: int) -> str:
    """Write a moment as the API's MicroTime."""
    return dt.datetime.fromtimestamp(unix_seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


STEP_SECONDS_MAX: Final = 10.0
"""A correction of the wall clock of so much is taken at once."""
RATE: Final = 1 / 12
"""What is beyond is approached by so many seconds a second: an hour takes twelve."""
UNSET_SECONDS_MIN: Final = 365 * 24 * 3600
"""A clock that is so wrong had not been set when the program started: the new time is taken."""

log = logging.getLogger("ebb.clock")


class SteadyClock:
    """Wall time for what is judged by it: follows the wall clock, but not its jumps.

    Guards, deadlines and back-offs must not end because somebody has set a clock. So time goes on
    as the monotonic clock says, from what the wall clock said at the start.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read = clock.monotonic_seconds()
        self._ahead = clock.unix_seconds() - self._read
        """Of the monotonic clock."""
        self._credit = STEP_SECONDS_MAX
        """By how much the time may be corrected now."""
        self._jumped = False

    def monotonic_seconds(self) -> float:
        """Return seconds that never run backwards."""
        return self._clock.monotonic_seconds()

    def unix_seconds(self) -> int:
        """Return the seconds since 1970, without the jumps of the wall clock."""
        now = self._clock.monotonic_seconds()
        self._credit = min(STEP_SECONDS_MAX, self._credit + (now - self._read) * RATE)
        self._read = now
        self._correct(self.off_seconds())
        return int(now + self._ahead)

    def off_seconds(self) -> float:
        """Return by how much the wall clock is ahead; below 0: behind."""
        return self._clock.unix_seconds() - self._clock.monotonic_seconds() - self._ahead

    def _correct(self, off: float) -> None:
        if abs(off) < 1:
            self._tell(jumped=False, off=off)  # less than the wall clock's own unit
        elif abs(off) >= UNSET_SECONDS_MIN:
            log.warning("the wall clock has been set", extra=fields(seconds=round(off)))
            self._ahead += off
        else:
            step = max(-self._credit, min(self._credit, off))
            self._ahead += step
            self._credit -= abs(step)
            if abs(off) > STEP_SECONDS_MAX:
                self._tell(jumped=True, off=off)

    def _tell(self, *, jumped: bool, off: float) -> None:
        if jumped and not self._jumped:
            said = "the wall clock jumped: its new time is approached slowly; restart to take it"
            log.warning(said, extra=fields(seconds=round(off)))
        if self._jumped and not jumped:
            log.info("the wall clock's time is reached")
        self._jumped = jumped
