"""Numbers and times in sentences."""

import pytest

from core.model.humanize import duration, plural, timestamp


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (2000, "2,000 nodes")]
)
def test_one_is_one(number: int, said: str) -> None:
    assert plural(number, "node") == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 pods that wait"), (1, "1 pod that waits"), (2, "2 pods that wait")]
)
def test_a_plural_that_no_s_makes_is_given(number: int, said: str) -> None:
    assert plural(number, "pod that waits", "pods that wait") == said


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
def test_spans(seconds: int, written: str) -> None:
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
def test_a_moment_may_be_one_that_no_calendar_has(
    seconds: int, now: int | None, written: str
) -> None:
    assert timestamp(seconds, now) == written
