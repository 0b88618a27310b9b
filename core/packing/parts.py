"""What a Packer begins with: the free space of the nodes, and the pods in packing order."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from core.capacity.reaches import Groups
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.packing.equivalence_groups import EquivalenceGroup, group_by_value, templates
from core.packing.node_order import NodeOrder, dominant_share
from core.packing.vectors import Vectors, lane_minimum


class FreeSpace(NamedTuple):
    """Free amounts by node id, as vectors (core.packing.vectors)."""

    vectors: Vectors
    guard: int
    """The guard bits of a vector; they are set in `free`."""
    free: list[int]

    @staticmethod
    def of(cluster: Cluster, ground: NodeOrder, spare: Collection[Pod]) -> "FreeSpace":
        """Return the free space of *ground*; vectors have room for *spare* pods' resources too."""
        vectors = Vectors(chain(cluster.pods, spare), cluster.nodes)
        free = [
            vectors.guard
            | (0 if node.name in ground.closed else vectors.of(node.allocatable - used))
            for node, used in zip(ground.nodes, ground.used, strict=True)
        ]
        return FreeSpace(vectors, vectors.guard, free)


class PackingOrder(NamedTuple):
    """Pods largest first (thesis 4.7.1), and the kinds that they are of."""

    pods: list[Pod]
    kind_of: list[EquivalenceGroup]
    """By pod id."""
    kinds: list[EquivalenceGroup]

    @staticmethod
    def of(
        groups: Groups,
        space: FreeSpace,
        admits: Callable[[Mapping[NodeConstraints, int]], Callable[[NodeConstraints], list[int]]],
        whole: Resources,
    ) -> "PackingOrder":
        """Order the pods of these groups by their dominant share of *whole*.

        *admits*: returns, for templates, what names the nodes that admit one of them.
        """
        placings = {placing: number for number, placing in enumerate(templates(groups))}
        found = group_by_value(groups, placings)
        ranked = sorted(
            (-dominant_share(requests, whole), -space.vectors.of(requests), placing, requests)
            for requests, placing in found
        )
        nodes_of = admits(placings)
        admitting = {number: nodes_of(one) for one, number in placings.items()}
        kinds = _kinds(admitting, [(-vector, placing) for _, vector, placing, _ in ranked], space)
        pods: list[Pod] = []
        kind_of: list[EquivalenceGroup] = []
        for kind, (_, _, placing, requests) in zip(kinds, ranked, strict=True):
            members = found[requests, placing]
            pods += members
            kind_of += [kind] * len(members)
        return PackingOrder(pods, kind_of, kinds)


def _kinds(
    admitting: Mapping[int, list[int]], ranked: Sequence[tuple[int, int]], space: FreeSpace
) -> list[EquivalenceGroup]:
    """Make the kinds; nodes without room for the least that a template's pods request are out."""
    guard, free = space.guard, space.free
    least: dict[int, int] = {}
    for vector, placing in ranked:
        least[placing] = lane_minimum(least.get(placing, vector), vector, guard)
    allowed = {
        number: [node for node in ids if free[node] - least[number] & guard == guard]
        for number, ids in admitting.items()
    }
    return [
        EquivalenceGroup(vector, admitting[placing], allowed[placing])
        for vector, placing in ranked
    ]


def pods_by_node(pods: Sequence[Pod], ground: NodeOrder) -> tuple[list[list[int]], list[int]]:
    """Return the pod ids on each node, by node id, and those of pods on no node."""
    on: list[list[int]] = [[] for _ in ground.nodes]
    homeless: list[int] = []
    for number, pod in enumerate(pods):
        if pod.node is None:
            homeless.append(number)
        else:
            on[ground.ids[pod.node]].append(number)
    return on, homeless
