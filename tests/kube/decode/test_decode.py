"""Decode Nodes and Pods from JSON into the model."""

import json
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.constraints import QuotaFacts
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode import kinds
from tests.support.kube_json import MISSING, POD, Json, changed, node, pod


class TestNode:
    def test_node_is_decoded_with_all_its_fields(self) -> None:
        assert node() == Node(
            name="n1",
            uid="u1",
            labels={"zone": "a"},
            annotations={"kube-ebb.io/keep": "no"},
            taints=(Taint("gpu", "yes", "NoSchedule"),),
            allocatable=Resources(
                3920, 7 * 1024**3, 10**10, 58, extended=(("nvidia.com/gpu", 2),)
            ),
            ready=True,
        )

    def test_taints_keep_order_and_time_added(self) -> None:
        time = "2026-01-01T00:00:00Z"
        taints = [
            {"key": "b", "effect": "NoExecute", "timeAdded": time},
            {"key": "a", "value": None, "effect": "Later"},
        ]
        found = node(spec__taints=taints).taints
        assert found == (Taint("b", "", "NoExecute", time), Taint("a", "", "Later"))

    def test_capacity_is_used_when_allocatable_is_missing(self) -> None:
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
    def test_node_is_ready_unless_conditions_deny_it(
        self, conditions: list[Json] | None, ready: bool
    ) -> None:
        assert node(status__conditions=conditions).ready is ready

    def test_null_fields_are_read_as_empty(self) -> None:
        found = node(metadata__labels=None, metadata__annotations=None, spec=None)
        assert (found.labels, found.annotations, found.taints) == ({}, {}, ())
        assert not found.unschedulable

    def test_cordoned_node_is_unschedulable(self) -> None:
        assert node(spec__unschedulable=True).unschedulable


class TestPod:
    def test_pod_is_decoded_with_all_its_fields(self) -> None:
        assert pod() == Pod(
            namespace="shop",
            name="web-0",
            uid="u2",
            node="n1",
            requests=Resources(250, 3 * 1024**3 // 2, pods=1),
            labels={"app": "web"},
            owner_kind="ReplicaSet",
            owner_name="web-1",
            quota_facts=QuotaFacts(unset=("limits.cpu", "limits.memory")),
        )

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_finished_pod_is_dropped(self, phase: str) -> None:
        assert kinds.PODS.decode(changed(POD, status__phase=phase)) is None

    def test_terminating_pod_keeps_its_requests(self) -> None:
        assert pod(metadata__deletionTimestamp="2026-01-01T00:00:00Z").requests.cpu_millis == 250

    @pytest.mark.parametrize("containers", [None, [], [{"name": "x"}], [{"resources": {}}]])
    def test_pod_counts_as_one_pod_when_it_has_no_requests(
        self, containers: list[Json] | None
    ) -> None:
        assert pod(spec__containers=containers).requests == Resources(pods=1)

    def test_pod_is_pending_when_spec_and_status_are_missing(self) -> None:
        found = kinds.PODS.decode(b'{"metadata":{"name":"a"}}')
        best_effort = QuotaFacts(best_effort=True)
        assert found == Pod(namespace="default", name="a", quota_facts=best_effort)

    @pytest.mark.parametrize("bad", ["-1", "abc", "", "1 Gi", "1e9999"])
    def test_invalid_quantity_is_rejected_with_its_field(self, bad: str) -> None:
        containers = [{"resources": {"requests": {"memory": bad}}}]
        with pytest.raises(InvalidInputError, match=r"containers\[0\]\.resources\.requests\.mem"):
            pod(spec__containers=containers)

    def test_requests_include_allocated_resources_of_resize(self) -> None:
        allocated = {"name": "main", "allocatedResources": {"cpu": "2"}}
        running = {**allocated, "resources": {"requests": {"cpu": "1"}}}
        assert pod(status={"containerStatuses": [running]}).requests.cpu_millis == 2000
        # As kube-scheduler: an allocation counts only beside the resources that run.
        assert pod(status={"containerStatuses": [allocated]}).requests.cpu_millis == 250

    def test_infeasible_resize_does_not_count(self) -> None:
        running = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
        pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        status = {"phase": "Running", "containerStatuses": [running], "conditions": [pending]}
        assert pod(status=status).requests.cpu_millis == 100
        assert pod(status={**status, "conditions": []}).requests.cpu_millis == 250

    def test_requests_sum_sidecars_overhead_and_pod_level_resources(self) -> None:
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
    def test_daemon_and_mirror_pods_are_recognized(
        self, changes: Json, daemon: bool, mirror: bool
    ) -> None:
        found = pod(**changes)
        assert (found.daemon, found.mirror) == (daemon, mirror)


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([READY], True),
        ([{"type": "PodScheduled", "status": "True"}, READY], True),
        ([{**READY, "status": "False"}], False),
        ([{"type": "ContainersReady", "status": "True"}], False),
        ([{"type": "PodScheduled", "status": "True", "reason": "Ready"}], False),
        ([{"type": 7}, {"status": "True", "type": "Ready"}], False),
        ("Ready", False),
        (None, False),
    ],
)
def test_pod_is_ready_when_bound_and_its_ready_condition_is_true(
    conditions: object, ready: bool
) -> None:
    assert pod(status__conditions=conditions).ready is ready
    assert not pod(spec__nodeName=MISSING, status__conditions=[READY]).ready


