"""A load that was played on a real autoscaler, scheduler and controllers, and what came of it.

Recorded with Cluster Autoscaler 1.36 on Kubernetes 1.36: one run each, so that a few nodes more or
less say nothing. Its timers were shortened, a new node was ready within a second.
"""

from collections import defaultdict
from statistics import mean

import pytest

from sim.autoscaler import ScaleDown
from sim.workload import Arrival, Deployment, Workload, amount
from sim.world import Setting, World
from tests.e2e.live import Load
from tests.e2e.standin import SHAPE, TIMERS

BEGIN_MS = 20_000
"""The start state is built before; what is counted begins here."""
SEEDS = range(1, 6)


def workload(load: Load) -> Workload:
    """Return the recorded events as the simulation takes them."""
    jobs, wanted, requests = [], defaultdict(list), {}
    for number, one in enumerate(sorted(load.events, key=lambda event: event.second)):
        at_ms = BEGIN_MS + round(1000 * one.second)
        asked = amount(one.cpu, one.memory, 0)
        if one.event == "job":
            jobs.append(Arrival(at_ms, f"job-{number:05}", asked, max(1, round(1000 * one.life))))
            continue
        if one.event == "deploy":
            requests[one.app] = asked
        if one.event in ("deploy", "scale"):
            wanted[one.app].append((at_ms, one.replicas))
    restarts = {
        app: tuple(
            BEGIN_MS + round(1000 * one.second)
            for one in load.events
            if (one.event, one.app) == ("kill", app)
        )
        for app in requests
    }
    deployments = tuple(
        Deployment(app, asked, tuple(wanted[app]), restarts=restarts[app], startup_ms=1000)
        for app, asked in requests.items()
    )
    end_ms = BEGIN_MS + round(1000 * load.seconds)
    return Workload("ramp", (SHAPE,) * load.nodes, tuple(jobs), end_ms, 1000, {}, deployments)


class Counted(World):
    """A world that tells how many node-milliseconds had passed at the beginning."""

    before_ms = 0

    def _pass_time(self, at_ms: int) -> None:
        if self.now_ms() < BEGIN_MS <= at_ms:
            here = len(self.state.places) * (BEGIN_MS - self.now_ms())
            self.before_ms = self.result.node_ms + here
        super()._pass_time(at_ms)


@pytest.mark.parametrize(
    ("how", "node_seconds", "nodes", "evicted"),
    [
        pytest.param(ScaleDown.EMPTY, 19_156, 40, 0, id="empties only"),
        pytest.param(ScaleDown.UTILIZATION, 13_761, 22, 39, id="50 %"),
    ],
)
def test_the_simulated_autoscaler_needs_and_evicts_about_what_the_real_one_did(
    how: ScaleDown, node_seconds: int, nodes: int, evicted: int
) -> None:
    load = workload(Load.named("ramp"))
    worlds = [Counted(load, how, None, seed, Setting(timers=TIMERS)) for seed in SEEDS]
    found = [one.run() for one in worlds]
    needed = [
        (result.node_ms - world.before_ms) / 1000
        for world, result in zip(worlds, found, strict=True)
    ]
    assert mean(needed) == pytest.approx(node_seconds, rel=0.05)
    assert mean(one.nodes_end for one in found) == pytest.approx(nodes, abs=2)
    assert mean(one.evicted for one in found) == pytest.approx(evicted, rel=0.25)
