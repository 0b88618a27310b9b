"""Group pods with equal requests and node constraints, first by object and then by value."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.sorted_objects import BY_NAMESPACE_AND_NAME
from core.placement.bits import bits_of
from core.placement.reaches import Groups


class NodesForConstraints:
    """Nodes, by node id, for all pods with equal node constraints."""

    def __init__(self, admitting: list[int], candidates: list[int]) -> None:
        """Store the nodes in first-fit order.

        *admitting*: nodes that the constraints admit. *candidates*: those of them that initially
        have room for the smallest pod with these constraints.
        """
        self.admitting, self.candidates = admitting, candidates

    def admits(self, node: int) -> bool:
        """Report whether the constraints admit the node."""
        at = bisect_left(self.admitting, node)
        return self.admitting[at : at + 1] == [node]

    @cached_property
    def candidate_bits(self) -> int:
        """Return the candidates as bits (core.placement.bits)."""
        return bits_of(self.candidates[-1] + 1 if self.candidates else 0, self.candidates)


@dataclass(slots=True, eq=False)
class EquivalenceGroup:
    """Pods with equal requests and node constraints."""

    request: int
    """Requests of one pod as a vector."""
    nodes: NodesForConstraints
    """Nodes for the pods; groups with equal node constraints share this object."""


def group_by_identity(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Group pods whose requests and node constraints are the same objects, in the order of *pods*.

    There can be thousands of placeholders, and most share these objects. Comparing objects first
    avoids hashing the values of each.
    """
    groups: defaultdict[tuple[int, int], list[Pod]] = defaultdict(list)
    for pod in pods:
        groups[id(pod.requests), id(pod.node_constraints)].append(pod)
    return list(groups.values())


def templates(groups: Groups) -> list[NodeConstraints]:
    """Return the distinct node constraints, in an order that is independent of the pods' order."""
    return sorted({members[0].node_constraints for members in groups}, key=repr)


def group_by_value(
    groups: Groups, numbers: Mapping[NodeConstraints, int]
) -> dict[tuple[Resources, int], Sequence[Pod]]:
    """Merge groups with equal requests and node constraints; sort each by namespace and name.

    *numbers*: a number for each set of node constraints. Return the groups by requests and this
    number.
    """
    found: dict[tuple[Resources, int], list[Sequence[Pod]]] = {}
    for members in groups:
        key = members[0].requests, numbers[members[0].node_constraints]
        found.setdefault(key, []).append(members)
    return {key: _merged(parts) for key, parts in found.items()}


def _merged(parts: Sequence[Sequence[Pod]]) -> Sequence[Pod]:
    """Merge groups that are sorted by namespace and name into one such list."""
    if len(parts) == 1:
        return parts[0]
    return sorted((pod for members in parts for pod in members), key=BY_NAMESPACE_AND_NAME)
