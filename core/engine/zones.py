"""Keep zones balanced: no removal may leave a zone far behind another one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.capacity.reaches import Reaches, bare
from core.engine.snapshot import ClusterSnapshot
from core.fit.filters import ZONE_LABELS
from core.fit.matching import is_blocking
from core.model.constraints import HOST_LABEL, NodeConstraints, SelectorTerm
from core.model.humanize import plural
from core.model.node import Node, Taint

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
ZONE_SKEW_MAX: Final = 1
"""Maximum difference of schedulable nodes to the largest zone that a removal may leave."""
SCHEDULABLE_NODE: Final = "schedulable node", "schedulable nodes"
"""Counted nodes in messages, singular and plural."""
LOCATION_LABELS: Final = frozenset(ZONE_LABELS) | {HOST_LABEL}
"""Labels that say where a node is or which node it is, but nothing about its properties."""
_Pool = tuple[str, tuple[Taint, ...], tuple[str, ...]]
"""Configured pool (empty: none), taints and devices of similar nodes."""
_Area = tuple[int, _Pool]
"""Number of a reach or of a set of _MergedReaches, and the similar nodes in it."""
_NodeClass = tuple[tuple[int, ...], _Pool, str, bool]
"""Reaches, pool and zone of a node, and whether it is schedulable."""


@dataclass(frozen=True, slots=True, eq=False)
class ZoneClass:
    """Similar nodes of one zone that the same pods can use."""

    pool: _Pool
    zone: str
    schedulable: bool
    counts: Counter[str]
    """Number of schedulable nodes in each zone that the zone is compared with."""

    def explain(self) -> str | None:
        """Return a message if the zone must not lose one of the nodes, else None."""
        if not self.schedulable:
            return None
        left = self.counts[self.zone] - 1
        most = max(count for other, count in self.counts.items() if other != self.zone)
        if left >= most - ZONE_SKEW_MAX:
            return None
        nodes = plural(left, *SCHEDULABLE_NODE)
        return f"zone {self.zone} would have {nodes} and another zone {most}"


class Zones:
    """Number of schedulable nodes in each zone, among similar nodes that the same pods can use.

    Nodes are similar if they have the same taints and devices and belong to the same configured
    pool. Otherwise GPU nodes in one zone would keep general nodes of another zone, as soon as one
    pod tolerates the taint of the GPU nodes.

    The smallest reach of a node that spans several zones decides, because larger reaches contain
    nodes that its pods cannot use. Hostname and zone selectors of pods are ignored here: otherwise
    a pod that may use only two nodes would limit the comparison to these two. Nodes that no pod
    reaches need no balance. A zone without schedulable nodes still counts as a zone, so that the
    deciding reach does not change as nodes become schedulable or unschedulable.
    """

    def __init__(self, snapshot: ClusterSnapshot, numbers: Iterable[int]) -> None:
        """Count the nodes with these ids; they must be neither leaving nor virtual."""
        self._snapshot = snapshot
        classes = self._node_classes(numbers)
        found: defaultdict[_Area, set[str]] = defaultdict(set)
        for reaches, pool, zone, _ in classes:
            for reach in reaches:
                found[reach, pool].add(zone)
        spanning = {place for place, zones in found.items() if len(zones) > 1}
        merged = _MergedReaches(snapshot.reaches, {reach for reach, _ in spanning})
        self._sets = merged.sets
        self._counts: defaultdict[_Area, Counter[str]] = defaultdict(Counter)
        self.of_node: dict[int, ZoneClass] = {}
        """Class of each node whose zone is compared with others, by the id of the node."""
        for (reaches, pool, zone, schedulable), nodes in classes.items():
            if deciding := [reach for reach in reaches if (reach, pool) in spanning]:
                counts = self._counts[merged.narrowest(deciding), pool]
                alike = ZoneClass(pool, zone, schedulable, counts)
                self.of_node |= dict.fromkeys(nodes, alike)
        for place, members in enumerate(self._sets):
            for one, count in Counter(map(self.of_node.get, members)).items():
                if one is not None:
                    self._counts[place, one.pool][one.zone] += count * one.schedulable

    def _node_classes(self, numbers: Iterable[int]) -> Mapping[_NodeClass, list[int]]:
        snapshot = self._snapshot
        found: defaultdict[_NodeClass, list[int]] = defaultdict(list)
        # Many nodes have the same taints and resources, which take time to sort.
        similar: dict[object, _Pool] = {}
        for number in numbers:
            node = snapshot.node_order.nodes[number]
            if zone := node.labels.get(ZONE_LABEL):
                pool = snapshot.pool_names.get(node.name, "")
                traits = pool, node.taints, node.leaving_taints, node.allocatable.extended
                if traits not in similar:
                    similar[traits] = _similar(pool, node)
                schedulable = node.name not in snapshot.unschedulable_nodes
                reaches = snapshot.reaches.by_node[number]
                found[reaches, similar[traits], zone, schedulable].append(number)
        return found

    def count_removal(self, number: int) -> None:
        """Count the node as removed; its zone remains even without nodes."""
        if alike := self.of_node.get(number):
            for place, members in enumerate(self._sets):
                if number in members:
                    self._counts[place, alike.pool][alike.zone] -= alike.schedulable


def _similar(pool: str, node: Node) -> _Pool:
    usual = bare(node)
    taints = tuple(sorted(filter(is_blocking, usual.taints), key=repr))
    return pool, taints, tuple(sorted(usual.allocatable.devices))


class _MergedReaches:
    """The sets of nodes within which zones are balanced; each replaces one or more reaches."""

    def __init__(self, reaches: Reaches, numbers: Iterable[int]) -> None:
        wholes = {number: _nodes_without_location(reaches, number) for number in numbers}
        sets = {id(nodes): nodes for nodes in wholes.values()}
        places = {one: place for place, one in enumerate(sets)}
        self._place = {number: places[id(nodes)] for number, nodes in wholes.items()}
        self._order = {n: (len(nodes), reaches.all[n].key) for n, nodes in wholes.items()}
        self.sets = [frozenset(nodes) for nodes in sets.values()]
        """Ids of the nodes in each set."""

    def narrowest(self, reaches: Iterable[int]) -> int:
        """Return the smallest set that replaces one of these reaches."""
        return self._place[min(reaches, key=self._order.__getitem__)]


def _nodes_without_location(reaches: Reaches, number: int) -> tuple[int, ...]:
    """Return the nodes that the reach would have if its pods selected neither nodes nor zones."""
    merged: set[NodeConstraints] = set()
    for placing in reaches.templates_of(number):
        found = _without_location(placing)
        if found == placing:
            return reaches.all[number].nodes
        merged.add(found)
    return min(map(reaches.members, merged), key=lambda nodes: (len(nodes), nodes))


def _without_location(placing: NodeConstraints) -> NodeConstraints:
    """Return the node constraints without selectors for location labels."""
    selector = tuple(one for one in placing.node_selector if one[0] not in LOCATION_LABELS)
    return replace(placing, node_selector=selector, affinity=_terms(placing.affinity))


def _terms(terms: tuple[SelectorTerm, ...] | None) -> tuple[SelectorTerm, ...] | None:
    """Return the terms without location labels, or None if a term selects nothing else."""
    found = []
    for term in terms or ():
        labels = tuple(one for one in term.labels if one.key not in LOCATION_LABELS)
        if not labels and (term.labels or term.fields):
            return None  # without location labels the term matches every node
        found.append(SelectorTerm(labels))
    return terms and tuple(found)
