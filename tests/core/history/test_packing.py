"""The contents of `ebb-today` and `ebb-history` are read as written, and reading never raises."""

import json
import random
import zlib
from dataclasses import fields, replace
from fractions import Fraction
from string import ascii_lowercase, digits
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.eligibility.scalability import OTHER
from core.history.days import DAY_SECONDS, POOLS_MAX, Day, PoolDay, summed
from core.history.packing import (
    DAYS_MAX,
    FORMAT,
    HISTORY_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    TODAY_BYTES_MAX,
    UNPACKED_BYTES_MAX,
    pack_history,
    pack_today,
    read_history,
    read_today,
)
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
from core.model.json_values import WHOLE_MAX
from tests.support.examples import examples

T = 1_800_000_000
NUMBER = T // DAY_SECONDS
NAMES = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=20).filter(
    str.isprintable
)
WHOLE = st.integers(0, WHOLE_MAX)
MONEY = st.integers(0, WHOLE_MAX).map(lambda micros: Fraction(micros, 10**6))


def rows(of: Any, *values: Any) -> st.SearchStrategy[Any]:
    return st.tuples(*values).map(lambda cells: of(*cells))


POOL_DAYS = rows(PoolDay, WHOLE, WHOLE, MONEY, WHOLE, MONEY, WHOLE, WHOLE, WHOLE, WHOLE)


def days(number: st.SearchStrategy[int] = WHOLE) -> st.SearchStrategy[Day]:
    return st.builds(
        Day,
        number=number,
        pools=st.dictionaries(NAMES, POOL_DAYS, max_size=4),
        unmarks=st.dictionaries(NAMES, WHOLE, max_size=4),
        waited_seconds=WHOLE,
    )


