"""Turn stored arrivals into a section of `ebb-today`, and read it back.

Equal texts, constraints and shapes are in tables, and counts name them by position. A leader
decides from this section, unlike from the others, and whoever may write the ConfigMap can forge
it. So every list, text and number is bounded, and if anything is invalid, all of it is missing.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from core.engine.arrivals import (
    BUCKETS_MAX,
    SHAPES_MAX,
    TEMPLATE_CHARACTERS_MAX,
    Buckets,
    Counts,
    PodShape,
    TimeBuckets,
)
from core.engine.provisioning_time import NODES_MAX
from core.engine.stored_arrivals import StoredArrivals
from core.model.constraints import (
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
    with_extended,
)
from core.model.json_values import whole
from core.model.node_lifecycle import START_SECONDS_MAX
from core.model.resources import Resources
from core.placement.reaches import REACHES_MAX

ARRIVALS_BYTES_MAX: Final = 12 * 1024
"""Maximum size of the section when it is compressed alone. If it would be larger, the oldest
buckets are left out, as if counting had started after them."""
STORED_SHAPES_MAX: Final = 2048
"""Maximum number of different shapes in all buckets together."""
COUNTS_MAX: Final = 8192
"""Maximum number of counts, of one shape in one bucket. As many take about ARRIVALS_BYTES_MAX."""
STORED_REACHES_MAX: Final = STORED_SHAPES_MAX + REACHES_MAX
"""Maximum number of keys of reaches, of shapes and of times that new nodes take."""
STORED_BUCKETS_MAX: Final = BUCKETS_MAX + 2
"""Maximum number of buckets; the first and the last one may be only partly within the lookback."""
REACH_CHARACTERS_MAX: Final = 4096
"""Maximum length of the key of a reach."""
EXTENDED_MAX: Final = 64
"""Maximum number of extended resources of a shape."""
AMOUNT_MAX: Final = 2**63 - 1
"""Maximum of a requested amount, as in Kubernetes."""
INVALID: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
"""What reading a forged value raises."""
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

Value = TypeVar("Value")
Section = dict[str, Any]
Cells = Sequence[Any]
_Row = tuple[int, Sequence[tuple[int, int]]]


class _Encoded(NamedTuple):
    """Counts of arrivals as JSON values, from which single buckets can be left out."""

    shapes: Sequence[tuple[str, int, Cells]]
    """Shapes that can be read back: key of the reach, position of the constraints, requests."""
    constraints: Sequence[Cells]
    rows: Sequence[_Row]
    """By time: the number of a bucket, with the position and the number of pods of each shape."""


def arrivals_section(stored: StoredArrivals | None) -> Section | None:
    """Return the arrivals as JSON values; None if there are none, or if nothing of them fits.

    A shape that could not be read back is left out.
    """
    if stored is None:
        return None
    encoded = _encoded(stored)
    rows = encoded.rows
    while True:
        section = _section(stored, encoded, rows)
        size = len(_compressed(section))
        if size <= ARRIVALS_BYTES_MAX and (rows or not stored.recent):
            return section
        if not rows:
            return None
        # The tables hardly become smaller, so drop more than the share of the bytes.
        dropped = 1 + len(rows) * 3 * (size - ARRIVALS_BYTES_MAX) // (2 * size)
        rows = rows[min(dropped, len(rows)) :]


def read_arrivals(value: object) -> StoredArrivals | None:
    """Return the arrivals of a section; None if it is missing or invalid."""
    try:
        return _read(value) if isinstance(value, dict) else None
    except INVALID:
        return None


def _compressed(section: Section) -> bytes:
    text = json.dumps(section, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode(errors="replace"), 9)


def _encoded(stored: StoredArrivals) -> _Encoded:
    """Return the counts of the last buckets, within COUNTS_MAX and STORED_SHAPES_MAX."""
    # A shape is slow to hash, so each is looked up once, and later only its position.
    places, rows, many_counts = dict[PodShape, int](), list[_Row](), 0
    for number in sorted(stored.recent, reverse=True):
        counts = stored.recent[number]
        many_counts += len(counts)
        row = [(places.setdefault(shape, len(places)), many) for shape, many in counts.items()]
        if many_counts > COUNTS_MAX or len(places) > STORED_SHAPES_MAX:
            break
        rows.append((number, row))
    readable, constraints = dict[int, int](), dict[NodeConstraints, int]()
    shapes: list[tuple[str, int, Cells]] = []
    for shape, place in places.items():
        if _is_readable(shape):
            readable[place] = len(shapes)
            position = constraints.setdefault(_plain(shape), len(constraints))
            shapes.append((shape.reach, position, _request_cells(shape.requests)))
    return _Encoded(
        shapes,
        [_constraint_cells(one) for one in constraints],
        [
            (number, [(readable[place], many) for place, many in row if place in readable])
            for number, row in reversed(rows)
        ],
    )


def _is_readable(shape: PodShape) -> bool:
    with suppress(*INVALID):
        constraints = _read_constraints(_constraint_cells(_plain(shape)))
        cells = [0, 0, *_request_cells(shape.requests)]
        return _read_shape(cells, [shape.reach], [constraints]) == shape
    return False


def _plain(shape: PodShape) -> NodeConstraints:
    """Return the node constraints without extended resources, which follow from the requests."""
    return with_extended(shape.node_constraints, ())


def _section(stored: StoredArrivals, encoded: _Encoded, rows: Sequence[_Row]) -> Section:
    """Return the section with some of the last *rows* of the encoded counts.

    If others are left out, counting seems to have started after the last one of them.
    """
    total = Counter[int]()
    for _, row in rows:
        for place, many in row:
            total[place] += many
    # Frequent shapes come first, so that their positions are short.
    order = _positions(sorted(total, key=lambda place: (-total[place], place)))
    shapes = [encoded.shapes[place] for place in order]
    provisioning = {
        reach: times
        for reach, times in stored.provisioning.items()
        if len(reach) <= REACH_CHARACTERS_MAX
    }
    reaches = _positions([*(reach for reach, _, _ in shapes), *provisioning])
    constraints = _positions(position for _, position, _ in shapes)
    counts, last = [], 0
    for number, row in rows:
        pairs = sorted((order[place], many) for place, many in row)
        counts.append([number - last, *chain.from_iterable(pairs)])
        last = number
    left_out = sorted(stored.recent)[: len(stored.recent) - len(rows)]
    first = left_out[-1] + 1 if left_out else 0
    return {
        "at": stored.at,
        "since": max(stored.counting_since, first * stored.buckets.bucket_seconds),
        "buckets": [stored.buckets.bucket_seconds, stored.buckets.window_buckets],
        "reaches": list(reaches),
        "constraints": [encoded.constraints[position] for position in constraints],
        "shapes": [
            [reaches[reach], constraints[position], *requests]
            for reach, position, requests in shapes
        ],
        "counts": counts,
        "provisioning": [[reaches[reach], *times] for reach, times in provisioning.items()],
    }


def _positions(values: Iterable[Value]) -> dict[Value, int]:
    """Return the distinct values, each with its position, in the order of their first one."""
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _constraint_cells(one: NodeConstraints) -> Cells:
    affinity = None if one.affinity is None else [astuple(term) for term in one.affinity]
    tolerations = [astuple(toleration) for toleration in one.tolerations]
    return [one.node_selector, affinity, tolerations, one.system, one.features]


def _request_cells(requests: Resources) -> Cells:
    return [
        requests.cpu_millis,
        requests.memory_bytes,
        requests.ephemeral_bytes,
        requests.pods,
        requests.extended,
    ]


def _read(section: Section) -> StoredArrivals:
    reaches = [
        _text(one, REACH_CHARACTERS_MAX) for one in _list(section["reaches"], STORED_REACHES_MAX)
    ]
    constraints = [
        _read_constraints(cells) for cells in _list(section["constraints"], STORED_SHAPES_MAX)
    ]
    shapes = [
        _read_shape(cells, reaches, constraints)
        for cells in _list(section["shapes"], STORED_SHAPES_MAX)
    ]
    bucket_seconds, window_buckets = map(whole, section["buckets"])
    at, since = whole(section["at"]), whole(section["since"])
    if since > at:
        raise ValueError
    return StoredArrivals(
        at=at,
        counting_since=since,
        buckets=TimeBuckets(bucket_seconds, window_buckets),
        recent=_read_counts(section["counts"], shapes),
        provisioning=dict(
            _read_times(cells, reaches) for cells in _list(section["provisioning"], REACHES_MAX)
        ),
    )


def _read_counts(rows: object, shapes: Sequence[PodShape]) -> Buckets:
    recent, number = dict[int, Counts](), 0
    for row in _list(rows, STORED_BUCKETS_MAX):
        step, *pairs = map(whole, _list(row, 1 + 2 * SHAPES_MAX))
        number += step
        counts = {shapes[place]: many for place, many in zip(pairs[::2], pairs[1::2], strict=True)}
        if number in recent or not all(counts.values()):
            raise ValueError
        recent[number] = counts
    return recent


def _read_times(cells: object, reaches: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    place, *seconds = map(whole, _list(cells, 1 + NODES_MAX))
    if not seconds or max(seconds) > START_SECONDS_MAX:
        raise ValueError
    return reaches[place], tuple(seconds)


def _read_shape(
    cells: object, reaches: Sequence[str], constraints: Sequence[NodeConstraints]
) -> PodShape:
    reach, plain, cpu, memory, ephemeral, pods, extended = _list(cells, 7)
    units = tuple(_pair(pair, _amount) for pair in _list(extended, EXTENDED_MAX))
    requests = Resources(_amount(cpu), _amount(memory), _amount(ephemeral), _amount(pods), units)
    names = tuple(name for name, many in units if many)
    node_constraints = with_extended(constraints[whole(plain)], names)
    every = [name for name, _ in units]
    if every != sorted(set(every)) or len(repr(node_constraints)) > TEMPLATE_CHARACTERS_MAX:
        raise ValueError
    return PodShape(_text(reaches[whole(reach)], REACH_CHARACTERS_MAX), requests, node_constraints)


def _read_constraints(cells: object) -> NodeConstraints:
    selector, affinity, tolerations, system, features = _list(cells, 5)
    return NodeConstraints(
        node_selector=tuple(_pair(pair, _text) for pair in _list(selector)),
        affinity=None if affinity is None else tuple(map(_read_term, _list(affinity))),
        tolerations=tuple(map(_read_toleration, _list(tolerations))),
        system=tuple(_pair(pair, _text) for pair in _list(system)),
        features=_texts(features),
    )


def _read_toleration(cells: object) -> Toleration:
    key, operator, value, effect = _texts(cells)
    return Toleration(key, operator, value, effect)


def _read_term(cells: object) -> SelectorTerm:
    labels, fields = _list(cells, 2)
    return SelectorTerm(
        tuple(map(_read_requirement, _list(labels))), tuple(map(_read_requirement, _list(fields)))
    )


def _read_requirement(cells: object) -> Requirement:
    key, operator, values = _list(cells, 3)
    if operator not in _OPERATORS:
        raise ValueError
    return Requirement(_text(key), operator, _texts(values))


def _list(value: object, most: int = TEMPLATE_CHARACTERS_MAX) -> Sequence[Any]:
    if isinstance(value, list | tuple) and len(value) <= most:
        return value
    raise ValueError


def _pair(value: object, read: Callable[[object], Value]) -> tuple[str, Value]:
    name, other = _list(value, 2)
    return _text(name), read(other)


def _text(value: object, most: int = TEMPLATE_CHARACTERS_MAX) -> str:
    if type(value) is str and len(value) <= most:
        return value
    raise ValueError


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _amount(value: object) -> int:
    if type(value) is int and 0 <= value <= AMOUNT_MAX:
        return value
    raise ValueError
