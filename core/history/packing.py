"""Pack the content of the ConfigMaps `ebb-today` and `ebb-history`, and read it back.

The content is JSON, compressed by zlib. Whoever may write the ConfigMaps can forge it. So reading
is bounded, and what is invalid counts as missing: a section of `ebb-today`, or a day of
`ebb-history`.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from core.history.arrivals import INVALID, arrivals_section, read_arrivals
from core.history.days import CODES_MAX, DAY_SECONDS, POOLS_MAX, Day, PoolDay
from core.history.today import (
    CREDITS_MAX,
    DECISIONS_MAX,
    EARLIER_MAX,
    MARKED_MAX,
    REMOVED_MAX,
    SAMPLES_MAX,
    AllowedNode,
    Credit,
    Decision,
    MarkedNode,
    Rates,
    RemovedNode,
    Sample,
    Today,
)
from core.model.json_values import WHOLE_MAX, whole

TODAY_BYTES_MAX: Final = 32 * 1024
HISTORY_BYTES_MAX: Final = 288 * 1024
"""Maximum sizes of the packed contents."""
UNPACKED_BYTES_MAX: Final = 4 * 1024**2
DAYS_MAX: Final = 400
"""Maximum number of days in `ebb-history`; the last ones are kept."""
TEXT_CHARACTERS_MAX: Final = 300
"""Maximum length of a name or reason; longer ones are cut."""
FORMAT: Final = 1
"""Version of the format; the content of another version counts as missing."""
MICROS: Final = 10**6

Row = TypeVar("Row", bound=tuple[Any, ...])
Value = TypeVar("Value")


def pack_today(today: Today) -> bytes:
    """Return the content of `ebb-today`, at most TODAY_BYTES_MAX.

    If it would be larger, the oldest decisions, marked nodes and removed nodes are left out, and
    in the end everything but the time and the arrivals, which have a limit of their own.
    """
    arrivals = {"arrivals": arrivals_section(today.arrivals)}
    for share in (1, 2, 4, 8, 16, CREDITS_MAX + 1):
        packed = _pack(_today(_limited(today, share)) | arrivals)
        if len(packed) <= TODAY_BYTES_MAX:
            return packed
    day = Day(number=today.day.number)
    least = Today(counted_until=today.counted_until, writer=today.writer, day=day)
    return _pack(_today(least) | arrivals)


def read_today(packed: bytes) -> Today | None:
    """Return the content of `ebb-today`; None if it is missing or invalid."""
    found = _unpack(packed, TODAY_BYTES_MAX)
    if found is None:
        return None
    until, day = _read(lambda: whole(found["until"]), None), _read_day(found.get("day"))
    if until is None or day is None:
        return None

    def listed(name: str, of: type[Row], most: int) -> tuple[Row, ...]:
        return _read(lambda: tuple(_rows(found[name], of, most)), ())

    def named(name: str, of: type[Row], most: int) -> dict[str, Row]:
        return _read(lambda: _named_rows(found[name], of, most), {})

    marked = named("marked", MarkedNode, MARKED_MAX)
    earlier = (_read_day(one) for one in _list(found.get("earlier")))
    return Today(
        counted_until=until,
        writer=_read(lambda: _text(found["writer"]), ""),
        day=replace(day, number=until // DAY_SECONDS),
        earlier=tuple(one for one in earlier if one is not None)[-EARLIER_MAX:],
        rates=named("rates", Rates, POOLS_MAX),
        waiting=_read(lambda: whole(found["waiting"]), 0),
        marked=marked,
        all_marked=found.get("allMarked") is True
        and len(marked) == len(_list(found.get("marked"))),
        allowed=named("allowed", AllowedNode, MARKED_MAX),
        credits=listed("credits", Credit, CREDITS_MAX),
        nodes=_read(lambda: _counts(found["nodes"], POOLS_MAX), {}),
        removed=listed("removed", RemovedNode, REMOVED_MAX),
        samples=listed("samples", Sample, SAMPLES_MAX),
        decisions=listed("decisions", Decision, DECISIONS_MAX),
        arrivals=read_arrivals(found.get("arrivals")),
    )


def pack_history(days: Mapping[int, Day]) -> bytes:
    """Return the content of `ebb-history`, at most HISTORY_BYTES_MAX and DAYS_MAX days.

    If it would be larger, the oldest days are left out. *days*: by their number.
    """
    kept = [days[number].summed_up() for number in sorted(days)[-DAYS_MAX:]]
    while True:
        packed = _pack({"days": [_day(day) for day in kept]})
        if len(packed) <= HISTORY_BYTES_MAX:
            return packed
        kept = kept[1 + len(kept) * (len(packed) - HISTORY_BYTES_MAX) // len(packed) :]


def read_history(packed: bytes) -> dict[int, Day]:
    """Return the days in `ebb-history` by number; without invalid ones."""
    found = _unpack(packed, HISTORY_BYTES_MAX) or {}
    days = (_read_day(one) for one in _list(found.get("days"))[-DAYS_MAX:])
    return {day.number: day for day in days if day is not None}


def _pack(content: Mapping[str, Any]) -> bytes:
    text = json.dumps({"format": FORMAT, **content}, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode(errors="replace"), 9)


def _unpack(packed: bytes, bytes_max: int) -> dict[str, Any] | None:
    if not packed or len(packed) > bytes_max:
        return None
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(packed, UNPACKED_BYTES_MAX)
        found = json.loads(text) if unpacking.eof else None
    except (zlib.error, *INVALID):
        return None
    is_ours = isinstance(found, dict) and found.get("format") == FORMAT
    return found if is_ours else None


def _limited(today: Today, share: int) -> Today:
    """Return *today* within its limits, each divided by *share*."""
    marked = _last(today.marked, MARKED_MAX // share, lambda one: one.since)
    return replace(
        today,
        rates=dict(sorted(today.rates.items())[:POOLS_MAX]),
        marked=marked,
        all_marked=today.all_marked and len(marked) == len(today.marked),
        allowed=_last(today.allowed, MARKED_MAX // share, lambda one: one.since),
        nodes=dict(sorted(today.nodes.items())[:POOLS_MAX]),
        credits=_tail(today.credits, CREDITS_MAX // share),
        removed=_tail(today.removed, REMOVED_MAX // share),
        samples=_tail(today.samples, SAMPLES_MAX // share),
        decisions=_tail(today.decisions, DECISIONS_MAX // share),
        earlier=_tail(today.earlier, EARLIER_MAX),
    )


def _tail(values: tuple[Value, ...], most: int) -> tuple[Value, ...]:
    return values[max(len(values) - most, 0) :]


def _last(rows: Mapping[str, Row], most: int, time: Callable[[Row], int]) -> dict[str, Row]:
    names = sorted(rows, key=lambda name: (-time(rows[name]), name))[:most]
    return {name: rows[name] for name in sorted(names)}


def _today(today: Today) -> dict[str, Any]:
    return {
        "until": _number(today.counted_until),
        "writer": _cut(today.writer),
        "day": _day(today.day),
        "earlier": [_day(day) for day in today.earlier],
        "rates": _by_name(today.rates),
        "waiting": _number(today.waiting),
        "marked": _by_name(today.marked),
        "allMarked": today.all_marked,
        "allowed": _by_name(today.allowed),
        "credits": [_cells(one) for one in today.credits],
        "nodes": _whole_counts(today.nodes),
        "removed": [_cells(one) for one in today.removed],
        "samples": [_cells(one) for one in today.samples],
        "decisions": [_cells(one) for one in today.decisions],
    }


def _day(day: Day) -> list[Any]:
    pools = _by_name(day.pools)
    return [day.number, _number(day.waited_seconds), _whole_counts(day.unmarks), pools]


def _by_name(rows: Mapping[str, tuple[Any, ...]]) -> list[list[Any]]:
    return [[_cut(name), *_cells(row)] for name, row in sorted(rows.items())]


def _cells(row: tuple[Any, ...]) -> list[Any]:
    return [_cell(value) for value in row]


def _cell(value: object) -> object:
    match value:
        case bool():
            return value
        case int():
            return _number(value)
        case Fraction():
            return _number(round(value * MICROS))
        case _:
            return _cut(str(value))


def _number(value: int) -> int:
    return min(max(value, 0), WHOLE_MAX)


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX]


def _whole_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {_cut(name): _number(count) for name, count in sorted(counts.items())}


def _read(read: Callable[[], Value], otherwise: Value) -> Value:
    try:
        return read()
    except INVALID:
        return otherwise


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_day(value: object) -> Day | None:
    def read() -> Day:
        number, waited, unmarks, pools = _list(value)
        return Day(
            number=whole(number),
            pools=_named_rows(pools, PoolDay, POOLS_MAX + 1),
            unmarks=_counts(unmarks, CODES_MAX + 1),
            waited_seconds=whole(waited),
        )

    return _read(read, None)


def _rows(value: object, of: type[Row], most: int) -> Iterator[Row]:
    """Yield rows of a type. Raises: ValueError, TypeError if one is invalid."""
    yield from (_row(cells, of) for cells in _list(value)[-most:])


def _named_rows(value: object, of: type[Row], most: int) -> dict[str, Row]:
    """Return rows of a type by name. Raises: ValueError, TypeError if one is invalid."""
    return {_text(cells[0]): _row(cells[1:], of) for cells in _list(value)[:most]}


def _row(cells: Sequence[object], of: type[Row]) -> Row:
    kinds = _kinds(of)
    return of(*(_READERS[kind](cell) for kind, cell in zip(kinds, cells, strict=True)))


@cache
def _kinds(of: type[NamedTuple]) -> tuple[type, ...]:
    return tuple(get_type_hints(of).values())


def _counts(value: Mapping[str, object], most: int) -> dict[str, int]:
    """Return numbers by name. Raises: ValueError, AttributeError if one is invalid."""
    pairs: Iterable[tuple[str, object]] = list(value.items())[:most]
    return {_text(name): whole(count) for name, count in pairs}


def _text(value: object) -> str:
    """Return a text of one line, cut to its limit. Raises: TypeError for another type."""
    if not isinstance(value, str):
        raise TypeError
    cut = value[:TEXT_CHARACTERS_MAX]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else " " for c in cut)


def _flag(value: object) -> bool:
    """Return a truth value. Raises: TypeError for another type."""
    if not isinstance(value, bool):
        raise TypeError
    return value


_READERS: Final[Mapping[type, Callable[[object], Any]]] = {
    int: whole,
    str: _text,
    bool: _flag,
    Fraction: lambda value: Fraction(whole(value), MICROS),
}
