"""The time of one reconciliation: a value that also knows when the next one is due; pure."""

from typing import Self


class Now:
    """A unix second, and the earliest later one at which an answer about it will be another.

    Rules and remembered state decide by time only by asking this object. It is no number, so that
    a comparison with a plain `<` does not type-check: a limit that ends with time can not be
    forgotten when the next reconciliation is scheduled.
    """

    __slots__ = ("_next_change", "seconds")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        """Unix seconds, to be stored, shown, or handed to another program. Compare by `before`."""
        self._next_change: int | None = None

    def before(self, moment: int) -> bool:
        """Return whether *moment* (unix seconds) is still to come."""
        if self.seconds >= moment:
            return False
        if self._next_change is None or moment < self._next_change:
            self._next_change = moment
        return True

    def reached(self, moment: int) -> bool:
        """Return whether *moment* (unix seconds) has come."""
        return not self.before(moment)

    def capped(self, moment: int) -> int:
        """Return *moment*, or the present second if *moment* lies ahead.

        A clock that is ahead of ours wrote it; until then the answer changes every second.
        """
        if self.seconds >= moment:
            return moment
        self.expire()
        return self.seconds

    def expire(self) -> None:
        """Register that an answer holds for this second only."""
        self.before(self.seconds + 1)

    @property
    def next_change(self) -> int | None:
        """Return the unix second at which an answer given so far changes; None: time changes none.

        The cluster and the configuration must be the same then.
        """
        return self._next_change

    @classmethod
    def at(cls, seconds: int | None) -> Self | None:
        """Return the moment, or None where no time is to have passed."""
        return None if seconds is None else cls(seconds)
