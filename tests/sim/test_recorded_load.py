"""The simulation compared with recorded runs on a real scheduler and real controllers.

The runs are recorded on Kubernetes 1.36, one of each kind, so small differences mean nothing. The
first two used Cluster Autoscaler 1.36; the others used the stand-in autoscaler of the live loop,
and a kube-scheduler with MostAllocated. Timers were shortened, new nodes were ready at once.
"""

from statistics import mean

import pytest

from sim.autoscaler import ScaleDown
from sim.scoring import DEFAULT, PACKED, Profile
from sim.simulator import Simulator, SimulatorOptions
from tests.e2e.live import Load
from tests.e2e.standin import TIMERS
from tests.support.simulated import simulated

BEGIN_MS = 20_000
"""Time when counting begins; before it, the initial state is built."""

SEEDS = range(1, 6)


class Counted(Simulator):
    """A simulator that records the node-milliseconds before counting begins."""

    before_ms = 0

    def _advance(self, at_ms: int) -> None:
        if self.now_ms() < BEGIN_MS <= at_ms:
            here = len(self.state.places) * (BEGIN_MS - self.now_ms())
            self.before_ms = self.result.node_ms + here
        super()._advance(at_ms)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "how", "profile", "node_seconds", "nodes", "evicted"),
    [
        pytest.param("ramp", ScaleDown.EMPTY, DEFAULT, 19_156, 40, 0, id="empty nodes only"),
        pytest.param("ramp", ScaleDown.UTILIZATION, DEFAULT, 13_761, 22, 39, id="50 %"),
        pytest.param("ramp", ScaleDown.EMPTY, PACKED, 11_806, 20, 0, id="MostAllocated"),
        pytest.param(
            "day", ScaleDown.EMPTY, PACKED, 13_088, 27, 0, id="MostAllocated, with scale-ins"
        ),
    ],
)
def test_simulation_matches_node_seconds_and_evictions_of_real_programs(
    name: str, how: ScaleDown, profile: Profile, node_seconds: int, nodes: int, evicted: int
) -> None:
    load = simulated(Load.named(name))
    worlds = [Counted(load, how, None, seed, SimulatorOptions(profile, TIMERS)) for seed in SEEDS]
    found = [one.run() for one in worlds]
    needed = [
        (result.node_ms - world.before_ms) / 1000
        for world, result in zip(worlds, found, strict=True)
    ]
    assert mean(needed) == pytest.approx(node_seconds, rel=0.05)
    assert mean(len(one.state.places) for one in worlds) == pytest.approx(nodes, abs=3)
    assert mean(one.evicted for one in found) == pytest.approx(evicted, rel=0.25)
