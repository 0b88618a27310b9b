"""Group pods with equal requests and node constraints, and sort the groups in packing order.

Large pods come first. The order is part of the specification (core.placement.packer).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.sorted_objects import BY_NAMESPACE_AND_NAME
from core.placement.bits import bits_of
from core.placement.free_space import FreeSpace
from core.placement.node_classes import NodeClasses
from core.placement.node_order import NodeOrder, dominant_share
from core.placement.reaches import Groups
from core.placement.vectors import Vectors, lane_minimum

AdmittingNodes = Callable[[NodeConstraints], list[int]]
"""Returns the ids of the nodes that admit pods with given constraints, in first-fit order."""


class NodesForConstraints:
    """The ids of the nodes that may receive the pods with certain node constraints."""

    def __init__(self, admitting: list[int], candidates: list[int]) -> None:
        """Store two lists of node ids, both ascending, which is first-fit order.

        *admitting*: nodes that the constraints admit. *candidates*: the admitting nodes that
        initially have room for the smallest pod with these constraints.
        """
        self.admitting, self.candidates = admitting, candidates

    def admits(self, node: int) -> bool:
        """Report whether the constraints admit the node."""
        at = bisect_left(self.admitting, node)
        return self.admitting[at : at + 1] == [node]

    def without(self, nodes: Container[int]) -> "NodesForConstraints":
        """Return the possible nodes except *nodes*, given by their ids."""
        return NodesForConstraints(
            [node for node in self.admitting if node not in nodes],
            [node for node in self.candidates if node not in nodes],
        )

    @cached_property
    def candidate_bits(self) -> int:
        """Return the set of candidates as an integer: bit n is set if node n is a candidate."""
        return bits_of(self.candidates[-1] + 1 if self.candidates else 0, self.candidates)


@dataclass(slots=True, eq=False)
class EquivalenceGroup:
    """The request and the possible nodes of all pods with equal requests and node constraints."""

    request: int
    """Requests of one pod as a vector."""
    nodes: NodesForConstraints
    """Nodes for the pods; groups with equal node constraints share this object."""


def group_by_identity(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Group the pods whose `requests` and `node_constraints` are the same objects.

    The groups, and the pods in a group, are in the order of *pods*. Two groups may have equal
    values: only the identity of the objects is compared, which is fast. Thousands of placeholders
    (imaginary pods for which room is kept) share these objects.
    """
    groups: defaultdict[tuple[int, int], list[Pod]] = defaultdict(list)
    for pod in pods:
        groups[id(pod.requests), id(pod.node_constraints)].append(pod)
    return list(groups.values())


def packing_order(
    groups: Groups,
    *,
    vectors: Vectors,
    space: FreeSpace,
    node_order: NodeOrder,
    total_capacity: Resources,
    admitting: AdmittingNodes | None = None,
) -> tuple[list[Pod], list[EquivalenceGroup]]:
    """Return the pods in packing order, and in a second list the equivalence group of each pod.

    Pods with the largest dominant share of *total_capacity* come first (thesis 4.7.1): the largest
    of a pod's shares of CPU, memory and extended resources. *space*: free space of the nodes, in
    the encoding *vectors*. *admitting*: returns the nodes for node constraints; None: the filters
    of core.placement.filters decide.
    """
    # Sorted, so that the numbers do not depend on the order of the pods.
    distinct = sorted({members[0].node_constraints for members in groups}, key=repr)
    numbers = {node_constraints: number for number, node_constraints in enumerate(distinct)}
    members_of = _group_by_value(groups, numbers)
    ranked = sorted(
        (-dominant_share(requests, total_capacity), -vectors.of(requests), number, requests)
        for requests, number in members_of
    )
    smallest: dict[int, int] = {}
    for _, negative_vector, number, _ in ranked:
        vector = -negative_vector
        smallest[number] = lane_minimum(smallest.get(number, vector), vector, space.guard)
    nodes_of = admitting or NodeClasses(node_order.nodes, numbers).allowing
    nodes: dict[int, NodesForConstraints] = {}
    for node_constraints, number in numbers.items():
        ids = nodes_of(node_constraints)
        nodes[number] = NodesForConstraints(ids, _with_room(ids, smallest[number], space))
    pods: list[Pod] = []
    group_of: list[EquivalenceGroup] = []
    for _, negative_vector, number, requests in ranked:
        members = members_of[requests, number]
        pods += members
        group_of += [EquivalenceGroup(-negative_vector, nodes[number])] * len(members)
    return pods, group_of


def _with_room(nodes: Iterable[int], request: int, space: FreeSpace) -> list[int]:
    guard, free = space.guard, space.free
    return [node for node in nodes if free[node] - request & guard == guard]


def _group_by_value(
    groups: Groups, numbers: Mapping[NodeConstraints, int]
) -> dict[tuple[Resources, int], Sequence[Pod]]:
    """Merge groups with equal requests and node constraints; sort the pods by namespace and name.

    The keys are pairs: requests, and the number of the node constraints in *numbers*.
    """
    parts_of: dict[tuple[Resources, int], list[Sequence[Pod]]] = {}
    for members in groups:
        key = members[0].requests, numbers[members[0].node_constraints]
        parts_of.setdefault(key, []).append(members)
    return {
        # A single part is sorted already.
        key: parts[0]
        if len(parts) == 1
        else sorted((pod for members in parts for pod in members), key=BY_NAMESPACE_AND_NAME)
        for key, parts in parts_of.items()
    }
