"""Answer `ebb history`: select the days of a period, and sum them up."""

import datetime as dt
from collections.abc import Mapping
from typing import Final

from cli.answers import PastDays
from cli.input.history import History
from controller.day_report import DayReport, date_of, day_report, today_report
from core.history.days import DAY_SECONDS, MONTH_DAYS, Day, summed

PERIODS: Final[Mapping[str, int]] = {"day": 1, "week": 7, "month": MONTH_DAYS}
"""Number of days by the name of a period."""


def number_of(date: dt.date) -> int:
    """Return the number of a day since 1970."""
    return (date - dt.date(1970, 1, 1)).days


def past_days(
    history: History, period: str, until: dt.date | None, now_seconds: int, cluster: str
) -> PastDays:
    """Return the days of a period. *until*: its last day; None for the current day, in UTC."""
    last = max(number_of(until), 0) if until else now_seconds // DAY_SECONDS
    first = max(last - PERIODS[period] + 1, 0)
    found = [history.days[number] for number in sorted(history.days) if first <= number <= last]
    today = history.today
    removed = [
        one
        for one in (today.removed if today else ())
        if first <= one.removed_at // DAY_SECONDS <= last
    ]

    def report(day: Day) -> DayReport:
        if today is not None and day.number == today.day.number:
            return today_report(today)
        return day_report(day, removed)

    return PastDays(
        cluster=cluster,
        period=period,
        first=date_of(first),
        last=date_of(last),
        days=[report(day) for day in reversed(found)],
        total=day_report(summed(found, last)),
        counted_until_seconds=today.counted_until if today else None,
        now_seconds=now_seconds,
    )
