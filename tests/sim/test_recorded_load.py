"""Loads that were played on a real autoscaler, scheduler and controllers, and what came of it.

Recorded on Kubernetes 1.36: one run each, so that a few nodes more or less say nothing. The first
two with Cluster Autoscaler 1.36; the others, with MostAllocated in a real kube-scheduler, with
what stands in for it in the live loop. Timers were shortened, a new node was ready at once.
"""

from collections import defaultdict
from statistics import mean

import pytest

from sim.autoscaler import ScaleDown
from sim.scoring import DEFAULT, PACKED, Profile
from sim.simulator import Setting, Simulator
from sim.workload import Arrival, Deployment, Workload, amount
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
    return Workload("recorded", (SHAPE,) * load.nodes, tuple(jobs), end_ms, 1000, {}, deployments)


class Counted(Simulator):
    """A world that tells how many node-milliseconds had passed at the beginning."""

    before_ms = 0

    def _advance(self, at_ms: int) -> None:
        if self.now_ms() < BEGIN_MS <= at_ms:
            here = len(self.state.places) * (BEGIN_MS - self.now_ms())
            self.before_ms = self.result.node_ms + here
        super()._advance(at_ms)


@pytest.mark.parametrize(
    ("name", "how", "profile", "node_seconds", "nodes", "evicted"),
    [
        pytest.param("ramp", ScaleDown.EMPTY, DEFAULT, 19_156, 40, 0, id="empties only"),
        pytest.param("ramp", ScaleDown.UTILIZATION, DEFAULT, 13_761, 22, 39, id="50 %"),
        pytest.param("ramp", ScaleDown.EMPTY, PACKED, 11_806, 20, 0, id="MostAllocated"),
        pytest.param("day", ScaleDown.EMPTY, PACKED, 13_088, 27, 0, id="MostAllocated, scale-ins"),
    ],
)
def test_the_simulation_needs_and_evicts_about_what_real_programs_did(
    name: str, how: ScaleDown, profile: Profile, node_seconds: int, nodes: int, evicted: int
) -> None:
    load = workload(Load.named(name))
    worlds = [Counted(load, how, None, seed, Setting(profile, TIMERS)) for seed in SEEDS]
    found = [one.run() for one in worlds]
    needed = [
        (result.node_ms - world.before_ms) / 1000
        for world, result in zip(worlds, found, strict=True)
    ]
    assert mean(needed) == pytest.approx(node_seconds, rel=0.05)
    assert mean(len(one.state.places) for one in worlds) == pytest.approx(nodes, abs=3)
    assert mean(one.evicted for one in found) == pytest.approx(evicted, rel=0.25)
