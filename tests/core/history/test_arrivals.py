"""Arrivals in `ebb-today` are read as written, within limits, and all or nothing of them."""

import json
import random
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config.budgets import Reserve
from core.config.settings import Config
from core.engine.arrivals import BUCKETS_MAX, SHAPES_MAX, PodShape, TimeBuckets
from core.engine.leader_state import LeaderState
from core.engine.reconcile import reconcile
from core.engine.stored_arrivals import StoredArrivals
from core.history.arrivals import (
    AMOUNT_MAX,
    ARRIVALS_BYTES_MAX,
    COUNTS_MAX,
    EXTENDED_MAX,
    REACH_CHARACTERS_MAX,
    STORED_SHAPES_MAX,
    arrivals_section,
    read_arrivals,
)
from core.history.days import DAY_SECONDS, Day
from core.history.packing import TODAY_BYTES_MAX, pack_today, read_today
from core.history.today import Today
from core.model.cluster import Cluster
from core.model.constraints import (
    EVERYWHERE,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
    with_extended,
)
from core.model.json_values import WHOLE_MAX
from core.model.resources import Resources
from tests.core.history.test_packing import full_today
from tests.support.builders import UNLIMITED, node
from tests.support.examples import examples

T = 1_800_000_000
BUCKETS = TimeBuckets.of(60)
LAST = T // BUCKETS.bucket_seconds
TEXTS = st.text(max_size=12)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
REQUIREMENTS = st.builds(
    Requirement,
    TEXTS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(TEXTS, max_size=3).map(tuple),
)
LISTED = st.lists(REQUIREMENTS, max_size=2).map(tuple)
CONSTRAINTS = st.builds(
    NodeConstraints,
    node_selector=PAIRS,
    affinity=st.none() | st.lists(st.builds(SelectorTerm, LISTED, LISTED), max_size=2).map(tuple),
    tolerations=st.lists(st.builds(Toleration, TEXTS, TEXTS, TEXTS, TEXTS), max_size=2).map(tuple),
    system=PAIRS,
    features=st.lists(TEXTS, max_size=2).map(tuple),
)
AMOUNTS = st.integers(0, AMOUNT_MAX)
REQUESTS = st.builds(
    Resources,
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    st.dictionaries(TEXTS, AMOUNTS, max_size=2).map(lambda units: tuple(sorted(units.items()))),
)


def shape(reach: str, requests: Resources, constraints: NodeConstraints) -> PodShape:
    names = tuple(name for name, units in requests.extended if units)
    return PodShape(reach, requests, with_extended(constraints, names))


