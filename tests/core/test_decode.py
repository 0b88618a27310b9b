"""Kubernetes JSON to the model: what is read, what is tolerated, and how faults are told."""

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.edge import decode
from core.errors import InvalidInputError
from core.model import (
    ANYWHERE,
    DisruptionBudget,
    Node,
    Placing,
    Pod,
    PodSelector,
    Requirement,
    Resources,
    SelectorTerm,
    Taint,
    Toleration,
)

Json = dict[str, Any]
NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "u1", "labels": {"zone": "a"}, "annotations": {"x": "y"}},
    "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "99"},
        "allocatable": {
            "cpu": "3920m",
            "memory": "7Gi",
            "ephemeral-storage": "10G",
            "pods": "58",
            "hugepages-1Gi": "0",
            "nvidia.com/gpu": "2",
            "attachable-volumes-aws-ebs": "25",
        },
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ],
        "images": [{"names": ["a"], "sizeBytes": 1}],
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u2",
        "labels": {"app": "web"},
        "ownerReferences": [
            {"kind": "Thing", "name": "t"},
            {"kind": "ReplicaSet", "name": "web-1", "controller": True},
        ],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [
            {"name": "main", "resources": {"requests": {"cpu": 0.25, "memory": "1.5Gi"}}}
        ],
    },
    "status": {"phase": "Running"},
}
MISSING = object()


def changed(document: Json, **changes: Any) -> bytes:
    """Set fields by path (a__b__0__c); MISSING takes them away."""
    result = deepcopy(document)
    for path, value in changes.items():
        *way, last = [int(step) if step.isdecimal() else step for step in path.split("__")]
        target: Any = result
        for step in way:
            target = target[step] if isinstance(step, int) else target.setdefault(step, {})
        if value is MISSING:
            del target[last]
        else:
            target[last] = value
    return orjson.dumps(result)


def node(**changes: Any) -> Node:
    return decode.node(changed(NODE, **changes), "f")


def pod(**changes: Any) -> Pod:
    found = decode.pod(changed(POD, **changes), "f")
    assert found is not None
    return found


def dump(*items: Json | bytes) -> bytes:
    parts = [item if isinstance(item, bytes) else orjson.dumps(item) for item in items]
    return b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(parts) + b"]}"


def fault_of(raw: bytes) -> str:
    with pytest.raises(InvalidInputError) as caught:
        decode.cluster_from_dumps([("f.json", raw)])
    text = str(caught.value)
    assert "\n" not in text
    return text


class TestNode:
    def test_what_is_read(self) -> None:
        assert node() == Node(
            name="n1",
            uid="u1",
            labels={"zone": "a"},
            annotations={"x": "y"},
            taints=(Taint("gpu", "yes", "NoSchedule"),),
            allocatable=Resources(
                3920, 7 * 1024**3, 10**10, 58, extended=(("nvidia.com/gpu", 2),)
            ),
            ready=True,
        )

    def test_taints_keep_their_order_and_time(self) -> None:
        time = "2026-01-01T00:00:00Z"
        taints = [
            {"key": "b", "effect": "NoExecute", "timeAdded": time},
            {"key": "a", "value": None, "effect": "Later"},
        ]
        found = node(spec__taints=taints).taints
        assert found == (Taint("b", "", "NoExecute", time), Taint("a", "", "Later"))

    def test_without_allocatable_capacity_counts(self) -> None:
        found = node(status__allocatable=MISSING).allocatable
        assert found == Resources(8000, 8 * 1024**3, 0, 99)

    @pytest.mark.parametrize(
        ("conditions", "ready"),
        [
            (None, True),
            ([], True),
            ([{"type": "Ready", "status": "True"}], True),
            ([{"type": "Ready", "status": "False"}], False),
            ([{"type": "Ready", "status": "Unknown"}], False),
            ([{"type": "MemoryPressure", "status": "False"}], False),
        ],
    )
    def test_ready(self, conditions: list[Json] | None, ready: bool) -> None:
        assert node(status__conditions=conditions).ready is ready

    def test_nulls_read_as_empty(self) -> None:
        found = node(metadata__labels=None, metadata__annotations=None, spec=None)
        assert (found.labels, found.annotations, found.taints) == ({}, {}, ())
        assert not found.unschedulable

    def test_cordon(self) -> None:
        assert node(spec__unschedulable=True).unschedulable


