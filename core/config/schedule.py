"""Settings for when Ebb may begin marks, surge moves and evictions: windows, and a pause.

core.engine.maintenance_gate decides with them; nothing else reads them.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from core.setting_types.value_types import ValueFormat, duration, matched, not_allowed, texts

WINDOWS_MAX: Final = 20
CRON_CHARS_MAX: Final = 200
ZONE_CHARS_MAX: Final = 64
CLOCK_CHANGE_SECONDS: Final = 3 * 3600
"""Longest change of a clock, as at the end of daylight saving time."""
STARTS_MAX: Final = CLOCK_CHANGE_SECONDS // 60 + 1
"""Maximum number of starts within a change of a clock."""
_CRON: Final = r"[0-9A-Za-z*/,#-]+(?: +[0-9A-Za-z*/,#-]+){4}"
_ZONE: Final = r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}"
_NO_ZONE: Final = r"localtime$|posix|right/"
_TIME: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
CRON_ALLOWED: Final = (
    'a cron expression of five fields (minute, hour, day, month, weekday), such as "0 22 * * 1-5"'
)
ZONE_ALLOWED: Final = 'the name of an IANA time zone, such as "Europe/Berlin"'
TIME_MAX: Final = 253_402_300_799
"""End of the year 9999 in UTC, the last that Python can format."""
TIME_ALLOWED: Final = 'a time with its offset from UTC, such as "2026-12-27T08:00:00Z"'
UTC: Final = ZoneInfo("UTC")
_FIRST: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
"""Time from which an expression must have a start. The calendar repeats after 28 years."""


def _cron(value: object) -> str:
    expression = matched(_CRON, value, CRON_CHARS_MAX)[0]
    try:
        first = next(CronSim(expression, _FIRST), None)
    except CronSimError as fault:
        field = str(fault).removeprefix("Bad ")
        raise not_allowed(f"{CRON_ALLOWED}; its {field} is invalid") from fault
    if first is None:
        raise not_allowed(f"{CRON_ALLOWED}; no date matches it")
    return expression


def _zone(value: object) -> ZoneInfo:
    name = matched(_ZONE, value, ZONE_CHARS_MAX, _NO_ZONE)[0]
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as fault:
        close = get_close_matches(name, available_timezones(), n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise not_allowed(f"{ZONE_ALLOWED}{meant}") from fault


def _time(value: object) -> int:
    seconds = int(dt.datetime.fromisoformat(matched(_TIME, value)[0].upper()).timestamp())
    if not 0 <= seconds <= TIME_MAX:
        raise ValueError
    return seconds


def _written_time(unix_seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(unix_seconds, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


CRON: Final = ValueFormat(_cron, str, texts(_CRON, maxLength=CRON_CHARS_MAX, title=CRON_ALLOWED))
ZONE: Final = ValueFormat(
    _zone, str, texts(_ZONE, excluded=_NO_ZONE, maxLength=ZONE_CHARS_MAX, title=ZONE_ALLOWED)
)
TIME: Final = ValueFormat(_time, _written_time, texts(_TIME, title=TIME_ALLOWED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A recurring time span in which Ebb may begin marks, surge moves and evictions."""

    start: Annotated[str, CRON]
    """Cron expression of the times at which the window opens; days and months may be names."""
    duration_seconds: Annotated[int, duration(60)]
    """Time for which the window stays open. It is not affected by daylight saving time."""
    time_zone: Annotated[ZoneInfo, ZONE] = UTC
    """Time zone of `start`. Set it where the window follows local time, with its changes of the
    clock."""

    def open_until(self, at: int) -> int | None:
        """Return the Unix second at which the window closes; None if it is not open.

        *at*: the Unix second at which it must be open.
        """
        # With the hour that a change of the clock repeats, the reverse order of local times is not
        # that of times. So the search begins later.
        later = self._starts(at + CLOCK_CHANGE_SECONDS, reverse=True)
        last = next((start for start in later if start <= at), None)
        closed = last is None or at >= last + self.duration_seconds
        return None if closed or last is None else last + self.duration_seconds

    def next_start(self, at: int) -> int | None:
        """Return the Unix second of the first start after *at*; None if none follows.

        *at*: Unix seconds.
        """
        return next((start for start in self._starts(at) if start > at), None)

    def _starts(self, at: int, *, reverse: bool = False) -> Iterator[int]:
        """Yield some of the starts after *at*, all as Unix seconds.

        With *reverse*, yield starts before *at*, the latest first.
        """
        local = dt.datetime.fromtimestamp(at, self.time_zone)
        starts = islice(CronSim(self.start, local, reverse=reverse), STARTS_MAX + 1)
        return (int(start.timestamp()) for start in starts)
