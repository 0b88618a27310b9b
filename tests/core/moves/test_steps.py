"""The next step of a move, one row for each state of the Deployment and its pods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.model.node import Effect, Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.moves.move import found_move
from core.moves.outcomes import MoveOutcome
from core.moves.steps import End, MoveView, Wait, leaving_nodes, marked_nodes, next_step
from core.writes.costs import UNDO_COST
from tests.support import builders
from tests.support.surge import NOTE, NOW, cost, deployment, detached, make_move, make_pod

OLD = detached(make_pod("old"))
A, B = make_pod("a", "n"), make_pod("b", "n")
NEW = make_pod("new", "n", created_seconds=NOW + 1)
STARTING = replace(NEW, ready=False, ready_seconds=None)
SLOW: Mapping[str, Any] = {"deployment": deployment(min_ready_seconds=10)}
LATER = NOW + 60
"""Time of most of the tests."""


def view(*new: Pod, **changes: Any) -> MoveView:
    """Return a view with the detached pod, two others, and new pods."""
    usual = MoveView(deployment=deployment(), pods=(OLD, A, B, *new), marked={"m"})
    return replace(usual, **changes)


def step(seen: MoveView, move: Any = None, at: int = LATER) -> Wait | End:
    return next_step(move or make_move(), seen, Now(at))


MOVED = End(MoveOutcome.MOVED)
WAITS = Wait(NOW + 600)
"""Until the deadline, or an object changes."""


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        pytest.param(view(NEW), MOVED, id="new pod available"),
        pytest.param(
            view(NEW, deployment=deployment(available=2, pods=2, updated=2)),
            MOVED,
            id="status behind",
        ),
        pytest.param(view(), WAITS, id="status still says 3 of 3 after the detach"),
        pytest.param(
            view(deployment=deployment(pods=4, updated=4, available=4)), WAITS, id="status wrong"
        ),
        pytest.param(view(STARTING), WAITS, id="new pod starts"),
        pytest.param(view(replace(STARTING, node=None)), WAITS, id="new pod Pending"),
        pytest.param(view(replace(NEW, terminating=True)), WAITS, id="new pod terminating"),
        pytest.param(view(NEW, pods=(OLD, A, NEW)), WAITS, id="another pod is gone"),
        pytest.param(
            view(pods=(OLD, A, replace(B, ready=False), NEW)), WAITS, id="another pod not Ready"
        ),
        pytest.param(
            view(pods=(OLD, A, replace(B, terminating=True), NEW)), WAITS, id="another terminates"
        ),
        pytest.param(
            view(pods=(OLD, A, detached(B), NEW)), WAITS, id="another pod is detached, by others"
        ),
        pytest.param(view(make_pod("c", "n")), MOVED, id="new for its UID, though old by clock"),
        pytest.param(
            view(pods=(OLD, A, B, replace(A, name="x", uid="uid-b"))), WAITS, id="no new UID"
        ),
        pytest.param(
            view(NEW, make_pod("new2", "n", ready=False, created_seconds=NOW)),
            MOVED,
            id="one more than wanted starts",
        ),
        pytest.param(
            view(NEW, deployment=deployment(replicas=5)), WAITS, id="more are wanted than exist"
        ),
    ],
)
def test_ebb_counts_the_pods_itself(seen: MoveView, found: Wait | End) -> None:
    assert step(seen) == found


@pytest.mark.parametrize(
    ("ready_seconds", "found"),
    [
        pytest.param(LATER - 11, MOVED, id="for longer"),
        pytest.param(LATER - 10, Wait(LATER + 1), id="times of the API are cut to seconds"),
        pytest.param(LATER - 1, Wait(LATER + 10), id="Ready, not available"),
        pytest.param(LATER + 30, Wait(LATER + 41), id="clock of the kubelet is ahead"),
        pytest.param(None, Wait(LATER + 11), id="unknown"),
    ],
)
def test_new_pod_is_available_after_min_ready_seconds(
    ready_seconds: int | None, found: Wait | End
) -> None:
    assert step(view(replace(NEW, ready_seconds=ready_seconds), **SLOW)) == found


def test_move_waits_for_other_pods_to_be_available_too() -> None:
    restarted = replace(B, ready_seconds=LATER - 5)
    new = replace(NEW, ready_seconds=LATER - 20)
    assert step(view(pods=(OLD, A, restarted, new), **SLOW)) == Wait(LATER + 6)
    assert step(view(pods=(OLD, A, restarted, new), **SLOW), at=LATER + 6) == MOVED


ON_MARKED = replace(NEW, node="m")


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        pytest.param(view(STARTING, marked=()), MoveOutcome.NODE_UNMARKED, id="unmarked"),
        pytest.param(view(STARTING, leaving={"m"}), MoveOutcome.CORDONED, id="cordoned"),
        pytest.param(view(STARTING, allowed=False), MoveOutcome.STOPPED, id="disabled"),
        pytest.param(view(STARTING, pods_pending=True), MoveOutcome.PENDING_PODS, id="pending"),
        pytest.param(view(STARTING, deployment=None), MoveOutcome.GONE, id="deleted"),
        pytest.param(
            view(STARTING, deployment=deployment(uid="other")), MoveOutcome.GONE, id="recreated"
        ),
        pytest.param(
            view(STARTING, deployment=deployment(generation=2)), MoveOutcome.CHANGED, id="spec"
        ),
        pytest.param(
            view(STARTING, deployment=deployment(generation=2, replicas=0)),
            MoveOutcome.CHANGED,
            id="scaled to 0",
        ),
        pytest.param(
            view(deployment=deployment(replica_failure="quota")), MoveOutcome.REFUSED, id="quota"
        ),
        pytest.param(
            view(replace(STARTING, node=None, unschedulable=True)),
            MoveOutcome.UNSCHEDULABLE,
            id="unschedulable",
        ),
        pytest.param(view(replace(NEW, **cost(UNDO_COST)), marked=()), MoveOutcome.NODE_UNMARKED,
                     id="cost lowered"),
    ],
)  # fmt: skip
def test_old_pod_is_given_back_at_once_when_move_must_end(
    seen: MoveView, outcome: MoveOutcome
) -> None:
    assert step(seen) == End(outcome)


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        pytest.param(view(NEW, marked=()), MoveOutcome.NODE_UNMARKED, id="unmarked"),
        pytest.param(view(NEW, leaving={"m"}), MoveOutcome.CORDONED, id="cordoned"),
        pytest.param(view(NEW, allowed=False), MoveOutcome.STOPPED, id="disabled"),
        pytest.param(
            view(NEW, deployment=deployment(generation=2)), MoveOutcome.CHANGED, id="spec"
        ),
    ],
)
def test_new_pod_gets_lower_cost_first_when_it_is_ready_and_move_is_undone(
    seen: MoveView, outcome: MoveOutcome
) -> None:
    assert step(seen) == End(outcome, NEW)


def test_new_pod_on_marked_node_is_given_up_as_misplaced() -> None:
    assert step(view(ON_MARKED)) == End(MoveOutcome.MISPLACED, ON_MARKED)
    assert step(view(ON_MARKED, make_pod("c", "n"))) == MOVED, "another new pod is well placed"


NEWER = make_pod("newer", "n", created_seconds=NOW + 2)


@pytest.mark.parametrize(
    ("new", "lowered"),
    [
        pytest.param([], None, id="none"),
        pytest.param([STARTING], None, id="not Ready: deleted first anyway"),
        pytest.param([NEW, NEWER], NEWER, id="newest of two"),
        pytest.param([NEW, replace(NEWER, ready=False)], None, id="newest starts"),
        pytest.param([replace(NEW, terminating=True)], None, id="terminating"),
        pytest.param([replace(NEW, deletion_cost="7")], None, id="cost of others"),
        pytest.param([replace(NEW, **cost(-5))], replace(NEW, **cost(-5)), id="cost of Ebb"),
        pytest.param([replace(NEW, **cost(UNDO_COST))], None, id="lowered already"),
    ],
)
def test_undo_lowers_cost_of_newest_pod_if_ready(new: list[Pod], lowered: Pod | None) -> None:
    undone = End(MoveOutcome.STOPPED, lowered)
    assert step(view(*new, allowed=False)) == undone


def test_move_times_out_at_its_deadline() -> None:
    assert step(view(STARTING), at=NOW + 599) == WAITS
    assert step(view(STARTING), at=NOW + 600) == End(MoveOutcome.TIMED_OUT)
    assert step(view(NEW, **SLOW), at=NOW + 600) == MOVED, "available at the last moment"
    late = replace(NEW, ready_seconds=NOW + 595)
    assert step(view(late, **SLOW), at=NOW + 600) == End(MoveOutcome.TIMED_OUT, late)


def test_move_waits_until_deadline_when_deployments_are_unknown() -> None:
    unknown = view(NEW, deployment=None, unknown=True)
    assert step(unknown) == WAITS
    assert step(unknown, at=NOW + 600) == End(MoveOutcome.TIMED_OUT, NEW)
    assert step(replace(unknown, marked=())) == End(MoveOutcome.NODE_UNMARKED, NEW)


@pytest.mark.parametrize(
    ("new", "lowered"),
    [([], None), ([STARTING], None), ([NEW], NEW)],
    ids=["no new pod", "new pod starts", "new pod Ready"],
)
def test_move_of_another_leader_is_undone_at_once(new: list[Pod], lowered: Pod | None) -> None:
    assert step(view(*new), found_move(OLD)) == End(MoveOutcome.STOPPED, lowered)


def test_undo_leaves_young_sibling_alone_when_new_pod_of_another_leader_is_not_ready() -> None:
    sibling = make_pod("sibling", "n", created_seconds=NOW - 60)
    seen = view(pods=(OLD, A, sibling, STARTING))
    assert step(seen, found_move(OLD)) == End(MoveOutcome.STOPPED)


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(replace(OLD, move=None), id="no note"),
        pytest.param(replace(OLD, move="{"), id="invalid note"),
        pytest.param(replace(OLD, move=NOTE._replace(begun=NOW + 9000).encode()), id="future"),
    ],
)
def test_detached_pod_is_given_back_whatever_its_note_says(old: Pod) -> None:
    found = step(view(pods=(old, A, B, STARTING)), found_move(old))
    assert isinstance(found, End)
    assert found.outcome is MoveOutcome.STOPPED


def test_marked_and_leaving_nodes_are_found() -> None:
    marked = builders.marked(builders.node("m"), "PreferNoSchedule", NOW)
    leaves = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
    nodes: list[Node] = [
        marked,
        replace(marked, name="cordoned", unschedulable=True),
        replace(marked, name="deleting", deleting=True),
        replace(builders.node("leaves"), taints=(leaves,)),
        builders.node("n"),
    ]
    assert marked_nodes(nodes) == {"m", "cordoned", "deleting"}
    assert leaving_nodes(nodes) == {"cordoned", "deleting", "leaves"}