class TestPod:
    def test_what_is_read(self) -> None:
        assert pod() == Pod(
            namespace="shop",
            name="web-0",
            uid="u2",
            node="n1",
            requests=Resources(250, 3 * 1024**3 // 2, pods=1),
            labels={"app": "web"},
            owner_kind="ReplicaSet",
            owner_name="web-1",
        )

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_finished_pods_hold_no_room(self, phase: str) -> None:
        assert decode.pod(changed(POD, status__phase=phase)) is None

    def test_pods_that_are_being_deleted_hold_their_room(self) -> None:
        assert pod(metadata__deletionTimestamp="2026-01-01T00:00:00Z").requests.cpu_millis == 250

    @pytest.mark.parametrize("containers", [None, [], [{"name": "x"}], [{"resources": {}}]])
    def test_without_requests_it_is_one_pod(self, containers: list[Json] | None) -> None:
        assert pod(spec__containers=containers).requests == Resources(pods=1)

    def test_without_spec_or_status_it_is_pending(self) -> None:
        found = decode.pod(b'{"metadata":{"name":"a"}}')
        assert found == Pod(namespace="default", name="a")

    def test_requests_follow_the_status_of_a_resize(self) -> None:
        status = {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "allocatedResources": {"cpu": "2"},
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
        }
        assert pod(status=status).requests.cpu_millis == 2000
        # As kube-scheduler: an allocation counts only beside the resources that run.
        del status["containerStatuses"][0]["resources"]  # type: ignore[index,union-attr]
        assert pod(status=status).requests.cpu_millis == 250

    def test_a_resize_that_was_refused_does_not_count(self) -> None:
        held = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
        pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        status = {"phase": "Running", "containerStatuses": [held], "conditions": [pending]}
        assert pod(status=status).requests.cpu_millis == 100
        assert pod(status={**status, "conditions": []}).requests.cpu_millis == 250

    def test_sidecars_overhead_and_the_pod_as_a_whole(self) -> None:
        found = pod(
            spec__initContainers=[
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}},
                {"name": "i", "resources": {"requests": {"cpu": "2"}}},
            ],
            spec__overhead={"memory": "1Ki"},
            spec__resources={"requests": {"memory": "2Gi"}},
        )
        assert found.requests == Resources(3000, 2 * 1024**3 + 1024, pods=1)

    @pytest.mark.parametrize(
        ("changes", "daemon", "mirror"),
        [
            ({"metadata__ownerReferences": None}, False, False),
            (
                {"metadata__ownerReferences": [{"kind": "DaemonSet", "controller": True}]},
                True,
                False,
            ),
            ({"metadata__ownerReferences": [{"kind": "DaemonSet"}]}, False, False),
            (
                {
                    "metadata__annotations": {
                        "cluster-autoscaler.kubernetes.io/daemonset-pod": "true"
                    }
                },
                True,
                False,
            ),
            ({"metadata__annotations": {"kubernetes.io/config.mirror": "abc"}}, False, True),
        ],
    )
    def test_who_goes_with_the_node(self, changes: Json, daemon: bool, mirror: bool) -> None:
        found = pod(**changes)
        assert (found.daemon, found.mirror) == (daemon, mirror)


TERM = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "Exists"}],
    },
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP_IS_WEB = Requirement("app", "In", ("web",))
HAS_TIER = Requirement("tier", "Exists")


