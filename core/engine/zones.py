"""Balance between zones: no removal lets one fall behind another by much."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from core.capacity.reaches import Reaches
from core.engine.snapshot import ClusterSnapshot
from core.fit.filters import ZONE_LABELS
from core.model.constraints import HOST_LABEL, NodeConstraints, SelectorTerm
from core.model.humanize import plural
from core.model.node import Node

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
ZONE_SKEW_MAX: Final = 1
"""By how many nodes a zone may fall behind the largest by a removal."""
SCHEDULABLE_NODE: Final = "node that takes pods", "nodes that take pods"
"""What counts, one and several."""
LOCATION_LABELS: Final = frozenset(ZONE_LABELS) | {HOST_LABEL}
"""Labels that say where a node is, or which, and nothing of what it is."""
_Area = tuple[int, str]
"""The number of a reach, or of a set of nodes; and the name of a pool, empty: of none."""
_NodeClass = tuple[tuple[int, ...], str, str]
"""The reaches of a node, its pool and its zone."""


class Zones:
    """The nodes of each zone that take pods, among those that the same pods can use.

    The narrowest reach of a node that spans several zones decides: the wider ones hold nodes that
    are of no use to its pods. Where each of its pods names nodes or zones, the reach is as merged
    as without these words, among the nodes of all reaches that span zones: two names say that
    each zone has one node, and would decide for the pods of others. What nobody reaches needs no
    balance. A zone stays one while none of its nodes takes pods, so which reach decides does not
    change as nodes come and go.
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
        pool = snapshot.config.budgets.pool_of(node.labels)
        reaches = snapshot.reaches.by_node[snapshot.node_order.ids[node.name]]
        return reaches, pool.name if pool else "", node.labels[ZONE_LABEL]

    def _is_schedulable(self, node: Node) -> bool:
        return node.name not in self._survey.unschedulable_nodes

    def explain(self, node: Node) -> str | None:
        """Say why the node's zone must not lose it, or None."""
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
        """Count the node as one that goes; a zone stays one when its last node has gone."""
        for zones in self._counts.get(node.name, ()):
            zones[node.labels[ZONE_LABEL]] -= self._is_schedulable(node)


class _MergedReaches:
    """The sets of nodes that are balanced, by the numbers of the reaches that they stand for."""

    def __init__(self, reaches: Reaches, numbers: Iterable[int]) -> None:
        wholes = {number: _nodes_without_location(reaches, number) for number in numbers}
        sets = {id(nodes): nodes for nodes in wholes.values()}
        places = {one: place for place, one in enumerate(sets)}
        self._place = {number: places[id(nodes)] for number, nodes in wholes.items()}
        self._order = {n: (len(nodes), reaches.all[n].key) for n, nodes in wholes.items()}
        self.of: defaultdict[int, list[int]] = defaultdict(list)
        """By node: the sets that it is in."""
        for place, nodes in enumerate(sets.values()):
            for node in nodes:
                self.of[node].append(place)

    def narrowest(self, reaches: Iterable[int]) -> int:
        """Return the smallest set among those of these reaches."""
        return self._place[min(reaches, key=self._order.__getitem__)]


def _nodes_without_location(reaches: Reaches, number: int) -> tuple[int, ...]:
    """Return the nodes of the reach if its pods named neither nodes nor zones."""
    merged: set[NodeConstraints] = set()
    for placing in reaches.templates_of(number):
        found = _without_location(placing)
        if found == placing:
            return reaches.all[number].nodes
        merged.add(found)
    return min(map(reaches.members, merged), key=lambda nodes: (len(nodes), nodes))


def _without_location(placing: NodeConstraints) -> NodeConstraints:
    """Return the template without what it says of where its nodes are."""
    selector = tuple(one for one in placing.node_selector if one[0] not in LOCATION_LABELS)
    return replace(placing, node_selector=selector, affinity=_terms(placing.affinity))


def _terms(terms: tuple[SelectorTerm, ...] | None) -> tuple[SelectorTerm, ...] | None:
    found = []
    for term in terms or ():
        labels = tuple(one for one in term.labels if one.key not in LOCATION_LABELS)
        if not labels and (term.labels or term.fields):
            return None  # the term is about places alone, so that without them any node meets it
        found.append(SelectorTerm(labels))
    return terms and tuple(found)
