"""Write numbers, durations and timestamps for people."""

import pytest

from core.model.humanize import DAY, HOUR, age, duration, left, plural, timestamp


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (2000, "2,000 nodes")]
)
def test_plural_adds_s_unless_number_is_one(number: int, text: str) -> None:
    assert plural(number, "node") == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 pods that wait"), (1, "1 pod that waits"), (2, "2 pods that wait")]
)
def test_plural_uses_given_form_when_s_does_not_make_it(number: int, text: str) -> None:
    assert plural(number, "pod that waits", "pods that wait") == text


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (-5, "5 s"),
    ],
)
def test_duration_is_written_in_at_most_two_units(seconds: int, written: str) -> None:
    assert duration(seconds) == written


@pytest.mark.parametrize(
    ("seconds", "now", "written"),
    [
        (0, 60, "1970-01-01 00:00:00 UTC (1 min ago)"),
        (60, 0, "1970-01-01 00:01:00 UTC (in 1 min)"),
        (60, None, "1970-01-01 00:01:00 UTC"),
        (10**15, 0, "1000000000000000 (unix seconds)"),
        (10**15, None, "1000000000000000 (unix seconds)"),
    ],
)
def test_timestamp_is_unix_seconds_when_no_calendar_has_it(
    seconds: int, now: int | None, written: str
) -> None:
    assert timestamp(seconds, now) == written


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (600, "10m"),
        (3 * HOUR - 1, "179m"), (3 * HOUR, "3h"), (3 * HOUR + 1200, "3h20m"), (8 * HOUR, "8h"),
        (2 * DAY - 1, "47h"), (2 * DAY, "2d"), (3 * DAY + 2 * HOUR, "3d2h"), (8 * DAY, "8d"),
        (200 * DAY, "200d"),
    ],
)  # fmt: skip
def test_age_is_formatted_as_by_kubectl(seconds: int, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (599, "9m59s"), (601, "11m"), (3 * HOUR - 1, "3h"),
        (8 * HOUR - 1, "8h"), (DAY - 2, "24h"), (3 * DAY + 1, "3d1h"), (9 * DAY - 1, "9d"),
    ],
)  # fmt: skip
def test_time_left_is_rounded_up(seconds: int, text: str) -> None:
    assert left(seconds) == text
