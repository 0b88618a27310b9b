"""The count of the moves of the last hour, in the annotation of a Lease."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.surge import HOURLY_MAX
from core.model.now import Now
from core.moves.hourly import (
    MINUTES_MAX,
    TEXT_CHARACTERS_MAX,
    begun_within_hour,
    decode,
    encode,
    with_begun,
)
from tests.support.surge import NOW

COUNTS = st.dictionaries(
    st.integers(0, 10**10).map(lambda minute: 60 * minute), st.integers(0, HOURLY_MAX), max_size=80
)


@given(COUNTS)
def test_newest_counts_are_read_as_written(begun: dict[int, int]) -> None:
    text = encode(begun)
    assert len(text) <= TEXT_CHARACTERS_MAX
    assert decode(text) == dict(sorted(begun.items())[-MINUTES_MAX:])


@pytest.mark.parametrize(
    ("begun", "moves"),
    [
        ({}, 0),
        ({NOW: 3}, 3),
        ({NOW - 3600: 3, NOW: 4}, 7),
        ({NOW - 3660: 3}, 0),
        ({NOW + 300: 3}, 3),
        ({NOW + 360: 3}, 0),
    ],
    ids=str,
)
def test_moves_of_the_last_hour_count(begun: dict[int, int], moves: int) -> None:
    """A minute counts until an hour after its end, and if a clock can be so far ahead."""
    assert begun_within_hour(begun, Now(NOW)) == moves


def test_moves_are_added_to_their_minute() -> None:
    found = with_begun({NOW - 7200: 9, NOW: 1}, 2, Now(NOW + 59))
    assert found == {NOW: 3}
    assert with_begun(found, 1, Now(NOW + 60)) == {NOW: 3, NOW + 60: 1}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("{", {}),
        ("[]", {}),
        ('{"x": 1}', {}),
        ('{"60": -1}', {}),
        ('{"60": 1.5}', {}),
        ('{"60": null}', {}),
        ('{"-60": 1}', {}),
        ("[" * 3000, {}),
        ('{"60": 1}' + " " * TEXT_CHARACTERS_MAX, {}),
        ('{"60": 99999999}', {60: HOURLY_MAX}),
    ],
)
def test_counts_are_empty_when_they_are_invalid(text: str, found: dict[int, int]) -> None:
    assert decode(text) == found
