"""Define how moves end, and which pause of the Deployment follows."""

from enum import StrEnum
from typing import Final

from core.model.now import Now
from core.moves.note import FAILURES_MAX, PAUSE_SECONDS_MAX, MoveNote

PAUSE_SECONDS: Final = 600
"""Pause after a failed move; it doubles with each further failure, up to PAUSE_SECONDS_MAX."""
SETTLE_SECONDS: Final = 60
"""Time between two moves of a Deployment. While a new pod starts, the Deployment shows one
available pod less than it wants."""


class MoveOutcome(StrEnum):
    """How a move ends; a value of a metric label."""

    MOVED = "moved"
    """The new pod is available on an unmarked node, and the old one was given back to be
    deleted."""
    TIMED_OUT = "timed_out"
    """The new pod was not available before the deadline."""
    UNSCHEDULABLE = "unschedulable"
    """The new pod was unschedulable."""
    REFUSED = "refused"
    """The API server rejected the new pod, for example because of a quota."""
    MISPLACED = "misplaced"
    """The new pod was scheduled to a marked node."""
    POD_GONE = "pod_gone"
    """The pod to move terminated by itself, or was deleted."""
    NODE_UNMARKED = "node_unmarked"
    """The node was unmarked."""
    CORDONED = "cordoned"
    """The node was cordoned or is leaving: whoever drains it must find the pod in its
    ReplicaSet."""
    CHANGED = "changed"
    """The spec of the Deployment changed: a rollout, a scale, a pause."""
    GONE = "gone"
    """The Deployment was deleted, or its ReplicaSet without the pods."""
    PENDING_PODS = "pending_pods"
    """Other pods were unschedulable and need the room of the new pod."""
    STOPPED = "stopped"
    """Surge moves were disabled, another leader had begun the move, or someone else gave the pod
    back."""


FAILED: Final = frozenset(
    {
        MoveOutcome.TIMED_OUT,
        MoveOutcome.UNSCHEDULABLE,
        MoveOutcome.REFUSED,
        MoveOutcome.MISPLACED,
    }
)
"""Outcomes after which a Deployment is left alone, longer each time."""


def note_after(note: MoveNote, outcome: MoveOutcome, now: Now) -> MoveNote | None:
    """Return the note of a pod after its move has ended; None for no note.

    After a failure it says until when the Deployment is left alone. Earlier failures are kept
    until a move succeeds.
    """
    if outcome in FAILED:
        failures = min(note.failures + 1, FAILURES_MAX)
        seconds = min(PAUSE_SECONDS << (failures - 1), PAUSE_SECONDS_MAX)
        return note._replace(failures=failures, outcome=outcome.value, until=now.seconds + seconds)
    if outcome is MoveOutcome.MOVED or note.failures:
        return note._replace(outcome=outcome.value)
    return None
