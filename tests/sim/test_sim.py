"""The simulated cluster: repeatable, loses nothing, and the wire changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import ScoreMode
from core.errors import InvalidInputError
from core.marks import GUARD_ANNOTATION, mark_of
from core.model import Node, Pod, Resources
from sim import fill, report, scenario, trace, workload
from sim.autoscaler import (
    DELETE_DELAY_MS,
    SCAN_MS,
    TO_BE_DELETED,
    UNNEEDED_MS,
    Autoscaler,
    ScaleDown,
)
from sim.cluster import State, fits
from sim.scenario import SCENARIOS
from sim.workload import HOUR_MS, Arrival, Workload, amount
from sim.world import World
from tests.support.builders import node, pod

TRACES = Path(__file__).parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no openb trace beside the tree")
SHORT = workload.embedded(seed=3, days=1)
SHORT = replace(
    SHORT,
    nodes=SHORT.nodes[::3],
    duration_ms=6 * HOUR_MS,
    arrivals=tuple(a for a in SHORT.arrivals if a.at_ms < 6 * HOUR_MS)[::3],
)


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_a_seed_repeats(one: scenario.Scenario) -> None:
    first, second = (scenario.run(one, SHORT, seed=5, wire=False) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("one", SCENARIOS[2:], ids=lambda one: one.name)
def test_over_the_wire_is_the_same_as_by_call(one: scenario.Scenario) -> None:
    by_call, by_wire = (scenario.run(one, SHORT, seed=5, wire=wire) for wire in (False, True))
    assert by_call.marks > 0
    assert by_call.nodes_lowest < by_call.nodes_start
    assert by_call == by_wire


@pytest.mark.parametrize("one", SCENARIOS[2:], ids=lambda one: one.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ebb_disturbs_nobody(one: scenario.Scenario, seed: int) -> None:
    found = scenario.run(one, SHORT, seed=seed, wire=False)
    assert (found.evicted, found.pending_by_mark) == (0, 0)


class Watched(World):
    """A world that recounts everything after each pass."""

    def check(self) -> None:
        for place in self.state.places.values():
            here = [p for p in self.state.pods.values() if p.node == place.node.name]
            total = Resources()
            for one in here:
                total += one.requests
            assert place.free == place.node.allocatable - total
            assert place.free.cpu_millis >= 0
            assert place.free.memory_bytes >= 0
        waiting = {key for key, p in self.state.pods.items() if p.node is None}
        assert waiting == set(self.state.pending)

    def evict(self, pod: Pod) -> None:
        super().evict(pod)
        self.check()

    def end_node(self, name: str) -> None:
        assert not self.state.places[name].pods
        super().end_node(name)
        self.check()


SHAPES = [amount(4000, 8192, 0, 110), amount(16_000, 16_384, 1000, 110)]
ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at_ms=st.integers(0, HOUR_MS),
        name=st.uuids().map(str),
        requests=st.sampled_from(
            [amount(500, 512, 0), amount(3000, 1024, 0), amount(100, 4096, 500)]
        ),
        life_ms=st.integers(1000, 2 * HOUR_MS),
    ),
    max_size=40,
    unique_by=lambda arrival: arrival.name,
).map(lambda found: tuple(sorted(found, key=lambda arrival: arrival.at_ms)))


@settings(max_examples=25, deadline=None)
@given(ARRIVALS, st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5), st.integers(0, 9))
def test_no_pod_is_lost_and_no_node_overfilled(
    arrivals: tuple[Arrival, ...], nodes: list[Resources], seed: int
) -> None:
    load = Workload("made", (*SHAPES, *nodes), arrivals, 8 * HOUR_MS, 60_000)
    world = Watched(load, ScaleDown.UTILIZATION, None, seed)
    found = world.run()
    assert found.pods == len(arrivals)
    assert [p for p in world.state.pods.values() if not p.daemon] == []
    assert not world.state.pending
    world.check()


class Hands:
    """A world in which nothing happens by itself."""

    def __init__(self, *nodes: Node) -> None:
        self.state = State()
        self.clock = 0
        self.later: list[tuple[int, Callable[[], None]]] = []
        for one in nodes:
            self.state.add_node(one, 0)

    def now_ms(self) -> int:
        return self.clock

    def write(self, node: Node) -> None:
        self.state.replace_node(node)

    def evict(self, pod: Pod) -> None:
        self.state.evict(pod.key, self.clock)

    def end_node(self, name: str) -> None:
        self.state.remove_node(name)

    def new_node(self, shape: Resources) -> str:
        name = f"new-{len(self.state.places)}"
        self.state.add_node(Node(name=name, allocatable=shape, ready=False), self.clock)
        return name

    def ready_node(self, name: str) -> None:
        self.state.replace_node(replace(self.state.places[name].node, ready=True))

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        self.later.append((self.clock + delay_ms, act))

    def play(self, scaler: Autoscaler, until_ms: int) -> None:
        while self.clock < until_ms:
            self.clock += SCAN_MS // 2
            due = [entry for entry in self.later if entry[0] <= self.clock]
            self.later = [entry for entry in self.later if entry[0] > self.clock]
            for _, act in due:
                act()
            if self.clock % SCAN_MS == 0:
                scaler.scan()


def hands(how: ScaleDown, *nodes: Node) -> tuple[Hands, Autoscaler]:
    world = Hands(*nodes)
    return world, Autoscaler(world, how, SHAPES, seed=1)


def test_an_empty_node_goes_ten_minutes_after_it_was_seen_empty() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a"))
    world.play(scaler, SCAN_MS + UNNEEDED_MS - SCAN_MS)
    assert not any(t.key == TO_BE_DELETED for t in world.state.places["a"].node.taints)
    world.play(scaler, SCAN_MS + UNNEEDED_MS)
    assert any(t.key == TO_BE_DELETED for t in world.state.places["a"].node.taints)
    world.play(scaler, SCAN_MS + UNNEEDED_MS + DELETE_DELAY_MS)
    assert "a" not in world.state.places


def test_the_clock_starts_when_the_guard_is_lifted() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a", annotations={GUARD_ANNOTATION: "true"}))
    world.play(scaler, 3 * UNNEEDED_MS)
    assert "a" in world.state.places
    world.write(replace(world.state.places["a"].node, annotations={}))
    world.play(scaler, 4 * UNNEEDED_MS)
    assert "a" in world.state.places
    world.play(scaler, 4 * UNNEEDED_MS + 2 * SCAN_MS)
    assert "a" not in world.state.places


def test_a_pod_that_lands_in_the_last_seconds_keeps_the_node() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a"))
    world.play(scaler, SCAN_MS + UNNEEDED_MS)
    late = pod("late", None, 100, 100)
    world.state.arrive(late, world.clock)
    world.state.bind(late, "a")
    world.play(scaler, SCAN_MS + UNNEEDED_MS + SCAN_MS)
    assert world.state.places["a"].node.taints == ()


def test_under_half_its_pods_are_evicted_if_they_fit_elsewhere() -> None:
    for others, evicted in (([node("b")], True), ([], False)):
        world, scaler = hands(ScaleDown.UTILIZATION, node("a"), *others)
        for name, on in (("p", "a"), *((f"q{n}", "b") for n in range(2) if others)):
            one = pod(name, None, 1000, 100)
            world.state.arrive(one, 0)
            world.state.bind(one, on)
        world.play(scaler, UNNEEDED_MS + 2 * SCAN_MS)
        assert ("d/p" in world.state.pending) == evicted
        assert ("a" not in world.state.places) == evicted


def test_a_node_comes_for_a_pod_that_fits_nowhere() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a", cpu=1000))
    one = pod("p", None, 3000, 100)
    world.state.arrive(one, 0)
    scaler.unschedulable(one)
    world.play(scaler, 11_000)
    assert scaler.scale_ups == 1
    assert not world.state.places["new-1"].node.ready
    world.play(scaler, 140_000)
    assert world.state.places["new-1"].node.ready


def test_the_load_is_the_tables() -> None:
    load = workload.embedded(seed=1, days=2)
    assert len(load.nodes) == 64
    assert load == workload.embedded(seed=1, days=2)
    assert load != workload.embedded(seed=2, days=2)
    assert [a.at_ms for a in load.arrivals] == sorted(a.at_ms for a in load.arrivals)


@pytest.mark.parametrize("placement", list(fill.Placement))
def test_a_fill_overfills_nothing(placement: fill.Placement) -> None:
    nodes = [(f"n{number}", SHAPES[number % 2]) for number in range(4)]
    pods = [(f"p{number}", amount(3000, 1024, 500 * (number % 2))) for number in range(12)]
    placed = fill.fill(nodes, pods, placement)
    for name, shape in nodes:
        total = Resources()
        for key, asked in pods:
            total = total + asked if placed[key] == name else total
        assert fits(total, shape)
    used = {name for name in placed.values() if name is not None}
    assert len(used) == 4 if placement is fill.Placement.SPREAD else len(used) >= 2


def test_the_report_has_a_column_a_run() -> None:
    runs = {one.name: scenario.run(one, SHORT, seed=1, wire=False) for one in SCENARIOS[:2]}
    rows = report.table(runs)
    assert rows[0] == ["", "no scale-down", "autoscaler 50 %"]
    assert {len(row) for row in rows} == {3}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sn,cpu_milli,memory_mib,gpu,model\nn,x,1,1,\n", "line 2: cpu_milli: 'x'"),
        ("sn,cpu_milli,memory_mib,gpu,model\n,1,1,1,\n", "line 2: sn: missing"),
    ],
)
def test_a_bad_row_of_a_trace_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / trace.NODES_FILE).write_text(text)
    with pytest.raises(InvalidInputError, match=problem):
        trace.nodes(tmp_path)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"openb_pod_list_default\.csv: No such file"):
        trace.pods(tmp_path)


@needs_traces
def test_the_trace_is_what_its_readme_says() -> None:
    nodes, pods = trace.nodes(TRACES), trace.pods(TRACES)
    assert (len(nodes), len(pods)) == (1523, 8152)
    assert sum(shape.cpu_millis for _, shape in nodes) == 125_514_000
    rows = [(requests, life) for _, requests, life in pods]
    load = workload.bootstrap([s for _, s in nodes], rows, seed=1, days=1, at_once=500)
    per_hour = sum(a.at_ms > 0 for a in load.arrivals) / 24
    assert Fraction(60) < per_hour < Fraction(80)  # 500 / 7.18 h


def test_a_marked_node_keeps_its_mark_through_the_autoscalers_writes() -> None:
    """The world's writes pass through admission, the autoscaler's too."""
    found = scenario.run(SCENARIOS[3], SHORT, seed=1, wire=False)
    assert SCENARIOS[3].score is ScoreMode.PACK
    assert found.marks >= found.nodes_start - found.nodes_lowest
    assert mark_of({}) is None