class TestPlacing:
    def test_what_is_read(self) -> None:
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b", "a"]}]},
        ]
        found = pod(
            spec__nodeSelector={"b": "2", "a": "1"},
            spec__affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
            spec__tolerations=[{"operator": "Exists"}, {"key": "k", "tolerationSeconds": 300}],
        ).placing
        assert found.node_selector == (("a", "1"), ("b", "2"))
        assert set(found.affinity or ()) == {
            SelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),
            SelectorTerm(labels=(Requirement("zone", "NotIn", ("a", "b")),)),
        }
        assert set(found.tolerations) == {Toleration("", "Exists"), Toleration("k", "Equal")}

    def test_pods_of_one_template_share_it_in_whatever_order_it_is_written(self) -> None:
        one, other = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}
        first = pod(spec__tolerations=[one, other], spec__nodeSelector={"x": "1", "y": "2"})
        second = pod(spec__tolerations=[other, one, one], spec__nodeSelector={"y": "2", "x": "1"})
        assert first.placing is second.placing
        assert first.requests is second.requests
        assert first.labels is second.labels

    def test_nothing_asked(self) -> None:
        nothing = {"spec__affinity": None, "spec__tolerations": None, "spec__nodeSelector": None}
        assert pod(**nothing).placing == pod(spec__affinity={}).placing == ANYWHERE

    def test_affinity_without_terms_matches_no_node(self) -> None:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}
        assert pod(spec__affinity=affinity).placing == Placing(affinity=())

    def test_preferences_are_no_constraint(self) -> None:
        affinity = {
            "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]},
            "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        }
        found = pod(spec__affinity=affinity)
        assert (found.placing, found.unsupported, found.repels) == (ANYWHERE, (), ())

    def test_a_daemon_that_has_a_node_is_not_placed_but_still_repels(self) -> None:
        owner = [{"kind": "DaemonSet", "name": "d", "controller": True}]
        affinity = {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}},
            "podAntiAffinity": {REQUIRED: [TERM]},
        }
        found = pod(metadata__ownerReferences=owner, spec__affinity=affinity)
        assert found.placing == ANYWHERE
        assert found.repels
        waiting = pod(
            metadata__ownerReferences=owner, spec__affinity=affinity, spec__nodeName=MISSING
        )
        assert waiting.placing.affinity == (SelectorTerm(),)

    @pytest.mark.parametrize(
        ("term", "selector"),
        [
            (TERM, PodSelector(("shop",), (APP_IS_WEB, HAS_TIER))),
            (TERM | {"namespaces": ["b", "a"]}, PodSelector(("a", "b"), (APP_IS_WEB, HAS_TIER))),
            (TERM | {"namespaceSelector": {}}, PodSelector(None, (APP_IS_WEB, HAS_TIER))),
            ({"labelSelector": {}}, PodSelector(("shop",), ())),
            ({"labelSelector": None}, None),
        ],
    )
    def test_whom_it_repels(self, term: Json, selector: PodSelector | None) -> None:
        found = pod(spec__affinity={"podAntiAffinity": {REQUIRED: [term]}})
        assert found.repels == (() if selector is None else (selector,))
        assert found.unsupported == ("spec.affinity.podAntiAffinity",)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, "spec.affinity.podAffinity"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints",
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, None),
        (
            {"containers": [{"ports": [{"containerPort": 1}, {"hostPort": 80}]}]},
            "spec.containers.ports.hostPort",
        ),
        (
            {"initContainers": [{"ports": [{"hostPort": 80}]}]},
            "spec.initContainers.ports.hostPort",
        ),
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, None),
        (
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
            "spec.containers.ports",
        ),
        ({"hostNetwork": True}, None),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, "spec.volumes"),
        ({"volumes": [{"name": "a", "emptyDir": {}}, {"ephemeral": {}}]}, "spec.volumes"),
        ({"volumes": [{"awsElasticBlockStore": {"volumeID": "v"}}]}, "spec.volumes"),
        ({"volumes": [{"configMap": {}, "persistentVolumeClaim": None}]}, None),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"schedulerName": "volcano"}, "spec.schedulerName"),
        ({"schedulerName": "default-scheduler"}, None),
        ({"volumes": None, "resourceClaims": [], "topologySpreadConstraints": None}, None),
    ],
)
def test_what_the_engine_cannot_evaluate_is_named(changes: Json, field: str | None) -> None:
    found = pod(**{f"spec__{name}": value for name, value in changes.items()})
    assert found.unsupported == (() if field is None else (field,))


class TestDump:
    def test_a_list_of_all_kinds(self) -> None:
        budget = {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "shop"},
            "status": {"disruptionsAllowed": 1},
        }
        other = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": 7}}
        found = decode.decode_dump(dump(NODE, POD, budget, other), "f")
        assert found == [node(), pod(), DisruptionBudget("shop", "b", 1)]

    def test_lists_of_one_kind_and_single_objects_merge(self) -> None:
        nodes = orjson.dumps({"kind": "NodeList", "items": [{**NODE, "kind": ""}]})
        second = changed(NODE, metadata__name="n0")
        pods = orjson.dumps({"kind": "PodList", "items": [POD]})
        none = b'{"kind":"PodDisruptionBudgetList","items":null}'
        cluster = decode.cluster_from_dumps(
            [("a", nodes), ("b", second), ("c", pods), ("d", none)]
        )
        assert [one.name for one in cluster.nodes] == ["n0", "n1"]
        assert [one.key for one in cluster.pods] == ["shop/web-0"]

    def test_finished_pods_are_pods(self) -> None:
        cluster = decode.cluster_from_dumps(
            [("f", dump(NODE, changed(POD, status__phase="Failed")))]
        )
        assert cluster.pods == ()


