"""Kinds of nodes: those that no template can tell apart, by what the filters read."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress

from core.fit.bits import set_bits
from core.fit.filters import FILTERS, LABEL, VOLUME_FILTERS, Filters, VolumeFilter, value_of
from core.fit.index import NodeIndex
from core.model.constraints import NodeConstraints, VolumeTopology, without_volumes
from core.model.node import Node


class NodeClasses:
    """Each template is asked once a kind, not once a node."""

    def __init__(self, nodes: Sequence[Node], placings: Iterable[NodeConstraints]) -> None:
        labels = set[str]().union(*(node.labels for node in nodes))
        # Volumes do not make kinds: `_reaching` asks about each volume on its own.
        filters = [one for one in FILTERS if not isinstance(one, VolumeFilter)]
        fields = sorted(
            {
                field
                for placing in placings
                for one in filters
                for field in one.reads(placing)
                # A label that no node has makes no difference, and pods may name any label.
                if field[0] != LABEL or field[1] in labels
            }
        )
        kinds: dict[tuple[object, ...], int] = {}
        self._nodes = nodes
        self._kind_of = [
            kinds.setdefault(tuple(value_of(node, one) for one in fields), len(kinds))
            for node in nodes
        ]
        self._like: list[Node] = []
        """One node of each kind."""
        for node, kind in zip(nodes, self._kind_of, strict=True):
            if kind == len(self._like):
                self._like.append(node)
        self._index = NodeIndex(self._like)
        self._ids = list(range(len(nodes)))
        """One object for each id: templates may make as many lists as there are of them."""
        self._lists: dict[int, list[int]] = {}
        self._admitted: dict[NodeConstraints, frozenset[int]] = {}
        self._reached: dict[VolumeTopology, frozenset[int]] = {}

    def allowing(self, placing: NodeConstraints) -> list[int]:
        """Return the ids of the nodes that admit the template, ascending.

        Templates that the same nodes admit share one list: do not change it.
        """
        if not placing.volumes:
            return self.allowing_by(placing, FILTERS)
        # The pods of a StatefulSet with local volumes have a template each. What these templates
        # have in common is asked once, and each volume is asked about once.
        without = without_volumes(placing)
        admitted = self._admitted.get(without)
        if admitted is None:
            admitted = self._admitted[without] = frozenset(self.allowing_by(without, FILTERS))
        return sorted(admitted.intersection(*map(self._reaching, placing.volumes)))

    def allowing_by(self, placing: NodeConstraints, filters: Filters) -> list[int]:
        """Return the ids of the nodes that admit a template without volumes, by these filters.

        Templates that the same nodes admit share one list: do not change it.
        """
        kinds = self._kinds(placing, filters)
        found = self._lists.get(kinds)
        if found is None:
            digits = f"{kinds:0{len(self._like)}b}"[::-1].encode()
            admits = map(digits.replace(b"0", b"\0").__getitem__, self._kind_of)
            found = self._lists[kinds] = list(compress(self._ids, admits))
        return found

    def allows(self, placing: NodeConstraints, kinds: int, filters: Filters) -> bool:
        """Report whether all of the kinds admit a template without volumes, by these filters."""
        return not kinds & ~self._kinds(placing, filters)

    def of(self, nodes: Iterable[int]) -> int:
        """Return the kinds of the nodes, to be asked about with `allows`."""
        found = {self._kind_of[node] for node in nodes}
        return sum(1 << kind for kind in found)

    def _kinds(self, placing: NodeConstraints, filters: Filters) -> int:
        kinds = self._index.all
        for one in filters:
            if not kinds:
                break
            kinds &= one.feasible_nodes(self._index, placing)
        return kinds

    def _reaching(self, volume: VolumeTopology) -> frozenset[int]:
        """Return the ids of the nodes that can use the volume."""
        found = self._reached.get(volume)
        if found is None:
            index = self._each_node
            nodes = index.all
            for one in VOLUME_FILTERS:
                nodes &= one.nodes_of_volume(index, volume)
            found = self._reached[volume] = frozenset(set_bits(nodes))
        return found

    @cached_property
    def _each_node(self) -> NodeIndex:
        # Not an index of kinds: local volumes would make every node a kind of its own.
        return NodeIndex(self._nodes)
