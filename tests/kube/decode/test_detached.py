"""Pods that a move has detached: decoded as pods of their ReplicaSet, wherever they are read."""

from typing import Any

import pytest

from core.eligibility.drainability import findings
from core.model.pod import Pod, workload_of
from kube.decode import kinds
from kube.decode.pod import MOVE_CHARS_MAX
from tests.support.kube_json import MISSING, NODE, POD, Json, changed, cluster_from_dumps, dump

HASH, DETACHED = "pod-template-hash", "kube-ebb.io/detached"
OWNER: Json = {"kind": "ReplicaSet", "name": "web-5d8f", "uid": "u", "controller": False}
LABELS = {"app": "web", DETACHED: "5d8f"}


def decoded(**changes: Any) -> Pod:
    usual = {"metadata__labels": LABELS, "metadata__ownerReferences": [OWNER]}
    found = kinds.PODS.decode(changed(POD, **{**usual, **changes}))
    assert found is not None
    return found


def test_detached_pod_is_one_of_its_replica_set() -> None:
    found = decoded()
    assert (found.detached, found.owner_kind, found.owner_name) == (
        "5d8f",
        "ReplicaSet",
        "web-5d8f",
    )
    assert workload_of(found) == ("shop", "ReplicaSet", "web")


@pytest.mark.parametrize(
    ("labels", "owners", "detached", "owner"),
    [
        pytest.param(LABELS, [{"kind": "Thing", "name": "t"}, OWNER], "5d8f", "web-5d8f",
                     id="second reference"),
        pytest.param(LABELS, [{**OWNER, "kind": "Thing"}], "5d8f", "", id="no ReplicaSet"),
        pytest.param(LABELS, MISSING, "5d8f", "", id="reference removed"),
        pytest.param(
            LABELS, [OWNER, {"kind": "DaemonSet", "name": "agent", "controller": True}],
            "5d8f", "agent", id="adopted by another controller"
        ),
        pytest.param({**LABELS, HASH: "5d8f"}, [OWNER], "", "", id="label given back"),
        pytest.param(
            {**LABELS, HASH: "5d8f"}, [{**OWNER, "controller": True}], "", "web-5d8f", id="adopted"
        ),
        pytest.param({"app": "web"}, [OWNER], "", "", id="never detached"),
        pytest.param({**LABELS, DETACHED: ""}, [OWNER], "", "", id="hash unknown"),
    ],
)  # fmt: skip
def test_owner_of_pod_depends_on_its_labels(
    labels: Json, owners: object, detached: str, owner: str
) -> None:
    if owners is MISSING:
        owners = None
    found = decoded(metadata__labels=labels, metadata__ownerReferences=owners)
    assert (found.detached, found.owner_name) == (detached, owner)


def test_owner_of_one_pod_is_not_that_of_another_with_equal_references() -> None:
    """The decoder remembers the controllers of owner references, not of pods."""
    for _ in range(2):
        assert decoded().owner_name == "web-5d8f"
        assert decoded(metadata__labels={"app": "web"}).owner_name == ""


@pytest.mark.parametrize(
    ("note", "found"),
    [
        (MISSING, None),
        ("", ""),
        ("{}", "{}"),
        ("x" * MOVE_CHARS_MAX, "x" * MOVE_CHARS_MAX),
        ("x" * 9999, "x" * (MOVE_CHARS_MAX + 1)),
    ],
    ids=["none", "empty", "any text", "longest", "too long"],
)
def test_note_of_move_is_kept_up_to_a_length(note: object, found: str | None) -> None:
    notes = {} if note is MISSING else {"kube-ebb.io/move": note}
    assert decoded(metadata__annotations=notes).move == found


@pytest.mark.parametrize(
    ("labels", "codes"), [(LABELS, []), ({"app": "web"}, ["pod-bare"])], ids=["detached", "bare"]
)
def test_detached_pod_in_a_dump_is_not_bare(labels: Json, codes: list[str]) -> None:
    """A bare pod keeps its node, because nothing creates it again."""
    raw = changed(POD, metadata__labels=labels, metadata__ownerReferences=[OWNER])
    (found,) = cluster_from_dumps([("dump", dump(NODE, raw))]).pods
    assert [blocker.code for _, blocker in findings(found)] == codes
