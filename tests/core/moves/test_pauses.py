"""How long a Deployment is left alone after a move."""

from dataclasses import replace

import pytest

from core.model.now import Now
from core.moves.pauses import FAILED, ended
from core.moves.records import MoveOutcome, MoveRecords, MoveStep, Pause
from core.moves.steps import EndMove
from tests.support.surge import NOW, make_record

RAISED = make_record(step=MoveStep.RAISED)
BEGUN = MoveRecords(moves={"uid-web": RAISED})
HOUR = 3600
DAY = 24 * HOUR


def pause(times: int, **changes: object) -> Pause:
    return Pause("d", "web", "uid-web", NOW, times)._replace(**changes)  # type: ignore[arg-type]


def after(
    end: EndMove, before: Pause | None = None, *, window: int = 0, step: MoveStep = MoveStep.RAISED
) -> Pause | None:
    """Return the pause after a move that ends now."""
    records = BEGUN.with_pause("uid-web", before)
    found = ended(records, replace(RAISED, step=step), end, window, Now(NOW))
    assert not found.moves
    return found.pauses.get("uid-web")


@pytest.mark.parametrize("outcome", sorted(FAILED))
@pytest.mark.parametrize(
    ("times", "seconds"), [(0, 600), (1, 1200), (2, 2400), (7, 76_800), (8, DAY), (99, DAY)]
)
def test_pause_doubles_when_moves_fail(outcome: MoveOutcome, times: int, seconds: int) -> None:
    found = after(EndMove(outcome, "kubectl"), pause(times))
    assert found is not None
    assert (found.until, found.times) == (NOW + seconds, times + 1)


@pytest.mark.parametrize(
    ("manager", "ago", "seconds"),
    [("argocd", 1200, DAY), ("argocd", HOUR, 1200), ("flux", 1200, 1200)],
)
def test_pause_is_a_day_when_same_manager_reverts_twice_in_an_hour(
    manager: str, ago: int, seconds: int
) -> None:
    before = pause(1, manager="argocd", reverted_at=NOW - ago)
    found = after(EndMove(MoveOutcome.INTERFERED, manager, reverted=True), before)
    assert found == pause(2, until=NOW + seconds, manager=manager, reverted_at=NOW)


def test_deployment_with_hpa_is_left_alone_for_its_window() -> None:
    assert after(EndMove(MoveOutcome.MOVED), window=300) == pause(0, until=NOW + 300)
    assert after(EndMove(MoveOutcome.SCALED), window=300) == pause(0, until=NOW + 300)


@pytest.mark.parametrize(
    ("times", "seconds"), [(0, 600), (1, 1200), (2, 2400), (3, HOUR), (9, HOUR)]
)
def test_pause_is_at_most_an_hour_when_hpa_lowered_the_replicas(times: int, seconds: int) -> None:
    end = EndMove(MoveOutcome.SCALED, "kube-controller-manager", reverted=True)
    assert after(end, pause(times), window=300) == pause(times + 1, until=NOW + seconds)


def test_failures_are_forgotten_when_a_pod_was_moved() -> None:
    assert after(EndMove(MoveOutcome.MOVED), pause(3)) is None


def test_pause_is_unchanged_when_move_did_not_raise_replicas() -> None:
    end = EndMove(MoveOutcome.ABANDONED)
    assert after(end, pause(2), step=MoveStep.RECORDED) == pause(2)
    assert after(end, window=300, step=MoveStep.RECORDED) is None


@pytest.mark.parametrize(("ago", "kept"), [(DAY - 1, True), (DAY, False)])
def test_pause_is_removed_when_it_ended_a_day_ago(ago: int, *, kept: bool) -> None:
    records = BEGUN.with_pause("uid-other", pause(1, uid="uid-other", until=NOW - ago))
    found = ended(records, RAISED, EndMove(MoveOutcome.MOVED), 0, Now(NOW))
    assert ("uid-other" in found.pauses) is kept
