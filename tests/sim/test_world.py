"""The simulated control plane: its writes, and the causes of pending time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from core.config.document import parse
from core.config.settings import Config
from core.marks.mark import Mark
from core.marks.taints import desired_taints
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from sim import scenario
from sim.autoscaler import REACTION_MS, STARTUP_MS, TO_BE_DELETED, ScaleDown
from sim.cluster import ClusterState
from sim.simulated_load import HOUR_MS, Arrival, Deployment, SimulatedLoad, amount
from sim.simulator import DEFAULT_OPTIONS, Simulator, SimulatorOptions
from tests.support.configurations import HEAD

SHAPE = amount(4000, 8192, 0, 110)
OTHERS_TAINT = Taint("somebody.example/else", "", Effect.NO_SCHEDULE)
INTERVAL_MS = 1000


class Marker:
    """A compactor that marks all initial nodes in its first reconciliation, and nothing else."""

    def __init__(self, mark: Mark, *taints: Taint) -> None:
        self._mark, self._taints, self._done = mark, taints, False

    taint_key = TAINT_KEY

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:  # noqa: ARG002
        return dict.fromkeys(names, 0)

    def node_changed(self, node: Node) -> None: ...
    def node_deleted(self, name: str) -> None: ...
    def pod_changed(self, pod: Pod) -> None: ...
    def pod_deleted(self, pod: Pod) -> None: ...

    def admit(self, before: Node, after: Node) -> Node:  # noqa: ARG002
        return replace(after, taints=desired_taints(after, TAINT_KEY))

    def urgent(self) -> bool:
        return False

    def reconcile(self, state: ClusterState, write: Callable[[Node], None], now_ms: int) -> None:  # noqa: ARG002
        if not self._done:
            for place in list(state.places.values()):
                labels = {**place.node.labels, MARK_LABEL: self._mark}
                taints = (*place.node.taints, *self._taints)
                write(replace(place.node, labels=labels, taints=taints))
        self._done = True


def world(compactor: Marker | None = None, *pods: tuple[int, int]) -> Simulator:
    """Return a simulator with one node of four cores, and pods by arrival and millicores."""
    arrivals = tuple(
        Arrival(at_ms, f"p{number}", amount(cpu, 100, 0), HOUR_MS)
        for number, (at_ms, cpu) in enumerate(pods)
    )
    load = SimulatedLoad("made", (SHAPE,), arrivals, HOUR_MS // 2, INTERVAL_MS)
    return Simulator(load, ScaleDown.NEVER, compactor, seed=1)


@pytest.mark.parametrize(
    ("compactor", "cpu_millis", "blamed"),
    [
        pytest.param(Marker(Mark.NO_SCHEDULE), 500, 1, id="NoSchedule taint only"),
        pytest.param(Marker(Mark.PREFER_NO_SCHEDULE), 500, 0, id="PreferNoSchedule taint"),
        pytest.param(Marker(Mark.NO_SCHEDULE), 3900, 0, id="insufficient CPU too"),
        pytest.param(
            Marker(Mark.NO_SCHEDULE, OTHERS_TAINT), 500, 0, id="another NoSchedule taint too"
        ),
    ],
)
def test_pending_pod_counts_against_mark_only_when_mark_is_sole_cause(
    compactor: Marker, cpu_millis: int, blamed: int
) -> None:
    found = world(compactor, (10 * INTERVAL_MS, cpu_millis)).run()
    assert found.marks == 1
    assert found.pending_by_mark == blamed


def test_pod_refused_by_mark_is_counted_once() -> None:
    found = world(Marker(Mark.NO_SCHEDULE), (2 * INTERVAL_MS, 500), (3 * INTERVAL_MS, 500)).run()
    assert found.pending_by_mark == 2
    assert found.scale_ups == 1


def test_pending_time_is_counted_until_new_node_is_ready() -> None:
    found = world(None, (0, 3000), (0, 3000)).run()
    assert found.scale_ups == 1
    least, most = (REACTION_MS[end] + STARTUP_MS[end] for end in (0, 1))
    assert least <= found.pending_ms <= most


def test_ready_node_is_otherwise_unchanged() -> None:
    made = world()
    name = made.new_node(SHAPE)
    before = replace(
        made.state.places[name].node,
        labels={"zone": "a"},
        annotations={"note": "b"},
        taints=(OTHERS_TAINT,),
    )
    made.write(before)
    made.ready_node(name)
    assert made.state.places[name].node == replace(before, ready=True)


def test_taint_of_mark_remains_when_autoscaler_adds_taint() -> None:
    """All writes of the simulator pass admission, also those of the autoscaler."""
    made = world(Marker(Mark.PREFER_NO_SCHEDULE))
    name = made.new_node(SHAPE)
    made.write(replace(made.state.places[name].node, labels={MARK_LABEL: Mark.PREFER_NO_SCHEDULE}))
    marked = made.state.places[name].node
    made.write(replace(marked, taints=(Taint(TO_BE_DELETED, "1", Effect.NO_SCHEDULE),)))
    after = made.state.places[name].node
    assert {taint.key for taint in after.taints} == {TO_BE_DELETED, TAINT_KEY}
    assert after.labels == marked.labels
    assert made.result.marks == 1


class Counting(Marker):
    """A compactor that counts its reconciliations."""

    reconciliations = 0

    def reconcile(self, state: ClusterState, write: Callable[[Node], None], now_ms: int) -> None:
        self.reconciliations += 1
        super().reconcile(state, write, now_ms)


@pytest.mark.parametrize(
    ("of_load", "options", "reconciliations"),
    [
        (None, DEFAULT_OPTIONS, 360),
        (None, SimulatorOptions(interval_ms=60_000), 60),
        (600_000, SimulatorOptions(interval_ms=60_000), 6),
    ],
)
def test_engine_runs_at_its_interval(
    of_load: int | None, options: SimulatorOptions, reconciliations: int
) -> None:
    eager = Counting(Mark.PREFER_NO_SCHEDULE)
    load = SimulatedLoad("made", (SHAPE,), (), HOUR_MS, of_load)
    Simulator(load, ScaleDown.NEVER, eager, 1, options).run()
    assert eager.reconciliations == reconciliations


def test_interval_is_read_from_configuration() -> None:
    """An unneeded node is marked after its unneeded time, and not in the first reconciliation."""
    load = SimulatedLoad("made", (SHAPE,) * 4, (), 4 * HOUR_MS, None)
    for seconds, marked in ((60, True), (3 * 3600, False)):
        asked = {"interval": f"{seconds}s"}
        found = scenario.run(
            scenario.MANAGED,
            replace(load, deployments=(Deployment("a", amount(500, 64, 0), ((0, 4),)),)),
            seed=1,
            wire=False,
            given=parse({**HEAD, "unneededTime": "10m", "controller": asked}, "x"),
        )
        assert (found.marks > 0) is marked


@pytest.mark.parametrize(
    ("of_load", "given", "seconds"),
    [
        pytest.param(None, None, 20, id="the demo's own"),
        pytest.param(None, Config(), 10, id="of a configuration"),
        pytest.param(60_000, None, 60, id="of the load"),
        pytest.param(60_000, Config(), 60, id="of the load, whatever the configuration"),
    ],
)
def test_load_then_configuration_then_demo_decides_interval(
    of_load: int | None, given: Config | None, seconds: int
) -> None:
    load = SimulatedLoad("made", (SHAPE,), (), HOUR_MS, of_load)
    assert scenario.interval_ms(load, given) == 1000 * seconds