QUANTITY_PATH = "spec__containers__0__resources__requests__memory"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "f.json: is empty; make it with: kubectl get nodes,pods,pdb -A -o json"),
        (b" \n", "f.json: is empty"),
        (
            b"kind: List",
            "f.json: is not whole JSON: JSON is malformed: invalid character (byte 0)",
        ),
        (b"[]", "f.json: Expected `object`, got `array`"),
        (b"null", "f.json: Expected `object`, got `null`"),
        (b"{}", "f.json: holds no nodes; make it with: kubectl"),
        (dump(), "f.json: holds no nodes; make it with: kubectl"),
        (dump(POD), "f.json: holds no nodes"),
        (dump(NODE), "f.json: holds no pods; make it with: kubectl"),
        (dump(NODE, b"7"), "f.json: items[1]: Expected `object`, got `int`"),
        (dump(NODE, POD)[:-9], "after 831 bytes"),
        (dump(NODE, NODE, POD), "f.json: node n1: stands in the input twice"),
        (dump(NODE, POD, POD), "f.json: pod shop/web-0: stands in the input twice"),
        (dump(b'{"kind":"Node"}'), "f.json: Node: Object missing required field `metadata`"),
        (dump(b'{"kind":"Node","a":' + b"[" * 9**5), "f.json: is nested too deeply"),
        (dump(b'{"kind":"Node","metadata":{"name":"\xff"}}'), "f.json: Node: is not UTF-8"),
        (
            dump(changed(NODE, metadata__name=MISSING)),
            "f.json: Node: metadata.name: missing; allowed: 1 to 253 ASCII",
        ),
        (
            dump(changed(NODE, metadata__name="\x1b[31m\nx")),
            r"f.json: Node '\x1b[31m\nx': metadata.name: '\x1b[31m\nx' is no name",
        ),
        (
            dump(changed(NODE, metadata__labels={"a": 1})),
            "f.json: Node n1: metadata.labels[...]: Expected `str`, got `int`",
        ),
        (
            dump(changed(NODE, status__allocatable__cpu="-1")),
            "f.json: Node n1: status.allocatable.cpu: '-1' is negative; allowed: a Kubernetes",
        ),
        (
            dump(changed(NODE, status__allocatable__memory="abc")),
            "f.json: Node n1: status.allocatable.memory: 'abc' is not a Kubernetes quantity",
        ),
        (
            dump(changed(NODE, status={"capacity": {"cpu": "x"}})),
            "f.json: Node n1: status.capacity.cpu: 'x' is not",
        ),
        (
            dump(changed(NODE, status=MISSING)),
            "f.json: Node n1: status.allocatable: missing, and status.capacity too",
        ),
        (
            dump(changed(POD, **{QUANTITY_PATH: "-1"})),
            "f.json: Pod shop/web-0: spec.containers[0].resources.requests.memory: '-1' is neg",
        ),
        (
            dump(changed(POD, **{QUANTITY_PATH: True})),
            "f.json: Pod shop/web-0: spec.containers[0].resources.requests[...]: Expected",
        ),
        (
            dump(changed(POD, spec__overhead={"cpu": "1e"})),
            "f.json: Pod shop/web-0: spec.overhead.cpu: '1e' is not",
        ),
        (
            dump(changed(POD, spec__tolerations=[{"key": 1}])),
            "f.json: Pod shop/web-0: spec.tolerations[0].key: Expected `str | null`, got `int`",
        ),
        (
            dump(changed(POD, spec__containers={"a": 1})),
            "f.json: Pod shop/web-0: spec.containers: Expected `array | null`, got `object`",
        ),
        (
            dump(changed(POD, spec__nodeName="a b")),
            "f.json: Pod shop/web-0: spec.nodeName: 'a b' is no name",
        ),
    ],
)
def test_faults_are_one_line_with_file_object_and_field(raw: bytes, told: str) -> None:
    assert told in fault_of(raw)


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
def test_odd_quantities_are_read_as_kubernetes_reads_them(
    written: str | float, bytes_: int
) -> None:
    item = orjson.dumps("@")
    raw = changed(POD, **{QUANTITY_PATH: "@"}).replace(
        item, orjson.dumps(written) if not isinstance(written, int) else str(written).encode()
    )
    found = decode.pod(raw)
    assert found is not None
    assert found.requests.memory_bytes == bytes_


@given(st.integers(0, len(dump(NODE, POD)) - 1))
def test_a_truncated_dump_is_always_told(length: int) -> None:
    assert fault_of(dump(NODE, POD)[:length]).startswith("f.json: is ")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
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
def test_junk_in_any_field_is_read_or_told_never_a_traceback(
    path: str, junk: Any, document: Json
) -> None:
    start = document if "containers__0" not in path else POD
    junk = orjson.loads(orjson.dumps(junk)) if _writable(junk) else None
    try:
        decode.decode_dump(dump(changed(start, **{path: junk})), "f.json")
    except InvalidInputError as fault:
        assert str(fault).startswith("f.json: ")
        assert "\n" not in str(fault)


def _writable(junk: Any) -> bool:
    try:
        orjson.dumps(junk)
    except (TypeError, orjson.JSONEncodeError):
        return False
    return True
