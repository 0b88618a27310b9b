"""The records in the ConfigMap: what is written is read again, and garbled text harms no other."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.surge import MOVES_MAX
from core.model.now import Now
from core.moves.records import (
    DATA_CHARACTERS_MAX,
    HOUR_SECONDS,
    MINUTES_MAX,
    PAUSES_MAX,
    MoveRecords,
    Pause,
    decode,
    encode,
)
from tests.support.surge import NOW, make_record

RECORD = make_record()
PAUSE = Pause("d", "web", "uid-web", NOW + 600, 2, "argocd", NOW)
BOTH = MoveRecords(
    moves={"uid-web": RECORD}, pauses={"uid-web": PAUSE}, begun={NOW - 60: 3, NOW: 1}
)


def test_records_are_read_as_written() -> None:
    assert decode(encode(BOTH)) == (BOTH, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("original", -1),
        ("original", True),
        ("original", 2.0),
        ("original", 7),
        ("raised", 2**40),
        ("namespace", ""),
        ("pod", "a\nb"),
        ("pod", None),
        ("node", "x" * 254),
        ("uid", "another"),
        ("begun", "1"),
        ("deadline", 10**12),
        ("step", "done"),
        ("outcome", []),
    ],
)
def test_record_is_dropped_with_warning_when_field_is_invalid(name: str, value: object) -> None:
    text = json.dumps({**asdict(RECORD), name: value})
    records, warnings = decode({**encode(BOTH), "move.uid-web": text})
    assert records == replace(BOTH, moves={})
    assert warnings == ("entry move.uid-web is invalid and was dropped",)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=5))
def test_garbled_entries_do_not_affect_others(garbage: dict[str, str]) -> None:
    found = decode({**garbage, **encode(BOTH)})
    assert found.records == BOTH
    assert len(found.warnings) == len(garbage.keys() - encode(BOTH).keys())


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", "[" * 2000, '"x"', "{}"])
def test_entry_is_dropped_when_text_is_no_record(text: str) -> None:
    found = decode({"move.uid-web": text, "pause.uid-web": text})
    assert found.records == MoveRecords()
    assert len(found.warnings) == 2


def test_records_keep_their_bounds() -> None:
    long = "x" * 253
    moves = {f"u{n}": make_record(uid=f"u{n}", pod=long, node=long) for n in range(MOVES_MAX + 5)}
    pauses = {
        f"u{n:04}": PAUSE._replace(uid=f"u{n:04}", until=n, manager=long) for n in range(2000)
    }
    data = encode(MoveRecords(moves=moves, pauses=pauses))
    assert sum(map(len, data.values())) <= DATA_CHARACTERS_MAX
    found = decode(data).records
    assert len(found.moves) == MOVES_MAX
    assert len(found.pauses) == PAUSES_MAX
    assert "u1999" in found.pauses
    assert "u0000" not in found.pauses


@pytest.mark.parametrize(
    "text", ["", "[]", '{"x": 1}', '{"-60": 1}', '{"60": -1}', '{"60": 1.5}', "[" * 2000]
)
def test_count_of_moves_is_dropped_with_warning_when_it_is_invalid(text: str) -> None:
    records, warnings = decode({**encode(BOTH), "begun": text})
    assert records == replace(BOTH, begun={})
    assert warnings == ("entry begun is invalid and was dropped",)


def test_moves_are_counted_for_an_hour_in_a_bounded_entry() -> None:
    records = MoveRecords(begun={NOW + 301: 7, NOW - 3660: 7})
    for at in range(NOW, NOW + 2 * HOUR_SECONDS, 30):
        records = records.with_begun([make_record()], Now(at))
        assert decode(encode(records)).records == records
        assert len(records.begun) <= MINUTES_MAX
    assert records.begun_within_hour(Now(NOW + 2 * HOUR_SECONDS)) == 120
    assert records.begun_within_hour(Now(NOW + 4 * HOUR_SECONDS)) == 0


def test_more_records_than_allowed_are_dropped_when_read() -> None:
    many = {f"u{n:03}": make_record(uid=f"u{n:03}") for n in range(MOVES_MAX)}
    data = {**encode(MoveRecords(moves=many)), **encode(BOTH)}
    found = decode(data)
    assert len(found.records.moves) == MOVES_MAX
    assert found.warnings
