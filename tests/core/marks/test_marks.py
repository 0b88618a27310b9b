from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.marks.mark import (
    DETAILS_CHARACTERS_MAX,
    Backoff,
    Details,
    ProtectionRecord,
    backoff_of,
    backoffs,
    decode_details,
    encode_details,
    mark_order,
    marked_since,
    opt_out_annotation,
    protection_of,
    seconds_of,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    PROTECTION_KEYS,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.node import Node, Taint
from tests.support.builders import node
from tests.support.reference_rules import guarded

pytestmark = pytest.mark.mutate

OURS = Taint(TAINT_KEY, "100", "PreferNoSchedule")
OTHER = Taint("other", "x", "NoSchedule", "2026-01-01T00:00:00Z")
DETAILS = Details(since=100, deadline=200, owner="me", policy="p", reason="r")
OWN_KARPENTER_GUARD = f"unmarked {DO_NOT_DISRUPT_ANNOTATION}"
SINCE_100 = {DETAILS_ANNOTATION: encode_details(DETAILS)}


def unadmitted(value: str, *taints: Taint) -> Node:
    """Return a node with this mark, before the webhook has written its taints."""
    return node("n", labels={MARK_LABEL: value}, annotations=SINCE_100, taints=taints)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(node("n", taints=(OTHER,)), (OTHER,), id="no mark, not ours"),
        pytest.param(node("n", taints=(OURS, OTHER)), (OTHER,), id="mark was removed"),
        pytest.param(unadmitted("PreferNoSchedule"), (OURS,), id="marked"),
        pytest.param(unadmitted("PreferNoSchedule", OTHER), (OTHER, OURS), id="others first"),
        pytest.param(unadmitted("PreferNoSchedule", OURS, OTHER), (OURS, OTHER), id="in place"),
        pytest.param(
            unadmitted("NoSchedule", OURS, OTHER),
            (Taint(TAINT_KEY, "100", "NoSchedule"), OTHER),
            id="NoSchedule in place",
        ),
        pytest.param(
            unadmitted("PreferNoSchedule", OURS, OTHER, OURS),
            (OURS, OTHER),
            id="duplicate of ours removed",
        ),
        pytest.param(unadmitted("maybe", OTHER), (OTHER,), id="label value is not a mark"),
    ],
)
def test_taints_follow_mark(found: Node, expected: tuple[Taint, ...]) -> None:
    assert desired_taints(found, TAINT_KEY) == expected


KEYS = st.sampled_from([TAINT_KEY, "a", "b"])
TAINTS = st.lists(
    st.builds(Taint, KEYS, st.sampled_from(["", "1", "x"]), st.sampled_from(["NoSchedule", "?"])),
    max_size=5,
)
LABELS = st.sampled_from([{}, {MARK_LABEL: "PreferNoSchedule"}, {MARK_LABEL: "NoSchedule"}])


@given(LABELS, TAINTS)
def test_desired_taints_are_idempotent_and_keep_other_taints(
    labels: Mapping[str, str], taints: list[Taint]
) -> None:
    before = node("n", labels=labels, taints=tuple(taints))
    after = desired_taints(before, TAINT_KEY)
    again = node("n", labels=labels, taints=after)
    assert desired_taints(again, TAINT_KEY) == after
    assert [t for t in after if t.key != TAINT_KEY] == [t for t in taints if t.key != TAINT_KEY]
    assert sum(t.key == TAINT_KEY for t in after) == len(labels)


def test_details_survive_round_trip() -> None:
    assert decode_details(SINCE_100) == DETAILS
    assert SINCE_100[DETAILS_ANNOTATION] == (
        '{"since":100,"deadline":200,"owner":"me","policy":"p","reason":"r","order":0}'
    )


