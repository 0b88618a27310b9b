"""The simulated cluster: reproducible, without lost pods, and the same over HTTP."""

import pickle
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config.document import parse
from core.model.pod import Pod
from core.model.resources import Resources
from sim import report, scenario, simulated_load
from sim.autoscaler import ScaleDown
from sim.scenario import (
    MANAGED,
    SCENARIOS,
    SHORTEST_TIMERS,
    SURGE,
    WHOLE,
    description,
)
from sim.simulated_load import HOUR_MS, Arrival, SimulatedLoad, amount
from sim.simulator import Result, Simulator
from tests.support.configurations import HEAD
from tests.support.examples import examples

DAY = simulated_load.embedded(seed=3, days=1)
SHORT_MS = 4 * HOUR_MS
SHORT = replace(
    DAY,
    nodes=DAY.nodes[::4],
    duration_ms=SHORT_MS,
    arrivals=tuple(a for a in DAY.arrivals if a.at_ms < SHORT_MS)[::4],
    interval_ms=simulated_load.TRACE_INTERVAL_MS,
)
"""A small load in which Ebb unmarks nodes, and the autoscaler adds and removes nodes."""


@cache
def played(one: scenario.Scenario) -> Result:
    """Run the small load once for all tests of this process."""
    return scenario.run(one, SHORT, seed=5, wire=False)


@pytest.mark.long
@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_run_is_reproducible_by_seed(one: scenario.Scenario) -> None:
    assert scenario.run(one, SHORT, seed=5, wire=False) == played(one)


@pytest.mark.long
@pytest.mark.parametrize("one", [MANAGED, WHOLE], ids=lambda one: one.name)
def test_run_over_http_equals_run_by_call(one: scenario.Scenario) -> None:
    by_call, by_wire = played(one), scenario.run(one, SHORT, seed=5, wire=True)
    assert by_call.marks > 0
    assert min(one.nodes for one in by_call.samples) < len(SHORT.nodes)
    assert by_call == by_wire


@pytest.mark.long
@pytest.mark.parametrize("one", [MANAGED, WHOLE], ids=lambda one: one.name)
def test_ebb_evicts_no_pod_and_makes_no_pod_pending(one: scenario.Scenario) -> None:
    assert (played(one).evicted, played(one).pending_by_mark) == (0, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("one", [MANAGED, WHOLE], ids=lambda one: one.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ebb_evicts_no_pod_and_makes_no_pod_pending_in_other_runs(
    one: scenario.Scenario, seed: int
) -> None:
    found = scenario.run(one, SHORT, seed=seed, wire=False)
    assert (found.evicted, found.pending_by_mark) == (0, 0)


POOLS = {"": {"enabled": True, "limit": "75%", "required": 5}}
BY_OTHERS = {
    "ExcessNodes": {},
    "UnderutilizedCount": {"underutilizedCount": {"pools": POOLS}},
    "NodeUtilization": {},
}


@pytest.mark.long
@pytest.mark.parametrize("policy", BY_OTHERS)
def test_every_policy_removes_nodes_without_disruption(policy: str) -> None:
    given = parse({**HEAD, "policy": policy, **BY_OTHERS[policy]}, "x")
    assert pickle.loads(pickle.dumps(given)) == given  # the demo sends it to its processes
    found = scenario.run(MANAGED, SHORT, seed=1, wire=False, given=given)
    assert (found.evicted, found.pending_by_mark) == (0, 0)
    assert found.marks > 0
    assert min(one.nodes for one in found.samples) < len(SHORT.nodes)


class Watched(Simulator):
    """A simulator that checks its totals after each change."""

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


@settings(max_examples=examples(25))
@given(ARRIVALS, st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5), st.integers(0, 9))
def test_no_pod_is_lost_and_no_node_overcommitted(
    arrivals: tuple[Arrival, ...], nodes: list[Resources], seed: int
) -> None:
    load = SimulatedLoad("made", (*SHAPES, *nodes), arrivals, 8 * HOUR_MS, 60_000)
    world = Watched(load, ScaleDown.UTILIZATION, None, seed)
    found = world.run()
    assert found.pods == len(arrivals)
    assert [p for p in world.state.pods.values() if not p.daemon] == []
    assert not world.state.pending
    world.check()


def test_report_has_one_column_per_run() -> None:
    runs = {one.name: played(one) for one in SCENARIOS[:2]}
    rows = report.table(runs)
    assert rows[0] == ["", "nothing", "autoscaler 50%"]
    assert {len(row) for row in rows} == {3}


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (
            SHORTEST_TIMERS,
            (
                "autoscaler 50%, 60 s: kube-scheduler with LeastAllocated, the autoscaler removes "
                "empty and underutilized nodes, by eviction; --scale-down-unneeded-time=60s "
                "--scale-down-delay-after-add=60s "
                "--scale-down-utilization-threshold=0.5"
            ),
        ),
        (
            SURGE,
            (
                "Ebb, surge: kube-scheduler with MostAllocated and the extender, the autoscaler "
                "removes empty nodes only; "
                "--scale-down-unneeded-time=60s --scale-down-delay-after-add=120s"
            ),
        ),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_description_names_flags_of_autoscaler(one: scenario.Scenario, text: str) -> None:
    assert description(one) == text
