"""Deployments, pods and records of surge moves."""

from dataclasses import replace
from typing import Any

from core.model.pod import Pod
from core.moves.objects import ObservedDeployment
from core.moves.records import MoveRecord
from tests.support.builders import pod

NOW = 1_767_225_600


def deployment(name: str = "web", **changes: Any) -> ObservedDeployment:
    """Return a Deployment of three replicas, all available."""
    made = ObservedDeployment(
        namespace="d",
        name=name,
        uid=f"uid-{name}",
        version="7",
        replicas=3,
        pods=3,
        updated=3,
        available=3,
        replica_set=f"{name}-1",
    )
    return replace(made, **changes)


def make_pod(name: str, on: str | None = "m", *, of: str = "web-1", **changes: Any) -> Pod:
    """Return a Ready pod of the Deployment that is an hour old."""
    made = pod(name, on, 100, 100, labels={"app": of})
    usual = {"uid": f"uid-{name}", "owner_kind": "ReplicaSet", "owner_name": of, "ready": True}
    return replace(made, **{**usual, "created_seconds": NOW - 3600, **changes})


def make_record(**changes: Any) -> MoveRecord:
    """Return the record of a move of pod old from node m, begun now."""
    made = MoveRecord(
        namespace="d",
        deployment="web",
        uid="uid-web",
        original=3,
        raised=4,
        pod="old",
        pod_uid="uid-old",
        node="m",
        leader="a",
        begun=NOW,
        deadline=NOW + 600,
    )
    return replace(made, **changes)
