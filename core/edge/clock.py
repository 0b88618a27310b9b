"""The only place that reads the time."""

import time
from typing import Protocol


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
