"""An object too deeply nested to prune in time is unreadable; other objects are unaffected."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster.read_options import READ_DEFAULTS
from core.model.errors import GarbledError, InvalidInputError
from core.model.pod import Pod
from kube.client import PAGE_OBJECTS, TooLargeError
from kube.decode import placeholders
from kube.decode.json_depth import STEPS_MAX, decoded
from kube.decode.kinds import BUDGETS
from kube.decode.kinds import NODES as NODE_KIND
from kube.decode.kinds import PODS as POD_KIND
from kube.dump import from_dumps
from kube.listing import Listed
from kube.watch import BACKOFF_SECONDS_MIN
from tests.hostile.objects import DEEP
from tests.support.fake_api import PODS, FakeApi
from tests.support.fake_objects import node_object, pod_object
from tests.support.following import following, opened

WIDE = b'{"f:deep":%b%b}' % (DEEP, b',"f:":{"f:":{"f:":{"f:":{}}}}' * STEPS_MAX)
"""Takes more steps than the limit: one value stops the decoder, the others cost steps."""
WORDS = st.sampled_from(["spec", "metadata", "nodeName", "items", 'a,"spec":{', "f:a", "}]}"])
FIELDS = st.recursive(
    st.none() | st.just("x") | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


def written(name: str, fields: bytes = b"[]", /, **parts: Any) -> bytes:
    """Write a pod on node n as the API server does, with *fields* as its managedFields."""
    made = pod_object(name, node="n")
    metadata = {**made["metadata"], "resourceVersion": "7", "managedFields": "@"}
    return orjson.dumps({"metadata": metadata, "spec": made["spec"], **parts}).replace(
        b'"@"', fields
    )


def page(*items: bytes, token: str = "") -> bytes:
    head = orjson.dumps({"resourceVersion": "1", "continue": token})
    kind = b'"kind":"PodList","apiVersion":"v1"'
    return b'{%b,"metadata":%b,"items":[%b]}\n' % (kind, head, b",".join(items))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.mark.parametrize(("levels", "read"), [(STEPS_MAX - 100, True), (STEPS_MAX + 100, False)])
def test_pruning_fails_when_object_takes_too_many_steps(levels: int, read: bool) -> None:
    raw = written("p", b"[1," * levels + b"1" + b"]" * levels)
    if read:
        assert decoded(POD_KIND.decoder.decode, raw).metadata.name == "p"
    else:
        with pytest.raises(RecursionError, match=f"more than {STEPS_MAX} places"):
            decoded(POD_KIND.decoder.decode, raw)


@given(FIELDS, st.integers(0, 9000))
def test_page_is_decoded_alike_when_nesting_is_within_limit(fields: Any, depth: int) -> None:
    deep = b"[%b,%b]" % (orjson.dumps(fields), b'{"f:a":' * depth + b"1" + b"}" * depth)
    plain, found = Listed(), Listed()
    plain.take(POD_KIND, page(written("a"), written("b"), written("c")))
    found.take(POD_KIND, page(written("a"), written("b", deep), written("c")))
    assert (found.objects, found.refused) == (plain.objects, [])


@given(FIELDS)
def test_outline_has_name_and_only_its_own_node(fields: Any) -> None:
    """The owner of a pod may write anything into its managedFields."""
    found = placeholders.outline(written("p", orjson.dumps(fields)))
    assert found is not None
    assert (found.metadata.name, found.metadata.namespace) == ("p", "default")
    assert found.metadata.resource_version == "7"
    pod = placeholders.pod(found.raw, "why")
    assert pod is not None
    assert pod.key == "default/p"
    assert pod.node in ("n", None)


def test_outline_replaces_object_when_its_name_comes_first() -> None:
    found = placeholders.outline(written("p", WIDE))
    assert found is not None
    pod = POD_KIND.model_or_placeholder(found)
    assert pod is not None
    assert (pod.key, pod.node) == ("default/p", "n")
    assert pod.unreadable == "Pod default/p: is nested too deeply"
    of_node = placeholders.outline(orjson.dumps(node_object("m")))
    assert of_node is not None
    node = NODE_KIND.model_or_placeholder(of_node)
    assert (node.name, node.unreadable) == ("m", "Node m: is nested too deeply")
    with pytest.raises(InvalidInputError, match="default/p: is nested too deeply"):
        BUDGETS.model_or_placeholder(found)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b'{"metadata":{}}',
        b'{"metadata":{"labels":{"name":"x"},"name":"p"}}',
        b'{"metadata":{"annotations":{"a":"b"},"name":"p"}}',
        b'{"spec":{"metadata":{"name":"x"}},"metadata":{"name":"p"}}',
    ],
)
def test_outline_is_none_when_name_does_not_come_first(raw: bytes) -> None:
    assert placeholders.outline(raw) is None


async def test_page_is_reread_in_smaller_pages_down_to_deep_object(api: FakeApi) -> None:
    a, bad, c = written("a"), written("bad", WIDE), written("c", DEEP)
    for _ in range(4):
        api.answer_next("list", page(a, bad, c))
    api.answer_next("list", page(a, token="1"))
    api.answer_next("list", page(bad, c))
    api.answer_next("list", page(bad, token="2"))
    api.answer_next("list", page(c))
    async with opened(api) as client:
        listed = Listed()
        await listed.read(client, POD_KIND)
    limits = [int(call.query["limit"]) for call in api.calls]
    assert limits == [PAGE_OBJECTS, 125, 31, 7, 1, 2, 1, 2]
    assert [call.query.get("continue") for call in api.calls[4:]] == [None, "1", "1", "2"]
    assert [(pod.name, pod.node, bool(pod.unreadable)) for pod in listed.objects] == [
        ("a", "n", False),
        ("bad", "n", True),
        ("c", "n", False),
    ]
    assert listed.refused == []


async def test_no_object_is_lost_when_server_ignores_limit(
    api: FakeApi,
) -> None:
    for _ in range(5):
        api.answer_next("list", page(written("a"), written("bad", WIDE), written("c")))
    async with opened(api) as client:
        listed = Listed()
        await listed.read(client, POD_KIND)
    assert [(pod.name, pod.unreadable) for pod in listed.objects] == [
        ("a", ""),
        ("bad", ""),
        ("c", ""),
    ]


@pytest.mark.parametrize("raw", [page(b"[" * 100_000), b"[1," * 100_000, b'"' + b"[1," * 100_000])
def test_page_that_is_not_json_raises_own_error(raw: bytes) -> None:
    with pytest.raises((TooLargeError, GarbledError)):
        Listed().take(POD_KIND, raw)


async def test_deep_event_affects_only_its_own_object(api: FakeApi) -> None:
    event = b'{"type":"%b","object":%b}\n'
    kind = b'{"kind":"Pod","apiVersion":"v1",'
    bad = kind + written("bad", WIDE)[1:]
    async with following(api) as bench:
        await api.watched(PODS)
        bench.put_pods("a")
        api.raw(event % (b"MODIFIED", bad))
        bench.put_pods("b")
        await bench.seen.until(lambda: bench.seen.count("changed", "default/b") == 1)
        assert {key for key, pod in bench.seen.view.items() if pod.unreadable} == {"default/bad"}
        found = bench.seen.view["default/bad"]
        assert isinstance(found, Pod)
        assert found.node == "n"
        api.raw(event % (b"DELETED", bad))
        await bench.seen.until(lambda: bench.seen.count("deleted", "default/bad") == 1)
        assert set(bench.seen.view) == {"default/a", "default/b"}
        assert bench.seen.count("restarted") == 0


async def test_deep_event_is_decoded_when_name_does_not_come_first(
    api: FakeApi,
) -> None:
    raw = written("odd").replace(b'"metadata":{', b'"metadata":{"labels":{},"x":%b,' % WIDE, 1)
    async with following(api) as bench:
        await api.watched(PODS)
        api.raw(b'{"type":"ADDED","object":%b}\n' % raw)
        await bench.seen.until(lambda: bench.seen.count("changed", "default/odd") == 1)
        assert not bench.seen.view["default/odd"].unreadable
        assert bench.seen.count("restarted") == 0


async def test_event_of_brackets_leads_to_new_list(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await api.watched(PODS)
        api.raw(b'{"type":"ADDED","object":' + b"[1," * 100_000 + b"\n")
        await bench.seen.until(lambda: bench.seen.count("replaced") == 2)
        assert bench.waits.seconds == [BACKOFF_SECONDS_MIN]


def test_dump_is_decoded_whatever_its_depth() -> None:
    """No event loop waits for a dump, so it has no limit of steps."""
    refused: list[str] = []
    nodes = orjson.dumps({"kind": "NodeList", "items": [node_object("n")]})
    pods = page(written("a"), written("bad", WIDE))
    cluster = from_dumps([("nodes", nodes), ("pods", pods)], READ_DEFAULTS, refused).cluster
    assert [(pod.name, pod.node, pod.unreadable) for pod in cluster.pods] == [
        ("a", "n", ""),
        ("bad", "n", ""),
    ]
    assert refused == []
