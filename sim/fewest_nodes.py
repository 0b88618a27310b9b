"""Compute how few of its nodes a cluster could need, by an integer program.

The program keeps the requests of all pods, and the filters for single nodes: selectors, node
affinity, taints, cordons, volumes. A node whose removal a rule forbids remains, with its pods that
cannot move. All other rules are left out: see IGNORED. Fewer rules never need more nodes, so the
lower bound holds for every placement that follows all rules, such as the plan.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from core.engine.plan import Plan
from core.engine.planner import Planner
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.errors import InvalidInputError
from core.model.resources import Resources
from core.placement.packer import Packer
from sim.bound import amounts, solver

if TYPE_CHECKING:
    from highspy import Highs

SECONDS_MAX: Final = 60.0
"""Time of the solver."""
NODES_MAX: Final = 500
CHOICES_MAX: Final = 200_000
"""Maximum number of pairs of a node and equal pods that the node could run."""
FEASIBLE: Final = 2
"""Value of `primal_solution_status` if HiGHS has found a placement."""
TOLERANCE: Final = 1e-4
"""Amount by which a bound of the solver may be too high because of rounding."""
IGNORED: Final = (
    "pod affinity and anti-affinity, topology spread, host ports, attach limits, thresholds, "
    "headroom, CapacityBuffers, minimums and zone balance"
)
"""Rules that the integer program leaves out."""
OPTION: Final = "--bound"
_Equal = tuple[Resources, NodeConstraints]
"""Requests and node constraints that equal pods have in common."""


class NodesNeeded(NamedTuple):
    """How few nodes the pods of a cluster need."""

    at_least: int
    """Proved lower bound: no placement needs fewer nodes."""
    found: int
    """Nodes of the best placement found: that of the plan, or one of the integer program."""
    planned: int
    """Nodes that remain after the plan."""
    nodes: int
    """Nodes that exist."""


@dataclass(frozen=True, slots=True)
class _PodClass:
    """Pods with equal requests and node constraints.

    `pods` is their number, `requests` the amounts that one pod requests, by resource. `most` is
    how many of the pods a node could run, by index of the node.
    """

    pods: int
    requests: Mapping[str, int]
    most: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Problem:
    """Input of the integer program; nodes are numbered.

    `capacity` has for each node the capacity for movable pods, by resource. `remaining` are the
    nodes that cannot be removed.
    """

    capacity: Sequence[Mapping[str, int]]
    remaining: frozenset[int]
    classes: Sequence[_PodClass]


def nodes_needed(
    snapshot: ClusterSnapshot, plan: Plan, seconds_max: float = SECONDS_MAX
) -> NodesNeeded:
    """Return how few nodes the cluster of a snapshot needs, and how many remain after *plan*.

    *seconds_max*: time limit of the solver. Raises: InvalidInputError if the solver is missing, or
    if the cluster is too large.
    """
    solver(OPTION)
    nodes = len(plan.removals) + len(plan.kept)
    if nodes > NODES_MAX:
        raise InvalidInputError(
            OPTION, f"the cluster has {nodes:,} nodes; allowed: up to {NODES_MAX}"
        )
    at_least, found = _solve(_problem(snapshot), seconds_max)
    planned = len(plan.kept)
    best = planned if found is None else min(found, planned)
    return NodesNeeded(at_least, best, planned, nodes)


def _problem(snapshot: ClusterSnapshot) -> _Problem:
    """Return the input of the integer program: the nodes and movable pods of a snapshot.

    Raises: InvalidInputError if there are too many choices of a node for the pods.
    """
    packer = Planner(snapshot).packer  # with places for Pending pods
    on = [
        Counter(
            (packer.pods[pod].requests, packer.pods[pod].node_constraints)
            for pod in pods
            if pod not in packer.placeholders
        )
        for pods in packer.on
    ]
    closed = {
        n for n, node in enumerate(packer.nodes) if node.name in snapshot.unschedulable_nodes
    }
    classes = []
    for (requests, node_constraints), pods in _counted(on):
        # A pod may remain on a node that would no longer admit it, such as a cordoned one.
        most = {
            n: counts[requests, node_constraints]
            for n, counts in enumerate(on)
            if counts[requests, node_constraints]
        }
        most |= {n: pods for n in snapshot.reaches.admitting(node_constraints) if n not in closed}
        classes.append(_PodClass(pods, amounts(requests), most))
    if (choices := sum(len(pod_class.most) for pod_class in classes)) > CHOICES_MAX:
        message = (
            f"the cluster is too large: {choices:,} pairs of a node and equal pods that fit there"
        )
        raise InvalidInputError(OPTION, f"{message}; allowed: up to {CHOICES_MAX:,}")
    remaining = frozenset(
        number
        for number, node in enumerate(packer.nodes)
        if snapshot.blockers[node.name] or node.name in snapshot.leaving_nodes
    )
    return _Problem(_capacity(snapshot.cluster, packer), remaining, classes)


def _counted(on: Sequence[Counter[_Equal]]) -> Sequence[tuple[_Equal, int]]:
    """Return the number of pods of each class on all nodes, in an order that is always the same.

    *on* has the numbers for each node. The order matters, because the solver's result depends on
    it.
    """
    total: Counter[_Equal] = Counter()
    for counts in on:
        total.update(counts)
    return sorted(total.items(), key=lambda entry: repr(entry[0]))


def _capacity(cluster: Cluster, packer: Packer) -> list[Mapping[str, int]]:
    """Return for each node of *packer* its capacity for movable pods, by resource.

    It is allocatable without the requests of pods that cannot move. It is never less than the
    requests of the movable pods on the node, so that they may remain there.
    """
    movable: dict[str | None, list[Resources]] = {}
    for number, pod in enumerate(packer.pods):
        if number not in packer.placeholders:
            movable.setdefault(pod.node, []).append(pod.requests)
    used = cluster.used()
    capacity: list[Mapping[str, int]] = []
    for node in packer.nodes:
        own = Resources.total(movable.get(node.name, ()))
        free, kept = amounts(node.allocatable - (used[node.name] - own)), amounts(own)
        # A node may be overcommitted. Its pods may remain nevertheless.
        capacity.append({name: max(free.get(name, 0), kept.get(name, 0)) for name in free | kept})
    return capacity


def _solve(problem: _Problem, seconds_max: float) -> tuple[int, int | None]:
    """Return (proved lower bound, nodes of the best placement found) as numbers of nodes.

    The second number is None if the solver found no placement within *seconds_max*.
    """
    program = solver(OPTION)
    program.setOptionValue("time_limit", seconds_max)
    nodes = range(len(problem.capacity))
    for number in nodes:  # a column that is 1 if the node remains
        program.addVar(float(number in problem.remaining), 1.0)
        program.changeColCost(number, 1.0)
    columns, loads = len(problem.capacity), [dict[str, dict[int, float]]() for _ in nodes]
    for pod_class in problem.classes:
        first = columns
        for number, most in sorted(pod_class.most.items()):
            program.addVar(0.0, float(most))
            for name, amount in pod_class.requests.items():
                if amount:
                    loads[number].setdefault(name, {})[columns] = float(amount)
            columns += 1
        _add_row(
            program, float(pod_class.pods), dict.fromkeys(range(first, columns), 1.0), equal=True
        )
    for number, load in enumerate(loads):
        for name, weights in load.items():
            # Shares of the node, so that all coefficients are of similar size.
            whole = problem.capacity[number].get(name, 0)
            if whole:
                shares = {column: amount / whole for column, amount in weights.items()}
                _add_row(program, 0.0, {**shares, number: -1.0})
            else:
                _add_row(program, 0.0, weights)
    _make_integral(program, columns)
    program.run()
    info = program.getInfo()
    bound = info.mip_dual_bound
    at_least = math.ceil(bound - TOLERANCE) if math.isfinite(bound) else 0
    has_found = info.primal_solution_status == FEASIBLE
    found = round(info.objective_function_value) if has_found else None
    return max(at_least, len(problem.remaining)), found


def _add_row(
    program: "Highs", most: float, weights: Mapping[int, float], *, equal: bool = False
) -> None:
    least = most if equal else -math.inf
    program.addRow(least, most, len(weights), list(weights), list(weights.values()))


def _make_integral(program: "Highs", columns: int) -> None:
    from highspy import HighsVarType  # noqa: PLC0415 an optional dependency

    for column in range(columns):
        program.changeColIntegrality(column, HighsVarType.kInteger)
