"""Prune JSON values that are nested deeper than any decoder reads."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.decode.json_depth import DEPTH_MAX, SLACK, at_once, decoded, legible, pruned, pruning

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.just('"[{\\')
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


class Shallow(msgspec.Struct):
    a: int


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def nested(depth: int) -> bytes:
    lists, maps = depth // 2, depth - depth // 2
    return b"[" * lists + b'{"a":' * maps + b"7" + b"}" * maps + b"]" * lists


@given(JSON)
def test_shallow_json_is_unchanged_byte_for_byte(value: Any) -> None:
    raw = orjson.dumps(value)
    assert pruned(raw) == raw


@given(st.integers(0, 9000), JSON, JSON)
def test_deep_values_are_pruned_and_others_are_unchanged(
    depth: int, before: Any, after: Any
) -> None:
    parts = orjson.dumps(before), nested(depth), orjson.dumps(after)
    found = orjson.loads(pruned(b'{"before":%b,"deep":%b,"after":%b}' % parts))
    assert (found["before"], found["after"]) == (before, after)
    assert depth_of(found) <= DEPTH_MAX + SLACK
    if depth < DEPTH_MAX:
        assert found["deep"] == orjson.loads(nested(depth))


@given(JSON, st.integers(0, 200), JSON, st.integers(2, 30))
def test_result_is_the_same_when_text_is_cut_into_small_pieces(
    before: Any, depth: int, after: Any, piece_bytes: int
) -> None:
    parts = orjson.dumps(before), nested(depth), orjson.dumps([after, "]\\" * 40])
    raw = b'{"before":%b,"deep":%b,"after":%b}' % parts
    found = orjson.loads(at_once(pruning(raw, piece_bytes=piece_bytes)))
    assert (found["before"], found["after"]) == (before, orjson.loads(parts[2]))
    assert depth_of(found) <= DEPTH_MAX + SLACK


@given(st.binary(max_size=30) | st.text('[]{}",\\ a', max_size=40).map(str.encode))
def test_invalid_json_raises_no_error(raw: bytes) -> None:
    pruned(raw)
    at_once(pruning(raw, piece_bytes=2))


def test_decoding_is_retried_when_only_depth_failed() -> None:
    decoder = msgspec.json.Decoder(Shallow)
    assert decoded(decoder.decode, b'{"x":%b,"a":1}' % nested(9000)).a == 1
    with pytest.raises(msgspec.DecodeError):
        decoded(decoder.decode, b'{"x":%b,"a":"1"}' % nested(9000))


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 8_000_000,
        b"[]" * 500_000,
        b"[ " * 500_000,
        b'{"":' * 250_000,
        b"[" * 70 + b"[]" * 500_000,
        b'"' * 1_000_000,
        b'"' + b"\\" * 1_000_001,
        b'"' + b'\\"' * 500_000,
        (b"[" + b"x" * 1000 + b"[[[") * 1000,
        b'["a",' * 70 + b'"b",' * 250_000,
    ],
    ids=range(10),
)
def test_hostile_body_is_pruned_in_linear_time(raw: bytes) -> None:
    """With a quadratic algorithm this test would not end."""
    assert len(pruned(raw)) <= len(raw) + 4


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (rb'"\ud800"', rb'"\ufffd"'),
        (rb'"\uDFFFx\ud83d\ude00"', rb'"\ufffdx\ud83d\ude00"'),
        (rb'"\\ud800 \n\u00e9"', rb'"\\ud800 \n\u00e9"'),
        (rb'"\ud800\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\ud8', rb'"\ud8'),
    ],
)
def test_lone_surrogate_is_replaced(raw: bytes, found: bytes) -> None:
    assert legible(raw) == found
