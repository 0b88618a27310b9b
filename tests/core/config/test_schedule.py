"""When windows are open: tables with changes of the clock; a comparison with a plain search."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.config.document import parse
from core.config.schedule import CRON_CHARS_MAX, UTC, Window
from core.config.schema import written
from core.model.errors import ConfigError
from tests.support.configurations import HEAD
from tests.support.examples import examples

HOUR = 3600
BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
SPRING, AUTUMN = 1_774_746_000, 1_792_890_000
"""Changes of Berlin's clock in 2026: 02:00 becomes 03:00, and 03:00 becomes 02:00."""


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def window(start: str, hours: float = 1, zone: ZoneInfo = UTC) -> Window:
    return Window(start=start, duration_seconds=round(hours * HOUR), time_zone=zone)


@pytest.mark.parametrize(
    ("made", "now", "until"),
    [
        (window("0 22 * * mon-fri", 8), "2026-11-26T22:00:00Z", "2026-11-27T06:00:00Z"),
        (window("0 22 * * mon-fri", 8), "2026-11-26T21:59:59Z", None),
        (window("0 22 * * mon-fri", 8), "2026-11-27T05:59:59Z", "2026-11-27T06:00:00Z"),
        (window("0 22 * * mon-fri", 8), "2026-11-27T06:00:00Z", None),
        (window("0 22 * * mon-fri", 8), "2026-11-29T23:00:00Z", None),
        (window("0 22 * * *", 8, BERLIN), "2026-11-26T21:00:00Z", "2026-11-27T05:00:00Z"),
        # Longer than its period: it never closes. The last start decides about the end.
        (window("0 * * * *", 2), "2026-11-26T21:30:00Z", "2026-11-26T23:00:00Z"),
        (window("* * * * *", 720), "2026-11-26T21:30:30Z", "2026-12-26T21:30:00Z"),
        # 02:30 does not exist: the window opens when the clock has changed.
        (window("30 2 * * *", 1, BERLIN), "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"),
        (window("30 2 * * *", 1, BERLIN), "2026-03-29T00:59:59Z", None),
        # 02:30 exists twice: the window opens once, at the first time.
        (window("30 2 * * *", 1, BERLIN), "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        (window("45 2 * * *", 1, BERLIN), "2026-10-25T01:15:00Z", "2026-10-25T01:45:00Z"),
        (window("30 2 * * *", 0.5, BERLIN), "2026-10-25T01:30:00Z", None),
        (window("30 * * * *", 0.5, BERLIN), "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"),
        # The duration does not depend on the clock.
        (window("0 22 * * *", 8, BERLIN), "2026-10-25T04:59:59Z", None),
        (window("0 22 * * *", 8, BERLIN), "2026-10-25T03:59:59Z", "2026-10-25T04:00:00Z"),
    ],
)
def test_window_is_open_until_its_duration_has_passed(
    made: Window, now: str, until: str | None
) -> None:
    assert made.open_until(at(now)) == (at(until) if until else None)


@pytest.mark.parametrize(
    ("start", "zone", "now", "found"),
    [
        ("0 22 * * mon-fri", UTC, "2026-11-26T22:00:00Z", "2026-11-27T22:00:00Z"),
        ("0 22 * * mon-fri", UTC, "2026-11-27T22:00:00Z", "2026-11-30T22:00:00Z"),
        ("30 2 * * *", BERLIN, "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"),
        ("45 2 * * *", BERLIN, "2026-10-25T01:15:00Z", "2026-10-26T01:45:00Z"),
        ("0 0 29 2 *", UTC, "2026-11-26T22:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 29 2 */7", UTC, "2026-11-26T22:00:00Z", "2032-02-29T00:00:00Z"),
        ("0 0 1 1 1", UTC, "2026-11-26T22:00:00Z", "2027-01-01T00:00:00Z"),
    ],
)
def test_next_start_is_later_than_now(start: str, zone: ZoneInfo, now: str, found: str) -> None:
    assert window(start, zone=zone).next_start(at(now)) == at(found)


PARTS = (
    ("*", "*/15", "0", "30", "15,45"),
    ("*", "*/6", "0", "2", "1-3", "22,23"),
    ("*", "29", "25,30"),
    ("*", "3-10"),
    ("*", "0", "1-5"),
)
EXPRESSIONS = st.tuples(*map(st.sampled_from, PARTS)).map(" ".join)
MOMENTS = st.one_of(
    st.builds(
        lambda change, away: change + away,
        st.sampled_from((SPRING, AUTUMN)),
        st.integers(-4 * HOUR, 4 * HOUR),
    ),
    st.integers(SPRING, AUTUMN),
)


def values(part: str, least: int, most: int) -> set[int]:
    found = set()
    for one in part.split(","):
        whole, _, step = one.partition("/")
        first, _, last = whole.replace("*", f"{least}-{most}").partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def is_start(expression: str, local: datetime) -> bool:
    minute, hour, day, month, weekday = expression.split()
    days = local.day in values(day, 1, 31), local.isoweekday() % 7 in values(weekday, 0, 6)
    both = "*" in (day[0], weekday[0])
    return (
        local.minute in values(minute, 0, 59)
        and local.hour in values(hour, 0, 23)
        and local.month in values(month, 1, 12)
        and (all(days) if both else any(days))
    )


def plain_starts(made: Window, begin: int, end: int) -> list[int]:
    """Return all starts between two times; look at each minute."""
    minute, hour = made.start.split()[:2]
    by_clock = "*" not in (minute[0], hour[0])
    found, before = [], None
    for second in range(begin // 60 * 60, end + 1, 60):
        local = datetime.fromtimestamp(second, made.time_zone)
        naive, once = local.replace(tzinfo=None, fold=0), local.fold == 0 or not by_clock
        skipped = before + timedelta(minutes=1) if before and by_clock else naive
        missed = False
        while skipped < naive:
            missed, skipped = (
                missed or is_start(made.start, skipped),
                skipped + timedelta(minutes=1),
            )
        if missed or (once and is_start(made.start, naive)):
            found.append(second)
        before = naive
    return found


@settings(max_examples=examples(150), deadline=None)
@given(
    EXPRESSIONS,
    st.sampled_from((60, HOUR, 3 * HOUR, 30 * HOUR)),
    st.sampled_from((UTC, BERLIN, KOLKATA)),
    MOMENTS,
)
@example("45 2 * * *", HOUR, BERLIN, AUTUMN + 900)
def test_window_agrees_with_plain_search(
    expression: str, seconds: int, zone: ZoneInfo, now: int
) -> None:
    made = Window(start=expression, duration_seconds=seconds, time_zone=zone)
    starts = plain_starts(made, now - 34 * HOUR, now + 30 * HOUR)
    last = max((one for one in starts if one <= now), default=now - 10**6)
    assert made.open_until(now) == (last + seconds if now < last + seconds else None)
    found, later = made.next_start(now), [one for one in starts if one > now]
    assert found == later[0] if later else found is None or found > now + 30 * HOUR - 60


def section(**changes: Any) -> dict[str, Any]:
    return {**HEAD, "schedule": [{"start": "0 2 * * *", "duration": "1h", **changes}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": "0 25 * * *"}, "its hour is invalid"),
        ({"start": "0 0 30 2 *"}, "its day-of-month is invalid"),
        ({"start": "0 0 LW * */7"}, "no date matches it"),
        ({"start": "0 0 * * fri-mon"}, "its day-of-week is invalid"),
        ({"start": "0 0 0 * * *"}, "a cron expression of five fields"),
        ({"start": "@daily"}, "a cron expression of five fields"),
        ({"start": "0 0 * * " + "1," * CRON_CHARS_MAX + "1"}, "a cron expression of five fields"),
        ({"timeZone": "Europe/berlin"}, "did you mean Europe/Berlin?"),
        ({"timeZone": "America"}, "the name of an IANA time zone"),
        ({"timeZone": "../../etc/passwd"}, "the name of an IANA time zone"),
        ({"timeZone": "localtime"}, "the name of an IANA time zone"),
        ({"duration": "59s"}, "a duration of whole seconds, 60s to 720h"),
        ({"duration": "721h"}, "a duration of whole seconds, 60s to 720h"),
    ],
)
def test_fault_names_field_value_and_what_is_allowed(
    changes: dict[str, str], message: str
) -> None:
    ((field, value),) = changes.items()
    with pytest.raises(ConfigError) as fault:
        parse(section(**changes), "ebb.yaml")
    assert str(fault.value).startswith(f"ebb.yaml: schedule[0].{field}: {value!r:.80}; allowed: ")
    assert message in str(fault.value)


@pytest.mark.parametrize(
    ("given_text", "seconds"),
    [
        ("2026-12-27T08:00:00Z", 1_798_358_400),
        ("2026-12-27T09:00+01:00", 1_798_358_400),
        ("2026-12-27 08:00:00z", 1_798_358_400),
        ("1970-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
    ],
)
def test_pause_is_read_and_written_in_utc(given_text: str, seconds: int) -> None:
    config = parse({**HEAD, "pauseUntil": given_text}, "ebb.yaml")
    assert config.pause_until_seconds == seconds
    assert parse(written(config), "ebb.yaml") == config


@pytest.mark.parametrize(
    "wrong",
    [
        "2026-12-27", "2026-12-27T08:00:00", "2026-13-27T08:00:00Z", "tomorrow", 1_798_358_400,
        "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "2026-12-27T08:00:00+99:00",
    ],
)  # fmt: skip
def test_pause_without_valid_time_is_rejected(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"pauseUntil: .*; allowed: a time with its offset"):
        parse({**HEAD, "pauseUntil": wrong}, "ebb.yaml")


@settings(max_examples=examples(300), deadline=None)
@given(st.from_regex(r"\A[0-9LWSUNMO*/,#-]{1,8}( [0-9LWJANT*/,#-]{1,8}){4}\Z"))
@example("0 0 L/2 * 5L")
@example("0 0 * * 1#2/3")
def test_any_expression_is_rejected_or_evaluated(expression: str) -> None:
    try:
        config = parse(section(start=expression), "ebb.yaml")
    except ConfigError as fault:
        assert "schedule[0].start" in str(fault)  # noqa: PT017 either is fine
    else:
        (made,) = config.schedule
        found = made.next_start(SPRING)
        assert found is None or found > SPRING
        made.open_until(SPRING)
