"""Mutate messages: replace values of a JSON document, or bytes of its encoding."""

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from hypothesis import strategies as st

from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from tests.support import odd_nodes

DEEP = "@deep@"
"""Placeholder for a deeply nested value, which Python's encoder cannot write."""
DEEP_BYTES = b"[" * 9000 + b"1" + b"]" * 9000
WORSE: Sequence[Any] = [
    *(None, True, False, 0, -1, 2**63, 2**64, -(2**63) - 1, 10**70, 1.5, 1e308, float("inf")),
    *(float("nan"), "", "\x00", "\u0663", "\ud800", "\U0001f9ea", "x" * 300, "x" * 100_000),
    *([], {}, [[]], {"": {}}, [None], [""], ["a", 1], {"a": None}, DEEP, [DEEP], {"a": DEEP}),
    *(
        "UPDATE",
        "CREATE",
        "DELETE",
        "CONNECT",
        "Node",
        "status",
        "PreferNoSchedule",
        "NoSchedule",
        TAINT_KEY,
    ),
    *({MARK_LABEL: "PreferNoSchedule"}, {MARK_LABEL: 7}, {DETAILS_ANNOTATION: -1}, "NoSchedule"),
]
KEYS = ["", "key", "spec", "metadata", "labels", "taints", "items", "name", "x" * 300, "\ud800"]
WAYS = ["replace", "remove", "twice", "rename", "add"]
Json = dict[str, Any]


class Edit(NamedTuple):
    """One change: its place (counted through the document), its kind, and the new value."""

    place: int
    way: str
    value: Any
    key: str


class Bytes(NamedTuple):
    """One change of the encoded document."""

    start: int
    length: int
    instead: bytes


EDITS = st.lists(
    st.builds(
        Edit,
        st.integers(0, 2**16),
        st.sampled_from(WAYS),
        st.sampled_from(WORSE),
        st.sampled_from(KEYS),
    ),
    max_size=3,
)
SYNTAX = [b'"', b"{", b"[", b",", b"\xff", b"\\", b"1e999"]
BYTES = st.lists(
    st.builds(
        Bytes,
        st.integers(0, 2**16),
        st.integers(0, 40) | st.just(2**20),
        st.binary(max_size=4)
        | st.sampled_from([b'"', b"{", b"[", b",", b"\xff", b"\\", b"1e999"]),
    ),
    max_size=2,
)


def edited(document: Json, edits: Sequence[Edit]) -> Json:
    """Return the document with the edits applied."""
    document = deepcopy(document)
    for edit in edits:
        places = list(_places(document))
        holder, where = places[edit.place % len(places)]
        _edit(holder, where, edit)
    return document


def _edit(holder: Any, where: Any, edit: Edit) -> None:
    if edit.way == "replace":
        holder[where] = deepcopy(edit.value)
    elif edit.way == "remove":
        del holder[where]
    elif isinstance(holder, list):
        holder.insert(where, deepcopy(holder[where] if edit.way == "twice" else edit.value))
    elif edit.way == "rename":
        holder[edit.key] = holder.pop(where)
    else:
        holder[edit.key] = deepcopy(edit.value)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with an index or key in it, in document order."""
    found = enumerate(value) if isinstance(value, list) else value.items()
    for where, inside in list(found):
        yield value, where
        if isinstance(inside, list | dict):
            yield from _places(inside)


def written(document: Json, *, plain: bool, changes: Sequence[Bytes] = ()) -> bytes:
    """Return the encoded document; with *plain* as ASCII only."""
    text = json.dumps(document, ensure_ascii=plain)
    body = text.encode("utf-8", "surrogatepass").replace(b'"@deep@"', DEEP_BYTES)
    for change in changes:
        start = change.start % (len(body) + 1)
        body = body[:start] + change.instead + body[start + change.length :]
    return body


@st.composite
def odd_node_reviews(draw: st.DrawFn, reviews: Sequence[Json]) -> Json:
    """Draw a review with an odd Node."""
    review = deepcopy(draw(st.sampled_from(reviews)))
    case = odd_nodes.drawn(draw(st.randoms(use_true_random=False)), 0)
    request = review["request"]
    if isinstance(request.get("object"), dict):
        request["object"] = case.onto(request["object"])
    return review
