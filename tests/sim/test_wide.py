"""The load `wide`: its reader, its constraints in the simulation, and the fewest nodes for it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.constraints import HOST_LABEL
from sim.autoscaler import ScaleDown
from sim.simulator import Simulator, SimulatorOptions
from tests.bench.fewest_nodes import fewest_nodes
from tests.e2e.live import ZONE, Load, NodeShape
from tests.e2e.standin import TIMERS
from tests.e2e.wide import COLUMNS, SHAPE, Remaining, remaining, wide
from tests.support.simulated import simulated

ROWS = """web-1,500m,1Gi,7,5,1,1,0
web-2,1500m,512Mi,8,6,1,0,1
web-3,1,300Mi,9,4,1,0,0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a small file of the load."""
    found = tmp_path / "wide.csv"
    found.write_text(f"{','.join(COLUMNS)}\n{ROWS}")
    return found


def test_file_is_read_with_constraints(file: Path) -> None:
    first, second, third, *_ = wide(file).events
    assert (first.app, first.cpu, first.memory, first.replicas) == ("web-1", 500, 1024, 7)
    assert "affinity" in first.pod_spec
    keys = [
        [one["topologyKey"] for one in event.pod_spec["topologySpreadConstraints"]]
        for event in (second, third)
    ]
    assert keys == [[ZONE, HOST_LABEL], [ZONE]]
    assert remaining(file)[1] == Remaining(1500, 512, 6, apart=True)


def test_simulated_scheduler_obeys_constraints(file: Path) -> None:
    load = replace(wide(file), nodes=12, seconds=0.0)
    simulator = Simulator(
        simulated(load), ScaleDown.NEVER, None, 1, SimulatorOptions(timers=TIMERS)
    )
    simulator.run()
    state = simulator.state
    zones = {name: place.node.labels[ZONE] for name, place in state.places.items()}
    for name, count in (("web-1", 7), ("web-2", 8), ("web-3", 9)):
        nodes = [pod.node or "" for pod in state.pods.values() if pod.labels.get("app") == name]
        assert len(nodes) == count
        in_zones = Counter(zones[node] for node in nodes)
        assert max(in_zones.values()) - min(in_zones.values()) <= 1
        if name != "web-3":
            assert max(Counter(nodes).values()) == 1


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([Remaining(2000, 1024, 4, apart=False)], (2, 2)),
        ([Remaining(3000, 1024, 4, apart=False)], (3, 4)),
        ([Remaining(1000, 1024, 3, apart=True)], (1, 3)),
    ],
    ids=["packed", "larger than half a node", "apart"],
)
def test_fewest_nodes(pods: list[Remaining], expected: tuple[int, int]) -> None:
    assert fewest_nodes(pods, NodeShape(zones=1)) == expected


def test_nodes_are_in_zones() -> None:
    load = Load((), shape=SHAPE)
    zones = Counter(load.shape.node(number)["metadata"]["labels"][ZONE] for number in range(6))
    assert set(zones.values()) == {2}
