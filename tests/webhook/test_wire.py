"""The webhook's wire format: admission reviews as an API server sends them."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.marks.taints import desired_taints
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint
from core.model.resources import Resources
from tests.support.admission import apply_json_patch, node_json, patch_of, review_of
from webhook import wire

MESSAGES = Path(__file__).parent / "messages"
SINCE = "1767225600"
PREFER_NO_SCHEDULE = {"key": TAINT_KEY, "value": SINCE, "effect": "PreferNoSchedule"}
NO_SCHEDULE = {"key": TAINT_KEY, "value": SINCE, "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
LOST = {
    "key": "node.kubernetes.io/unreachable",
    "effect": "NoExecute",
    "timeAdded": "2026-01-01T00:00:00Z",
}


def respond(body: bytes) -> bytes:
    return wire.review(body, TAINT_KEY).body


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("create", [{"op": "add", "path": "/spec/taints", "value": [PREFER_NO_SCHEDULE]}]),
        (
            "mark_added_no_taints",
            [{"op": "add", "path": "/spec/taints", "value": [PREFER_NO_SCHEDULE]}],
        ),
        ("dry_run", [{"op": "add", "path": "/spec/taints", "value": [PREFER_NO_SCHEDULE]}]),
        ("taints_null", [{"op": "add", "path": "/spec/taints", "value": [PREFER_NO_SCHEDULE]}]),
        ("no_spec", [{"op": "add", "path": "/spec", "value": {"taints": [PREFER_NO_SCHEDULE]}}]),
        (
            "mark_added_foreign_taints",
            [{"op": "add", "path": "/spec/taints", "value": [GPU, LOST, PREFER_NO_SCHEDULE]}],
        ),
        (
            "mark_becomes_no_schedule",
            [{"op": "add", "path": "/spec/taints", "value": [GPU, NO_SCHEDULE, LOST]}],
        ),
        ("mark_removed", [{"op": "add", "path": "/spec/taints", "value": [GPU, LOST]}]),
        ("taint_in_place", None),
        ("kubelet_update", None),
        ("kubelet_create", None),
        ("delete", None),
        pytest.param("status", None),
    ],
)
def test_review_is_answered_with_expected_patch(
    name: str, expected: list[dict[str, Any]] | None
) -> None:
    body = (MESSAGES / f"{name}.json").read_bytes()
    assert patch_of(respond(body)) == expected


@pytest.mark.parametrize("path", sorted(MESSAGES.glob("*.json")), ids=lambda path: path.stem)
def test_answer_is_review_with_same_uid(path: Path) -> None:
    body = path.read_bytes()
    answer = orjson.loads(respond(body))
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    assert set(answer) == {"apiVersion", "kind", "response"}
    assert answer["response"]["uid"] == orjson.loads(body)["request"]["uid"]


def changed(**changes: Any) -> bytes:
    review = orjson.loads(review_of(node_json()))
    for path, value in changes.items():
        *way, last = path.split("__")
        target = review
        for step in way:
            target = target[step]
        target[last] = value
    return orjson.dumps(review)


def test_object_of_other_kind_is_not_patched() -> None:
    node = node_json() | {"kind": "Pod"}
    node["metadata"]["labels"][MARK_LABEL] = "PreferNoSchedule"
    assert patch_of(respond(review_of(node))) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"',
        b"[" * 100_000,
        changed(apiVersion="admission.k8s.io/v1beta1"),
        changed(kind="Node"),
        changed(request=None),
        changed(request__object="n1"),
        changed(request__object__metadata__labels={MARK_LABEL: 7}),
        changed(request__object__spec__taints={"key": "a"}),
        changed(request__object__spec__taints=["a"]),
        review_of(node_json()).replace(b"n1", rb"\ud800"),
    ],
)
def test_invalid_review_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        wire.review(body, TAINT_KEY)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KEYS = st.sampled_from([TAINT_KEY, "a", "b/c", ""]) | TEXT
TAINTS = st.fixed_dictionaries(
    {"key": KEYS, "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute", "?"])},
    optional={
        "value": st.sampled_from(["0", "7", "x"]) | TEXT | st.none(),
        "timeAdded": st.just("2026-01-01T00:00:00Z") | st.none(),
        "later": st.lists(st.integers(0, 9), max_size=2),
    },
)
UNIQUE = st.lists(TAINTS, unique_by=lambda taint: (taint["key"], taint["effect"]))
"""The API server rejects two taints with the same key and effect."""
SPECS = st.none() | st.fixed_dictionaries({}, optional={"taints": st.none() | UNIQUE})
MARKS = st.sampled_from([None, "PreferNoSchedule", "NoSchedule", "other"])


def a_node(mark: str | None, spec: dict[str, Any] | None) -> dict[str, Any]:
    node = node_json()
    node["spec"] = spec
    if mark is not None:
        node["metadata"]["labels"][MARK_LABEL] = mark
    return node


def modelled(labels: dict[str, str], taints: list[dict[str, Any]]) -> Node:
    read = tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in taints)
    return Node(name="n1", labels=labels, taints=read, allocatable=Resources())


@given(MARKS, SPECS)
def test_patched_node_has_desired_taints_and_is_otherwise_unchanged(
    mark: str | None, spec: dict[str, Any] | None
) -> None:
    node = a_node(mark, spec)
    before = (spec or {}).get("taints") or []
    after = apply_json_patch(node, patch_of(respond(review_of(node))) or [])
    taints = (after["spec"] or {}).get("taints") or []
    labels = node["metadata"]["labels"]
    wanted = desired_taints(modelled(labels, before), TAINT_KEY)
    assert modelled(labels, taints).taints == wanted
    others = [taint for taint in before if taint["key"] != TAINT_KEY]
    assert [taint for taint in taints if taint["key"] != TAINT_KEY] == others
    rest = {key: value for key, value in after.items() if key != "spec"}
    assert rest == {key: value for key, value in node.items() if key != "spec"}


@given(MARKS, SPECS)
def test_second_review_changes_nothing(mark: str | None, spec: dict[str, Any] | None) -> None:
    node = a_node(mark, spec)
    once = apply_json_patch(node, patch_of(respond(review_of(node))) or [])
    assert patch_of(respond(review_of(once))) is None


@given(MARKS, SPECS)
def test_dry_run_is_answered_like_write(mark: str | None, spec: dict[str, Any] | None) -> None:
    node = a_node(mark, spec)
    assert respond(review_of(node, dryRun=True)) == respond(review_of(node, dryRun=False))


@given(st.binary() | st.text().map(str.encode))
def test_random_bytes_are_rejected(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        wire.review(body, TAINT_KEY)
