"""Laws of surge moves over histories with interference and with leaders that die at any write.

The world itself asserts that no write of Ebb makes fewer pods Ready or available than the
Deployment wants, and that Ebb writes nothing but metadata of pods.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.moves.outcomes import MoveOutcome
from tests.support.examples import examples
from tests.support.surge_world import DEADLINE_SECONDS, MoveWorld

HAPPENS: Mapping[str, Callable[[MoveWorld, Any], None]] = {
    "lead": lambda world, writes: world.lead(writes),
    "elect": lambda world, _: world.elect(),
    "pass time": lambda world, seconds: setattr(world, "now_seconds", world.now_seconds + seconds),
    "reconcile": lambda world, _: world.reconcile(),
    "stop controllers": lambda world, _: setattr(world, "controllers_run", False),
    "start controllers": lambda world, _: setattr(world, "controllers_run", True),
    "start pods": lambda world, _: world.start(),
    "find no node": lambda world, _: world.find_no_node(),
    "fail probe": lambda world, number: world.fail_probe(number),
    "restart pod": lambda world, number: world.restart(number),
    "lose pod": lambda world, number: world.lose_pod(number),
    "scale": lambda world, replicas: world.scale(replicas),
    "roll out": lambda world, _: world.roll_out(),
    "mark": lambda world, marked: setattr(world, "marked", marked),
    "cordon": lambda world, cordoned: setattr(world, "cordoned", cordoned),
    "allow": lambda world, allowed: setattr(world, "allowed", allowed),
    "garble note": lambda world, text: world.garble(text),
    "delete": lambda world, _: world.delete(),
}
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "lead": st.sampled_from([0, 1, 2, 99]),
    "pass time": st.sampled_from([1, 3, 6, 101, 599, 700]),
    "fail probe": st.integers(0, 4),
    "restart pod": st.integers(0, 4),
    "lose pod": st.integers(0, 4),
    "scale": st.integers(0, 5),
    "mark": st.booleans(),
    "cordon": st.booleans(),
    "allow": st.booleans(),
    "garble note": st.text(max_size=20),
}
OFTEN = [*HAPPENS, *4 * ("lead", "start pods", "pass time"), "reconcile", "restart pod"]
EVENTS = st.one_of([st.tuples(st.just(name), VALUES.get(name, st.none())) for name in OFTEN])
WORLDS = st.builds(
    MoveWorld, wanted=st.integers(1, 4), min_ready_seconds=st.sampled_from([0, 0, 5, 100])
)


def end(world: MoveWorld) -> None:
    """Let the controllers run, and a leader that begins no move, until any deadline has passed."""
    world.controllers_run = True
    world.reconcile()
    world.lead(begin=False)
    world.now_seconds += DEADLINE_SECONDS
    world.lead(begin=False)


@pytest.mark.law
@settings(max_examples=examples(600))
@given(WORLDS, st.lists(EVENTS, max_size=30))
def test_no_move_takes_a_pod_that_is_wanted_and_none_stays_detached(
    world: MoveWorld, events: list[tuple[str, Any]]
) -> None:
    for event, value in events:
        spec = world.wanted, world.generation
        HAPPENS[event](world, value)
        assert len(world.detached()) <= 1
        assert event in ("scale", "roll out") or (world.wanted, world.generation) == spec
    end(world)
    assert world.detached() == []
    assert len(world.pods) == (world.wanted if world.exists and world.current else 0)
    assert all(pod.controlled for pod in world.pods.values())


@pytest.mark.parametrize("starts", ["Pending", "starts", "Ready", "available"])
@given(
    writes=st.integers(0, 3),
    replicas=st.integers(1, 4),
    next_writes=st.lists(st.integers(0, 2), max_size=3),
)
def test_move_is_finished_or_undone_when_leaders_die_at_any_write(
    starts: str, writes: int, replicas: int, next_writes: list[int]
) -> None:
    world = MoveWorld(wanted=replicas, min_ready_seconds=5)
    world.lead(writes)
    if starts != "Pending":
        world.start()
    if starts == "starts":
        world.fail_probe(replicas)
    if starts == "available":
        world.now_seconds += 5
    for number in next_writes:
        world.elect()
        world.lead(number, begin=False)
    end(world)
    assert world.detached() == []
    assert len(world.pods) == replicas
    if next_writes or not writes:
        assert "web-000" in world.pods, "a new leader undoes the move"


def test_pod_is_moved_without_a_write_of_the_deployment() -> None:
    world = MoveWorld(min_ready_seconds=5)
    world.lead()
    assert (len(world.pods), world.ready_count()) == (4, 3)
    world.start()
    world.lead()
    assert world.ready_count() == 4, "Ready, but not yet available"
    world.now_seconds += 6
    world.lead()
    assert world.outcomes == [MoveOutcome.MOVED]
    assert sorted(world.pods) == ["web-001", "web-002", "web-003"]
    assert (world.wanted, world.generation) == (3, 1)


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([("find no node", None)], "unschedulable"),
        ([("pass time", 600)], "timed_out"),
        ([("mark", False)], "node_unmarked"),
        ([("cordon", True)], "cordoned"),
        ([("allow", False)], "stopped"),
        ([("start pods", None), ("elect", None)], "stopped"),
        ([("scale", 4)], "changed"),
        ([("start pods", None), ("scale", 4)], "changed"),
    ],
)
@pytest.mark.parametrize("ready_seconds", [0, 5])
def test_old_pod_stays_when_move_is_undone(
    events: list[tuple[str, Any]], outcome: str, ready_seconds: int
) -> None:
    world = MoveWorld(min_ready_seconds=ready_seconds)
    world.lead()
    for event, value in events:
        HAPPENS[event](world, value)
    world.lead(begin=False)
    assert [one.value for one in world.outcomes] == [outcome]
    assert {"web-000", "web-001", "web-002"} <= world.pods.keys()
    assert not world.detached()


@pytest.mark.parametrize("event", ["delete", "roll out"])
def test_detached_pod_goes_with_its_deployment_or_replica_set(event: str) -> None:
    world = MoveWorld()
    world.lead()
    HAPPENS[event](world, None)
    world.lead()
    assert world.pods == {}


@pytest.mark.parametrize("stopped", ["before the detach is seen", "when the new pod exists"])
def test_move_is_undone_at_its_deadline_when_controller_manager_stops(stopped: str) -> None:
    world = MoveWorld()
    world.lead()
    if stopped == "before the detach is seen":
        del world.pods["web-003"]
    world.controllers_run = False
    world.lead()
    assert len(world.detached()) == 1, "the status says 3 of 3, but no new pod is Ready"
    world.now_seconds += DEADLINE_SECONDS
    world.lead()
    assert world.outcomes == [MoveOutcome.TIMED_OUT]
    world.controllers_run = True
    world.reconcile()
    assert sorted(world.pods) == ["web-000", "web-001", "web-002"]
