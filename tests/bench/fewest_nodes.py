"""Search for the fewest equal nodes that run the Deployments of the load `wide`, by a solver.

The integer program assigns pods to nodes: the capacity of each node, zones whose pods of a
Deployment differ by at most one, and one pod of a Deployment on a node where that is required.
"""

from collections.abc import Sequence
from typing import Final

from highspy import Highs

from core.model.quantity import parse_quantity
from tests.e2e.live import NodeShape
from tests.e2e.wide import MIB, Remaining

SECONDS_MAX: Final = 120.0
"""Time of the solver for each number of nodes."""
FEASIBLE: Final = 2
"""Value of `primal_solution_status` if HiGHS has found an assignment."""


def fewest_nodes(remaining: Sequence[Remaining], shape: NodeShape) -> tuple[int, int]:
    """Return a lower bound, and the fewest nodes for which the solver finds an assignment.

    The solver may find no assignment in its time although there is one.
    """
    bound = nodes = least_nodes(remaining, shape)
    while not _fits(remaining, nodes, _capacity(shape), shape.zones):
        nodes += 1
    return bound, nodes


def least_nodes(remaining: Sequence[Remaining], shape: NodeShape) -> int:
    """Return a lower bound of the number of nodes, by the sums of CPU and memory."""
    cpu_millis, memory_mib = _capacity(shape)
    cpu = sum(one.replicas * one.cpu_millis for one in remaining)
    memory = sum(one.replicas * one.memory_mib for one in remaining)
    return max(-(-cpu // cpu_millis), -(-memory // memory_mib))


def _capacity(shape: NodeShape) -> tuple[int, int]:
    return round(1000 * parse_quantity(shape.cpu)), round(parse_quantity(shape.memory) / MIB)


def _fits(
    remaining: Sequence[Remaining], nodes: int, capacity: tuple[int, int], zones: int
) -> bool:
    """Return whether the solver finds an assignment; node N is in zone N modulo *zones*."""
    solver = Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    solver.setOptionValue("time_limit", SECONDS_MAX)
    placed = []
    for one in remaining:
        most = 1 if one.apart else one.replicas
        row = [solver.addIntegral(lb=0, ub=most) for _ in range(nodes)]
        solver.addConstr(sum(row) == one.replicas)
        least, rest = divmod(one.replicas, zones)
        for zone in range(zones):
            solver.addConstr(sum(row[zone::zones]) >= least)
            solver.addConstr(sum(row[zone::zones]) <= least + bool(rest))
        placed.append(row)
    for node in range(nodes):
        on = list(zip(remaining, (row[node] for row in placed), strict=True))
        solver.addConstr(sum(one.cpu_millis * count for one, count in on) <= capacity[0])
        solver.addConstr(sum(one.memory_mib * count for one, count in on) <= capacity[1])
    solver.run()
    return bool(solver.getInfo().primal_solution_status == FEASIBLE)
