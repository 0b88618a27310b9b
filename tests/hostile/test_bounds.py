"""Limit the memory that Ebb needs for one object, whichever of its fields is large."""

import gc
import random
import string
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config.programs import ExtenderConfig
from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from extender.view import View
from extender.wire import names_body
from kube.cluster_kinds import KINDS
from kube.decode.kinds import BUDGETS, NODES, PODS, AnyKind
from kube.decode.pod_times import TimesObject
from kube.inventory import Inventory
from tests.support.wire_types import DOUBLED, FORMS, MANY, Form, Place, large, places

OBJECT_BYTES: Final = 1_400_000
"""About the size of the largest object that etcd stores."""
SIZES: Final = (3000, 12_000, 60_000, OBJECT_BYTES)
"""Sizes of a value: from one that is always decoded to one that never is."""
KEPT_MAX: Final = 64_000
KEPT_OF_NODE_MAX: Final = 256_000
OBJECTS: Final = 200
KEPT_OF_ALL_MAX: Final = 15_000_000
KEPT_OF_ALL_NODES_MAX: Final = 60_000_000
PEAK_MAX: Final = 16_000_000
"""Maximum memory while an object is decoded: copies of its bytes, and decoded values."""
ATTACKS: Final = [
    pytest.param(kind, form, id=f"{kind.name}: {form.name}") for kind in KINDS for form in FORMS
]


def attacked(kind: AnyKind, form: Form) -> list[Place]:
    """Return the values of the kind that can be made large in this form."""
    return [
        place
        for place in places(kind.wire)
        if form.applies(place) and place.path[:2] != ("template", "spec")  # as in Pods
    ]


def kept_max(kind: AnyKind) -> int:
    return KEPT_OF_NODE_MAX if kind is NODES else KEPT_MAX


def deep_bytes(value: object) -> int:
    """Return the memory of a value and of all that it refers to, each object once."""
    seen: set[int] = set()
    todo, total = [value], 0
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        todo += gc.get_referents(one)
    return total


def kept(kind: AnyKind, raw: bytes) -> object:
    """Return what the inventory stores for an object: the object, a placeholder, or the error."""
    inventory = Inventory()
    _hear(inventory, kind, raw)
    return dict(inventory.of(kind)), dict(inventory.unreadable[kind])


def _hear(inventory: Inventory, kind: AnyKind, raw: bytes) -> None:
    try:
        found = kind.model_or_placeholder(msgspec.Raw(raw))
    except InvalidInputError as fault:
        inventory.refused(kind, "d/a", str(fault))
    else:
        if found is not None:
            inventory.changed(kind, found)


@pytest.mark.parametrize("wire", [*(kind.wire for kind in KINDS), TimesObject])
def test_every_list_and_map_of_a_wire_type_has_a_limit(wire: type) -> None:
    found = list(places(wire))
    assert found
    assert [str(place) for place in found if place.kind is not str and not place.bounded] == []


@pytest.mark.long
@pytest.mark.parametrize(("kind", "form"), ATTACKS)
def test_object_takes_little_memory_when_one_value_is_large(kind: AnyKind, form: Form) -> None:
    for place, size in product(attacked(kind, form), SIZES):
        raw = large(place, form, size)
        assert deep_bytes(kept(kind, raw)) <= kept_max(kind), (str(place), size)


LETTERS: Final = string.ascii_letters + string.digits
SHORTEST: Final = [first + second for second in ("", *LETTERS) for first in LETTERS]
"""Label keys, the shortest ones first."""


@pytest.mark.parametrize("count", [100, 200, 280, 300, 400, 520])
def test_object_takes_little_memory_when_its_selector_has_many_short_labels(count: int) -> None:
    """In JSON such a label has 7 bytes, but in memory about 170."""
    selector = {"matchLabels": dict.fromkeys(SHORTEST[:count], "")}
    spread = {"topologySpreadConstraints": [{"labelSelector": selector}]}
    for kind, spec in ((PODS, spread), (BUDGETS, {"selector": selector})):
        raw = orjson.dumps({"metadata": {"name": "a", "namespace": "d"}, "spec": spec})
        assert deep_bytes(kept(kind, raw)) <= kept_max(kind)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_decoding_takes_little_memory_when_a_list_has_many_items(kind: AnyKind) -> None:
    for place in attacked(kind, MANY):
        raw = large(place, MANY, OBJECT_BYTES)
        with traced() as peak:
            kept(kind, raw)
            assert peak() <= PEAK_MAX, str(place)


