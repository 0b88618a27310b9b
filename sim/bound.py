"""Compute a lower bound for the cost of nodes that run given pods, by linear programming.

The linear program may use parts of nodes and split a pod, so no cluster of whole nodes is cheaper.
It is solved in its dual form: in each node group, the price of a node is divided among its
resources. A pod then costs at least its shares of a node, in the group where they are cheapest.
The solver (HiGHS) searches for the division with the highest bound. The bound is then recomputed
in exact numbers: rounding or a solver error can lower it but never raise it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from core.model.constraints import NodeConstraints
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.filters import first_failing_filter
from sim.cluster import DAEMON_REQUESTS
from sim.costs import Price

if TYPE_CHECKING:
    from highspy import Highs

RESOLUTION: Final = 10**9
"""Steps between 0 and the highest price of a node to which values of the solver are rounded."""
NO_SOLVER: Final = "needs the Python package highspy: pip install 'kube-ebb[demo]'"
LowerBound = Callable[[Iterable[Pod]], Fraction]
"""Returns the lower bound of the hourly cost of nodes for the pods."""
_PodClass = tuple[Resources, NodeConstraints]
"""Requests and node constraints that equivalent pods have in common."""
_Option = tuple[int, Mapping[str, Fraction]]
"""Index of a group, and the share that a pod takes of one of its nodes, by resource."""
Demand = Sequence[tuple[int, Sequence[_Option]]]
"""Number of pods of each class, and the groups that could run them."""
Division = Mapping[tuple[int, str], Fraction]
"""Part of a node's price that counts for one resource, by (index of the group, resource).

The unit is the highest price of a node.
"""


@dataclass(frozen=True, slots=True)
class PricedGroup:
    """Equal nodes: their template, and the capacity and hourly price of one node.

    `usable` is the allocatable amount of each resource without the requests of the DaemonSet pod.
    """

    template: Node
    usable: Mapping[str, int]
    price: Fraction

    def shares(self, pod_class: _PodClass) -> Mapping[str, Fraction] | None:
        """Return the share of one node that a pod takes, by resource; None if it does not fit.

        *pod_class*: requests and node constraints of the pod.
        """
        requests, node_constraints = pod_class
        requested = {name: amount for name, amount in amounts(requests).items() if amount}
        if any(amount > self.usable.get(name, 0) for name, amount in requested.items()):
            return None
        if first_failing_filter(self.template, node_constraints) is not None:
            return None
        return {name: Fraction(amount, self.usable[name]) for name, amount in requested.items()}


Divide = Callable[[Demand, Sequence[PricedGroup]], Division]
"""Proposes a division of the prices."""


def amounts(of: Resources) -> dict[str, int]:
    """Return the amounts by name of the resource.

    The keys are "cpu" (millicores), "memory" and "storage" (bytes), "pods", and the names of
    extended resources.
    """
    known = {"cpu": of.cpu_millis, "memory": of.memory_bytes, "storage": of.ephemeral_bytes}
    return {**dict(of.extended), **known, "pods": of.pods}


def check() -> None:
    """Fail before a simulation if the solver HiGHS is not installed. Raises: InvalidInputError."""
    solver()


def solver(purpose: str = "the lower bound of the cost") -> "Highs":
    """Return a new HiGHS solver that writes no output.

    Raises: InvalidInputError if HiGHS is not installed; *purpose* is the start of its message.
    """
    try:
        from highspy import Highs  # noqa: PLC0415 an optional dependency
    except ImportError as fault:
        raise InvalidInputError(purpose, NO_SOLVER) from fault
    made = Highs()  # type: ignore[no-untyped-call]
    made.silent()
    return made


def lp_lower_bound(
    templates: Iterable[Node], price_of: Price, *, divide: Divide | None = None
) -> LowerBound:
    """Return a function that computes a lower bound of the hourly cost of nodes for given pods.

    The bound holds for any number of nodes of each template. Pods that fit on no template do not
    count. *price_of* returns the hourly price of a node. *divide* proposes how to divide the price
    of a node among its resources; None: the solver proposes it.
    """
    groups = [
        PricedGroup(template, amounts(template.allocatable - DAEMON_REQUESTS), price_of(template))
        for template in templates
    ]
    known: dict[_PodClass, Sequence[_Option]] = {}

    def least(pods: Iterable[Pod]) -> Fraction:
        counts = Counter((pod.requests, pod.node_constraints) for pod in pods)
        pod_classes = sorted(counts, key=repr)  # the solver's result depends on the order
        known.update(
            (pod_class, _options(groups, pod_class))
            for pod_class in pod_classes
            if pod_class not in known
        )
        demand = [
            (counts[pod_class], known[pod_class]) for pod_class in pod_classes if known[pod_class]
        ]
        return _exact_bound(demand, groups, (divide or _solve)(demand, groups))

    return least


def _options(groups: Sequence[PricedGroup], pod_class: _PodClass) -> Sequence[_Option]:
    options = ((index, group.shares(pod_class)) for index, group in enumerate(groups))
    return [(index, shares) for index, shares in options if shares is not None]


def _solve(demand: Demand, groups: Sequence[PricedGroup]) -> Division:
    """Return the division of node prices among resources that the solver proposes.

    *demand*: number of pods of each class, with the groups that could run them. The solver
    maximizes the total value of all pods. The value of a pod is at most the value of its shares on
    any group that could run it. The resources of a node are worth at most its price.
    """
    program = solver()
    dearest = max((group.price for group in groups), default=Fraction()) or Fraction(1)
    columns: dict[tuple[int, str], int] = {}
    for index, group in enumerate(groups):
        columns_of_group = range(len(columns), len(columns) + len(group.usable))
        columns.update(
            zip(((index, name) for name in group.usable), columns_of_group, strict=True)
        )
        for _ in columns_of_group:
            program.addVar(0.0, math.inf)
        _at_most(program, float(group.price / dearest), dict.fromkeys(columns_of_group, 1.0))
    for worth, (count, options) in enumerate(demand, len(columns)):
        program.addVar(0.0, math.inf)
        program.changeColCost(worth, -float(count))
        for index, shares in options:
            less = {columns[index, name]: -float(share) for name, share in shares.items()}
            _at_most(program, 0.0, {worth: 1.0, **less})
    program.run()
    values = program.getSolution().col_value
    return {column: _floored(values[place]) for column, place in columns.items()}


def _at_most(program: "Highs", bound: float, weights: Mapping[int, float]) -> None:
    program.addRow(-math.inf, bound, len(weights), list(weights), list(weights.values()))


def _floored(value: float) -> Fraction:
    return (
        Fraction(max(math.floor(value * RESOLUTION), 0), RESOLUTION)
        if math.isfinite(value)
        else Fraction()
    )


def _exact_bound(demand: Demand, groups: Sequence[PricedGroup], division: Division) -> Fraction:
    """Return the lower bound of the hourly cost that a division of node prices proves.

    Every division proves a bound; a poor division only makes it lower. *demand*: number of pods of
    each class, with the groups that could run them.
    """
    scales = []
    for index, group in enumerate(groups):
        total = sum(division[index, name] for name in group.usable)
        scales.append(group.price / total if total else Fraction())
    worth = (
        count * min(_worth(scales[index], index, shares, division) for index, shares in options)
        for count, options in demand
    )
    return sum(worth, Fraction())


def _worth(
    scale: Fraction, index: int, shares: Mapping[str, Fraction], division: Division
) -> Fraction:
    return scale * sum(division[index, name] * share for name, share in shares.items())
