"""Every write of a Node that the API server accepts, it accepts with Ebb in between as well.

All are dry runs: as somebody whom no rule binds (a kubelet's update is passed by), and as anybody.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.install import admitting, policy
from tests.e2e.objects import NODES, add_nodes, mark, node, taints
from tests.e2e.plane import Plane
from tests.support import odd_nodes, taint_rules
from tests.support.odd_nodes import Odd

SEED = 7
DRAWN = 80
UNMATCHED = [
    ("Impersonate-User", "somebody"),
    ("Impersonate-Group", "system:nodes"),
    ("Impersonate-Group", "system:masters"),
]
OLD = {"unmarked": "u", "marked": "m"}
EFFECTS = {"soft": "PreferNoSchedule", "hard": "NoSchedule"}


@pytest.fixture(scope="module", autouse=True, params=["webhook", "policy"])
def tainted_by(plane: Plane, request: pytest.FixtureRequest) -> Iterator[str]:
    with admitting(plane) if request.param == "webhook" else policy(plane):
        yield request.param


@pytest.fixture
def stored(api: Api) -> dict[str, Json]:
    """Two Nodes as they stand, without the revision: writes of others do not conflict."""
    add_nodes(api, *OLD.values())
    mark(api, OLD["marked"], "hard")
    found = {name: api.get(f"{NODES}/{name}") for name in OLD.values()}
    for one in found.values():
        del one["metadata"]["resourceVersion"]
    return found


def cases() -> list[Odd]:
    chance = random.Random(SEED)
    return odd_nodes.table() + [odd_nodes.drawn(chance, number) for number in range(DRAWN)]


def tried(
    api: Api, method: str, path: str, body: Json, headers: Sequence[tuple[str, str]] = ()
) -> tuple[Json | None, str]:
    """Try a write. Returns: the Node as it would be stored, or None and why not."""
    try:
        return api.call(method, f"{path}?dryRun=All", body, headers=headers), ""
    except RefusedError as fault:
        return None, str(fault)[:300]


def kept(found: Json) -> list[Json]:
    """Return others' taints, with all that they have."""
    return [taint for taint in found["spec"].get("taints") or () if taint["key"] != TAINT_KEY]


def checked(label: str | None, without: Json, found: Json) -> list[str]:
    """Return what is wrong with an answer: others' taints and ours."""
    ours = [taint for taint in taints(found) if taint["key"] == TAINT_KEY]
    wrong = taint_rules.faults(found["spec"].get("taints") or ())
    if kept(found) != kept(without):
        wrong.append("others' taints differ")
    if [taint["effect"] for taint in ours] != [EFFECTS[label] for _ in ours if label in EFFECTS]:
        wrong.append(f"ours are {ours}")
    if label in EFFECTS and len(ours) != 1:
        wrong.append("ours is missing")
    return wrong


@pytest.mark.parametrize("old", OLD)
def test_every_update_that_is_accepted_without_us_is_accepted(
    api: Api, stored: dict[str, Json], old: str
) -> None:
    name = OLD[old]
    accepted, wrong = 0, []
    for case in cases():
        body = case.onto(stored[name])
        without, _ = tried(api, "PUT", f"{NODES}/{name}", body, UNMATCHED)
        if without is None:
            continue
        accepted += 1
        found, why = tried(api, "PUT", f"{NODES}/{name}", body)
        faults = [why] if found is None else checked(case.mark, without, found)
        if faults and not (old == "unmarked" and case.mark is None and not why):
            wrong.append(f"{case.name}: {faults}")
    print(f"{old}: {accepted} of {len(cases())} updates are accepted without us")
    assert accepted > 150
    assert wrong == []


def test_every_new_node_that_is_accepted_without_us_is_accepted(api: Api) -> None:
    """Without us: the same Node without the mark, of which the registration takes no notice."""
    accepted, wrong = 0, []
    for case in cases():
        if case.mark is None or not (case.mark == "" or taint_rules.is_name(case.mark)):
            continue  # no label that could be set
        body = case.onto(node("new"))
        bare: Any = case.onto(node("new"))
        del bare["metadata"]["labels"][MARK_LABEL]
        without, _ = tried(api, "POST", NODES, bare)
        if without is None:
            continue
        found, why = tried(api, "POST", NODES, body)
        accepted += 1
        faults = [why] if found is None else checked(case.mark, without, found)
        if faults:
            wrong.append(f"{case.name}: {faults}")
    print(f"new: {accepted} Nodes are accepted without us")
    assert accepted > 150
    assert wrong == []


@pytest.mark.parametrize("text", ['{"since":-1}', odd_nodes.details(since="-1")])
def test_a_marked_node_with_damaged_details_can_be_cordoned_and_deleted_by_an_autoscaler(
    plane: Plane, api: Api, text: str
) -> None:
    add_nodes(api, "n")
    mark(api, "n")
    api.merge(f"{NODES}/n", {"metadata": {"annotations": {"kube-ebb.io/drain": text}}})
    plane.kubectl("cordon", "n")
    plane.kubectl("taint", "node", "n", "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
    found = {taint["key"] for taint in taints(api.get(f"{NODES}/n"))}
    assert {TAINT_KEY, "ToBeDeletedByClusterAutoscaler"} <= found
