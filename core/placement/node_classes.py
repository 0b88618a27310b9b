"""Group nodes that are equal in all fields that filters read for the given constraints."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress

from core.model.constraints import NodeConstraints, VolumeTopology, without_volumes
from core.model.node import Node
from core.placement.bits import set_bits
from core.placement.filters import FILTERS, LABEL, VOLUME_FILTERS, Filters, VolumeFilter, value_of
from core.placement.node_index import NodeIndex


class NodeClasses:
    """Classes of nodes with equal fields, so that filters check each class instead of each node.

    The fields are those that the filters read for the given node constraints, such as labels.
    """

    def __init__(self, nodes: Sequence[Node], all_constraints: Iterable[NodeConstraints]) -> None:
        labels = set[str]().union(*(node.labels for node in nodes))
        # Volumes do not define classes: `_nodes_of_volume` checks each volume separately.
        filters = [one for one in FILTERS if not isinstance(one, VolumeFilter)]
        fields = sorted(
            {
                field
                for node_constraints in all_constraints
                for one in filters
                for field in one.reads(node_constraints)
                # A label that no node has makes no difference, and pods may name any label.
                if field[0] != LABEL or field[1] in labels
            }
        )
        classes: dict[tuple[object, ...], int] = {}
        self._nodes = nodes
        self._class_of = [
            classes.setdefault(tuple(value_of(node, one) for one in fields), len(classes))
            for node in nodes
        ]
        self._representatives: list[Node] = []
        """One node of each class."""
        for node, node_class in zip(nodes, self._class_of, strict=True):
            if node_class == len(self._representatives):
                self._representatives.append(node)
        self._index = NodeIndex(self._representatives)
        self._ids = list(range(len(nodes)))
        """One integer object for each id, shared by all lists: there may be thousands of lists."""
        self._lists: dict[int, list[int]] = {}
        self._admitted: dict[NodeConstraints, frozenset[int]] = {}
        self._reached: dict[VolumeTopology, frozenset[int]] = {}

    def allowing(self, node_constraints: NodeConstraints) -> list[int]:
        """Return the ids of the nodes that all filters admit for these constraints, ascending.

        Constraints that admit the same nodes may share one list: do not change it.
        """
        if not node_constraints.volumes:
            return self.allowing_by(node_constraints, FILTERS)
        # Each pod of a StatefulSet with local volumes has constraints of its own. Their common
        # part is checked once, and each volume is checked once.
        without = without_volumes(node_constraints)
        admitted = self._admitted.get(without)
        if admitted is None:
            admitted = self._admitted[without] = frozenset(self.allowing_by(without, FILTERS))
        return sorted(admitted.intersection(*map(self._nodes_of_volume, node_constraints.volumes)))

    def allowing_by(self, node_constraints: NodeConstraints, filters: Filters) -> list[int]:
        """Return the ids of the nodes that all of *filters* admit, ascending.

        *node_constraints* must not contain volumes. Constraints that admit the same nodes share
        one list: do not change it.
        """
        classes = self._classes(node_constraints, filters)
        found = self._lists.get(classes)
        if found is None:
            digits = f"{classes:0{len(self._representatives)}b}"[::-1].encode()
            admits = map(digits.replace(b"0", b"\0").__getitem__, self._class_of)
            found = self._lists[classes] = list(compress(self._ids, admits))
        return found

    def allows(self, node_constraints: NodeConstraints, classes: int, filters: Filters) -> bool:
        """Report whether all of *filters* admit all nodes of *classes*, a bit set of `classes_of`.

        *node_constraints* must not contain volumes.
        """
        return not classes & ~self._classes(node_constraints, filters)

    def classes_of(self, nodes: Iterable[int]) -> int:
        """Return the classes of the nodes as a bit set, for `allows`; bit n stands for class n."""
        found = {self._class_of[node] for node in nodes}
        return sum(1 << node_class for node_class in found)

    def _classes(self, node_constraints: NodeConstraints, filters: Filters) -> int:
        classes = self._index.all
        for one in filters:
            if not classes:
                break
            classes &= one.feasible_nodes(self._index, node_constraints)
        return classes

    def _nodes_of_volume(self, volume: VolumeTopology) -> frozenset[int]:
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
        # This indexes nodes, not classes: with local volumes every node would be its own class.
        return NodeIndex(self._nodes)
