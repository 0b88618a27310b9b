"""The orders of other tools in which scale-ins delete pods, and their effect on nodes."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from core.model.node import Node
from core.model.pod import JOB, REPLICA_SET, Pod
from core.model.resources import Resources
from sim.autoscaler import ScaleDown
from sim.cluster import Place
from sim.simulated_load import HOUR_MS, Arrival, Deployment, SimulatedLoad, amount
from sim.simulator import DEFAULT_OPTIONS, Simulator
from tests.support.scale_in import ScaleInOrder, deletion_costs

ROOM = amount(4000, 8192, 0, 110)
FEWEST_PODS, BIN_PACK = ScaleInOrder.FEWEST_PODS, ScaleInOrder.BIN_PACK


def place(name: str, web: int, jobs: int, job: Resources = amount(1000, 1024, 0)) -> Place:
    """Return a node with pods of a ReplicaSet, of half a core each, and with pods of Jobs."""
    pods = [
        Pod(
            namespace="work",
            name=f"{name}-{kind}-{number}",
            requests=requests,
            owner_kind=kind,
            owner_name="any",
        )
        for kind, count, requests in (
            (REPLICA_SET, web, amount(500, 512, 0)),
            (JOB, jobs, job),
        )
        for number in range(count)
    ]
    free = ROOM - Resources.total(pod.requests for pod in pods)
    return Place(Node(name=name, allocatable=ROOM), 0, free, pods={pod.key: pod for pod in pods})


@pytest.mark.parametrize(
    ("order", "places", "expected"),
    [
        pytest.param(
            FEWEST_PODS,
            [place("a", 3, 0), place("b", 1, 1), place("c", 1, 0)],
            ["c", "b", "a"],
            id="pods of Jobs count too",
        ),
        pytest.param(
            BIN_PACK,
            [place("a", 1, 1), place("b", 3, 1), place("c", 5, 0)],
            ["c", "b", "a"],
            id="the share of pods that no scale-in deletes",
        ),
        pytest.param(
            BIN_PACK, [place("a", 3, 0), place("b", 1, 0)], ["b", "a"], id="fewer pods in a tie"
        ),
        pytest.param(
            BIN_PACK, [place("b", 1, 0), place("a", 1, 0)], ["a", "b"], id="then the name"
        ),
        pytest.param(BIN_PACK, [place("a", 0, 2), place("b", 1, 0)], ["b"], id="only Jobs"),
    ],
)
def test_costs_order_nodes(order: ScaleInOrder, places: list[Place], expected: list[str]) -> None:
    costs = deletion_costs(order, places)
    nodes = sorted({(cost, key.split("/")[1][0]) for key, cost in costs.items()})
    assert [node for _, node in nodes] == expected


def test_nodes_whose_pods_request_nothing_come_last() -> None:
    idle = place("a", 0, 0)
    pod = Pod(namespace="work", name="a-0", owner_kind=REPLICA_SET, owner_name="any")
    idle.pods[pod.key] = pod
    costs = deletion_costs(BIN_PACK, [idle, place("b", 1, 3)])
    assert max(costs, key=lambda key: costs[key]) == pod.key


@pytest.mark.parametrize(("order", "empty"), [(None, 0), (FEWEST_PODS, 2), (BIN_PACK, 2)])
def test_scale_in_empties_nodes_only_in_orders_of_other_tools(
    order: ScaleInOrder | None, empty: int
) -> None:
    # Pods of Jobs make the nodes different: eight nodes, two of which have one pod more.
    web = Deployment("web", amount(500, 512, 0), ((0, 20), (HOUR_MS // 2, 10)))
    jobs = tuple(
        Arrival(1000, f"job-{number}", amount(250, 256, 0), 2 * HOUR_MS) for number in range(3)
    )
    load = SimulatedLoad("made", (ROOM,) * 5, jobs, HOUR_MS, 60_000, deployments=(web,))
    costs = None if order is None else partial(deletion_costs, order)
    options = replace(DEFAULT_OPTIONS, scale_in=costs)
    simulator = Simulator(load, ScaleDown.NEVER, None, 1, options)
    simulator.run()
    pods = Counter(
        pod.node for pod in simulator.state.pods.values() if pod.owner_kind == REPLICA_SET
    )
    assert 5 - len(pods) >= empty
    assert pods.total() == 10
    if order is None:
        assert max(pods.values()) - min(pods.values()) <= 1
