"""Laws of surge moves over histories with interference and with leaders that die at any write."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.moves.objects import HPA_MANAGER
from tests.support.examples import examples
from tests.support.surge_world import MoveWorld

LEADERS = st.sampled_from("ab")
EVENTS = st.one_of(
    st.tuples(st.just("lead"), st.integers(1, 6)),
    st.tuples(st.just("elect"), LEADERS),
    st.tuples(st.just("pass time"), st.integers(1, 700)),
    st.tuples(st.just("scale"), st.integers(1, 5)),
    st.tuples(st.just("revert"), st.none()),
    st.tuples(st.just("autoscale"), st.integers(1, 5)),
    st.tuples(st.just("become ready"), st.none()),
    st.tuples(st.just("become available"), st.none()),
    st.tuples(st.just("become unready"), st.none()),
    st.tuples(st.just("lose pod"), st.none()),
    st.tuples(st.just("mark"), st.booleans()),
    st.tuples(st.just("allow"), st.booleans()),
    st.tuples(st.just("garble"), st.text(max_size=20)),
    st.tuples(st.just("delete"), st.none()),
)
HISTORIES = st.lists(EVENTS, max_size=25)


def lead(world: MoveWorld, writes: int) -> None:
    world.begin()
    world.lead(writes)


HAPPENS: Mapping[str, Callable[[MoveWorld, Any], None]] = {
    "lead": lead,
    "elect": lambda world, leader: setattr(world, "leader", leader),
    "pass time": lambda world, seconds: world.pass_time(seconds),
    "scale": lambda world, replicas: world.scale(replicas, "kubectl"),
    "revert": lambda world, _: world.scale(world.wanted, "argocd"),
    "autoscale": lambda world, replicas: world.scale(replicas, HPA_MANAGER),
    "become ready": lambda world, _: world.become_ready(),
    "become available": lambda world, _: world.become_available(),
    "become unready": lambda world, _: world.become_unready(),
    "lose pod": lambda world, _: world.delete_pod(),
    "mark": lambda world, marked: setattr(world, "marked", marked),
    "allow": lambda world, allowed: setattr(world, "allowed", allowed),
    "garble": lambda world, text: world.data.update({"move.other": text}),
    "delete": lambda world, _: world.delete(),
}
"""Only leaders write records and replicas for Ebb."""


def end(world: MoveWorld) -> None:
    """Let a leader work until the last deadline has passed."""
    for _ in range(3):
        world.lead()
        world.pass_time(700)
    world.lead()


@pytest.mark.law
@settings(max_examples=examples(400))
@given(HISTORIES, st.booleans(), st.integers(1, 4))
def test_every_record_ends_and_others_decide_replicas(
    events: list[tuple[str, object]], has_autoscaler: bool, replicas: int
) -> None:
    world = MoveWorld(wanted=replicas, has_autoscaler=has_autoscaler)
    for event, value in events:
        HAPPENS[event](world, value)
        assert len(world.records().moves) <= 1
    end(world)
    assert not world.records().moves
    assert world.replicas == world.wanted or not world.exists


@given(st.integers(0, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_move_is_finished_or_undone_when_leader_dies_at_any_write(
    writes: int, replicas: int, starts: bool, available: bool
) -> None:
    world = MoveWorld(wanted=replicas)
    assert world.begin()
    world.lead(writes)
    if starts:
        world.become_ready()
    if available:
        world.become_available()
    world.leader = "b"
    end(world)
    assert not world.records().moves
    assert world.replicas == world.wanted == len(world.pods)
    assert len(world.available) >= replicas
