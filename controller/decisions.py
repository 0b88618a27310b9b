"""Keep the last decisions about objects in memory, for the leader's report and the next leader."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from core.history.packing import TEXT_CHARACTERS_MAX
from core.history.today import DECISIONS_MAX, Decision
from runtime.clock import Clock

REASON_CHARACTERS_MAX: Final = TEXT_CHARACTERS_MAX
"""Maximum length of the reason of a decision; longer reasons are cut, as the stored ones are."""


class DecisionLog:
    """The last decisions, also those of previous leaders, at most DECISIONS_MAX."""

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

    def restore(self, earlier: Iterable[Decision]) -> None:
        """Add the decisions that a previous leader has stored, unless they are known."""
        known = set(self._entries)
        added = [decision for decision in earlier if decision not in known]
        merged = sorted([*added, *self._entries], key=lambda decision: decision.at)
        self._entries = deque(merged, maxlen=DECISIONS_MAX)

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
