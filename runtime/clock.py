"""Read the time; no other module does."""

import datetime as dt
import logging
import time
from typing import Final, Protocol

from runtime.logs import fields


class Clock(Protocol):
    """A source of time; always passed as an argument."""

    def unix_seconds(self) -> int:
        """Return the seconds since 1970; for times that are written on objects."""

    def monotonic_seconds(self) -> float:
        """Return seconds that never decrease, for timeouts and ages."""


class SystemClock:
    """The clock of the machine."""

    def unix_seconds(self) -> int:
        """Return the seconds since 1970."""
        return int(time.time())

    def monotonic_seconds(self) -> float:
        """Return seconds that never decrease."""
        return time.monotonic()


def micro_time(unix_seconds: int) -> str:
    """Format a Unix time as a MicroTime of the Kubernetes API: 2026-01-31T12:00:00.000000Z."""
    return dt.datetime.fromtimestamp(unix_seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


STEP_SECONDS_MAX: Final = 10.0
"""Maximum difference to the wall clock that is corrected at once."""
RATE: Final = 1 / 12
"""Seconds that are corrected per second if the difference is larger: an hour takes 12 hours."""
UNSET_SECONDS_MIN: Final = 365 * 24 * 3600
"""Difference that means that the wall clock was not set at the start; it is corrected at once."""

log = logging.getLogger("ebb.clock")


class SteadyClock:
    """Wall-clock time without jumps, for decisions that depend on time.

    Time advances with the monotonic clock, from the wall-clock time at the start. If somebody sets
    the wall clock, this clock approaches its new time slowly (RATE).
    """

    # Scale-down protection, deadlines and backoffs must not end because someone sets the clock.

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read = clock.monotonic_seconds()
        self._ahead = clock.unix_seconds() - self._read
        """Seconds by which this clock is ahead of the monotonic clock."""
        self._credit = STEP_SECONDS_MAX
        """Seconds by which this clock may be corrected now."""
        self._jumped = False

    def monotonic_seconds(self) -> float:
        """Return seconds that never decrease."""
        return self._clock.monotonic_seconds()

    def unix_seconds(self) -> int:
        """Return the seconds since 1970, without jumps of the wall clock.

        Each call also corrects a part of the difference to the wall clock.
        """
        now = self._clock.monotonic_seconds()
        self._credit = min(STEP_SECONDS_MAX, self._credit + (now - self._read) * RATE)
        self._read = now
        self._correct(self.offset_seconds())
        return int(now + self._ahead)

    def offset_seconds(self) -> float:
        """Return the seconds by which the wall clock is ahead of this clock, or behind (< 0)."""
        return self._clock.unix_seconds() - self._clock.monotonic_seconds() - self._ahead

    def _correct(self, off: float) -> None:
        if abs(off) < 1:
            self._report(jumped=False, off=off)  # below the resolution of the wall clock
        elif abs(off) >= UNSET_SECONDS_MIN:
            log.warning(
                "the machine's clock was set; Ebb uses the new time; nothing to do if intended",
                extra=fields(seconds=round(off)),
            )
            self._ahead += off
        else:
            step = max(-self._credit, min(self._credit, off))
            self._ahead += step
            self._credit -= abs(step)
            if abs(off) > STEP_SECONDS_MAX:
                self._report(jumped=True, off=off)

    def _report(self, *, jumped: bool, off: float) -> None:
        if jumped and not self._jumped:
            message = (
                "the wall clock jumped; Ebb follows slowly; restart the program to use the new "
                "time at once"
            )
            log.warning(message, extra=fields(seconds=round(off)))
        if self._jumped and not jumped:
            log.info("the program has caught up with the wall clock after its jump")
        self._jumped = jumped
