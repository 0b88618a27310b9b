"""Deployments, ReplicaSets and HorizontalPodAutoscalers: a row for each field."""

from typing import Any

import orjson
import pytest

from core.model.errors import InvalidInputError
from core.moves.listed import surge_objects
from core.moves.objects import HorizontalAutoscaler, ObservedDeployment
from kube.decode.kinds import (
    DEPLOYMENTS,
    HORIZONTAL_AUTOSCALERS,
    REPLICA_SETS,
)
from kube.decode.workloads import CONDITIONS_BYTES_MAX
from tests.support.fake_objects import Json, merged

META: Json = {"name": "web", "namespace": "d", "uid": "u", "resourceVersion": "7"}


def deployment(**patch: Any) -> ObservedDeployment:
    found = DEPLOYMENTS.decode(orjson.dumps(merged({"metadata": META}, patch)))
    assert found is not None
    return found.observed


@pytest.mark.parametrize(
    ("patch", "field", "value"),
    [
        ({}, "replicas", 1),
        ({"spec": {"replicas": 0}}, "replicas", 0),
        ({"spec": {"replicas": 2**40}}, "replicas", 2**31 - 1),
        ({"spec": {"strategy": {"type": "Recreate"}}}, "strategy", "Recreate"),
        ({"spec": {"replicas": 5}}, "max_surge", 2),
        ({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}}, "max_surge", 0),
        ({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3}}}}, "max_surge", 3),
        ({"spec": {"strategy": {"rollingUpdate": {"maxSurge": "0%"}}}}, "max_surge", 0),
        ({"spec": {"strategy": {"rollingUpdate": {"maxSurge": "x"}}}}, "max_surge", 0),
        ({"spec": {"paused": True}}, "paused", True),
        ({"spec": {"minReadySeconds": 4}}, "min_ready_seconds", 4),
        ({"spec": {"progressDeadlineSeconds": 4}}, "progress_deadline_seconds", 4),
        ({"metadata": {"generation": 3}}, "generation", 3),
        ({"status": {"observedGeneration": 2}}, "observed_generation", 2),
        ({"status": {"replicas": 2}}, "pods", 2),
        ({"status": {"updatedReplicas": 2}}, "updated", 2),
        ({"status": {"availableReplicas": 2}}, "available", 2),
        ({"metadata": {"annotations": {"kube-ebb.io/keep": "true"}}}, "keep", True),
        ({"metadata": {"annotations": {"kube-ebb.io/keep": "false"}}}, "keep", False),
        (
            {"spec": {"template": {"metadata": {"annotations": {"kube-ebb.io/keep": "true"}}}}},
            "keep",
            True,
        ),
        (
            {
                "status": {
                    "conditions": [
                        {"type": "Available", "status": "True"},
                        {"type": "ReplicaFailure", "status": "True", "message": "m" * 999},
                    ]
                }
            },
            "replica_failure",
            "m" * 200,
        ),
        (
            {"status": {"conditions": [{"type": "ReplicaFailure", "status": "False"}]}},
            "replica_failure",
            "",
        ),
    ],
)
def test_field_of_deployment_is_decoded(patch: Json, field: str, value: object) -> None:
    assert getattr(deployment(**patch), field) == value


def test_deployment_is_unreadable_when_its_conditions_are_too_large() -> None:
    conditions = [{"type": "x" * CONDITIONS_BYTES_MAX}]
    with pytest.raises(InvalidInputError, match=r"status\.conditions"):
        deployment(status={"conditions": conditions})


def test_deployment_that_is_being_deleted_does_not_count() -> None:
    gone = {"metadata": {**META, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert DEPLOYMENTS.decode(orjson.dumps(gone)) is None


def replica_set(name: str, revision: str, *, owner: Json | None = None, **patch: Any) -> Any:
    usual = {"kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    meta = {
        "name": name,
        "namespace": "d",
        "annotations": {"deployment.kubernetes.io/revision": revision},
        "ownerReferences": [{"kind": "Thing", "name": "t"}, {**usual, **(owner or {})}],
    }
    return REPLICA_SETS.decode(orjson.dumps(merged({"metadata": meta}, patch)))


@pytest.mark.parametrize(
    ("owner", "patch"),
    [
        ({"kind": "Rollout"}, {}),
        ({"controller": False}, {}),
        ({}, {"spec": {"replicas": 0}}),
        ({}, {"spec": {"replicas": 0}, "status": {"replicas": 0}}),
    ],
)
def test_replica_set_does_not_count_without_deployment_or_pods(owner: Json, patch: Json) -> None:
    assert replica_set("web-1", "1", owner=owner, **patch) is None


def test_current_replica_set_has_revision_of_deployment() -> None:
    meta = {**META, "annotations": {"deployment.kubernetes.io/revision": "2"}}
    found = DEPLOYMENTS.decode(orjson.dumps({"metadata": meta}))
    assert found is not None
    made = surge_objects(
        [found],
        [
            replica_set("web-1", "1", spec={"replicas": 0}, status={"replicas": 1}),
            replica_set("web-2", "2"),
            replica_set("web-3", "2", owner={"uid": "of an earlier Deployment"}),
            replica_set("db-1", "1", owner={"name": "db"}),
        ],
    )
    assert made.deployments["d/web"].replica_set == "web-2"
    assert made.owners == {("d", "web-1"): "d/web", ("d", "web-2"): "d/web"}


def autoscaler(**spec: Any) -> HorizontalAutoscaler | None:
    usual = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    meta = {"name": "h", "namespace": "d"}
    found = {"metadata": meta, "spec": merged({**usual, "maxReplicas": 5}, spec)}
    return HORIZONTAL_AUTOSCALERS.decode(orjson.dumps(found))


def test_autoscaler_is_decoded() -> None:
    assert autoscaler() == HorizontalAutoscaler(namespace="d", name="h", target="web")


@pytest.mark.parametrize("target", [{"kind": "StatefulSet"}, {"apiVersion": "argoproj.io/v1"}])
def test_autoscaler_does_not_count_when_it_scales_no_deployment(target: Json) -> None:
    assert autoscaler(scaleTargetRef=target) is None


def test_first_autoscaler_by_name_counts_when_several_scale_a_deployment() -> None:
    one = HorizontalAutoscaler(namespace="d", name="a", target="web")
    other = HorizontalAutoscaler(namespace="d", name="b", target="web")
    assert surge_objects([], [], [other, one]).autoscalers == {"d/web": one}
