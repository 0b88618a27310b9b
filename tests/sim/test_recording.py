"""The frames of a time lapse: a recording changes no run, is exact, and has a bound."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from core.engine.zones import ZONE_LABEL
from core.marks.wellknown import MARK_LABEL
from core.model.node import Node
from core.model.resources import Resources
from sim import recording, scenario
from sim.cluster import GPU, ClusterState
from sim.recording import (
    FILLS,
    FRAMES_MAX,
    GONE,
    NO_SCHEDULE,
    NOT_MARKED,
    PREFER_NO_SCHEDULE,
    STARTING,
    Frame,
    Recorder,
    Recording,
)
from sim.scenario import MOST_ALLOCATED, WHOLE, recorded
from sim.simulated_load import TYPE_LABEL
from tests.sim.test_sim import SHORT, played
from tests.support import builders

EMPTY = Frame(Fraction(), 0, 0, 0)
SIZE = Resources(8000, 16 * 1024**3, 0, 110)


def value(state: int, fill: int = 0) -> int:
    return (FILLS + 1) * state + fill


def at(found: Recording, name: str, frame: int) -> int:
    """Return the value of a node in a frame."""
    record = found.nodes.get(name)
    return next(
        (one for index, one in reversed(record.changes if record else []) if index <= frame), GONE
    )


def node(name: str = "n", labels: Mapping[str, str] | None = None, *, ready: bool = True) -> Node:
    return Node(name=name, allocatable=SIZE, ready=ready, labels=labels or {})


@pytest.mark.long
@pytest.mark.parametrize("one", [MOST_ALLOCATED, WHOLE], ids=lambda one: one.name)
def test_recording_has_totals_of_run_and_changes_nothing_else(one: scenario.Scenario) -> None:
    plain = played(one)
    found = scenario.run(recorded(one), SHORT, seed=5, wire=False)
    frames = found.recording
    assert frames is not None
    assert replace(found, recording=None) == plain
    assert len(frames.frames) == SHORT.duration_ms // frames.step_ms + 1
    assert frames.frames[-1].cost_ms == plain.cost_ms
    assert frames.frames[-1].pending_ms == plain.pending_ms
    for sample in plain.samples:
        index = sample.at_ms // frames.step_ms
        states = [at(frames, name, index) // (FILLS + 1) for name in frames.nodes]
        # A sample is taken after some events of its time, a frame before all of them.
        assert abs(sample.nodes - sum(state != 0 for state in states)) <= 1


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (node(), NOT_MARKED),
        (node(ready=False), STARTING),
        (node(labels={MARK_LABEL: "PreferNoSchedule"}), PREFER_NO_SCHEDULE),
        (node(labels={MARK_LABEL: "NoSchedule"}), NO_SCHEDULE),
    ],
)
def test_frame_has_state_of_node(one: Node, expected: int) -> None:
    recorder, state = Recorder(), ClusterState()
    state.add_node(one, 0)
    recorder.add(EMPTY, state)
    assert at(recorder.recording, "n", 0) == value(expected)


@pytest.mark.parametrize(
    ("requests", "fill"),
    [
        (Resources(1, 1), 1),
        (Resources(3800, 0), 5),  # with the 200 m of the DaemonSet pod exactly half
        (Resources(3801, 0), 6),
        (Resources(0, 15 * 1024**3), 10),
        (Resources(0, 0, extended=((GPU, 700),)), 7),
    ],
)
def test_fill_is_largest_share_of_a_resource(requests: Resources, fill: int) -> None:
    recorder, state = Recorder(), ClusterState()
    state.add_node(replace(node(), allocatable=replace(SIZE, extended=((GPU, 1000),))), 0)
    pod = replace(builders.pod("p", None, 0, 0), requests=requests)
    state.arrive(pod, 0)
    state.bind(pod, "n")
    recorder.add(EMPTY, state)
    assert at(recorder.recording, "n", 0) == value(NOT_MARKED, fill)


@pytest.mark.parametrize(
    ("labels", "group"),
    [
        ({}, "8 CPU, 16Gi"),
        ({ZONE_LABEL: "b"}, "8 CPU, 16Gi, zone b"),
        ({ZONE_LABEL: "b", TYPE_LABEL: "m5.large"}, "m5.large, zone b"),
    ],
)
def test_node_is_in_group_of_its_type_and_zone(labels: dict[str, str], group: str) -> None:
    recorder, state = Recorder(), ClusterState()
    state.add_node(node(labels=labels), 0)
    recorder.add(EMPTY, state)
    assert recorder.recording.nodes["n"].group == group


def frames(count: int, until: dict[str, range]) -> Recorder:
    """Record frames of nodes that exist in ranges of frames."""
    recorder, state = Recorder(), ClusterState()
    for index in range(count):
        for name, there in until.items():
            if index in there and name not in state.places:
                state.add_node(node(name), 0)
            if index not in there and name in state.places:
                state.remove_node(name)
        recorder.add(EMPTY._replace(pending=index), state)
    return recorder


def test_recording_drops_every_other_frame_when_it_has_too_many() -> None:
    last = FRAMES_MAX
    until = {
        "all": range(last + 1),
        "odd": range(5, 6),
        "even": range(6, 7),
        "both": range(7, 9),
        "end": range(last, last + 1),
    }
    recorder = frames(last + 1, until)
    found = recorder.recording
    assert found.step_ms == 2 * recording.STEP_MS
    assert [one.pending for one in found.frames] == list(range(0, last + 1, 2))
    assert recorder.next_ms == (last + 2) * recording.STEP_MS
    assert set(found.nodes) == {"all", "even", "both", "end"}
    for name, there in until.items():
        for index in range(len(found.frames)):
            assert (at(found, name, index) != GONE) == (2 * index in there), (name, index)


def test_recording_records_node_again_when_it_appeared_after_last_frame_left() -> None:
    count = FRAMES_MAX + 1 + FRAMES_MAX % 2
    recorder = frames(count, {"late": range(count - 1, count)})
    assert recorder.recording.step_ms == 2 * recording.STEP_MS
    state = ClusterState()
    state.add_node(node("late"), 0)
    recorder.add(EMPTY, state)
    index = len(recorder.recording.frames) - 1
    assert at(recorder.recording, "late", index) == value(NOT_MARKED)


def test_recording_is_thinned_out_when_nodes_change_too_often() -> None:
    many = recording.CHANGES_MAX // 100
    recorder, state = Recorder(), ClusterState()
    for number in range(many):
        state.add_node(node(f"n{number}"), 0)
    for index in range(101):
        for number in range(many):
            state.replace_node(node(f"n{number}", ready=index % 2 == 0))
        recorder.add(EMPTY, state)
    changes = sum(len(one.changes) for one in recorder.recording.nodes.values())
    assert changes <= recording.CHANGES_MAX
    assert recorder.recording.step_ms > recording.STEP_MS