MARKED = rows(MarkedNode, WHOLE, WHOLE, NAMES, MONEY, WHOLE, WHOLE)
ALLOWED = rows(AllowedNode, WHOLE, NAMES, NAMES, MONEY)
CREDITS = rows(Credit, NAMES, NAMES, NAMES, WHOLE, MONEY, WHOLE)
REMOVED = rows(
    RemovedNode, NAMES, NAMES, WHOLE, WHOLE, MONEY, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, MONEY
)
TODAYS = st.builds(
    Today,
    counted_until=WHOLE,
    writer=NAMES,
    day=days(),
    earlier=st.lists(days(), max_size=EARLIER_MAX).map(tuple),
    rates=st.dictionaries(NAMES, rows(Rates, WHOLE, WHOLE, MONEY), max_size=3),
    waiting=WHOLE,
    marked=st.dictionaries(NAMES, MARKED, max_size=3),
    all_marked=st.booleans(),
    allowed=st.dictionaries(NAMES, ALLOWED, max_size=3),
    credits=st.lists(CREDITS, max_size=3).map(tuple),
    nodes=st.dictionaries(NAMES, WHOLE, max_size=3),
    removed=st.lists(REMOVED, max_size=3).map(tuple),
    samples=st.lists(rows(Sample, *[WHOLE] * 5), max_size=3).map(tuple),
    decisions=st.lists(
        rows(Decision, WHOLE, NAMES, NAMES, NAMES, NAMES, st.booleans()), max_size=3
    ).map(tuple),
).map(
    lambda today: replace(today, day=replace(today.day, number=today.counted_until // DAY_SECONDS))
)
EMPTY = Today(counted_until=T, day=Day(number=NUMBER))


@given(TODAYS)
@settings(max_examples=examples(60))
def test_today_is_read_as_it_was_packed(today: Today) -> None:
    assert read_today(pack_today(today)) == today


@given(st.dictionaries(st.integers(0, 100_000), st.none(), max_size=6), st.data())
@settings(max_examples=examples(60))
def test_history_is_read_as_it_was_packed(numbers: dict[int, None], data: st.DataObject) -> None:
    history = {number: data.draw(days(st.just(number))) for number in numbers}
    assert read_history(pack_history(history)) == history


def name_of(chance: random.Random, length: int = 24) -> str:
    return "".join(chance.choices(ascii_lowercase + digits, k=length))


def full_day(chance: random.Random, number: int, pools: list[str]) -> Day:
    figures = {}
    for pool in pools:
        seconds, price = chance.randrange(86_400, 200 * 86_400), chance.randrange(5, 500)
        saved = chance.randrange(seconds // 4)
        expected = saved + chance.randrange(seconds // 4)
        cost = Fraction(price * saved, 360_000)
        counts = [chance.randrange(40) for _ in range(4)]
        figures[pool] = PoolDay(
            seconds, expected, Fraction(price * expected, 360_000), saved, cost, *counts
        )
    codes = {f"reason-{code}": chance.randrange(50) for code in range(6)}
    return Day(
        number=number, pools=figures, unmarks=codes, waited_seconds=chance.randrange(10_000)
    )


def test_history_of_400_days_and_21_pools_has_room() -> None:
    chance = random.Random(1)
    pools = [f"pool-{name_of(chance, 8)}" for _ in range(21)]
    history = {n: full_day(chance, n, pools) for n in range(NUMBER, NUMBER + DAYS_MAX + 5)}
    packed = pack_history(history)
    assert len(packed) <= HISTORY_BYTES_MAX
    found = read_history(packed)
    assert sorted(found) == sorted(history)[-DAYS_MAX:]
    assert all(len(day.pools) == 21 for day in found.values())
    last = found[NUMBER + DAYS_MAX + 4]
    assert OTHER in last.pools
    assert last.total.marks == history[NUMBER + DAYS_MAX + 4].total.marks


def test_oldest_days_are_left_out_when_history_is_too_large() -> None:
    chance = random.Random(1)
    history = {}
    for number in range(DAYS_MAX):
        pools = [name_of(chance, 250) for _ in range(20)]
        history[number] = full_day(chance, number, pools)
    packed = pack_history(history)
    assert len(packed) <= HISTORY_BYTES_MAX
    assert sorted(read_history(packed)) == list(range(DAYS_MAX))[-len(read_history(packed)) :]
    assert read_history(packed)


def full_today(chance: random.Random, many: int, text: int) -> Today:
    def name() -> str:
        return name_of(chance, text)

    def at() -> int:
        return T + chance.randrange(10**6)

    price = Fraction(chance.randrange(10**6), 10**6)
    return replace(
        EMPTY,
        day=full_day(chance, NUMBER, [name() for _ in range(POOLS_MAX)]),
        earlier=tuple(full_day(chance, n, [name() for _ in range(21)]) for n in range(3)),
        marked={name(): MarkedNode(at(), at(), name(), price, 7, 1) for _ in range(many)},
        allowed={name(): AllowedNode(at(), "", name(), price) for _ in range(many)},
        credits=tuple(Credit(name(), "", name(), 5, price, at()) for _ in range(many)),
        removed=tuple(
            RemovedNode(name(), name(), at(), at(), price, 9, at(), at(), 2) for _ in range(many)
        ),
        samples=tuple(Sample(at(), 1, 2, 3, 4) for _ in range(many)),
        decisions=tuple(
            Decision(T + n, "Node", name(), "NodeMarked", name(), True) for n in range(many)
        ),
    )


@pytest.mark.parametrize(("many", "text"), [(20, 30), (300, 30), (5000, 60), (5000, 400)])
def test_today_keeps_what_came_last_within_its_size(many: int, text: int) -> None:
    today = full_today(random.Random(1), many, text)
    packed = pack_today(today)
    assert len(packed) <= TODAY_BYTES_MAX
    found = read_today(packed)
    assert found
    assert found.counted_until == T
    if text < 100:
        assert found.day.total.saved_seconds == today.day.total.saved_seconds
        assert found.decisions == today.decisions[len(today.decisions) - len(found.decisions) :]
        assert found.all_marked is (len(found.marked) == many)
    if many == 20:
        assert len(found.marked) == len(found.decisions) == many


@given(TODAYS, st.data())
@settings(max_examples=examples(60))
def test_truncated_content_counts_as_missing(today: Today, data: st.DataObject) -> None:
    packed = pack_today(today)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    assert read_today(cut) is None
    assert read_history(cut) == {}


@given(TODAYS, st.data())
@settings(max_examples=examples(60))
def test_changed_bytes_never_raise(today: Today, data: st.DataObject) -> None:
    packed = bytearray(pack_today(today))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    read_today(bytes(packed))
    read_history(bytes(packed))


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
SECTIONS = [
    "until", "writer", "day", "earlier", "rates", "waiting", "marked", "allMarked", "allowed",
    "credits", "nodes", "removed", "samples", "decisions", "arrivals",
]  # fmt: skip


def packed_json(content: Any) -> bytes:
    return zlib.compress(json.dumps(content).encode())


@given(TODAYS, st.sampled_from(SECTIONS), JSON)
@settings(max_examples=examples(60))
def test_forged_section_loses_only_itself(today: Today, section: str, forged: Any) -> None:
    content = json.loads(zlib.decompress(pack_today(today)))
    assert set(content) == {"format", *SECTIONS}
    content[section] = forged
    found = read_today(packed_json(content))
    if section in ("until", "day"):
        return
    assert found
    also = {"marked": ["all_marked"]}.get(section, [])
    for field in fields(Today):
        if field.name not in (section, *also) and section != "allMarked":
            assert getattr(found, field.name) == getattr(today, field.name)


@given(st.dictionaries(st.sampled_from([*SECTIONS, "format", "days"]), JSON))
@settings(max_examples=examples(60))
def test_forged_content_never_raises(content: dict[str, Any]) -> None:
    read_today(packed_json({"format": FORMAT, **content}))
    read_history(packed_json({"format": FORMAT, **content}))


@given(st.lists(JSON, max_size=5))
@settings(max_examples=examples(60))
def test_forged_day_loses_only_itself(forged: list[Any]) -> None:
    day = full_day(random.Random(1), NUMBER, ["a", "b"])
    content = json.loads(zlib.decompress(pack_history({NUMBER: day})))
    content["days"] = [*forged, *content["days"]]
    assert (
        read_history(packed_json(content))[NUMBER]
        == read_history(pack_history({NUMBER: day}))[NUMBER]
    )


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no zlib",
        packed_json([]),
        packed_json({"format": FORMAT + 1, "until": T, "day": [1, 0, {}, []]}),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b'{"format":1,"until":' + b"9" * 10_000 + b"}"),
        zlib.compress(b" " * (UNPACKED_BYTES_MAX + 1) + b"{}"),
        zlib.compress(b'{"format":1}' + bytes(10 * UNPACKED_BYTES_MAX)),
        b"x" * (HISTORY_BYTES_MAX + 1),
    ],
    ids=[
        "empty", "not packed", "not an object", "another version", "nested", "long number",
        "large", "bomb", "too long",
    ],
)  # fmt: skip
def test_unusable_content_counts_as_missing(packed: bytes) -> None:
    assert read_today(packed) is None
    assert read_history(packed) == {}


def test_lists_and_texts_of_forged_content_are_bounded() -> None:
    name = "x" * 5000
    content = {
        "format": FORMAT,
        "until": T,
        "writer": f"{name}\x1b",
        "day": [
            NUMBER,
            0,
            {f"{n}": 1 for n in range(500)},
            [[f"{n}", *[1] * 9] for n in range(500)],
        ],
        "earlier": [[n, 0, {}, []] for n in range(50)],
        "marked": [[f"{n}", 1, 1, "\x1b[31m", 1, 1, 1] for n in range(1500)],
        "allMarked": True,
        "decisions": [[n, "Node", "a", "b", name, True] for n in range(500)],
    }
    found = read_today(packed_json(content))
    assert found
    assert len(found.writer) == TEXT_CHARACTERS_MAX
    assert len(found.day.pools) == POOLS_MAX + 1
    assert len(found.earlier) == EARLIER_MAX
    assert (len(found.marked), found.all_marked) == (MARKED_MAX, False)
    assert found.marked["0"].pool == " [31m"
    assert [one.at for one in found.decisions] == list(range(500))[-DECISIONS_MAX:]
    assert {len(one.reason) for one in found.decisions} == {TEXT_CHARACTERS_MAX}


def test_limits_of_lists_agree_with_their_size() -> None:
    assert MARKED_MAX == CREDITS_MAX
    assert REMOVED_MAX < DECISIONS_MAX < MARKED_MAX
    assert SAMPLES_MAX == 144


ONE, TWO = PoolDay(10, 2, Fraction(1), 1, Fraction(1, 2), 3, 2, 1, 4), PoolDay(node_seconds=5)


def test_day_sums_up_pools_beyond_a_limit() -> None:
    day = Day(number=NUMBER)
    for n in range(POOLS_MAX + 5):
        day = day.plus({f"pool-{n}": TWO})
    assert len(day.pools) == POOLS_MAX + 1
    assert day.pools[OTHER].node_seconds == 25
    assert day.total.node_seconds == 5 * (POOLS_MAX + 5)
    day = day.plus({"large": ONE, "pool-3": ONE})
    assert day.pools[OTHER].node_seconds == 35
    past = day.summed_up()
    assert list(past.pools)[-1] == OTHER
    assert len(past.pools) == 21
    assert "pool-3" in past.pools
    assert past.total == day.total
    assert past.summed_up() == past


def test_day_counts_reasons_within_a_limit() -> None:
    day = Day(number=NUMBER)
    for n in range(100):
        day = day.with_unmark(f"code-{n}").with_unmark("code-0")
    assert len(day.unmarks) == 41
    assert day.unmarks["code-0"] == 101
    assert sum(day.unmarks.values()) == 200


def test_sum_of_days_has_every_figure() -> None:
    first = Day(number=1, pools={"a": ONE}, unmarks={"x": 1}, waited_seconds=5)
    second = Day(number=2, pools={"a": ONE, "b": TWO}, unmarks={"x": 2, "y": 1}, waited_seconds=1)
    whole = summed([first, second], 2)
    assert whole.pools == {"a": ONE.plus(ONE), "b": TWO}
    assert (whole.number, whole.unmarks, whole.waited_seconds) == (2, {"x": 3, "y": 1}, 6)
