"""Properties of every score, and tables of expected values."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.programs import SCORE_NAMES
from core.marks.mark import Mark
from core.model.resources import Resources
from extender.formulas import SCORE_MAX, score_full, score_marked, score_pack, steps_lost
from extender.scores import ANY_POD, SCORES
from tests.support.builders import node, pod

EVERY = pytest.mark.parametrize("score", SCORES)


def scored(score: str, used: Resources, whole: Resources) -> int:
    """Return the score of a node with one pod, for a pod that cannot be read."""
    made, there = SCORES[score](), replace(pod("p", "n", 0, 0), requests=used)
    made.pods_listed({there.key: there})
    return made.of(replace(node("n"), allocatable=whole), ANY_POD)


def test_every_configured_score_name_has_class() -> None:
    assert tuple(SCORES) == SCORE_NAMES


@EVERY
@given(st.integers(1, 50), st.integers(0, 200), st.integers(0, 100))
def test_unmarked_node_scores_above_every_marked_node(
    score: str, count: int, used: int, whole: int
) -> None:
    marked = [score_marked(Mark.PREFER_NO_SCHEDULE, rank, count) for rank in range(count)]
    assert marked == sorted(marked)
    assert marked[0] == 0
    assert score_marked(Mark.NO_SCHEDULE, count - 1, count) <= min(marked)
    found = scored(score, Resources(used, used), Resources(whole, whole))
    assert max(marked) < found <= SCORE_MAX


@EVERY
@given(st.integers(0, 99), st.integers(1, 100))
def test_score_does_not_decrease_when_node_fills(score: str, used: int, whole: int) -> None:
    one, more = (scored(score, Resources(u), Resources(whole, whole)) for u in (used, used + 1))
    assert one <= more


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("marks", {0: 10, 50: 10, 100: 10, 150: 10}),
        ("pack", {0: 2, 11: 2, 12: 3, 50: 6, 88: 9, 89: 10, 100: 10, 150: 10}),
    ],
)
def test_score_depends_on_utilization(name: str, found: dict[int, int]) -> None:
    whole = Resources(100, 100)
    assert {used: scored(name, Resources(used), whole) for used in found} == found


@pytest.mark.parametrize(
    ("used", "found"),
    [
        ({"cpu": 50, "gpu": 0}, 6),
        ({"cpu": 0, "gpu": 8}, 10),
        ({"cpu": 50, "gpu": 2}, 6),
        ({"cpu": 50, "gpu": 6}, 8),
        pytest.param({"cpu": 0, "hugepages-2Mi": 4}, 2, id="hugepages are no device"),
        pytest.param({"cpu": 50, "fpga": 3}, 6, id="node without this device"),
    ],
)
def test_fullness_is_that_of_most_used_resource(used: dict[str, int], found: int) -> None:
    have = Resources(100, 100, extended=(("gpu", 8), ("hugepages-2Mi", 4)))
    devices = tuple((name, many) for name, many in used.items() if name != "cpu" and many)
    assert score_full(Resources(used["cpu"], 0, extended=devices), have) == found


@pytest.mark.parametrize(
    ("alike", "dearer", "found"),
    [
        pytest.param(None, 0, [4] * 9, id="empty"),
        pytest.param(False, 0, [6, 6, 6, 6, 6, 7, 7, 7, 7], id="other owner kind"),
        pytest.param(True, 0, [8, 8, 8, 9, 9, 9, 10, 10, 10], id="same owner kind"),
        pytest.param(True, 1, [7, 7, 7, 8, 8, 8, 9, 9, 9], id="same owner kind, one step"),
        pytest.param(True, 7, [2, 2, 2, 2, 2, 2, 3, 3, 3], id="same owner kind, seven steps"),
        pytest.param(None, 1, [3] * 9, id="empty, one step"),
        pytest.param(None, 8, [2] * 9, id="still above marked nodes"),
    ],
)
def test_pack_score_depends_on_fullness_owner_kind_and_lost_steps(
    alike: bool | None,
    dearer: int,
    found: list[int],
) -> None:
    told = [score_pack(full, alike=alike, dearer=dearer) for full in range(2, 11)]
    assert told == found


@pytest.mark.parametrize(
    ("takes", "least", "steps"),
    [(0, 0, 0), (7, 0, 0), (100, 100, 0), (111, 100, 0), (112, 100, 1), (140, 100, 1),
     (141, 100, 2), (200, 100, 3), (400, 100, 6), (564, 100, 7), (565, 100, 8), (10**9, 1, 8),
     (1119, 1000, 0)],
)  # fmt: skip
def test_three_steps_are_lost_when_share_doubles(takes: int, least: int, steps: int) -> None:
    assert steps_lost(takes, least) == steps
