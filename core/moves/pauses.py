"""Decide how long Ebb begins no surge move of a Deployment after a move of it has ended."""

from dataclasses import replace
from typing import Final

from core.model.now import Now
from core.moves.records import MoveOutcome, MoveRecord, MoveRecords, MoveStep, Pause
from core.moves.steps import EndMove

PAUSE_SECONDS: Final = 600
"""Pause after a failed move; it doubles with each further failure."""
PAUSE_SECONDS_MAX: Final = 86_400
HPA_PAUSE_SECONDS_MAX: Final = 3600
"""Maximum pause after an HPA lowered the replicas before the new pod was Ready.

The HPA does so while the utilization is outside its tolerance, which changes with the load."""
REVERTED_AGAIN_SECONDS: Final = 3600
"""If the same field manager sets the replicas back twice within this time, as GitOps tools do, the
Deployment is left alone for PAUSE_SECONDS_MAX."""
FORGET_SECONDS: Final = 86_400
"""Time after which the failures before a pause are forgotten."""
FAILED: Final = frozenset(
    {
        MoveOutcome.OTHER_POD,
        MoveOutcome.NOT_RAISED,
        MoveOutcome.TIMED_OUT,
        MoveOutcome.UNSCHEDULABLE,
        MoveOutcome.REFUSED,
        MoveOutcome.MISPLACED,
        MoveOutcome.INTERFERED,
    }
)
"""Outcomes after which a Deployment is left alone, longer each time."""


def ended(
    records: MoveRecords, move: MoveRecord, end: EndMove, window_seconds: int, now: Now
) -> MoveRecords:
    """Return the records without the ended move, and with the pause that follows it, if any.

    During the pause Ebb begins no other move of the Deployment. *end*: how the move ended.
    *window_seconds*: stabilization window of the Deployment's HorizontalPodAutoscaler; 0 if it has
    none. All pauses that ended FORGET_SECONDS ago are removed.
    """
    before = records.pauses.get(move.uid)
    left = records.without_move(move.uid).with_pause(
        move.uid, _after(move, end, before, window_seconds, now)
    )
    kept = {
        uid: pause
        for uid, pause in left.pauses.items()
        if now.before(pause.until + FORGET_SECONDS)
    }
    return replace(left, pauses=kept)


def _after(
    move: MoveRecord, end: EndMove, before: Pause | None, window_seconds: int, now: Now
) -> Pause | None:
    if end.outcome in FAILED or (end.outcome is MoveOutcome.SCALED and end.reverted):
        return _longer(move, end, before, now)
    if move.step is MoveStep.RECORDED:
        return before
    # An HPA counts the additional replica for its whole window, so it may raise the replicas after
    # the move. A second move in this time could raise them further.
    times = 0 if end.outcome is MoveOutcome.MOVED or before is None else before.times
    if not window_seconds and not times:
        return None
    until = max(now.seconds + window_seconds, before.until if before and times else 0)
    return Pause(move.namespace, move.deployment, move.uid, until, times)


def _longer(move: MoveRecord, end: EndMove, before: Pause | None, now: Now) -> Pause:
    times = 1 if before is None else before.times + 1
    by_hpa = end.outcome is MoveOutcome.SCALED
    most = HPA_PAUSE_SECONDS_MAX if by_hpa else PAUSE_SECONDS_MAX
    seconds = min(PAUSE_SECONDS << min(times - 1, 16), most)
    pause = Pause(move.namespace, move.deployment, move.uid, now.seconds + seconds, times)
    if before is not None:
        pause = pause._replace(manager=before.manager, reverted_at=before.reverted_at)
    if by_hpa or not end.reverted:
        return pause
    again = (
        before is not None
        and before.manager == end.manager
        and now.before(before.reverted_at + REVERTED_AGAIN_SECONDS)
    )
    until = now.seconds + PAUSE_SECONDS_MAX if again else pause.until
    return pause._replace(until=until, manager=end.manager, reverted_at=now.seconds)