def test_decoded_pod_is_frozen_and_has_every_field() -> None:
    found = pod()
    assert type(found) is Pod
    assert replace(found) == found
    with pytest.raises(FrozenInstanceError):
        found.node = "n2"  # type: ignore[misc]


TIME, SECONDS = "2026-01-01T00:00:00Z", 1_767_225_600
CONDITION_VALUES = st.sampled_from(
    ["True", "False", "", '"type":"Ready","status":"True"', "}", "Ready"]
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["Ready", "ContainersReady", "PodScheduled", "Ready2"])},
            optional={
                "observedGeneration": st.integers(0, 9),
                "status": CONDITION_VALUES,
                "lastProbeTime": st.sampled_from([None, "2026-01-01T00:00:00Z"]),
                "lastTransitionTime": st.sampled_from([None, "", "x", TIME]),
                "reason": CONDITION_VALUES,
                "message": CONDITION_VALUES,
            },
        ),
        max_size=4,
        unique_by=lambda one: one["type"],
    ),
    st.booleans(),
    st.booleans(),
)
def test_readiness_does_not_depend_on_json_layout(
    conditions: list[Json], compact: bool, other_order: bool
) -> None:
    written = [dict(sorted(one.items())) if other_order else one for one in conditions]
    document = json.loads(changed(POD, status__conditions=written))
    raw = json.dumps(document, separators=(",", ":") if compact else None, indent=None)
    condition = next((one for one in conditions if one["type"] == "Ready"), {})
    expected = condition.get("status") == "True"
    found = kinds.PODS.decode(raw.encode())
    assert found is not None
    assert found.ready is expected
    known = expected and condition.get("lastTransitionTime") == TIME
    assert found.ready_seconds == (SECONDS if known else None)


AS_SENT = (
    '{"type":"Ready","status":"True","lastProbeTime":null,'
    '"lastTransitionTime":"2026-01-01T00:00:00Z"}'
)


@pytest.mark.parametrize(
    ("condition", "seconds"),
    [
        (AS_SENT, SECONDS),
        (AS_SENT.replace('"status"', '"observedGeneration":3,"status"'), SECONDS),
        (AS_SENT.replace('"lastProbeTime":null,', ""), SECONDS),
        (AS_SENT.replace("null", '"2025-01-01T00:00:00Z"'), SECONDS),
        (AS_SENT.replace('"lastProbeTime":null', '"reason":"R"'), SECONDS),
        (AS_SENT.replace('","', '", "'), SECONDS),
        (AS_SENT.replace("00Z", "00.5Z"), SECONDS),
        (AS_SENT.replace("2026", "20x6"), None),
        (AS_SENT.replace(TIME, ""), None),
        ('{"type":"Ready","status":"True"}', None),
        (AS_SENT.replace("True", "False"), None),
    ],
)
def test_time_of_readiness_is_read_in_any_layout(condition: str, seconds: int | None) -> None:
    other = '{"type":"Initialized","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}'
    raw = changed(POD, status__conditions=7).replace(b"7}", f"[{other},{condition}]}}".encode())
    found = kinds.PODS.decode(raw)
    assert found is not None
    assert found.ready is ("True" in condition)
    assert found.ready_seconds == seconds


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"status__currentHealthy": 3}, "healthy", 3),
        ({"status__desiredHealthy": 2}, "healthy_min", 2),
        ({"status__expectedPods": 4}, "expected", 4),
        ({"metadata__generation": 2, "status__observedGeneration": 1}, "outdated", True),
        ({"metadata__generation": 2, "status__observedGeneration": 2}, "outdated", False),
        ({"metadata__generation": 1, "status": MISSING}, "outdated", True),
        ({"spec__unhealthyPodEvictionPolicy": "AlwaysAllow"}, "unhealthy_free", True),
        ({"spec__unhealthyPodEvictionPolicy": "IfHealthyBudget"}, "unhealthy_free", False),
    ],
)
def test_disruption_budget_is_decoded(
    changes: dict[str, object], field: str, value: object
) -> None:
    raw = {"metadata": {"namespace": "d", "name": "b"}, "spec": {}, "status": {}}
    found = kinds.BUDGETS.decode(changed(raw, **changes))
    assert getattr(found, field) == value