class traced:  # noqa: N801 a context manager
    """Trace allocations; as a context it returns a function of the peak since it began."""

    def __enter__(self) -> Callable[[], int]:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        return lambda: tracemalloc.get_traced_memory()[1] - before

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()


def merged(one: Any, other: Any) -> Any:
    """Merge two JSON values: maps by key, lists by position and then one after the other."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = one | other
        return both | {key: merged(one[key], other[key]) for key in one.keys() & other.keys()}
    if isinstance(one, list) and isinstance(other, list):
        return [*one[:-1], merged(one[-1], other[0]), *other[1:]] if one and other else one + other
    return other


def several(kind: AnyKind, choices: st.DataObject | random.Random) -> bytes:
    """Return an object with up to six values that are large together."""
    own = [(place, form) for place in places(kind.wire) for form in FORMS if form is not DOUBLED]
    own = [(place, form) for place, form in own if form.applies(place)]
    found: Any = {}
    for _ in range(_draw(choices, range(1, 7))):
        place, form = _draw(choices, own)
        size = _draw(choices, (1000, 3000, 8000, 16_000, 30_000, 60_000))
        found = merged(found, orjson.loads(large(place, form, size, _draw(choices, range(10**6)))))
    return orjson.dumps(found)


def _draw(choices: Any, among: Any) -> Any:
    if isinstance(choices, random.Random):
        return choices.choice(among)
    return choices.draw(st.sampled_from(among))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_object_takes_little_memory_when_several_values_are_large(kind: AnyKind) -> None:
    @settings(deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        assert deep_bytes(kept(kind, several(kind, data))) <= kept_max(kind)

    run()


def _objects(kind: AnyKind) -> Iterator[bytes]:
    """Yield objects with different names and texts, half of them with one large value."""
    choices = random.Random(7)
    own = [(place, form) for place in places(kind.wire) for form in FORMS if form.applies(place)]
    for number in range(OBJECTS):
        place, form = choices.choice(own)
        size = choices.choice(SIZES)
        raw = large(place, form, size, number * 10**6) if number % 2 else several(kind, choices)
        yield raw.replace(b'"name":"a"', b'"name":"a%d"' % number, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_objects_take_little_memory_when_many_have_large_values(kind: AnyKind) -> None:
    inventory, objects = Inventory(), list(_objects(kind))
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        for raw in objects:
            _hear(inventory, kind, raw)
        gc.collect()
        kept_of_all = tracemalloc.get_traced_memory()[0] - before
    assert kept_of_all < (KEPT_OF_ALL_NODES_MAX if kind is NODES else KEPT_OF_ALL_MAX)


@pytest.mark.nightly
def test_extender_takes_little_memory_when_a_kubelet_reports_new_resources_each_time() -> None:
    """The extender keeps the present shape of a node only, and bounds the shares of pods."""
    view = View(ExtenderConfig(score="pack"), TAINT_KEY)
    view.freshness.alive(NODES, 0.0)
    view.freshness.alive(PODS, 0.0)
    pod = (
        b'{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}'
    )
    call = names_body(["evil", "n1"], pod)

    def report(number: int) -> None:
        allocatable = {
            f"x.y/{number}-{n}-".ljust(300, "x"): str(1 + (number + n) % 7) for n in range(250)
        }
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", **allocatable}}
        node = {"metadata": {"name": "evil"}, "status": status}
        view.changed(NODES, NODES.decode(orjson.dumps(node)))
        view.answer(call, 0.0)

    report(0)
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 300):
            report(number)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    # Shared caches may grow to their limits. All shapes would take 37 MB.
    assert grown < 20_000_000
