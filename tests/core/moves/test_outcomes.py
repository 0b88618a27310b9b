"""What stays on a pod after its move, and for how long its Deployment is left alone."""

import pytest

from core.model.now import Now
from core.moves.note import FAILURES_MAX
from core.moves.outcomes import FAILED, MEANINGS, MoveOutcome, note_after
from tests.support.surge import NOTE, NOW

LATER = NOW + 700


@pytest.mark.parametrize("outcome", sorted(FAILED))
@pytest.mark.parametrize(
    ("earlier", "seconds"),
    [(0, 600), (1, 1200), (2, 2400), (7, 76_800), (8, 86_400), (FAILURES_MAX, 86_400)],
)
def test_pause_after_failure_doubles_up_to_a_day(
    outcome: MoveOutcome, earlier: int, seconds: int
) -> None:
    note = note_after(NOTE._replace(failures=earlier), outcome, Now(LATER))
    assert note == NOTE._replace(
        failures=min(earlier + 1, FAILURES_MAX), outcome=outcome.value, until=LATER + seconds
    )


@pytest.mark.parametrize("outcome", sorted(set(MoveOutcome) - FAILED - {MoveOutcome.MOVED}))
def test_end_that_is_no_failure_keeps_earlier_failures_only(outcome: MoveOutcome) -> None:
    assert note_after(NOTE, outcome, Now(LATER)) is None
    before = NOTE._replace(failures=2)
    assert note_after(before, outcome, Now(LATER)) == before._replace(outcome=outcome.value)


def test_moved_pod_says_so_until_it_is_deleted() -> None:
    note = note_after(NOTE, MoveOutcome.MOVED, Now(LATER))
    assert note == NOTE._replace(outcome="moved")


def test_failures_are_those_that_the_documentation_names() -> None:
    assert {one.value for one in FAILED} == {"timed_out", "unschedulable", "refused", "misplaced"}


def test_every_outcome_has_a_meaning() -> None:
    assert set(MEANINGS) == set(MoveOutcome)
