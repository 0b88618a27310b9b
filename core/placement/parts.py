"""Build the initial state of a Packer: pods in packing order, and the pods on each node."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.equivalence_groups import (
    EquivalenceGroup,
    NodesForConstraints,
    group_by_value,
    templates,
)
from core.placement.free_space import FreeSpace
from core.placement.node_order import NodeOrder, dominant_share
from core.placement.reaches import Groups
from core.placement.vectors import Vectors, lane_minimum


class PackingOrder(NamedTuple):
    """Pods in packing order, largest first (thesis 4.7.1), and their equivalence groups."""

    pods: list[Pod]
    group_of: list[EquivalenceGroup]
    """Equivalence group by pod id."""

    @staticmethod
    def of(
        groups: Groups,
        vectors: Vectors,
        space: FreeSpace,
        admits: Callable[[Mapping[NodeConstraints, int]], Callable[[NodeConstraints], list[int]]],
        total_capacity: Resources,
    ) -> "PackingOrder":
        """Sort the pods of the groups by their dominant share of *total_capacity*.

        *admits*: returns, for a set of node constraints, a function that returns the nodes that
        one of these constraints admits.
        """
        all_constraints = {
            node_constraints: number for number, node_constraints in enumerate(templates(groups))
        }
        found = group_by_value(groups, all_constraints)
        ranked = sorted(
            (
                -dominant_share(requests, total_capacity),
                -vectors.of(requests),
                node_constraints,
                requests,
            )
            for requests, node_constraints in found
        )
        nodes_of = admits(all_constraints)
        admitting = {number: nodes_of(one) for one, number in all_constraints.items()}
        equivalence_groups = _equivalence_groups(
            admitting,
            [(-vector, node_constraints) for _, vector, node_constraints, _ in ranked],
            space,
        )
        pods: list[Pod] = []
        group_of: list[EquivalenceGroup] = []
        for group, (_, _, node_constraints, requests) in zip(
            equivalence_groups, ranked, strict=True
        ):
            members = found[requests, node_constraints]
            pods += members
            group_of += [group] * len(members)
        return PackingOrder(pods, group_of)


def _equivalence_groups(
    admitting: Mapping[int, list[int]], ranked: Sequence[tuple[int, int]], space: FreeSpace
) -> list[EquivalenceGroup]:
    """Return the equivalence groups; *ranked*: request vector and constraints number of each."""
    guard, free = space.guard, space.free
    least: dict[int, int] = {}
    for vector, node_constraints in ranked:
        least[node_constraints] = lane_minimum(least.get(node_constraints, vector), vector, guard)
    # Nodes without room for the smallest pod with these constraints are no candidates.
    nodes = {
        number: NodesForConstraints(
            ids, [node for node in ids if free[node] - least[number] & guard == guard]
        )
        for number, ids in admitting.items()
    }
    return [
        EquivalenceGroup(vector, nodes[node_constraints]) for vector, node_constraints in ranked
    ]


def pods_by_node(pods: Sequence[Pod], node_order: NodeOrder) -> tuple[list[list[int]], list[int]]:
    """Return the pod ids on each node, by node id, and the ids of pending pods."""
    on: list[list[int]] = [[] for _ in node_order.nodes]
    pending: list[int] = []
    for number, pod in enumerate(pods):
        if pod.node is None:
            pending.append(number)
        else:
            on[node_order.ids[pod.node]].append(number)
    return on, pending
