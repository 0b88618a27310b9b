"""Keep zones balanced: no removal may leave a zone far behind another one."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
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
_NodeClass = tuple[tuple[int, ...], _Pool, str]
"""Reaches, pool and zone of a node."""


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

    def __init__(self, snapshot: ClusterSnapshot, nodes_present: Iterable[Node]) -> None:
        self._survey = snapshot
        classes: dict[_NodeClass, list[Node]] = {}
        for node in nodes_present:
            if node.labels.get(ZONE_LABEL):
                classes.setdefault(self._class_of(node), []).append(node)
        found: defaultdict[_Area, set[str]] = defaultdict(set)
        for reaches, pool, zone in classes:
            for reach in reaches:
                found[reach, pool].add(zone)
        spanning = {place for place, zones in found.items() if len(zones) > 1}
        merged = _MergedReaches(snapshot.reaches, {reach for reach, _ in spanning})
        counts: defaultdict[_Area, Counter[str]] = defaultdict(Counter)
        self._counts: dict[str, list[Counter[str]]] = {}
        self._deciding_counts: dict[str, Counter[str]] = {}
        for (reaches, pool, zone), nodes in classes.items():
            if deciding := [reach for reach in reaches if (reach, pool) in spanning]:
                zones = counts[merged.narrowest(deciding), pool]
                for node in nodes:
                    self._deciding_counts[node.name] = zones
                    own = [
                        counts[one, pool] for one in merged.of[snapshot.node_order.ids[node.name]]
                    ]
                    self._counts[node.name] = own
                    for each in own:
                        each[zone] += self._is_schedulable(node)

    def _class_of(self, node: Node) -> _NodeClass:
        snapshot = self._survey
        pool, number = (
            snapshot.config.budgets.pool_of(node.labels),
            snapshot.node_order.ids[node.name],
        )
        usual = bare(snapshot.node_order.nodes[number])
        taints = tuple(sorted(filter(is_blocking, usual.taints), key=repr))
        similar = pool.name if pool else "", taints, tuple(sorted(usual.allocatable.devices))
        return snapshot.reaches.by_node[number], similar, node.labels[ZONE_LABEL]

    def _is_schedulable(self, node: Node) -> bool:
        return node.name not in self._survey.unschedulable_nodes

    def explain(self, node: Node) -> str | None:
        """Return a message if the zone of the node must not lose it, else None."""
        zones = self._deciding_counts.get(node.name)
        if zones is None or not self._is_schedulable(node):
            return None
        zone = node.labels[ZONE_LABEL]
        left = zones[zone] - 1
        most = max(count for other, count in zones.items() if other != zone)
        if left >= most - ZONE_SKEW_MAX:
            return None
        return f"zone {zone} would have {plural(left, *SCHEDULABLE_NODE)} and another zone {most}"

    def count_removal(self, node: Node) -> None:
        """Count the node as removed; its zone remains even without nodes."""
        for zones in self._counts.get(node.name, ()):
            zones[node.labels[ZONE_LABEL]] -= self._is_schedulable(node)


class _MergedReaches:
    """The sets of nodes within which zones are balanced; each replaces one or more reaches."""

    def __init__(self, reaches: Reaches, numbers: Iterable[int]) -> None:
        wholes = {number: _nodes_without_location(reaches, number) for number in numbers}
        sets = {id(nodes): nodes for nodes in wholes.values()}
        places = {one: place for place, one in enumerate(sets)}
        self._place = {number: places[id(nodes)] for number, nodes in wholes.items()}
        self._order = {n: (len(nodes), reaches.all[n].key) for n, nodes in wholes.items()}
        self.of: defaultdict[int, list[int]] = defaultdict(list)
        """Numbers of the sets that contain a node, by the id of the node."""
        for place, nodes in enumerate(sets.values()):
            for node in nodes:
                self.of[node].append(place)

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
