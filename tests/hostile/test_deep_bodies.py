"""What nests 9,000 deep in a Node that others send along."""

import orjson
import pytest

from core.marks.keys import MARK_LABEL, TAINT_KEY
from extender.wire import call
from tests.hostile.objects import DEEP, LISTS
from tests.support.admission import node_json, patch_of, review_of
from webhook.admission import wire


@pytest.mark.parametrize("deep", [DEEP, LISTS])
def test_a_mark_becomes_a_taint_all_the_same(deep: bytes) -> None:
    node = node_json()
    node["metadata"]["labels"] = {MARK_LABEL: "soft"}
    tame = patch_of(wire.review(review_of(node), TAINT_KEY).body)
    node["metadata"]["managedFields"] = [{"fieldsV1": "@"}]
    assert tame is not None
    assert patch_of(wire.review(review_of(node).replace(b'"@"', deep), TAINT_KEY).body) is not None


@pytest.mark.parametrize("deep", [DEEP, LISTS])
def test_a_list_of_nodes_has_its_names(deep: bytes) -> None:
    items = [{"metadata": {"name": name, "managedFields": "@"}} for name in ("a", "b")]
    body = orjson.dumps({"Nodes": {"items": items}}).replace(b'"@"', deep)
    assert call(body).names == ["a", "b"]
