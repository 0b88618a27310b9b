"""Keep zones balanced: no node removal may leave a zone with far fewer nodes than another."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.engine.snapshot import ClusterSnapshot
from core.model.constraints import HOST_LABEL, NodeConstraints, SelectorTerm
from core.model.humanize import plural
from core.model.node import Node, Taint
from core.placement.filters import ZONE_LABELS
from core.placement.matching import is_blocking
from core.placement.reaches import Reaches, bare

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
ZONE_SKEW_MAX: Final = 1
"""Maximum difference of schedulable nodes to the largest zone that a removal may leave."""
SCHEDULABLE_NODE: Final = "schedulable node", "schedulable nodes"
"""Counted nodes in messages, singular and plural."""
LOCATION_LABELS: Final = frozenset(ZONE_LABELS) | {HOST_LABEL}
"""Labels that say where a node is or which node it is, but nothing about its properties."""
_Traits = tuple[str, tuple[Taint, ...], tuple[str, ...]]
"""What similar nodes have in common: configured pool (empty: none), taints, device names."""
_Area = tuple[int, _Traits]
"""Similar nodes of one reach, or of one set of _MergedReaches: its number, and the traits."""
_NodeFacts = tuple[tuple[int, ...], _Traits, str, bool]
"""Numbers of the reaches of a node, its traits and zone, and whether it is schedulable."""


@dataclass(frozen=True, slots=True, eq=False)
class ZoneClass:
    """Similar nodes of one zone that the same pods can use, with the node counts of all zones."""

    traits: _Traits
    zone: str
    schedulable: bool
    counts: Counter[str]
    """Number of schedulable nodes, by zone, in all zones that are compared with each other."""

    def explain(self) -> str | None:
        """Return a message if the zone would fall too far behind without one of the nodes.

        None if the zone may lose a node.
        """
        if not self.schedulable:
            return None
        left = self.counts[self.zone] - 1
        most = max(count for other, count in self.counts.items() if other != self.zone)
        if left >= most - ZONE_SKEW_MAX:
            return None
        nodes = plural(left, *SCHEDULABLE_NODE)
        return f"without the node, zone {self.zone} would have {nodes} and another zone {most}"


class Zones:
    """Numbers of schedulable nodes by zone, among similar nodes that the same pods can use.

    Nodes are similar if they have the same taints and devices and belong to the same configured
    pool. Otherwise GPU nodes in one zone would keep general nodes of another zone, as soon as one
    pod tolerates the taint of the GPU nodes.

    A reach is a set of nodes that some pods can use. The smallest reach of a node that spans
    several zones decides, because larger reaches contain nodes that its pods cannot use. Hostname
    and zone selectors of pods are ignored here: otherwise a pod that may use only two nodes would
    limit the comparison to these two. Nodes that no pod reaches need no balance. A zone without
    schedulable nodes still counts as a zone, so that the deciding reach does not change as nodes
    become schedulable or unschedulable.
    """

    def __init__(self, snapshot: ClusterSnapshot, node_ids: Iterable[int]) -> None:
        """Count the nodes by zone; *node_ids*: all nodes that are neither leaving nor virtual."""
        self._snapshot = snapshot
        by_facts = self._by_facts(node_ids)
        zones_of: defaultdict[_Area, set[str]] = defaultdict(set)
        for reaches, traits, zone, _ in by_facts:
            for reach in reaches:
                zones_of[reach, traits].add(zone)
        spanning = {area for area, zones in zones_of.items() if len(zones) > 1}
        merged = _MergedReaches(snapshot.reaches, {reach for reach, _ in spanning})
        self._sets = merged.sets
        self._counts: defaultdict[_Area, Counter[str]] = defaultdict(Counter)
        self.of_node: dict[int, ZoneClass] = {}
        """Class of each node whose zone is compared with others, by the id of the node."""
        for (reaches, traits, zone, schedulable), nodes in by_facts.items():
            if deciding := [reach for reach in reaches if (reach, traits) in spanning]:
                counts = self._counts[merged.smallest(deciding), traits]
                zone_class = ZoneClass(traits, zone, schedulable, counts)
                self.of_node |= dict.fromkeys(nodes, zone_class)
        for number, members in enumerate(self._sets):
            for member_class, count in Counter(map(self.of_node.get, members)).items():
                if member_class is not None:
                    counts = self._counts[number, member_class.traits]
                    counts[member_class.zone] += count * member_class.schedulable

    def _by_facts(self, node_ids: Iterable[int]) -> Mapping[_NodeFacts, list[int]]:
        snapshot = self._snapshot
        ids: defaultdict[_NodeFacts, list[int]] = defaultdict(list)
        # To sort the taints and devices of each node takes time, and most nodes have the same.
        traits_of: dict[object, _Traits] = {}
        for node_id in node_ids:
            node = snapshot.node_order.nodes[node_id]
            if zone := node.labels.get(ZONE_LABEL):
                pool = snapshot.pool_names.get(node.name, "")
                unsorted = pool, node.taints, node.leaving_taints, node.allocatable.extended
                if unsorted not in traits_of:
                    traits_of[unsorted] = _traits(pool, node)
                schedulable = node.name not in snapshot.unschedulable_nodes
                reaches = snapshot.reaches.by_node[node_id]
                ids[reaches, traits_of[unsorted], zone, schedulable].append(node_id)
        return ids

    def count_removal(self, node_id: int) -> None:
        """Count the node as removed; its zone is compared even if no node is left in it."""
        if zone_class := self.of_node.get(node_id):
            for number, members in enumerate(self._sets):
                if node_id in members:
                    counts = self._counts[number, zone_class.traits]
                    counts[zone_class.zone] -= zone_class.schedulable


def _traits(pool: str, node: Node) -> _Traits:
    """Return the pool, taints and devices that similar nodes share with the node.

    Only taints that keep pods away are included, and no transient ones.
    """
    usual = bare(node)
    taints = tuple(sorted(filter(is_blocking, usual.taints), key=repr))
    return pool, taints, tuple(sorted(usual.allocatable.devices))


class _MergedReaches:
    """Sets of nodes within which zones are balanced.

    Each set is a reach (a set of nodes that some pods can use) computed without the hostname and
    zone selectors of its pods. Several reaches may have the same set.
    """

    def __init__(self, reaches: Reaches, numbers: Iterable[int]) -> None:
        set_of = {number: _nodes_without_location(reaches, number) for number in numbers}
        sets = {id(nodes): nodes for nodes in set_of.values()}
        set_numbers = {set_id: number for number, set_id in enumerate(sets)}
        self._set_number = {reach: set_numbers[id(nodes)] for reach, nodes in set_of.items()}
        self._order = {n: (len(nodes), reaches.all[n].key) for n, nodes in set_of.items()}
        self.sets = [frozenset(nodes) for nodes in sets.values()]
        """Ids of the nodes in each set."""

    def smallest(self, reaches: Iterable[int]) -> int:
        """Return the number of the smallest set that belongs to one of the *reaches*.

        Sets are numbered by position in `sets`, reaches by position in `Reaches.all`.
        """
        return self._set_number[min(reaches, key=self._order.__getitem__)]


def _nodes_without_location(reaches: Reaches, number: int) -> tuple[int, ...]:
    """Return the ids of the nodes that the pods of a reach could use without location selectors.

    Location selectors name a hostname or a zone. *number*: position of the reach in `reaches.all`.
    """
    merged: set[NodeConstraints] = set()
    for node_constraints in reaches.templates_of(number):
        without_location = _without_location(node_constraints)
        if without_location == node_constraints:
            return reaches.all[number].nodes
        merged.add(without_location)
    return min(map(reaches.members, merged), key=lambda nodes: (len(nodes), nodes))


def _without_location(node_constraints: NodeConstraints) -> NodeConstraints:
    selector = tuple(
        label for label in node_constraints.node_selector if label[0] not in LOCATION_LABELS
    )
    return replace(
        node_constraints,
        node_selector=selector,
        affinity=_terms_without_location(node_constraints.affinity),
    )


def _terms_without_location(
    terms: tuple[SelectorTerm, ...] | None,
) -> tuple[SelectorTerm, ...] | None:
    """Return node affinity terms without hostname and zone labels.

    None means no restriction: there are no terms, or one selects by hostname or zone only.
    """
    kept = []
    for term in terms or ():
        labels = tuple(label for label in term.labels if label.key not in LOCATION_LABELS)
        if not labels and (term.labels or term.fields):
            return None  # without location labels the term matches every node
        kept.append(SelectorTerm(labels))
    return terms and tuple(kept)
