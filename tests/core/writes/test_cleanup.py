"""`ebb cleanup` removes everything of Ebb from a Node, and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.marks.mark import Mark
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.node import Effect, Node, Taint
from core.writes.cleanup import cleanup_write, unmark_write
from core.writes.write import Write, WriteKind, applied
from tests.support.builders import marked, node
from tests.support.strategies import nodes

pytestmark = pytest.mark.mutate

OURS_THERE = f"unmarked {DO_NOT_DISRUPT_ANNOTATION}"
FOREIGN = Taint("theirs", "x", Effect.NO_SCHEDULE)
OURS = Taint(TAINT_KEY, "7", Effect.PREFER_NO_SCHEDULE)


@pytest.mark.parametrize(
    ("labels", "annotations", "taints", "removed"),
    [
        ({}, {}, (), None),
        ({"a": "b"}, {KEEP_ANNOTATION: "true"}, (FOREIGN,), None),
        ({MARK_LABEL: "PreferNoSchedule"}, {}, (), {MARK_LABEL}),
        ({MARK_LABEL: "unknown"}, {}, (), {MARK_LABEL}),
        ({}, {DETAILS_ANNOTATION: "{}"}, (), {DETAILS_ANNOTATION}),
        ({}, {BACKOFF_ANNOTATION: "1 2"}, (), {BACKOFF_ANNOTATION}),
        ({}, {SCALE_DOWN_DISABLED_ANNOTATION: "true"}, (), None),
        (
            {},
            {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "5"},
            (),
            {SCALE_DOWN_DISABLED_ANNOTATION, PROTECTION_ANNOTATION},
        ),
        (
            {},
            {SCALE_DOWN_DISABLED_ANNOTATION: "false", PROTECTION_ANNOTATION: "5"},
            (),
            {PROTECTION_ANNOTATION},
        ),
        (
            {},
            {DO_NOT_DISRUPT_ANNOTATION: "true", PROTECTION_ANNOTATION: OURS_THERE},
            (),
            {DO_NOT_DISRUPT_ANNOTATION, PROTECTION_ANNOTATION},
        ),
        ({}, {DO_NOT_DISRUPT_ANNOTATION: "true"}, (), None),
        ({}, {RESERVE_ANNOTATION: "for p"}, (), {RESERVE_ANNOTATION}),
        ({}, {}, (OURS, FOREIGN), set()),
        ({MARK_LABEL: "PreferNoSchedule"}, {}, (OURS, FOREIGN), {MARK_LABEL}),
    ],
)
def test_cleanup_removes_only_own_metadata_and_taints(
    labels: dict[str, str],
    annotations: dict[str, str],
    taints: tuple[Taint, ...],
    removed: set[str] | None,
) -> None:
    found = cleanup_write(
        replace(node("n", labels=labels, annotations=annotations), taints=taints), TAINT_KEY
    )
    if removed is None:
        assert found is None
        return
    assert found is not None
    assert {*found.labels, *found.annotations} == removed
    assert found.taints == (None if removed else (FOREIGN,))
    assert ("taint" in found.note) is (OURS in taints)


def clean_up(found: Node) -> Node:
    """Apply the writes as the API server does."""
    while (what := cleanup_write(found, TAINT_KEY)) is not None:
        found = applied(what, found)
    return found


@given(nodes(0), st.sampled_from(Mark))
def test_cleanup_restores_node_as_before_mark(found: Node, mark: Mark) -> None:
    before = clean_up(found)
    protection = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
    after = marked(before, mark, since=7)
    after = replace(after, annotations={**after.annotations, **protection})
    assert clean_up(after) == before
    assert cleanup_write(before, TAINT_KEY) is None


@pytest.mark.parametrize(
    ("mark", "before", "after"),
    [
        ("PreferNoSchedule", None, "1 4600 unmarked"),
        ("NoSchedule", "1 500", "2 8200 unmarked"),
        ("unknown", None, None),
        (None, None, None),
        (None, "1 500", "1 500"),
    ],
)
def test_unmark_begins_backoff_of_marked_node_and_keeps_other_backoffs(
    mark: str | None, before: str | None, after: str | None
) -> None:
    labels = {MARK_LABEL: mark} if mark else {}
    annotations = {DETAILS_ANNOTATION: "{}"} | ({BACKOFF_ANNOTATION: before} if before else {})
    found = node("n", labels=labels, annotations=annotations, taints=(OURS, FOREIGN))
    writes = 0
    while (what := unmark_write(found, TAINT_KEY, 1000)) is not None:
        found, writes = applied(what, found), writes + 1
    assert writes == 2, "the second write removes the taint"
    assert found.annotations.get(BACKOFF_ANNOTATION) == after
    assert found == replace(
        node("n", annotations={BACKOFF_ANNOTATION: after} if after else {}), taints=(FOREIGN,)
    )


def test_cleanup_removes_metadata_before_remaining_taints() -> None:
    """The webhook removes our taint together with the mark, so no second write is needed."""
    whole = node("n", labels={MARK_LABEL: "PreferNoSchedule"}, taints=(OURS, FOREIGN))
    bare = replace(whole, labels={})
    released = {"labels": {MARK_LABEL: None}}
    expected = Write(WriteKind.UNMARK, whole, released, f"{MARK_LABEL}, taint", None)
    assert cleanup_write(whole, TAINT_KEY) == expected
    assert cleanup_write(bare, TAINT_KEY) == Write(WriteKind.UNMARK, bare, {}, "taint", (FOREIGN,))
