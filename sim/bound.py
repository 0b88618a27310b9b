"""What the nodes for some pods cost at the least: a linear program's bound.

It may take parts of nodes and part a pod among them, so no cluster of whole nodes is cheaper. Of
each group a node's price is divided among its resources; a pod then costs no less than its share
of them is worth, on the nodes where that is least. The solver (HiGHS) finds the division that says
most. Whatever it answers is made to hold in exact numbers before anything is concluded, so
rounding, or a solver that errs, may lower the bound and never lifts it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from core.fit.filters import first_failing_filter
from core.model.constraints import NodeConstraints
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from sim.cluster import DAEMON_REQUESTS
from sim.costs import Price

if TYPE_CHECKING:
    from highspy import Highs

GRAIN: Final = 10**9
"""What the solver says is rounded down to such parts of the dearest node's price."""
NO_SOLVER: Final = "needs highspy: pip install 'kube-ebb[demo]'"
Least = Callable[[Iterable[Pod]], Fraction]
"""Returns what the nodes for these pods cost an hour at the least."""
_Kind = tuple[Resources, NodeConstraints]
"""All that tells pods apart here."""
_Option = tuple[int, Mapping[str, Fraction]]
"""A group's place, and what a pod takes of a node of it, by resource."""
Asked = Sequence[tuple[int, Sequence[_Option]]]
"""How many pods of a kind, and where they can run."""
Division = Mapping[tuple[int, str], Fraction]
"""What a group's (its place's) resource is worth, in prices of the dearest node."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes alike: what pods can use of one, by resource, and what it costs an hour."""

    template: Node
    usable: Mapping[str, int]
    price: Fraction

    def shares(self, kind: _Kind) -> Mapping[str, Fraction] | None:
        """Return what a pod takes of a node, by resource; None: it can run on none of them."""
        requests, placing = kind
        asked = {name: much for name, much in _amounts(requests).items() if much}
        if any(much > self.usable.get(name, 0) for name, much in asked.items()):
            return None
        if first_failing_filter(self.template, placing) is not None:
            return None
        return {name: Fraction(much, self.usable[name]) for name, much in asked.items()}


Divide = Callable[[Asked, Sequence[Group]], Division]
"""Proposes how prices are divided."""


def _amounts(of: Resources) -> dict[str, int]:
    known = {"cpu": of.cpu_millis, "memory": of.memory_bytes, "storage": of.ephemeral_bytes}
    return {**dict(of.extended), **known, "pods": of.pods}


def check() -> None:
    """Refuse at once what would fail after minutes. Raises: InvalidInputError."""
    _solver()


def _solver() -> "Highs":
    try:
        from highspy import Highs  # noqa: PLC0415 an extra: only who compares costs needs it
    except ImportError as fault:
        raise InvalidInputError("the lower bound of the cost", NO_SOLVER) from fault
    found = Highs()  # type: ignore[no-untyped-call]
    found.silent()
    return found


def lp_lower_bound(
    templates: Iterable[Node], price_of: Price, *, divide: Divide | None = None
) -> Least:
    """Return the bound for clusters of such nodes, as many as one likes of each.

    *divide*: who proposes how prices are divided; None: the solver.
    """
    groups = [
        Group(one, _amounts(one.allocatable - DAEMON_REQUESTS), price_of(one)) for one in templates
    ]
    known: dict[_Kind, Sequence[_Option]] = {}

    def least(pods: Iterable[Pod]) -> Fraction:
        counts = Counter((pod.requests, pod.placing) for pod in pods)
        kinds = sorted(counts, key=repr)  # the solver's answer goes by their order
        known.update((kind, _options(groups, kind)) for kind in kinds if kind not in known)
        asked = [(counts[kind], known[kind]) for kind in kinds if known[kind]]
        return _proven(asked, groups, (divide or _divided)(asked, groups))

    return least


def _options(groups: Sequence[Group], kind: _Kind) -> Sequence[_Option]:
    found = ((at, group.shares(kind)) for at, group in enumerate(groups))
    return [(at, shares) for at, shares in found if shares is not None]


def _divided(asked: Asked, groups: Sequence[Group]) -> Division:
    """Return how the solver would divide the prices.

    It looks for most of the sum of what all pods are worth, where a pod is worth no more than its
    shares are on any node that could run it, and a node's resources no more than its price.
    """
    solver = _solver()
    dearest = max((group.price for group in groups), default=Fraction()) or Fraction(1)
    columns: dict[tuple[int, str], int] = {}
    for at, group in enumerate(groups):
        here = range(len(columns), len(columns) + len(group.usable))
        columns.update(zip(((at, name) for name in group.usable), here, strict=True))
        for _ in here:
            solver.addVar(0.0, math.inf)
        _at_most(solver, float(group.price / dearest), dict.fromkeys(here, 1.0))
    for worth, (many, options) in enumerate(asked, len(columns)):
        solver.addVar(0.0, math.inf)
        solver.changeColCost(worth, -float(many))
        for at, shares in options:
            less = {columns[at, name]: -float(share) for name, share in shares.items()}
            _at_most(solver, 0.0, {worth: 1.0, **less})
    solver.run()
    found = solver.getSolution().col_value
    return {column: _floored(found[place]) for column, place in columns.items()}


def _at_most(solver: "Highs", bound: float, weights: Mapping[int, float]) -> None:
    solver.addRow(-math.inf, bound, len(weights), list(weights), list(weights.values()))


def _floored(value: float) -> Fraction:
    return (
        Fraction(max(math.floor(value * GRAIN), 0), GRAIN) if math.isfinite(value) else Fraction()
    )


def _proven(asked: Asked, groups: Sequence[Group], divided: Division) -> Fraction:
    """Return the bound that a division of the prices gives, whoever made it."""
    scales = []
    for at, group in enumerate(groups):
        total = sum(divided[at, name] for name in group.usable)
        scales.append(group.price / total if total else Fraction())
    worth = (
        many * min(_worth(scales[at], at, shares, divided) for at, shares in options)
        for many, options in asked
    )
    return sum(worth, Fraction())


def _worth(
    scale: Fraction, at: int, shares: Mapping[str, Fraction], divided: Division
) -> Fraction:
    return scale * sum(divided[at, name] * share for name, share in shares.items())
