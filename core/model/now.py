"""The time of one reconciliation, which records when the next reconciliation is due; pure."""

from typing import Self


class Now:
    """The time of a reconciliation, which records when a comparison with it gives a new result.

    Rules and remembered state must compare times through this object. It is not a number: a plain
    `<` does not type-check. So no rule can depend on time without scheduling the next
    reconciliation.
    """

    __slots__ = ("_next_change", "seconds")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        """Unix seconds, to store, print or pass to another program. Use `before` for
        comparisons."""
        self._next_change: int | None = None

    def before(self, moment: int) -> bool:
        """Return whether *moment* (Unix seconds) lies in the future.

        If it does, the next reconciliation is due at *moment* at the latest.
        """
        if self.seconds >= moment:
            return False
        if self._next_change is None or moment < self._next_change:
            self._next_change = moment
        return True

    def reached(self, moment: int) -> bool:
        """Return whether *moment* (Unix seconds) has been reached.

        If not, the next reconciliation is due at *moment* at the latest.
        """
        return not self.before(moment)

    def capped(self, moment: int) -> int:
        """Return *moment* (Unix seconds), or the current second if *moment* lies in the future."""
        if self.seconds >= moment:
            return moment
        # A clock ahead of ours wrote the moment: until then the answer changes every second.
        self.expire()
        return self.seconds

    def expire(self) -> None:
        """Make the next reconciliation due in a second: an answer holds for this second only."""
        self.before(self.seconds + 1)

    @property
    def next_change(self) -> int | None:
        """Return the first Unix second at which a comparison made so far gives a new result.

        None if all results stay the same, as long as the cluster and the configuration do not
        change.
        """
        return self._next_change

    @classmethod
    def at(cls, seconds: int | None) -> Self | None:
        """Return the Now of these Unix seconds; None for None, so that rules ignore the time."""
        return None if seconds is None else cls(seconds)
