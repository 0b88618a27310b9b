"""Whether anything may begin, why not, and when that changes."""

import pytest

from core.config.schedule import Window
from core.config.settings import Config
from core.engine.maintenance_gate import (
    ALWAYS,
    MERGED_MAX,
    MayBegin,
    Refusal,
    RefusedWrite,
    may_begin,
)
from core.model.humanize import timestamp
from core.model.now import Now

pytestmark = pytest.mark.mutate

DAY, HOUR = 86_400, 3600
MONDAY = 1_767_571_200
"""2026-01-05 00:00 UTC, a Monday."""
NIGHT = Window(start="0 22 * * *", duration_seconds=8 * HOUR)
MORNING = Window(start="0 6 * * 1-5", duration_seconds=2 * HOUR)
LONGER = Window(start="0 7 * * *", duration_seconds=4 * HOUR)
ALL_DAY = Window(start="0 * * * *", duration_seconds=2 * HOUR)
BEFORE_END = {
    "paused": "`pauseUntil` is",
    "schedule": "the next window of `schedule` opens at",
}
"""Beginning of the message by the code of the reason."""


def config(*windows: Window, pause: int | None = None) -> Config:
    return Config(schedule=windows, pause_until_seconds=pause)


@pytest.mark.parametrize(
    ("given", "at", "until"),
    [
        (config(), MONDAY, None),
        (config(pause=MONDAY), MONDAY, None),
        (config(NIGHT), MONDAY, MONDAY + 6 * HOUR),
        (config(NIGHT), MONDAY + 22 * HOUR, MONDAY + DAY + 6 * HOUR),
        # The next window opens in the second in which the one before closes.
        (config(NIGHT, MORNING), MONDAY, MONDAY + 8 * HOUR),
        (config(MORNING, NIGHT), MONDAY + 6 * HOUR, MONDAY + 8 * HOUR),
        # Windows overlap, or are longer than their period.
        (config(MORNING, LONGER), MONDAY + 6 * HOUR, MONDAY + 11 * HOUR),
        (config(ALL_DAY), MONDAY, MONDAY + 2 * MERGED_MAX * HOUR),
    ],
)
def test_permit_holds_until_no_window_follows(given: Config, at: int, until: int | None) -> None:
    now = Now(at)
    found = may_begin(given, now)
    assert isinstance(found, MayBegin)
    assert now.next_change == until
    assert found == ALWAYS, "permits are equal, whenever they end"
    for second in (at, *((until - 1,) if until else ())):
        assert found.is_valid(Now(second))
        assert may_begin(given, Now(second)) == ALWAYS
    assert until is None or not found.is_valid(Now(until))


@pytest.mark.parametrize(
    ("given", "at", "ends"),
    [
        (config(pause=MONDAY + 1), MONDAY, {"paused": MONDAY + 1}),
        (config(NIGHT), MONDAY + 6 * HOUR, {"schedule": MONDAY + 22 * HOUR}),
        (config(NIGHT, MORNING), MONDAY + 8 * HOUR, {"schedule": MONDAY + 22 * HOUR}),
        (config(MORNING), MONDAY + 4 * DAY + 8 * HOUR, {"schedule": MONDAY + 7 * DAY + 6 * HOUR}),
        (
            config(NIGHT, pause=MONDAY + 3 * DAY),
            MONDAY + 6 * HOUR,
            {"paused": MONDAY + 3 * DAY, "schedule": MONDAY + 22 * HOUR},
        ),
        (config(NIGHT, pause=MONDAY + 3 * DAY), MONDAY, {"paused": MONDAY + 3 * DAY}),
    ],
)
def test_refusal_names_each_reason_and_its_end(
    given: Config, at: int, ends: dict[str, int]
) -> None:
    now = Now(at)
    found = may_begin(given, now)
    assert isinstance(found, Refusal)
    assert {one.code: one.until for one in found.blockers} == ends
    assert {one.message for one in found.blockers} == {
        f"{BEFORE_END[code]} {timestamp(end)}" for code, end in ends.items()
    }
    assert now.next_change == min(ends.values())
    assert may_begin(given, Now(min(ends.values()) - 1)) == found
    assert may_begin(given, Now(min(ends.values()))) != found


def test_refusal_has_no_end_when_no_window_opens_again() -> None:
    never = Window(start="0 0 LW * */7", duration_seconds=60)  # the configuration rejects it
    now = Now(MONDAY)
    found = may_begin(config(never), now)
    assert isinstance(found, Refusal)
    assert [(one.message, one.until) for one in found.blockers] == [
        ("no window of `schedule` opens again", None)
    ]
    assert now.next_change is None


def test_nothing_begins_until_refused_write_may_be_tried_again() -> None:
    refused, now = RefusedWrite("a-policy", "metadata.labels: a", MONDAY + 60), Now(MONDAY)
    found = may_begin(config(), now, refused)
    assert isinstance(found, Refusal)
    assert now.next_change == found.until == MONDAY + 60
    (why,) = found.blockers
    end = timestamp(MONDAY + 60)
    text = "ValidatingAdmissionPolicy a-policy refuses Ebb's writes (metadata.labels: a)"
    message = f"{text}; Ebb tries again at {end}"
    assert (why.code, why.message) == ("writes-refused", message)
    assert may_begin(config(), Now(MONDAY + 60), refused) == ALWAYS
