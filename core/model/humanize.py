"""Format numbers, amounts and times for people."""

import datetime as dt
from collections.abc import Sequence
from typing import Final

from core.model.quantity import format_bytes, format_millis
from core.model.resources import Resources

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def plural(number: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: 1 node, 2,000 nodes.

    *noun*: in the singular. *plural*: the plural of a noun to which no s can be added.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def first(names: Sequence[str], most: int) -> str:
    """Format a list of names: the first *most* of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f", and {more:,} more" if more > 0 else "")


def amounts(requests: Resources) -> str:
    """Format the resources that a pod requests: cpu 500m, memory 1Gi, and devices."""
    cpu, memory = format_millis(requests.cpu_millis), format_bytes(requests.memory_bytes)
    devices = (f"{name} {units}" for name, units in requests.extended)
    return ", ".join((f"cpu {cpu}", f"memory {memory}", *devices))


def duration(seconds: int) -> str:
    """Format a duration in its two largest units, such as 3 h 5 min; its sign is ignored."""
    seconds = abs(seconds)
    for unit, name, smaller, rest in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        if seconds >= unit:
            more = seconds % unit // smaller
            return f"{seconds // unit} {name}" + (f" {more} {rest}" if more else "")
    return f"{seconds} s"


def age(seconds: int) -> str:
    """Format a duration as kubectl does in tables: 90s, 5m30s, 3h20m, 3d2h, 200d.

    A negative duration counts as 0.
    """
    # Source: HumanDuration in k8s.io/apimachinery/pkg/util/duration.
    seconds = max(0, seconds)
    for below, unit, name, smaller, rest in (
        (2 * MINUTE, 1, "s", 1, ""),
        (10 * MINUTE, MINUTE, "m", 1, "s"),
        (3 * HOUR, MINUTE, "m", 1, ""),
        (8 * HOUR, HOUR, "h", MINUTE, "m"),
        (2 * DAY, HOUR, "h", 1, ""),
        (8 * DAY, DAY, "d", HOUR, "h"),
    ):
        if seconds < below:
            more = seconds % unit // smaller if rest else 0
            return f"{seconds // unit}{name}" + (f"{more}{rest}" if more else "")
    return f"{seconds // DAY}d"


def left(seconds: int) -> str:
    """Format the time that is left as `age` does, but rounded up: 23h59m58s are 24h."""
    for below, smaller in ((10 * MINUTE, 1), (8 * HOUR, MINUTE), (8 * DAY, HOUR)):
        if seconds < below:
            return age(-(-seconds // smaller) * smaller)
    return age(-(-seconds // DAY) * DAY)


def timestamp(unix_seconds: int, now_seconds: int | None = None) -> str:
    """Format Unix seconds as a time in UTC.

    With *now_seconds* (Unix seconds), the text also says how long ago or in how long that is. A
    time outside of the calendar is formatted as a number.
    """
    try:
        utc = dt.datetime.fromtimestamp(unix_seconds, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{unix_seconds} (unix seconds)"
    written = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    if now_seconds is None:
        return written
    away = unix_seconds - now_seconds
    return f"{written} (in {duration(away)})" if away > 0 else f"{written} ({duration(away)} ago)"
