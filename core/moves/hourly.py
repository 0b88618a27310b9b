"""Count the moves of the last hour, in an annotation of the controller's Lease.

There the count survives the leader, so leaders that crash and start again cannot exceed
`surge.maxPerHour`. Only Ebb may write the Lease.
"""

import json
from collections.abc import Mapping
from typing import Final

from core.config.surge import HOURLY_MAX
from core.model.json_values import whole
from core.model.now import Now
from core.moves.note import CLOCKS_APART_SECONDS_MAX

MOVES_BEGUN_ANNOTATION: Final = "kube-ebb.io/moves-begun"
HOUR_SECONDS: Final = 3600
MINUTE_SECONDS: Final = 60
MINUTES_MAX: Final = 1 + (HOUR_SECONDS + CLOCKS_APART_SECONDS_MAX) // MINUTE_SECONDS
"""Maximum number of minutes whose moves are counted."""
TEXT_CHARACTERS_MAX: Final = 4096

Begun = Mapping[int, int]
"""Number of moves that began in each minute, by the Unix second at which the minute starts."""


def begun_within_hour(begun: Begun, now: Now) -> int:
    """Return the number of moves that have begun within the last hour."""
    return sum(_counting(begun, now).values())


def with_begun(begun: Begun, moves: int, now: Now) -> Begun:
    """Return the counts of the last hour, with this many *moves* that begin now."""
    counts, minute = _counting(begun, now), now.seconds // MINUTE_SECONDS * MINUTE_SECONDS
    counts[minute] = counts.get(minute, 0) + moves
    return counts


def _counting(begun: Begun, now: Now) -> dict[int, int]:
    # Minutes further in the future than the clocks of replicas can differ are left out.
    length = HOUR_SECONDS + MINUTE_SECONDS
    return {
        minute: count
        for minute, count in begun.items()
        if now.before(minute + length) and now.reached(minute - CLOCKS_APART_SECONDS_MAX)
    }


def encode(begun: Begun) -> str:
    """Return the counts as the value of the annotation, in JSON."""
    last = sorted(begun.items())[-MINUTES_MAX:]
    return json.dumps({str(minute): count for minute, count in last}, separators=(",", ":"))


def decode(text: str) -> Begun:
    """Return the counts in the annotation; empty if it is missing or invalid."""
    if not text or len(text) > TEXT_CHARACTERS_MAX:
        return {}
    try:
        found = json.loads(text)
        return {whole(int(key)): min(whole(count), HOURLY_MAX) for key, count in found.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}
