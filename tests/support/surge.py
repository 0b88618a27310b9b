"""Deployments, pods and moves."""

from dataclasses import replace
from typing import Any

from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL, Pod
from core.moves.move import Move
from core.moves.note import MoveNote
from core.moves.objects import ObservedDeployment
from core.writes.costs import MOVE_COST
from tests.support.builders import pod

NOW = 1_767_225_600
NOTE = MoveNote(begun=NOW, deadline=NOW + 600)


def deployment(name: str = "web", **changes: Any) -> ObservedDeployment:
    """Return a Deployment of three replicas, all available."""
    made = ObservedDeployment(
        namespace="d",
        name=name,
        uid=f"uid-{name}",
        replicas=3,
        pods=3,
        updated=3,
        available=3,
        replica_set=f"{name}-1",
    )
    return replace(made, **changes)


def make_pod(name: str, on: str | None = "m", *, of: str = "web-1", **changes: Any) -> Pod:
    """Return a pod of the Deployment that is an hour old, and Ready for as long."""
    made = pod(name, on, 100, 100, labels={"app": of, TEMPLATE_LABEL: of.rpartition("-")[2]})
    usual: dict[str, Any] = {
        "uid": f"uid-{name}",
        "owner_kind": "ReplicaSet",
        "owner_name": of,
        "ready": True,
        "created_seconds": NOW - 3600,
    }
    found = replace(made, **{**usual, **changes})
    since = changes.get("ready_seconds", found.created_seconds)
    return replace(found, ready_seconds=since if found.ready else None)


def cost(number: int) -> dict[str, Any]:
    """Return the fields of a pod to which Ebb has given this deletion cost."""
    return dict.fromkeys(("deletion_cost", "deletion_cost_ours"), str(number))


def detached(one: Pod, note: MoveNote | None = NOTE, **changes: Any) -> Pod:
    """Return the pod as a move has detached it."""
    labels = {key: value for key, value in one.labels.items() if key != TEMPLATE_LABEL}
    labels[DETACHED_LABEL] = one.labels[TEMPLATE_LABEL]
    text = note.encode() if note is not None else None
    return replace(one, **{"labels": labels, "move": text, **cost(MOVE_COST), **changes})


def make_move(**changes: Any) -> Move:
    """Return this leader's move of pod old of Deployment web from node m, begun now."""
    made = Move(
        namespace="d",
        pod="old",
        uid="uid-old",
        node="m",
        replica_set="web-1",
        hash="1",
        note=NOTE,
        deployment="web",
        deployment_uid="uid-web",
        generation=1,
        others=frozenset({"uid-old", "uid-a", "uid-b"}),
    )
    return replace(made, **changes)
