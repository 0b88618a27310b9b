"""What holds for every score, and a table of what each gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.marks.mark import Mark
from core.model.resources import Resources
from core.scores import SCORE_MAX, SCORES, Score, score_marked

EVERY = pytest.mark.parametrize("score", SCORES.values(), ids=list(SCORES))


def at(used: int) -> tuple[Resources, Resources]:
    """Return requests and allocatable of a node of which so many percent of CPU are requested."""
    return Resources(used, 0), Resources(100, 100)


@EVERY
@given(st.integers(1, 50), st.integers(0, 200), st.integers(0, 100))
def test_an_unmarked_node_scores_above_every_marked_one(
    score: Score, count: int, used: int, whole: int
) -> None:
    marked = [score_marked(Mark.SOFT, rank, count) for rank in range(count)]
    assert marked == sorted(marked)
    assert marked[0] == 0
    assert score_marked(Mark.HARD, count - 1, count) <= min(marked)
    found = score.unmarked(Resources(used, used), Resources(whole, whole))
    assert max(marked) < found <= SCORE_MAX


@EVERY
@given(st.integers(0, 99), st.integers(1, 100))
def test_a_score_never_falls_as_a_node_fills(score: Score, used: int, whole: int) -> None:
    one, more = (score.unmarked(Resources(u), Resources(whole, whole)) for u in (used, used + 1))
    assert one <= more


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("marks", {0: 10, 50: 10, 100: 10, 150: 10}),
        ("pack", {0: 2, 11: 2, 12: 3, 50: 6, 88: 9, 89: 10, 100: 10, 150: 10}),
    ],
)
def test_what_each_gives(name: str, found: dict[int, int]) -> None:
    assert {used: SCORES[name].unmarked(*at(used)) for used in found} == found
