"""Hostile reviews and prioritize calls, sent to both programs over real sockets.

No response is a 5xx, every response is well-formed, and every patch applies and results in taints
that the API server accepts. `make hostile` runs twenty times as many examples.
"""

import asyncio
import base64
import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.config.programs import ExtenderConfig
from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from extender import wire
from extender.app import make_app as make_extender
from extender.metrics import Metrics as ExtenderMetrics
from extender.view import View
from kube.decode.kinds import NODES, PODS
from serving import http as bones
from tests.hostile.mutations import (
    BYTES,
    DEEP,
    DEEP_BYTES,
    EDITS,
    Json,
    edited,
    odd_node_reviews,
    written,
)
from tests.support import odd_nodes, taint_rules
from tests.support.admission import apply_json_patch
from tests.support.builders import node
from tests.support.clock import FakeClock
from webhook.app import MUTATE_PATH, REVIEW_BYTES_MAX
from webhook.app import make_app as make_webhook
from webhook.metrics import Metrics

FOLDER = Path(__file__).parents[1]
REVIEWS = [json.loads(path.read_bytes())
           for path in sorted((FOLDER / "webhook" / "messages").glob("*.json"))]  # fmt: skip
CALLS = [json.loads(path.read_bytes())
         for path in sorted((FOLDER / "extender" / "messages").glob("*.json"))]  # fmt: skip
EXAMPLES = max(500, settings().max_examples)
MANY = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


