"""Read and write the annotation of a pod with its move, or with the failure of its last move.

It is the only record of a move, so every leader, and `ebb cleanup`, can end the move. While the
move is in progress, it has no outcome. After a failure it says until when no other move of the
Deployment begins.
"""

import json
from typing import Final, NamedTuple

from core.model.json_values import whole
from core.model.now import Now
from core.model.pod import Pod

DEADLINE_SECONDS_MIN: Final = 30
"""A Deployment with a shorter progressDeadlineSeconds still gets this time for its new pod."""
DEADLINE_SECONDS_MAX: Final = 600
"""Maximum time in which the new pod must become available."""
OVERDUE_SECONDS: Final = 60
"""Time after its deadline from which a detached pod counts as a leftover."""
FAILURES_MAX: Final = 16
CLOCKS_APART_SECONDS_MAX: Final = 300
"""Maximum clock skew between leaders. No leader wrote a time that is further in the future."""
PAUSE_SECONDS_MAX: Final = 86_400
"""Maximum pause after a failed move."""
TEXT_CHARACTERS_MAX: Final = 256


class MoveNote(NamedTuple):
    """A move of a pod: when it began, by when it ends, and how it ended."""

    begun: int
    """Unix second of the detach."""
    deadline: int
    """Unix second by which the new pod must be available."""
    failures: int = 0
    """Number of failed moves in a row, this one included once it has ended."""
    outcome: str = ""
    """How the move ended (MoveOutcome); empty while it is in progress."""
    until: int = 0
    """Unix second until which no other move of the Deployment begins; 0 without a pause."""

    def encode(self) -> str:
        """Return the value of the annotation, in JSON; fields that are empty or 0 are left out."""
        return json.dumps({key: one for key, one in self._asdict().items() if one})

    def is_plausible(self, now: Now) -> bool:
        """Return whether a leader can have written this note.

        Whoever may write a pod can write any note. A move has begun in the past and lasts for
        DEADLINE_SECONDS_MAX at most; a pause ends within PAUSE_SECONDS_MAX.
        """
        return (
            now.reached(self.begun - CLOCKS_APART_SECONDS_MAX)
            and 0 < self.deadline - self.begun <= DEADLINE_SECONDS_MAX
            and self.failures <= FAILURES_MAX
            and now.reached(self.until - PAUSE_SECONDS_MAX - CLOCKS_APART_SECONDS_MAX)
        )


def decode(text: str | None) -> MoveNote | None:
    """Return the note in an annotation; None if there is none, or if it is invalid."""
    if text is None or len(text) > TEXT_CHARACTERS_MAX:
        return None
    try:
        found = json.loads(text)
        outcome = found.get("outcome", "")
        return MoveNote(
            begun=whole(found["begun"]),
            deadline=whole(found["deadline"]),
            failures=whole(found.get("failures", 0)),
            outcome=outcome if isinstance(outcome, str) else "",
            until=whole(found.get("until", 0)),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def note_of(pod: Pod, now: Now) -> MoveNote | None:
    """Return the plausible note of a pod; None if it has none."""
    note = decode(pod.move)
    return note if note is not None and note.is_plausible(now) else None
