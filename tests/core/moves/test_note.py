"""The annotation of a pod with its move: what leaders write, and what anybody may have written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.json_values import WHOLE_MAX
from core.model.now import Now
from core.moves.note import MoveNote, decode, note_of
from core.moves.outcomes import MoveOutcome
from kube.decode.pod import MOVE_CHARS_MAX
from tests.support.surge import NOTE, NOW, make_pod

WHOLE = st.integers(0, WHOLE_MAX)
OUTCOMES = st.sampled_from(["", *(one.value for one in MoveOutcome)])


@given(st.builds(MoveNote, st.integers(1, WHOLE_MAX), st.integers(1), WHOLE, OUTCOMES, WHOLE))
def test_note_is_read_as_written(note: MoveNote) -> None:
    note = note._replace(deadline=min(note.deadline, WHOLE_MAX))
    text = note.encode()
    assert decode(text) == note
    assert len(text) <= MOVE_CHARS_MAX, "the decoder of pods cuts no note"


def test_note_of_move_in_progress_has_the_documented_form() -> None:
    assert NOTE.encode() == f'{{"begun": {NOW}, "deadline": {NOW + 600}}}'
    ended = NOTE._replace(failures=2, outcome="timed_out", until=NOW + 9)
    assert ended.encode().endswith(f'"failures": 2, "outcome": "timed_out", "until": {NOW + 9}}}')


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "7",
        "[]",
        "null",
        "{}",
        '{"begun": 1}',
        '{"begun": -1, "deadline": 2}',
        '{"begun": 1.0, "deadline": 2}',
        '{"begun": true, "deadline": 2}',
        '{"begun": "1", "deadline": 2}',
        '{"begun": NaN, "deadline": 2}',
        f'{{"begun": 1, "deadline": {WHOLE_MAX + 1}}}',
        '{"begun": 1, "deadline": 2, "failures": null}',
        '{"begun": 1, "deadline": 2, "until": [1]}',
        "[" * 200,
        '{"begun": 1, "deadline": 2}' + " " * 256,
    ],
)
def test_note_is_ignored_when_it_is_invalid(text: str | None) -> None:
    assert decode(text) is None


@given(st.text(max_size=300))
def test_any_text_is_a_note_or_none(text: str) -> None:
    note = decode(text)
    assert note is None or note.deadline >= 0


ENDED = NOTE._replace(failures=1, outcome="timed_out", until=NOW + 1200)


@pytest.mark.parametrize(
    ("note", "plausible"),
    [
        (NOTE, True),
        (NOTE._replace(begun=NOW - 9000, deadline=NOW - 8400), True),
        (NOTE._replace(begun=NOW + 300, deadline=NOW + 310), True),
        (NOTE._replace(begun=NOW + 301, deadline=NOW + 310), False),
        (NOTE._replace(deadline=NOW + 601), False),
        (NOTE._replace(deadline=NOW), False),
        (NOTE._replace(deadline=NOW - 1), False),
        (NOTE._replace(failures=16), True),
        (NOTE._replace(failures=17), False),
        (ENDED, True),
        (ENDED._replace(until=NOW + 86_400 + 300), True),
        (ENDED._replace(until=NOW + 86_400 + 301), False),
    ],
    ids=str,
)
def test_note_counts_when_a_leader_can_have_written_it(note: MoveNote, *, plausible: bool) -> None:
    assert note.is_plausible(Now(NOW)) is plausible
    pod = replace(make_pod("old"), move=note.encode())
    assert note_of(pod, Now(NOW)) == (note if plausible else None)


def test_note_becomes_plausible_when_its_begin_is_reached() -> None:
    now = Now(NOW)
    assert not NOTE._replace(begun=NOW + 400, deadline=NOW + 410).is_plausible(now)
    assert now.next_change == NOW + 100
