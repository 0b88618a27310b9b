"""Keep the last decisions of this replica about objects in memory, for the leader's report."""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from runtime.clock import Clock

DECISIONS_MAX: Final = 200
REASON_CHARACTERS_MAX: Final = 300
"""Maximum length of the reason of a decision; longer reasons are cut."""


class Decision(NamedTuple):
    """A decision about an object, such as to mark a Node: when, what and why."""

    at: int
    """Unix second of the decision."""
    kind: str
    """Kind of the object, such as Node."""
    name: str
    """Name of the object, with its namespace if it has one."""
    action: str
    """The reason of the Event about the decision, such as NodeMarked."""
    reason: str
    written: bool
    """False in mode observe, where the decision is only reported."""


class DecisionLog:
    """The last decisions of this replica, at most DECISIONS_MAX."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: deque[Decision] = deque(maxlen=DECISIONS_MAX)
        self._observed: frozenset[tuple[str, str]] = frozenset()
        """(node, action) of the writes that the last reconciliation only reported."""

    @property
    def entries(self) -> tuple[Decision, ...]:
        """Return the decisions, oldest first."""
        return tuple(self._entries)

    def record(self, kind: str, name: str, action: str, reason: str) -> None:
        """Add a decision that Ebb has written to the object.

        *kind* and *name*: the object. *action*: reason of the Event, such as NodeMarked.
        """
        self._add(kind, name, action, reason, written=True)

    def observe(self, writes: Iterable[tuple[str, str, str]]) -> None:
        """Add decisions about Nodes that a reconciliation only reported, in mode observe.

        *writes*: name of the Node, reason of the Event, and note. Every reconciliation reports
        them all again, so only new ones are added.
        """
        reported = list(writes)
        for name, action, reason in reported:
            if (name, action) not in self._observed:
                self._add("Node", name, action, reason, written=False)
        self._observed = frozenset((name, action) for name, action, _ in reported)

    def _add(self, kind: str, name: str, action: str, reason: str, *, written: bool) -> None:
        now, reason = self._clock.unix_seconds(), reason[:REASON_CHARACTERS_MAX]
        self._entries.append(Decision(now, kind, name, action, reason, written))
