"""The next step of a move, one row for each state of the Deployment and its pods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.model.now import Now
from core.moves.objects import HPA_MANAGER, MANAGER
from core.moves.records import MoveOutcome, MoveStep
from core.moves.steps import (
    EndMove,
    MoveView,
    NextStep,
    PutRecord,
    SetCost,
    SetReplicas,
    Wait,
    next_step,
)
from core.writes.costs import MOVE_COST, UNDO_COST
from tests.support.surge import NOW, deployment, make_pod, make_record

COST: dict[str, Any] = {"deletion_cost": str(MOVE_COST), "deletion_cost_ours": str(MOVE_COST)}
OLD = make_pod("old", **COST)
OTHERS = make_pod("a", "n"), make_pod("b", "n")
NEW = make_pod("new", "n", created_seconds=NOW)
FOUR: dict[str, Any] = {
    "replicas": 4,
    "replicas_manager": MANAGER,
    "pods": 4,
    "updated": 4,
    "available": 4,
}
STARTING: dict[str, Any] = {**FOUR, "available": 3}
RAISED = make_record(step=MoveStep.RAISED)
LOWERING = make_record(step=MoveStep.LOWERING, outcome=MoveOutcome.MOVED)


def seen(of: Mapping[str, Any], *pods: Any, **changes: Any) -> MoveView:
    view = MoveView(deployment=deployment(**of), pods=(*OTHERS, *pods), marked={"m"}, leader="a")
    return replace(view, **changes)


def step(record: Any, view: MoveView, after_seconds: int = 0) -> NextStep:
    return next_step(record, view, Now(NOW + after_seconds))


def lowering(outcome: MoveOutcome) -> PutRecord:
    return PutRecord(replace(RAISED, step=MoveStep.LOWERING, outcome=outcome))


def test_move_sets_cost_before_it_raises_replicas() -> None:
    plain = make_pod("old")
    assert step(make_record(), seen({}, plain)) == SetCost(plain)
    assert step(make_record(), seen({}, OLD)) == SetReplicas(deployment(), 4)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(seen({"replicas": 2}, OLD), id="replicas changed"),
        pytest.param(
            seen({"replicas": 4, "replicas_manager": "kubectl"}, OLD), id="raised by others"
        ),
        pytest.param(seen({"replicas": 4}, OLD), id="raised by unknown"),
        pytest.param(seen({}), id="pod gone"),
        pytest.param(seen({}, replace(OLD, terminating=True)), id="pod terminating"),
        pytest.param(seen({"available": 2}, OLD), id="pod not available"),
        pytest.param(seen({"paused": True}, OLD), id="paused"),
        pytest.param(seen({"generation": 2}, OLD), id="status outdated"),
        pytest.param(seen({}, OLD, marked=()), id="unmarked"),
        pytest.param(seen({}, OLD, pods_pending=True), id="pods pending"),
        pytest.param(seen({}, OLD, allowed=False), id="not allowed"),
        pytest.param(seen({}, OLD, leader="b"), id="another leader"),
    ],
)
def test_move_is_abandoned_when_its_conditions_do_not_hold(view: MoveView) -> None:
    assert step(make_record(), view) == EndMove(MoveOutcome.ABANDONED)


def test_move_ends_when_replicas_are_not_raised_in_time() -> None:
    assert step(make_record(), seen({}, OLD), 60) == EndMove(MoveOutcome.NOT_RAISED)


def test_move_continues_when_another_leader_has_raised_replicas() -> None:
    view = seen(STARTING, OLD, leader="b")
    assert step(make_record(), view) == PutRecord(RAISED)


def test_move_waits_until_deadline_when_new_pod_starts() -> None:
    view = seen(STARTING, OLD, make_pod("new", "n", ready=False))
    assert step(RAISED, view) == Wait(NOW + 600)


@pytest.mark.parametrize(
    ("view", "outcome"),
    [
        pytest.param(seen(FOUR, OLD, NEW), MoveOutcome.MOVED, id="available"),
        pytest.param(seen(FOUR, OLD, NEW, marked=()), MoveOutcome.MOVED, id="too late to release"),
        pytest.param(seen(FOUR, OLD, replace(NEW, node="m")), MoveOutcome.MISPLACED, id="marked"),
        pytest.param(seen(STARTING, NEW), MoveOutcome.POD_GONE, id="pod gone"),
        pytest.param(seen(STARTING, OLD, marked=()), MoveOutcome.NODE_UNMARKED, id="released"),
        pytest.param(seen(STARTING, OLD, allowed=False), MoveOutcome.STOPPED, id="not allowed"),
        pytest.param(
            seen({**STARTING, "replica_failure": "quota"}, OLD), MoveOutcome.REFUSED, id="quota"
        ),
        pytest.param(
            seen(STARTING, OLD, make_pod("new", None, ready=False, unschedulable=True)),
            MoveOutcome.UNSCHEDULABLE,
            id="new pod unschedulable",
        ),
        pytest.param(
            seen(STARTING, OLD, pods_pending=True), MoveOutcome.PENDING_PODS, id="pending"
        ),
        pytest.param(
            seen({**STARTING, "replica_set": "web-2"}, OLD), MoveOutcome.ROLLOUT, id="rollout"
        ),
    ],
)
def test_replicas_are_to_be_lowered_when_move_ends(view: MoveView, outcome: MoveOutcome) -> None:
    assert step(RAISED, view) == lowering(outcome)


@pytest.mark.parametrize("after_seconds", [600, -1000])
def test_replicas_are_to_be_lowered_when_deadline_has_passed_or_is_impossible(
    after_seconds: int,
) -> None:
    assert step(RAISED, seen(STARTING, OLD), after_seconds) == lowering(MoveOutcome.TIMED_OUT)


@pytest.mark.parametrize("record", [RAISED, LOWERING], ids=["raised", "lowering"])
@pytest.mark.parametrize(
    ("of", "found"),
    [
        (
            {"replicas": 5, "replicas_manager": "kubectl"},
            EndMove(MoveOutcome.INTERFERED, "kubectl"),
        ),
        (
            {"replicas": 4, "replicas_manager": "kubectl"},
            EndMove(MoveOutcome.INTERFERED, "kubectl"),
        ),
        ({"replicas": 0, "replicas_manager": ""}, EndMove(MoveOutcome.INTERFERED)),
    ],
)
def test_value_stays_when_others_set_replicas(record: Any, of: Any, found: EndMove) -> None:
    assert step(record, seen(of, OLD, NEW)) == found


def test_move_reports_who_reverted_it() -> None:
    view = seen({"replicas_manager": "argocd"}, OLD)
    assert step(RAISED, view) == EndMove(MoveOutcome.INTERFERED, "argocd", reverted=True)


@pytest.mark.parametrize(
    ("pods", "outcome"),
    [((OLD,), MoveOutcome.SCALED), ((NEW,), MoveOutcome.MOVED)],
    ids=["old pod remains", "new pod remains"],
)
def test_move_is_no_fight_when_hpa_lowers_replicas(pods: Any, outcome: MoveOutcome) -> None:
    view = seen({"replicas_manager": HPA_MANAGER}, *pods, has_autoscaler=True)
    assert step(RAISED, view) == EndMove(outcome, HPA_MANAGER, reverted=True)


@pytest.mark.parametrize(
    ("pods", "outcome"),
    [((OLD, NEW), MoveOutcome.SCALED), ((NEW,), MoveOutcome.MOVED)],
    ids=["old pod remains", "old pod ended"],
)
def test_move_has_succeeded_when_hpa_raises_replicas_again_at_once(
    pods: Any, outcome: MoveOutcome
) -> None:
    view = seen({"replicas": 4, "replicas_manager": HPA_MANAGER}, *pods, has_autoscaler=True)
    assert step(LOWERING, view) == EndMove(outcome, HPA_MANAGER)


def test_replicas_are_lowered_on_version_that_was_read() -> None:
    found = deployment(**FOUR, version="9")
    assert step(LOWERING, seen({}, OLD, NEW, deployment=found)) == SetReplicas(found, 3)


UNDONE = replace(LOWERING, outcome=MoveOutcome.NODE_UNMARKED)
LOWEST: dict[str, Any] = {"deletion_cost": str(UNDO_COST), "deletion_cost_ours": str(UNDO_COST)}


def test_new_pod_that_is_ready_is_deleted_first_when_move_is_undone() -> None:
    assert step(UNDONE, seen(STARTING, OLD, NEW)) == SetCost(NEW, UNDO_COST)
    done = step(UNDONE, seen(STARTING, OLD, replace(NEW, **LOWEST)))
    assert done == SetReplicas(deployment(**STARTING), 3)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(seen(STARTING, OLD, replace(NEW, ready=False)), id="new pod not Ready"),
        pytest.param(seen(STARTING, OLD), id="no new pod"),
        pytest.param(seen(STARTING, make_pod("c", "n"), NEW), id="old pod gone"),
        pytest.param(seen(STARTING, OLD, replace(NEW, owner_name="web-2")), id="rollout"),
        pytest.param(seen(STARTING, OLD, replace(NEW, deletion_cost="7")), id="cost of others"),
        pytest.param(seen(STARTING, OLD, NEW, cost_refused=True), id="cost refused"),
    ],
)
def test_replicas_are_lowered_at_once_when_new_pod_needs_or_gets_no_cost(view: MoveView) -> None:
    assert step(UNDONE, view) == SetReplicas(deployment(**STARTING), 3)


def test_move_waits_again_when_new_pod_is_not_available_any_more() -> None:
    assert step(LOWERING, seen(STARTING, OLD, NEW)) == PutRecord(RAISED)


@pytest.mark.parametrize(
    ("pods", "after_seconds", "found"),
    [
        pytest.param((NEW,), 0, EndMove(MoveOutcome.MOVED), id="old pod ended"),
        pytest.param(
            (NEW, replace(OLD, terminating=True)), 0, EndMove(MoveOutcome.MOVED), id="ends"
        ),
        pytest.param((OLD,), 0, EndMove(MoveOutcome.OTHER_POD), id="new pod ended"),
        pytest.param((OLD, NEW), 0, Wait(NOW + 660), id="no pod ended yet"),
        pytest.param((OLD, NEW), 660, EndMove(MoveOutcome.OTHER_POD), id="no pod ended in time"),
    ],
)
def test_move_reports_which_pod_ended(pods: Any, after_seconds: int, found: NextStep) -> None:
    assert step(LOWERING, seen({"replicas_manager": MANAGER}, *pods), after_seconds) == found


@pytest.mark.parametrize("record", [make_record(), RAISED, LOWERING], ids=lambda one: one.step)
@pytest.mark.parametrize("found", [None, deployment(uid="another")], ids=["deleted", "recreated"])
def test_record_is_dropped_when_deployment_is_gone(record: Any, found: Any) -> None:
    assert step(record, seen({}, OLD, deployment=found)) == EndMove(MoveOutcome.GONE)
