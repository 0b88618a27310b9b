"""Limit what one request body can make the webhook or the extender decode."""

import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest

from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from extender import wire as extender
from kube.decode.field_decoding import NAME_MAX
from tests.support.admission import patch_of
from tests.support.large_bodies import CALLS, REVIEWS, review
from tests.support.wire_types import FORMS, Form, Place, large, places
from webhook import wire as webhook
from webhook.app import REVIEW_BYTES_MAX

CALL_BYTES: Final = 8 * 1024**2
"""A part of extender.wire.BODY_BYTES_MAX, so that the tests take seconds."""
PEAK_MORE: Final = 50_000_000
"""Bytes of memory for an answer, in addition to four copies of the body."""
SMALL_PEAK: Final = 16_000_000
"""Peak memory of a review: copies of the body, and decoded values."""


def peak_of(answer: Callable[[], object]) -> int:
    """Return the peak memory of a call, whether it succeeds or is rejected."""
    tracemalloc.start()
    try:
        answer()
    except InvalidInputError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def test_every_list_and_map_of_a_review_has_a_limit() -> None:
    found = [place for place in places(webhook.Review) if place.kind is not str]
    assert found
    assert all(place.bounded for place in found)


def test_review_is_rejected_before_decoding_when_it_has_a_million_empty_taints() -> None:
    body = review(b"[%b]" % b",".join([b"{}"] * 1_048_000))
    assert len(body) <= REVIEW_BYTES_MAX
    with pytest.raises(InvalidInputError, match=r"object.spec.taints: 3,144,001 bytes"):
        webhook.review(body, TAINT_KEY)
    assert peak_of(lambda: webhook.review(body, TAINT_KEY)) < SMALL_PEAK


@pytest.mark.parametrize(
    ("place", "form"),
    [
        pytest.param(place, form, id=f"{place}: {form.name}")
        for place in places(webhook.Review)
        for form in FORMS
        if form.applies(place)
    ],
)
def test_review_takes_little_memory_when_one_value_is_large(place: Place, form: Form) -> None:
    body = large(place, form, REVIEW_BYTES_MAX * 2 // 3)
    assert peak_of(lambda: webhook.review(body, TAINT_KEY)) < SMALL_PEAK


@pytest.mark.parametrize("case", REVIEWS)
def test_review_takes_little_memory_when_it_is_large(case: str) -> None:
    body = REVIEWS[case](REVIEW_BYTES_MAX - 20_000)
    assert peak_of(lambda: webhook.review(body, TAINT_KEY)) < SMALL_PEAK


@pytest.mark.parametrize("count", [1, 250])
def test_node_gets_ebbs_taint_when_it_has_many_others(count: int) -> None:
    others = b",".join(b'{"key":"k%d","effect":"NoSchedule"}' % n for n in range(count))
    answer = webhook.review(review(b"[%b]" % others), TAINT_KEY)
    operations = patch_of(answer.body)
    assert operations is not None
    assert len(operations[0]["value"]) == count + 1


def test_pod_is_not_read_when_it_is_larger_than_any_real_pod() -> None:
    empty = b'{"metadata":{"name":"p"},"spec":{"containers":[{}%b]}}'
    assert extender.pod_to_schedule(empty % (b" " * 1_500_000)) is not None
    longer = empty % (b" " * extender.POD_BYTES_MAX)
    assert extender.pod_to_schedule(longer) is None


@pytest.mark.parametrize("case", CALLS)
def test_call_takes_memory_in_proportion_to_its_size(case: str) -> None:
    body = CALLS[case](CALL_BYTES)

    def answer() -> None:
        extender.pod_to_schedule(extender.call(body).pod)

    # The body itself is the fourth copy.
    assert peak_of(answer) < 3 * len(body) + PEAK_MORE


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("containers", ["n"]),
        ("names, and few in their place", ["n"]),
        ("names in another spelling", ["n"]),
    ],
)
def test_names_are_read_when_other_lists_are_large(case: str, names: list[str]) -> None:
    assert extender.call(CALLS[case](CALL_BYTES)).names == names


@pytest.mark.parametrize(
    "case",
    ["names", "few names, and many in their place", "nodes", "nodes, and few in their place"],
)
def test_call_is_rejected_when_it_has_more_names_than_a_cluster_has_nodes(case: str) -> None:
    with pytest.raises(InvalidInputError, match=f"more than {extender.NODES_MAX}"):
        extender.call(CALLS[case](CALL_BYTES))


def test_call_is_answered_when_it_has_5000_full_nodes() -> None:
    """Nodes have 12 kB with their managedFields, and no body limit is below that."""
    rest = b'"status":{"images":[%b]}' % b",".join([b'{"names":["x"]}'] * 760)
    items = b",".join(b'{"metadata":{"name":"n%d"},%b}' % (n, rest) for n in range(5000))
    body = b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":null,"Nodes":{"items":[%b]}}' % items
    assert 60_000_000 < len(body) <= extender.BODY_BYTES_MAX
    assert extender.call(body).names == [f"n{n}" for n in range(5000)]
    assert all(len(name) < NAME_MAX for name in extender.call(body).names)
