"""The API server accepts with Ebb every write of a Node that it accepts without Ebb.

All writes are dry runs: once as a user that the webhook ignores, and once as another user.
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
EFFECTS = {"PreferNoSchedule": "PreferNoSchedule", "NoSchedule": "NoSchedule"}


@pytest.fixture(scope="module", autouse=True, params=["webhook", "policy"])
def tainted_by(plane: Plane, request: pytest.FixtureRequest) -> Iterator[str]:
    with admitting(plane) if request.param == "webhook" else policy(plane):
        yield request.param


@pytest.fixture
def stored(api: Api) -> dict[str, Json]:
    """Return two stored Nodes without resourceVersion, so that updates do not conflict."""
    add_nodes(api, *OLD.values())
    mark(api, OLD["marked"], "NoSchedule")
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
    """Try a write; return the Node as it would be stored, or None and the reason."""
    try:
        return api.call(method, f"{path}?dryRun=All", body, headers=headers), ""
    except RefusedError as fault:
        return None, str(fault)[:300]


def kept(found: Json) -> list[Json]:
    """Return the taints of other clients, with all fields."""
    return [taint for taint in found["spec"].get("taints") or () if taint["key"] != TAINT_KEY]


def checked(label: str | None, without: Json, found: Json) -> list[str]:
    """Return what is wrong with the taints of a response."""
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
def test_every_update_accepted_without_ebb_is_accepted_with_ebb(
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


def test_every_node_creation_accepted_without_ebb_is_accepted_with_ebb(api: Api) -> None:
    """A Node without the mark is not sent to the webhook, so it shows the result without Ebb."""
    accepted, wrong = 0, []
    for case in cases():
        if case.mark is None or not (case.mark == "" or taint_rules.is_name(case.mark)):
            continue  # not a valid value of a label
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
def test_marked_node_with_damaged_details_can_be_cordoned_and_tainted(
    plane: Plane, api: Api, text: str
) -> None:
    add_nodes(api, "n")
    mark(api, "n")
    api.merge(f"{NODES}/n", {"metadata": {"annotations": {"kube-ebb.io/mark": text}}})
    plane.kubectl("cordon", "n")
    plane.kubectl("taint", "node", "n", "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
    found = {taint["key"] for taint in taints(api.get(f"{NODES}/n"))}
    assert {TAINT_KEY, "ToBeDeletedByClusterAutoscaler"} <= found