WHOLE = '{"since":%s,"deadline":%s,"owner":"a","policy":"b","reason":"c","order":%s}'
TEXTS = '{"since":1,"deadline":1,"owner":"%s","policy":"%s","reason":"%s"}'
NO_WHOLE = [
    *("-1", "1" + "0" * 12, "1" + "0" * 70, "9" * 5000, "Infinity", "-Infinity", "NaN", "true"),
    *(
        "1.5",
        "1.0",
        "1e3",
        "1e400",
        "null",
        '""',
        '"1"',
        '"\u0663"',
        "\u0663",
        "[]",
        "{}",
        "[" * 4000,
    ),
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
def test_details_are_none_when_damaged(damaged: str) -> None:
    assert decode_details({DETAILS_ANNOTATION: damaged}) is None


def test_details_have_no_blanks_and_backoff_may_have_no_reason() -> None:
    written = '{"since":100,"deadline":200,"owner":"me","policy":"p","reason":"r","order":0}'
    assert encode_details(DETAILS) == written
    assert backoff_of({BACKOFF_ANNOTATION: "2 100"}) == Backoff(2, 100, "")


def test_backoffs_are_those_of_nodes_with_valid_annotation() -> None:
    written = {"a": "2 100 bare", "b": "soon", "c": ""}
    nodes = [node(name, annotations={BACKOFF_ANNOTATION: text}) for name, text in written.items()]
    assert backoffs([*nodes, node("d")]) == {"a": Backoff(2, 100, "bare")}


@pytest.mark.parametrize(("longer", "read"), [(0, True), (1, False)])
def test_details_are_read_up_to_length_limit(longer: int, read: bool) -> None:
    """Details without an order have order 0."""
    written = (TEXTS % ("a", "b", "c")).ljust(DETAILS_CHARACTERS_MAX + longer)
    found = Details(since=1, deadline=1, owner="a", policy="b", reason="c", order=0)
    assert decode_details({DETAILS_ANNOTATION: written}) == (found if read else None)


@pytest.mark.parametrize("second", [0, 1, 10**12 - 1])
def test_seconds_are_read_within_bounds(second: int) -> None:
    details = decode_details({DETAILS_ANNOTATION: WHOLE % (second, second, second)})
    assert details == Details(
        since=second, deadline=second, owner="a", policy="b", reason="c", order=second
    )
    assert seconds_of(str(second)) == second


@pytest.mark.parametrize(
    "text", ["", "-1", " 1", "1\n", "1_0", "\u0663", "\u00b2", "1" * 13, "1.0"]
)
def test_seconds_are_rejected_unless_ascii_digits(text: str) -> None:
    assert seconds_of(text) is None
    for written in (f"1 {text}", f"{text} 1"):
        assert backoff_of({BACKOFF_ANNOTATION: written}) is None
    ours = Taint(TAINT_KEY, text, "NoSchedule")
    assert marked_since(node("n", taints=(ours,)), TAINT_KEY) == 0


@pytest.mark.parametrize(
    ("annotations", "key"),
    [
        ({}, None),
        ({KEEP_ANNOTATION: "true"}, KEEP_ANNOTATION),
        ({KEEP_ANNOTATION: "false"}, None),
        ({DO_NOT_DISRUPT_ANNOTATION: "true"}, DO_NOT_DISRUPT_ANNOTATION),
        ({SCALE_DOWN_DISABLED_ANNOTATION: "true"}, SCALE_DOWN_DISABLED_ANNOTATION),
        ({SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}, None),
        ({SCALE_DOWN_DISABLED_ANNOTATION: "false", PROTECTION_ANNOTATION: "marked"},
         SCALE_DOWN_DISABLED_ANNOTATION),
        ({SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "x y"}, None),
        ({DO_NOT_DISRUPT_ANNOTATION: "true", PROTECTION_ANNOTATION: "x"},
         DO_NOT_DISRUPT_ANNOTATION),
        ({DO_NOT_DISRUPT_ANNOTATION: "true", PROTECTION_ANNOTATION: OWN_KARPENTER_GUARD}, None),
        ({SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: OWN_KARPENTER_GUARD},
         SCALE_DOWN_DISABLED_ANNOTATION),
    ],
)  # fmt: skip
@pytest.mark.parametrize("labels", [{}, {KARPENTER_LABEL: "default"}])
def test_opt_out_annotation_is_found(
    annotations: Mapping[str, str], key: str | None, labels: Mapping[str, str]
) -> None:
    """The plain rules agree."""
    found = node("n", annotations=annotations, labels=labels)
    assert opt_out_annotation(found) == key
    assert guarded(found) is (key is not None)


@pytest.mark.parametrize(
    ("value", "ours", "labels", "key"),
    [
        ("false", "", {}, None),
        ("false", "", {KARPENTER_LABEL: "default"}, DO_NOT_DISRUPT_ANNOTATION),
        ("false", "unmarked karpenter.sh/do-not-disrupt", {}, None),
        ("5m", "unmarked karpenter.sh/do-not-disrupt", {KARPENTER_LABEL: ""},
         DO_NOT_DISRUPT_ANNOTATION),
    ],
)  # fmt: skip
def test_foreign_karpenter_annotation_is_opt_out_on_karpenter_nodes(
    value: str, ours: str, labels: Mapping[str, str], key: str | None
) -> None:
    annotations = {DO_NOT_DISRUPT_ANNOTATION: value} | (
        {PROTECTION_ANNOTATION: ours} if ours else {}
    )
    found = node("n", annotations=annotations, labels=labels)
    assert opt_out_annotation(found) == key
    assert guarded(found) is (key is not None)


@pytest.mark.parametrize("key", PROTECTION_KEYS)
def test_protection_annotation_survives_round_trip(key: str) -> None:
    made = ProtectionRecord("unmarked", key)
    annotations = {key: "true", PROTECTION_ANNOTATION: str(made)}
    assert protection_of(node("n", annotations=annotations)) == made
    assert protection_of(node("n", annotations={**annotations, key: "True"})) is None
    assert protection_of(node("n", annotations={PROTECTION_ANNOTATION: str(made)})) is None
    assert protection_of(node("n", annotations={key: "true"})) is None


def test_marks_are_ordered_by_time_and_plan_order() -> None:
    """Without details the time is read from the taint, only under the configured key."""
    taint = Taint("example.com/ours", "5", "PreferNoSchedule")
    bare = node("n", labels={MARK_LABEL: "PreferNoSchedule"}, taints=(taint,))
    assert mark_order(bare, "example.com/ours") == (5, 0)
    assert mark_order(bare, TAINT_KEY) == (0, 0)
    details = {DETAILS_ANNOTATION: encode_details(replace(DETAILS, order=3))}
    assert mark_order(replace(bare, annotations=details), "example.com/ours") == (100, 3)
