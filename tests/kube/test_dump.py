"""Read dumps into a cluster, and report their faults."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.cluster import DisruptionBudget
from kube.decode import kinds
from kube.dump import objects
from tests.support.kube_json import (
    MISSING,
    NODE,
    POD,
    Json,
    changed,
    cluster_from_dumps,
    dump,
    fault_of,
    node,
    pod,
)


class TestDump:
    def test_list_of_mixed_kinds_is_decoded(self) -> None:
        budget = {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "shop"},
            "status": {"disruptionsAllowed": 1},
        }
        other = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": 7}}
        found = list(objects(dump(NODE, POD, budget, other), "f", []))
        assert [one for _, one in found if one is not None] == [
            node(),
            pod(),
            DisruptionBudget(namespace="shop", name="b", disruptions_allowed=1),
        ]

    def test_typed_lists_and_single_objects_are_merged(self) -> None:
        nodes = orjson.dumps({"kind": "NodeList", "items": [{**NODE, "kind": ""}]})
        second = changed(NODE, metadata__name="n0")
        pods = orjson.dumps({"kind": "PodList", "items": [POD]})
        none = b'{"kind":"PodDisruptionBudgetList","items":null}'
        cluster = cluster_from_dumps([("a", nodes), ("b", second), ("c", pods), ("d", none)])
        assert [one.name for one in cluster.nodes] == ["n0", "n1"]
        assert [one.key for one in cluster.pods] == ["shop/web-0"]

    def test_kinds_of_the_same_name_in_other_apis_are_skipped(self) -> None:
        longhorns = changed(NODE, apiVersion="longhorn.io/v1beta2", status=MISSING)
        theirs = b'{"apiVersion":"longhorn.io/v1beta2","kind":"NodeList","items":[{},%b]}'
        refused: list[str] = []
        for raw in (dump(longhorns), longhorns, theirs % longhorns):
            assert list(objects(raw, "f", refused)) == []
        assert list(objects(dump(longhorns, NODE), "f", refused)) == [("Node", node())]
        assert refused == []
        assert fault_of(dump(longhorns, POD)).startswith("f.json: contains no nodes")

    @pytest.mark.parametrize("written", [MISSING, None, "", 7, "v1", "v2"])
    def test_object_is_decoded_by_kind_unless_api_version_is_foreign(
        self, written: object
    ) -> None:
        raw = changed(NODE, apiVersion=written)
        for whole in (raw, dump(raw)):
            assert list(objects(whole, "f", [])) == [("Node", node())]

    def test_dump_with_only_finished_pods_is_accepted(self) -> None:
        cluster = cluster_from_dumps([("f", dump(NODE, changed(POD, status__phase="Failed")))])
        assert cluster.pods == ()


QUANTITY_PATH = "spec__containers__0__resources__requests__memory"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            b"",
            "f.json: is empty; create it with: kubectl get nodes,pods,pdb,",
        ),
        (b" \n", "f.json: is empty"),
        (
            b"kind: List",
            "f.json: is not complete, valid JSON: JSON is malformed: invalid character (byte 0)",
        ),
        (b"[]", "f.json: Expected `object`, got `array`"),
        (b"null", "f.json: Expected `object`, got `null`"),
        (b"{}", "f.json: contains no nodes; create it with: kubectl"),
        (dump(), "f.json: contains no nodes; create it with: kubectl"),
        (dump(POD), "f.json: contains no nodes"),
        (dump(NODE), "f.json: contains no pods; create it with: kubectl"),
        (dump(NODE, POD, b"7"), "f.json: items[2]: Expected `object`, got `int`"),
        (dump(NODE, POD)[:-9], "JSON: Input data was truncated after 944 bytes; create it with"),
        (dump(NODE, NODE, POD), "f.json: node n1: occurs more than once in the input"),
        (dump(NODE, POD, POD), "f.json: pod shop/web-0: occurs more than once in the input"),
        (dump(b'{"kind":"Node"}', POD), "f.json: Node: Object missing required field `metadata`"),
        (
            dump(b'{"kind":"Node","a":' + b"[" * 9**5),
            "f.json: is not complete, valid JSON: Input data",
        ),
        (dump(b'{"kind":"Node","metadata":{"name":"\xff"}}', POD), "f.json: Node: is not UTF-8"),
        (
            dump(changed(NODE, metadata__name=MISSING), POD),
            "f.json: Node: metadata.name: missing; allowed: 1 to 253 ASCII",
        ),
        (
            dump(changed(NODE, metadata__name="\x1b[31m\nx"), POD),
            r"f.json: Node '\x1b[31m\nx': metadata.name: '\x1b[31m\nx' is not a valid name",
        ),
        (
            dump(changed(NODE, metadata__labels={"a": 1}), POD),
            "f.json: Node n1: metadata.labels[...]: Expected `str`, got `int`",
        ),
        (
            dump(changed(NODE, status__allocatable__cpu="-1"), POD),
            "f.json: Node n1: status.allocatable.cpu: '-1' is negative; allowed: a Kubernetes",
        ),
        (
            dump(changed(NODE, status__allocatable__memory="abc"), POD),
            "f.json: Node n1: status.allocatable.memory: 'abc' is not a Kubernetes quantity",
        ),
        (
            dump(changed(NODE, status={"capacity": {"cpu": "x"}}), POD),
            "f.json: Node n1: status.capacity.cpu: 'x' is not",
        ),
        (
            dump(changed(NODE, status=MISSING), POD),
            "f.json: Node n1: status.allocatable: missing, and status.capacity too",
        ),
        (
            dump(changed(POD, **{QUANTITY_PATH: "-1"}), NODE),
            "f.json: Pod shop/web-0: spec.containers[0].resources.requests.memory: '-1' is neg",
        ),
        (
            dump(changed(POD, **{QUANTITY_PATH: True}), NODE),
            "f.json: Pod shop/web-0: spec.containers[0].resources.requests[...]: Expected",
        ),
        (
            dump(changed(POD, spec__overhead={"cpu": "1e"}), NODE),
            "f.json: Pod shop/web-0: spec.overhead.cpu: '1e' is not",
        ),
        (
            dump(changed(POD, spec__tolerations=[{"key": 1}]), NODE),
            "f.json: Pod shop/web-0: spec.tolerations[0].key: Expected `str | null`, got `int`",
        ),
        (
            dump(changed(POD, spec__containers={"a": 1}), NODE),
            "f.json: Pod shop/web-0: spec.containers: Expected `array | null`, got `object`",
        ),
        (
            dump(NODE, POD, b'{"kind":"PodDisruptionBudget","metadata":{"namespace":"a"}}'),
            "f.json: PodDisruptionBudget a/: metadata.name: missing",
        ),
        (
            dump(changed(POD, spec__nodeName="a b"), NODE),
            "f.json: Pod shop/web-0: spec.nodeName: 'a b' is not a valid name",
        ),
    ],
)
def test_fault_is_one_line_with_file_object_and_field(raw: bytes, message: str) -> None:
    assert message in fault_of(raw)


@pytest.mark.parametrize(
    ("written", "bytes_"),
    [
        ("1.5Gi", 3 * 2**29),
        ("100m", 1),
        ("1e3", 1000),
        ("0.1", 1),
        ("9E", 9 * 10**18),
        (1.5, 2),
        (10**30, 2**63 - 1),
    ],
)
def test_unusual_quantities_are_read_as_in_kubernetes(written: str | float, bytes_: int) -> None:
    item = orjson.dumps("@")
    raw = changed(POD, **{QUANTITY_PATH: "@"}).replace(
        item, orjson.dumps(written) if not isinstance(written, int) else str(written).encode()
    )
    found = kinds.PODS.decode(raw)
    assert found is not None
    assert found.requests.memory_bytes == bytes_


@given(st.integers(0, len(dump(NODE, POD)) - 1))
def test_truncated_dump_is_always_reported(length: int) -> None:
    assert fault_of(dump(NODE, POD)[:length]).startswith("f.json: is ")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**64 - 1) | TEXT | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
PATHS = st.sampled_from(
    [
        "metadata",
        "metadata__name",
        "metadata__namespace",
        "metadata__labels",
        "metadata__annotations",
        "metadata__ownerReferences",
        "spec",
        "spec__taints",
        "spec__nodeSelector",
        "spec__affinity",
        "spec__affinity__nodeAffinity",
        "spec__tolerations",
        "spec__containers",
        "spec__containers__0__resources",
        "spec__containers__0__ports",
        "spec__initContainers",
        "spec__overhead",
        "spec__volumes",
        "status",
        "status__phase",
        "status__allocatable",
        "status__conditions",
        "status__containerStatuses",
        "status__resources",
    ]
)


@given(PATHS, JUNK, st.sampled_from([NODE, POD]))
def test_junk_in_any_field_is_decoded_or_reported_in_one_line(
    path: str, junk: Any, document: Json
) -> None:
    start = document if "containers__0" not in path else POD
    refused: list[str] = []
    list(objects(dump(changed(start, **{path: junk})), "f.json", refused))
    assert all(message.startswith("f.json: ") and "\n" not in message for message in refused)