SHAPES = st.builds(shape, TEXTS, REQUESTS, CONSTRAINTS)
COUNTS = st.dictionaries(SHAPES, st.integers(1, WHOLE_MAX), max_size=4)
STORED = st.builds(
    StoredArrivals,
    at=st.just(T),
    counting_since=st.integers(0, T),
    buckets=st.builds(TimeBuckets.of, st.integers(1, 10_000)),
    recent=st.dictionaries(st.integers(0, WHOLE_MAX // 8), COUNTS, max_size=4),
    provisioning=st.dictionaries(
        TEXTS, st.lists(st.integers(0, 900), min_size=1, max_size=9).map(tuple), max_size=3
    ),
)


def packed(one: StoredArrivals | None) -> bytes:
    return pack_today(Today(counted_until=T, day=Day(number=T // DAY_SECONDS), arrivals=one))


def read_back(one: StoredArrivals) -> StoredArrivals | None:
    found = read_today(packed(one))
    assert found
    return found.arrivals


def since_bucket(one: StoredArrivals, first: int) -> StoredArrivals:
    """Return what a leader would have counted if it had started with bucket *first*."""
    return replace(
        one,
        counting_since=max(one.counting_since, first * one.buckets.bucket_seconds),
        recent={number: counts for number, counts in one.recent.items() if number >= first},
    )


def arrivals(
    shapes: int, buckets: int, each: int, *, constraints: int = 60, text: int = 8
) -> StoredArrivals:
    """Return random arrivals; *text*: length of a random text in each of the *constraints*."""
    chance = random.Random(1)
    templates = []
    for number in range(constraints):
        pool = "".join(chance.choices("abcdefgh0123456789", k=text))
        taint = Toleration("dedicated", "Equal", pool, "NoSchedule")
        waits = Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute")
        templates.append(NodeConstraints((("pool", pool),), None, (taint, waits)[number % 2 :]))
    kinds = []
    for number in range(shapes):
        template = templates[number % constraints]
        requests = Resources(chance.randrange(50, 4000), chance.randrange(2**20, 2**33), 0, 1)
        kinds.append(PodShape(f"pool={template.node_selector[0][1]}", requests, template))
    weights = [1 / (1 + number) for number in range(shapes)]
    recent = {}
    for number in range(LAST - buckets + 1, LAST + 1):
        drawn = chance.choices(kinds, weights, k=each)
        recent[number] = {one: drawn.count(one) for one in list(dict.fromkeys(drawn))[:SHAPES_MAX]}
    times = {one.reach: (60, 90, 120) for one in kinds}
    return StoredArrivals(
        at=T, counting_since=T - 86_400, buckets=BUCKETS, recent=recent, provisioning=times
    )


@given(STORED)
@settings(max_examples=examples(100))
def test_arrivals_are_read_as_they_were_packed(one: StoredArrivals) -> None:
    assert read_back(one) == one


def test_arrivals_of_300_shapes_fit_beside_everything_else() -> None:
    """In a cluster of 5,000 nodes in which 6,000 pods arrive in an hour."""
    one = arrivals(300, 300, 20)
    assert sum(map(len, one.recent.values())) > 4000
    packed_today = pack_today(replace(full_today(random.Random(1), 200, 30), arrivals=one))
    assert len(packed_today) <= TODAY_BYTES_MAX
    found = read_today(packed_today)
    assert found
    assert found.arrivals == one
    assert found.decisions


@pytest.mark.parametrize(
    ("one", "buckets"),
    [
        pytest.param(arrivals(300, 300, 60), 100, id="many counts"),
        pytest.param(arrivals(2500, 60, 64, constraints=1, text=1), 10, id="many shapes"),
        pytest.param(arrivals(60, 60, 2, text=300), 2, id="long constraints"),
    ],
)
def test_oldest_buckets_are_left_out_as_if_counting_started_later(
    one: StoredArrivals, buckets: int
) -> None:
    found = read_back(one)
    assert found
    assert buckets <= len(found.recent) < len(one.recent)
    assert found == since_bucket(one, min(found.recent))


def test_nothing_is_stored_when_not_even_last_bucket_fits() -> None:
    assert read_back(arrivals(64, 5, 400, text=900)) is None


def test_section_has_size_of_its_own_and_stays_when_all_else_is_left_out() -> None:
    one = arrivals(300, 300, 400)
    section = arrivals_section(one)
    assert len(zlib.compress(json.dumps(section).encode(), 9)) <= ARRIVALS_BYTES_MAX * 11 // 10
    today = replace(full_today(random.Random(1), 5000, 400), arrivals=one)
    found = read_today(pack_today(today))
    assert found
    assert len(pack_today(today)) <= TODAY_BYTES_MAX
    assert found.arrivals == read_arrivals(section)


PLAIN = PodShape("general", Resources(100, 100, 0, 1), NodeConstraints())
NAMES = tuple((f"gpu-{number:02}", 0) for number in range(EXTENDED_MAX + 1))


@pytest.mark.parametrize(
    "odd",
    [
        PLAIN._replace(reach="x" * (REACH_CHARACTERS_MAX + 1)),
        PLAIN._replace(requests=Resources(AMOUNT_MAX + 1, 0, 0, 1)),
        PLAIN._replace(requests=Resources(1, 1, 0, 1, NAMES)),
        PLAIN._replace(node_constraints=NodeConstraints((("x" * 2048, ""),))),
        PLAIN._replace(node_constraints=NodeConstraints(volumes=(EVERYWHERE,))),
        PLAIN._replace(node_constraints=NodeConstraints(extended=("gpu",))),
    ],
    ids=["reach", "amount", "extended", "constraints", "volumes", "not requested"],
)
def test_shape_that_cannot_be_read_back_loses_only_its_own_arrivals(odd: PodShape) -> None:
    one = replace(arrivals(1, 1, 1), recent={LAST: {PLAIN: 2, odd: 1}})
    assert read_back(one) == replace(one, recent={LAST: {PLAIN: 2}})


def forge(section: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the section with another value at this path of keys and positions."""
    if not path:
        return value
    forged = dict(section) if isinstance(section, dict) else list(section)
    forged[path[0]] = forge(section[path[0]], path[1:], value)
    return forged


FULL = replace(
    arrivals(3, 3, 4),
    recent={
        LAST - 1: {
            shape(
                "a",
                Resources(1, 1, 0, 1, (("gpu", 1),)),
                NodeConstraints(
                    (("k", "v"),),
                    (SelectorTerm((Requirement("k", "In", ("v",)),)),),
                    (Toleration("k"),),
                ),
            ): 2
        },
        LAST: {PLAIN: 1},
    },
    provisioning={"a": (5,)},
)
SECTION = json.loads(json.dumps(arrivals_section(FULL)))
NO_TEXT: tuple[Any, ...] = (None, 1, True, [], {})
NO_NUMBER: tuple[Any, ...] = (None, "1", True, 1.0, -1, 10**20, [])
FORGED: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
    ((), (None, 1, "x", [], {}, {"at": T})),
    *(((key,), (None, "x", {})) for key in SECTION),
    (("at",), NO_NUMBER),
    (("since",), (*NO_NUMBER, T + 1)),
    (("buckets",), ([12], [12, 5, 1], ["12", 5])),
    (("reaches", 0), (*NO_TEXT, "x" * (REACH_CHARACTERS_MAX + 1))),
    (("reaches",), (["x"] * (STORED_SHAPES_MAX + 500), [])),
    (("constraints",), ([SECTION["constraints"][0]] * (STORED_SHAPES_MAX + 1), [])),
    (("constraints", 0), ([], [[], None, [], []], [[], None, [], [], [], []])),
    (("constraints", 0, 0), ("x", [["k"]], [["k", 1]], [["k", "v", "w"]], [["x" * 2048, ""]])),
    (("constraints", 0, 1), ("x", [[]], [[[], 1]])),
    (("constraints", 0, 1, 0, 0, 0), ([], ["k", "Near", []], ["k", "In", [1]], ["k", "In", "v"])),
    (("constraints", 0, 2, 0), ([], ["k"], ["k", "Equal", 1, ""])),
    (("constraints", 0, 4), ("x", [1])),
    (("shapes",), ([SECTION["shapes"][0]] * (STORED_SHAPES_MAX + 1), [])),
    (("shapes", 0, 0), (*NO_NUMBER, 99)),
    (("shapes", 0, 1), (*NO_NUMBER, 99)),
    (("shapes", 0, 2), NO_NUMBER),
    (("shapes", 0, 6), ("x", [["gpu"]], [["gpu", -1]], [["gpu", 1]] * 2, [["b", 1], ["a", 1]])),
    (("shapes", 0, 6), ([[f"{number:02}", 0] for number in range(EXTENDED_MAX + 1)],)),
    (("shapes", 0, 6), ([["g" * 2048, 1]],)),
    (("counts",), ([[1, 0, 1]] * (BUCKETS_MAX + 3),)),
    (("counts", 0, 1), (*NO_NUMBER, 99)),
    (("counts", 0, 2), (*NO_NUMBER, 0)),
    (("counts", 0), ([], [1, 0], [1, *[0, 1] * (SHAPES_MAX + 1)])),
    (("counts", 1, 0), (0,)),
    (("provisioning", 0), ([], [0], [0, 901], [0, *[1] * 10], [99, 1])),
    (("provisioning",), ([[0, 1]] * 300,)),
]


def with_section(section: Any) -> bytes:
    content = json.loads(zlib.decompress(packed(None)))
    return zlib.compress(json.dumps({**content, "arrivals": section}).encode())


def test_section_is_read_unless_it_is_forged() -> None:
    found = read_today(with_section(SECTION))
    assert found
    assert found.arrivals == FULL


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in FORGED for value in values]
)
def test_forged_arrivals_lose_only_themselves(path: tuple[Any, ...], value: Any) -> None:
    found = read_today(with_section(forge(SECTION, path, value)))
    assert found
    assert found.counted_until == T
    assert found.arrivals is None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 5) | st.just(10**30) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(SECTION)), JSON), st.integers(-100, 100))
@settings(max_examples=examples(100))
def test_leader_can_use_whatever_is_read_from_forged_arrivals(
    forged: dict[str, Any], ahead: int
) -> None:
    one = read_arrivals({**SECTION, **forged})
    config = Config(budgets=replace(UNLIMITED, reserve=Reserve(window_seconds=60)))
    state = LeaderState(may_publish=True, stored_arrivals=one)
    found = reconcile(Cluster.of([node("a"), node("b")], []), config, state, T + ahead)
    assert sum(map(len, found.state.arrivals.recent.values())) <= COUNTS_MAX
