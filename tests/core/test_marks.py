from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import marks
from core.marks import Details, Mark
from core.model import Node, Resources, Taint
from tests.support.builders import node

OURS = Taint(marks.TAINT_KEY, "100", "PreferNoSchedule")
OTHER = Taint("other", "x", "NoSchedule", "2026-01-01T00:00:00Z")
DETAILS = Details(since=100, deadline=200, owner="me", policy="p", reason="r")
SINCE_100 = {marks.DETAILS_ANNOTATION: marks.encode_details(DETAILS)}


def marked(value: str, *taints: Taint) -> Node:
    return node("n", labels={marks.MARK_LABEL: value}, annotations=SINCE_100, taints=taints)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(node("n", taints=(OTHER,)), (OTHER,), id="no mark, not ours"),
        pytest.param(node("n", taints=(OURS, OTHER)), (OTHER,), id="no mark any more"),
        pytest.param(marked("soft"), (OURS,), id="marked"),
        pytest.param(marked("soft", OTHER), (OTHER, OURS), id="others first"),
        pytest.param(marked("soft", OURS, OTHER), (OURS, OTHER), id="in place"),
        pytest.param(
            marked("hard", OURS, OTHER),
            (Taint(marks.TAINT_KEY, "100", "NoSchedule"), OTHER),
            id="hardened in place",
        ),
        pytest.param(marked("soft", OURS, OTHER, OURS), (OURS, OTHER), id="once is enough"),
        pytest.param(marked("maybe", OTHER), (OTHER,), id="a value that is no mark"),
    ],
)
def test_desired_taints(found: Node, expected: tuple[Taint, ...]) -> None:
    assert marks.desired_taints(found) == expected


KEYS = st.sampled_from([marks.TAINT_KEY, "a", "b"])
TAINTS = st.lists(
    st.builds(Taint, KEYS, st.sampled_from(["", "1", "x"]), st.sampled_from(["NoSchedule", "?"])),
    max_size=5,
)
LABELS = st.sampled_from([{}, {marks.MARK_LABEL: "soft"}, {marks.MARK_LABEL: "hard"}])


@given(LABELS, TAINTS)
def test_desired_taints_settle_at_once_and_leave_others_alone(
    labels: Mapping[str, str], taints: list[Taint]
) -> None:
    before = node("n", labels=labels, taints=tuple(taints))
    after = marks.desired_taints(before)
    again = node("n", labels=labels, taints=after)
    assert marks.desired_taints(again) == after
    assert [t for t in after if t.key != marks.TAINT_KEY] == [
        t for t in taints if t.key != marks.TAINT_KEY
    ]
    assert sum(t.key == marks.TAINT_KEY for t in after) == len(labels)


def test_details_come_back_as_they_went() -> None:
    assert marks.decode_details(SINCE_100) == DETAILS


WHOLE = '{"since":%s,"deadline":%s,"owner":"a","policy":"b","reason":"c","order":%s}'
TEXTS = '{"since":1,"deadline":1,"owner":"%s","policy":"%s","reason":"%s"}'
NO_WHOLE = [
    *("-1", "1" + "0" * 12, "1" + "0" * 70, "9" * 5000, "Infinity", "-Infinity", "NaN", "true"),
    *("1.5", "1.0", "1e3", "null", '""', '"1"', '"\u0663"', "\u0663", "[]", "{}", "[" * 4000),
]
NO_TEXT = ["\\u0000", "\\ud800", "\\n", "\\u001b[2J", "\x7f", "\u2028", "a" * 5000]


DAMAGED = [
    *("", "{", "[]", "{}", '{"since":"x"}', "null", "7", "[" * 100_000, " " * 300_000),
    *(WHOLE % (bad, 1, 1) for bad in NO_WHOLE),
    *(WHOLE % (1, bad, 1) for bad in NO_WHOLE),
    *(WHOLE % (1, 1, bad) for bad in NO_WHOLE),
    *(TEXTS % (bad, "b", "c") for bad in NO_TEXT),
    *(TEXTS % ("a", bad, "c") for bad in NO_TEXT),
    *(TEXTS % ("a", "b", bad) for bad in NO_TEXT),
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=map(str, range(len(DAMAGED))))
def test_damaged_details_are_none(damaged: str) -> None:
    assert marks.decode_details({marks.DETAILS_ANNOTATION: damaged}) is None


@pytest.mark.parametrize("second", [0, 1, 10**12 - 1])
def test_seconds_within_bounds_are_read(second: int) -> None:
    details = marks.decode_details({marks.DETAILS_ANNOTATION: WHOLE % (second, second, second)})
    assert details == Details(
        since=second, deadline=second, owner="a", policy="b", reason="c", order=second
    )
    assert marks.seconds_of(str(second)) == second


@pytest.mark.parametrize(
    "text", ["", "-1", " 1", "1\n", "1_0", "\u0663", "\u00b2", "1" * 13, "1.0"]
)
def test_seconds_are_ascii_digits(text: str) -> None:
    assert marks.seconds_of(text) is None
    for written in (f"1 {text}", f"{text} 1"):
        assert marks.backoff_of({marks.BACKOFF_ANNOTATION: written}) is None
    ours = Taint(marks.TAINT_KEY, text, "NoSchedule")
    assert marks.marked_since(node("n", taints=(ours,))) == 0


@pytest.mark.parametrize(
    ("annotations", "key"),
    [
        ({}, None),
        ({marks.KEEP_ANNOTATION: "true"}, marks.KEEP_ANNOTATION),
        ({marks.KEEP_ANNOTATION: "false"}, None),
        ({marks.KARPENTER_KEEP_ANNOTATION: "true"}, marks.KARPENTER_KEEP_ANNOTATION),
        ({marks.GUARD_ANNOTATION: "true"}, marks.GUARD_ANNOTATION),
        ({marks.GUARD_ANNOTATION: "true", marks.GUARD_OURS_ANNOTATION: "marked"}, None),
    ],
)
def test_opt_outs(annotations: Mapping[str, str], key: str | None) -> None:
    assert marks.opted_out(node("n", annotations=annotations)) == key


@given(st.integers(1, 50), st.data())
def test_every_unmarked_node_scores_above_every_marked_one(
    count: int, data: st.DataObject
) -> None:
    scores = [marks.score_marked(Mark.SOFT, rank, count) for rank in range(count)]
    assert scores == sorted(scores)
    assert scores[0] == 0
    assert marks.score_marked(Mark.HARD, count - 1, count) <= min(scores)
    used, whole = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 100))
    pack = marks.score_pack(Resources(used, used), Resources(whole, whole))
    assert max(scores) < pack <= marks.SCORE_MAX


@given(st.integers(0, 99), st.integers(1, 100))
def test_pack_never_falls_as_a_node_fills(used: int, whole: int) -> None:
    one, more = (
        marks.score_pack(Resources(u, 0), Resources(whole, whole)) for u in (used, used + 1)
    )
    assert one <= more
