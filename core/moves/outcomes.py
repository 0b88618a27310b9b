"""Define how moves end, and which pause of the Deployment follows."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from core.model.now import Now
from core.moves.note import FAILURES_MAX, PAUSE_SECONDS_MAX, MoveNote

PAUSE_SECONDS: Final = 600
"""Pause after a failed move; it doubles with each further failure, up to PAUSE_SECONDS_MAX."""
SETTLE_SECONDS: Final = 60
"""Time between two moves of a Deployment with at most SETTLE_REPLICAS replicas. While a new pod
starts, the Deployment shows one available pod less than it wants."""
SETTLE_REPLICAS: Final = 50
"""Replicas of which one may be missing throughout: it is 2% of the Deployment."""


def settle_seconds(replicas: int) -> int:
    """Return the time between two moves of a Deployment with that many replicas.

    A scale-in of a large Deployment leaves many pods to move, and misses one of them least.
    """
    return SETTLE_SECONDS * SETTLE_REPLICAS // max(replicas, SETTLE_REPLICAS)


class MoveOutcome(StrEnum):
    """How a move ends; a value of a metric label."""

    MOVED = "moved"
    """The new pod is available on an unmarked node, and the old one was given back to be
    deleted."""
    TIMED_OUT = "timed_out"
    UNSCHEDULABLE = "unschedulable"
    REFUSED = "refused"
    """The API server rejected the new pod, for example because of a quota."""
    MISPLACED = "misplaced"
    POD_GONE = "pod_gone"
    NODE_UNMARKED = "node_unmarked"
    CORDONED = "cordoned"
    """Whoever drains the node must find the pod in its ReplicaSet."""
    CHANGED = "changed"
    """A rollout, a scale, a pause."""
    GONE = "gone"
    """The Deployment was deleted, or its ReplicaSet without the pods."""
    PENDING_PODS = "pending_pods"
    """Other pods need the room of the new pod."""
    STOPPED = "stopped"


MEANINGS: Final[Mapping[MoveOutcome, str]] = {
    MoveOutcome.MOVED: "the pod was replaced",
    MoveOutcome.TIMED_OUT: "the new pod was not available in time",
    MoveOutcome.UNSCHEDULABLE: "the new pod was unschedulable",
    MoveOutcome.REFUSED: "the API server rejected the new pod",
    MoveOutcome.MISPLACED: "the new pod was scheduled to a marked node",
    MoveOutcome.POD_GONE: "the pod terminated by itself, or was deleted",
    MoveOutcome.NODE_UNMARKED: "the node was unmarked",
    MoveOutcome.CORDONED: "the node was cordoned, or is being removed",
    MoveOutcome.CHANGED: "the spec of the Deployment changed",
    MoveOutcome.GONE: "the Deployment was deleted",
    MoveOutcome.PENDING_PODS: "other pods were unschedulable",
    MoveOutcome.STOPPED: "surge moves were disabled, another leader had begun the move, or "
    "somebody else attached the pod",
}
"""How a move ended, as Events and docs/metrics.md say it."""
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