class Front:
    """A program's HTTP server in its own thread, and one persistent connection to it."""

    def __init__(self, app: web.Application, path: str) -> None:
        self._app, self._path = app, path
        self._port = 0
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._connection: http.client.HTTPConnection | None = None

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = bones.Server(self._app, "127.0.0.1:0")
        await server.start()
        self._port = server.port
        self._ready.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection:
            self._connection.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def asked(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the response."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        self._connection.request("POST", self._path, body)
        with self._connection.getresponse() as response:
            return response.status, response.read()


@pytest.fixture(scope="module")
def webhook() -> Iterator[Front]:
    app = make_webhook(Metrics(), bones.Health(), FakeClock(), TAINT_KEY)
    with Front(app, MUTATE_PATH) as front:
        yield front


@pytest.fixture(scope="module")
def extender() -> Iterator[Front]:
    view = View(ExtenderConfig(), TAINT_KEY)
    for kind in (NODES, PODS):
        view.freshness.alive(kind, 0.0)
    marks = enumerate(Mark)
    view.replaced(NODES, [node(f"node-{n}", labels={MARK_LABEL: mark}) for n, mark in marks])
    app = make_extender(view, FakeClock(), ExtenderMetrics(), bones.Health())
    with Front(app, "/prioritize") as front:
        yield front


def check_refusal(status: int, answer: bytes) -> None:
    assert status == 400
    assert json.loads(answer)["error"]


def check_reviewed(sent: bytes, status: int, answer: bytes) -> str:
    """Check the response to a review, valid or not; return its outcome."""
    if status != 200:
        check_refusal(status, answer)
        return "refused"
    if DEEP_BYTES in sent:  # too deep to parse here; other tests compare its response
        assert json.loads(answer)["response"]["allowed"] is True
    else:
        check_review(json.loads(sent.decode(errors="replace")), answer)
    return "patched" if b'"patch"' in answer else "unchanged"


def check_review(sent: Json, answer: bytes) -> None:
    """Check that an answer is well-formed, and that its patch results in valid taints."""
    found = json.loads(answer)
    assert set(found) == {"apiVersion", "kind", "response"}
    response = found["response"]
    assert response["uid"] == sent["request"]["uid"]
    assert response["allowed"] is True
    if "patch" not in response:
        assert set(response) == {"uid", "allowed"}
        return
    assert response["patchType"] == "JSONPatch"
    before = sent["request"]["object"]
    after = apply_json_patch(before, json.loads(base64.b64decode(response["patch"])))
    kept = [taint for taint in _taints(before) if (taint.get("key") or "") != TAINT_KEY]
    assert [taint for taint in _taints(after) if (taint.get("key") or "") != TAINT_KEY] == kept
    if not taint_rules.faults(_taints(before)):
        assert taint_rules.faults(_taints(after)) == []
    assert _without_taints(after) == _without_taints(before)


def _taints(found: Json) -> list[Json]:
    return list((found.get("spec") or {}).get("taints") or ())


def _without_taints(found: Json) -> Json:
    found = deepcopy(found)
    found["spec"] = {k: v for k, v in (found.get("spec") or {}).items() if k != "taints"}
    return found


class Seen(Counter[str]):
    """Counts of outcomes, to check that the generators reach each of them often."""

    def check(self, *kinds: str) -> None:
        for kind in kinds:
            assert self[kind] > EXAMPLES // 50, (kind, self)


def test_mutated_reviews_are_answered_correctly(webhook: Front) -> None:
    seen = Seen()

    @MANY
    @given(st.sampled_from(REVIEWS) | odd_node_reviews(REVIEWS), EDITS, st.booleans())
    def run(review: Json, edits: Any, plain: bool) -> None:
        body = written(edited(review, edits), plain=plain)
        seen[check_reviewed(body, *webhook.asked(body))] += 1

    run()
    seen.check("refused", "patched", "unchanged")


def test_reviews_with_mutated_bytes_are_answered_correctly(webhook: Front) -> None:
    seen = Seen()

    @MANY
    @given(st.sampled_from(REVIEWS), BYTES)
    def run(review: Json, changes: Any) -> None:
        body = written(review, plain=True, changes=changes)
        seen[check_reviewed(body, *webhook.asked(body))] += 1

    run()
    seen.check("refused", "patched", "unchanged")


@pytest.mark.parametrize("case", odd_nodes.table(), ids=lambda case: case.name)
def test_reviews_of_odd_nodes_are_answered_correctly(webhook: Front, case: odd_nodes.Odd) -> None:
    review = deepcopy(REVIEWS[0])
    review["request"]["object"] = case.onto(review["request"]["object"])
    status, answer = webhook.asked(written(review, plain=False))
    if status != 200:
        check_refusal(status, answer)
        assert not all(isinstance(taint, dict) for taint in case.taints) or "number" in case.name
    else:
        check_review(review, answer)


def check_scored(sent: bytes, status: int, answer: bytes) -> str:
    """Check the response to a call, valid or not; return its outcome."""
    if status != 200:
        check_refusal(status, answer)
        return "refused"
    shallow = sent.replace(DEEP_BYTES, b"null")
    check_scores(names(json.loads(shallow.decode(errors="replace"))), answer)
    return "scored"


def check_scores(asked: Any, answer: bytes) -> None:
    """Check that every requested name has one score, in order."""
    found = json.loads(answer)
    assert all(set(one) == {"Host", "Score"} for one in found)
    assert all(type(one["Score"]) is int and 0 <= one["Score"] <= 10 for one in found)
    assert [one["Host"] for one in found] == asked


def names(call: Json) -> list[str]:
    """Return the node names of a call."""
    for key in ("NodeNames", "nodeNames", "nodenames"):
        if call.get(key) is not None:
            return list(call[key])
    nodes: Json = call["nodes"] if call.get("Nodes") is None else call["Nodes"]
    return [one["metadata"]["name"] for one in nodes.get("items") or ()]


def test_mutated_calls_are_answered_correctly(extender: Front) -> None:
    seen = Seen()

    @MANY
    @given(st.sampled_from(CALLS), EDITS, st.booleans())
    def run(call: Json, edits: Any, plain: bool) -> None:
        body = written(edited(call, edits), plain=plain)
        seen[check_scored(body, *extender.asked(body))] += 1

    run()
    seen.check("refused", "scored")


def test_calls_with_mutated_bytes_are_answered_correctly(extender: Front) -> None:
    seen = Seen()

    @MANY
    @given(st.sampled_from(CALLS), BYTES)
    def run(call: Json, changes: Any) -> None:
        body = written(call, plain=True, changes=changes)
        seen[check_scored(body, *extender.asked(body))] += 1

    run()
    seen.check("refused", "scored")


def nested(document: Json, path: str) -> bytes:
    """Return the encoded document with a value at *path* that nests 9,000 levels deep."""
    document = deepcopy(document)
    *way, last = path.split("/")
    target: Any = document
    for step in way:
        target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
    target[last] = DEEP
    return written(document, plain=True)


@pytest.mark.parametrize(
    "path",
    [
        "request/object/metadata/managedFields",
        "request/oldObject/metadata/managedFields",
        "request/object/status/later",
        "request/options",
        "later",
    ],
)
def test_deeply_nested_unread_field_does_not_change_review(webhook: Front, path: str) -> None:
    review = next(one for one in REVIEWS if one["request"]["operation"] == "UPDATE")
    assert webhook.asked(nested(review, path)) == webhook.asked(written(review, plain=True))


@pytest.mark.parametrize("path", ["Pod/metadata/managedFields", "Nodes/items/0/metadata/later"])
def test_deeply_nested_unread_field_does_not_change_scores(extender: Front, path: str) -> None:
    call = next(one for one in CALLS if one.get("Nodes"))
    assert extender.asked(nested(call, path)) == extender.asked(written(call, plain=True))


HUGE: dict[str, Callable[[], bytes]] = {
    "seven million empty names": lambda: _list(b"NodeNames", [b'""'] * 7_000_000),
    "sixteen million names": lambda: _list(b"NodeNames", [b'"a"'] * 16_000_000),
    "sixteen million names in lower case": lambda: _list(b"nodenames", [b'"a"'] * 16_000_000),
    "a name of 60 MB": lambda: _list(b"NodeNames", [b'"%b"' % (b"a" * 60_000_000)]),
    "two million Nodes": lambda: (
        b'{"Nodes":%b}' % _list(b"items", [b'{"metadata":{"name":"a"}}'] * 2_000_000)
    ),
    "brackets": lambda: b"[" * 60_000_000,
    "braces": lambda: b'{"a":' * 12_000_000,
}
"""Functions, because the bodies take seconds and half a gigabyte."""


def _list(key: bytes, items: list[bytes]) -> bytes:
    return b'{"%b":[%b]}' % (key, b",".join(items))


@pytest.mark.parametrize("case", HUGE)
def test_huge_calls_are_rejected(extender: Front, case: str) -> None:
    body = HUGE[case]()
    assert len(body) <= wire.BODY_BYTES_MAX
    check_refusal(*extender.asked(body))


@pytest.mark.parametrize(
    "body", [b"[" * REVIEW_BYTES_MAX, b'{"a":' * (REVIEW_BYTES_MAX // 5), b'"' * REVIEW_BYTES_MAX]
)
def test_huge_reviews_are_rejected(webhook: Front, body: bytes) -> None:
    check_refusal(*webhook.asked(body))


def test_review_beyond_limit_is_answered_413(webhook: Front) -> None:
    assert webhook.asked(b" " * (REVIEW_BYTES_MAX + 1))[0] == 413
