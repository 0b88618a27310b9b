"""Nodes with fields that nest 9,000 levels deep."""

import orjson
import pytest

from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.errors import InvalidInputError
from extender.wire import call
from tests.hostile.objects import DEEP, LISTS
from tests.support.admission import node_json, patch_of, review_of
from webhook import wire


@pytest.mark.parametrize("deep", [DEEP, LISTS])
def test_webhook_taints_marked_node_when_node_is_deeply_nested(deep: bytes) -> None:
    node = node_json()
    node["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule"}
    tame = patch_of(wire.review(review_of(node), TAINT_KEY).body)
    node["metadata"]["managedFields"] = [{"fieldsV1": "@"}]
    assert tame is not None
    assert patch_of(wire.review(review_of(node).replace(b'"@"', deep), TAINT_KEY).body) is not None


@pytest.mark.parametrize("deep", [DEEP, LISTS])
def test_extender_reads_names_when_nodes_are_deeply_nested(deep: bytes) -> None:
    items = [{"metadata": {"name": name, "managedFields": "@"}} for name in ("a", "b")]
    body = orjson.dumps({"Nodes": {"items": items}}).replace(b'"@"', deep)
    assert call(body).names == ["a", "b"]


def test_webhook_taints_node_when_old_and_new_object_are_deeply_nested() -> None:
    """The Node before and after an update, each as deep as the API server accepts."""
    node = node_json()
    node["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule"}
    node["metadata"]["managedFields"] = "@"
    body = review_of(node).replace(b'"request":{', b'"request":{"oldObject":{"x":"@"},', 1)
    deepest = b"[1," * 9900 + b"1" + b",1]" * 9900
    assert body.count(b'"@"') == 2
    assert patch_of(wire.review(body.replace(b'"@"', deepest), TAINT_KEY).body) is not None


@pytest.mark.parametrize("pairs", [wire.STEPS_MAX, 780_000])
def test_webhook_rejects_review_that_nests_too_often(pairs: int) -> None:
    """Any peer can send them; cutting them would block the event loop for half a second."""
    body = review_of(node_json()).replace(b'"uid"', b'"x":"@","uid"', 1)
    with pytest.raises(InvalidInputError, match="nested too deeply at"):
        wire.review(body.replace(b'"@"', b"[1," * pairs + b"1" + b"]" * pairs), TAINT_KEY)
