"""The two patches of a move, with their exact bodies, and when they are not made."""

from dataclasses import replace
from typing import Any

import pytest

from core.moves.patches import Patch, PodMetadata, attach_patch, detach_patch
from tests.support.surge import NOTE

UID, OWNER = "uid-old", "uid-rs"
COST, OURS = "controller.kubernetes.io/pod-deletion-cost", "kube-ebb.io/deletion-cost"
MOVE, HASH, DETACHED = "kube-ebb.io/move", "pod-template-hash", "kube-ebb.io/detached"
WHOLE = PodMetadata(uid=UID, version="7", hash="1", controller=("ReplicaSet", "web-1", OWNER))
AWAY = PodMetadata(
    uid=UID, version="8", detached="1", cost="-100000001", cost_ours="-100000001", move="{}"
)


def detach(**changes: Any) -> Patch | None:
    return detach_patch(replace(WHOLE, **changes), UID, "web-1", NOTE)


def attach(*, keep_cost: bool = False, note: Any = None, **changes: Any) -> Patch | None:
    return attach_patch(replace(AWAY, **changes), UID, note, keep_cost=keep_cost)


def test_detach_changes_metadata_of_the_pod_as_read() -> None:
    assert detach() == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {HASH: None, DETACHED: "1"},
            "annotations": {COST: "-100000001", OURS: "-100000001", MOVE: NOTE.encode()},
            "ownerReferences": [{"uid": OWNER, "controller": False, "blockOwnerDeletion": False}],
        }
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"uid": "another"}, id="recreated under its name"),
        pytest.param({"hash": "", "detached": "1"}, id="detached already"),
        pytest.param({"hash": ""}, id="no pod of a Deployment"),
        pytest.param({"controller": ("", "", "")}, id="no controller"),
        pytest.param({"controller": ("ReplicaSet", "web-2", "u")}, id="another ReplicaSet"),
        pytest.param({"controller": ("DaemonSet", "web-1", "u")}, id="another kind"),
        pytest.param({"terminating": True}, id="terminating"),
        pytest.param({"cost": "5"}, id="cost of others"),
        pytest.param({"cost": "5", "cost_ours": "-7"}, id="cost that others changed"),
    ],
)
def test_pod_is_not_detached_when_it_is_not_as_planned(changes: Any) -> None:
    assert detach(**changes) is None


@pytest.mark.parametrize(
    "changes",
    [{}, {"cost": "-9", "cost_ours": "-9"}, {"cost_ours": "-9"}, {"move": "{}"}],
    ids=str,
)
def test_pod_is_detached_when_others_have_set_no_cost(changes: Any) -> None:
    assert detach(**changes) == detach()


def test_attach_after_success_keeps_the_cost_so_that_the_pod_is_deleted() -> None:
    moved = NOTE._replace(outcome="moved")
    assert attach(keep_cost=True, note=moved) == {
        "metadata": {
            "resourceVersion": "8",
            "labels": {HASH: "1", DETACHED: None},
            "annotations": {MOVE: moved.encode()},
        }
    }


@pytest.mark.parametrize(
    ("changes", "annotations"),
    [
        pytest.param({}, {COST: None, OURS: None}, id="cost of the move"),
        pytest.param({"cost": "5"}, {OURS: None}, id="cost that others changed"),
        pytest.param({"cost": None}, {OURS: None}, id="cost that others removed"),
        pytest.param({"cost": None, "cost_ours": None}, {COST: None, OURS: None}, id="no cost"),
    ],
)
def test_attach_that_undoes_a_move_removes_the_cost_of_ebb_alone(
    changes: Any, annotations: Any
) -> None:
    found = attach(**changes)
    assert found is not None
    assert found["metadata"]["annotations"] == {MOVE: None, **annotations}
    assert found["metadata"]["labels"] == {HASH: "1", DETACHED: None}


def test_note_of_failure_stays_on_the_pod() -> None:
    failed = NOTE._replace(failures=1, outcome="timed_out", until=NOTE.deadline + 600)
    found = attach(note=failed)
    assert found is not None
    assert found["metadata"]["annotations"][MOVE] == failed.encode()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"uid": "another"}, id="recreated under its name"),
        pytest.param({"detached": ""}, id="hash unknown"),
        pytest.param({"detached": "", "hash": "1"}, id="given back"),
        pytest.param({"hash": "1"}, id="label given back by hand"),
    ],
)
def test_pod_is_not_attached_when_it_is_not_detached(changes: Any) -> None:
    assert attach(**changes) is None


def test_terminating_pod_is_attached_too() -> None:
    assert attach(terminating=True) == attach()
