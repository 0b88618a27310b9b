"""Nodes that the simulated autoscaler adds for pending pods."""

from fractions import Fraction

import pytest

from core.model.constraints import NO_NODE_CONSTRAINTS, NodeConstraints
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from sim.autoscaler import REACTION_MS, SCAN_MS, YOUNG_MS, ScaleDown
from sim.cluster import DAEMON_REQUESTS
from sim.expander import Option, least_waste, option
from sim.simulated_load import HOUR_MS, Arrival, SimulatedLoad, amount
from sim.simulator import Simulator
from tests.support.builders import pod

SMALL, LARGE = amount(4000, 8192, 0, 110), amount(16_000, 32_768, 0, 110)


def asking(
    cpu: int,
    memory: int = 0,
    count: int = 1,
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS,
) -> list[Pod]:
    return [
        pod(f"p{cpu}-{n}", None, cpu, memory, node_constraints=node_constraints)
        for n in range(count)
    ]


def template(**labels: str) -> Node:
    return Node(name="", allocatable=SMALL, labels=labels)


def test_option_has_all_fitting_pods_and_nodes_of_first_fit_decreasing() -> None:
    found = option(template(), [*asking(1000), *asking(2800), *asking(1900, count=2)], 9)
    assert found is not None
    assert (found.nodes, len(found.pods)) == (
        2,
        4,
    )  # 2800 + 1000 on one node, 1900 + 1900 on the other
    assert [one.requests.cpu_millis for one in found.pods] == [2800, 1900, 1900, 1000]


def test_option_excludes_pods_that_do_not_fit_on_empty_node() -> None:
    most = SMALL.cpu_millis - DAEMON_REQUESTS.cpu_millis
    assert option(template(), asking(most + 1), 9) is None
    assert option(template(), asking(most), 9) is not None
    there = NodeConstraints((("zone", "a"),))
    assert option(template(zone="b"), asking(100, node_constraints=there), 9) is None
    assert option(template(zone="a"), asking(100, node_constraints=there), 9) is not None


def test_option_has_at_most_allowed_number_of_nodes() -> None:
    found = option(template(), [*asking(3000, count=3), *asking(500)], 2)
    assert found is not None
    assert (found.nodes, len(found.pods)) == (2, 3)


def test_waste_is_sum_of_unused_shares() -> None:
    two = Option(SMALL, 2, tuple(asking(3000, count=2)))
    assert two.waste == Fraction(1, 4) + 1
    assert Option(LARGE, 1, two.pods).waste == Fraction(10, 16) + 1


def test_least_waste_selects_group_with_highest_utilization() -> None:
    """The large node would take all five pods; the small node takes one pod and is full."""
    large = Option(LARGE, 1, tuple(asking(2000, 1000, count=5)))
    small = Option(SMALL, 1, tuple(asking(3800, 8000)))
    assert least_waste([large, small]) == [small]
    assert least_waste([large, large]) == [large, large]
    assert least_waste([]) == []


def played(
    pods: int, cpu: int, until_ms: int, shape: Resources, later: tuple[Arrival, ...] = ()
) -> Simulator:
    """Return a simulator in which pods arrive that are too large for the small node."""
    tiny = amount(300, 1024, 0, 110)
    arrivals = tuple(Arrival(0, f"p{n}", amount(cpu, 64, 0), HOUR_MS) for n in range(pods))
    load = SimulatedLoad("made", (tiny, shape), (*arrivals, *later), until_ms, 60_000)
    return Simulator(load, ScaleDown.NEVER, None, 1)


@pytest.mark.parametrize(("pods", "nodes"), [(1, 1), (7, 4), (40, 20)])
def test_nodes_for_all_pending_pods_are_added_in_one_pass(pods: int, nodes: int) -> None:
    """A full node of this shape exists, as the template of its group."""
    world = played(pods + 2, 1900, REACTION_MS[1], SMALL)
    assert world.run().scale_ups == nodes


def test_second_pass_adds_nodes_only_for_pods_that_do_not_fit_upcoming_nodes() -> None:
    world = played(6, 1900, REACTION_MS[1] + 2 * SCAN_MS, SMALL)
    assert world.run().scale_ups == 2


@pytest.mark.parametrize(("waited_ms", "nodes"), [(YOUNG_MS - 1, 1), (YOUNG_MS, 2)])
def test_young_pending_pod_is_ignored(waited_ms: int, nodes: int) -> None:
    world = played(2, 3000, REACTION_MS[1], SMALL)
    world.run()
    (look_ms,) = {one.created_ms for one in world.state.places.values() if one.created_ms}
    late = Arrival(look_ms - waited_ms, "late", amount(3000, 64, 0), HOUR_MS)
    again = played(2, 3000, look_ms, SMALL, later=(late,))
    assert again.run().scale_ups == nodes


def test_no_node_is_added_when_no_pod_is_pending() -> None:
    assert played(2, 1900, HOUR_MS, SMALL).run().scale_ups == 0
