"""Index nodes by labels, taints and features, so that a filter checks all nodes at once.

A set of nodes is an integer with one bit for each node (core.placement.bits). A requirement is
compared with the distinct values of a label, not with every node: a pod may have a thousand
requirements.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

from core.model.constraints import Requirement, Toleration
from core.model.label_syntax import number_in
from core.model.node import Node, Taint
from core.placement.bits import bits_of
from core.placement.matching import is_blocking, matches_requirement, tolerates

FEW_NODES: Final = 8
"""Maximum number of nodes of a value that are stored as a list of places instead of bits. Most
values belong to one node."""
NAME_FIELD: Final = "metadata.name"


class ValueIndex:
    """Index of the nodes by one field: a label, the name, declared features or extended resources.

    A set of nodes is an int: bit n is set if it contains node n.
    """

    def __init__(self, size: int, values: Iterable[tuple[int, str]]) -> None:
        """Index *size* nodes by *values*, pairs of node id and a value of the node's field.

        Nodes without a pair have no value; nodes with several pairs have several values.
        """
        self._size, self._all = size, (1 << size) - 1
        self._places: dict[str, list[int]] = {}
        for place, value in values:
            self._places.setdefault(value, []).append(place)
        self._many: dict[str, int] = {}
        """Nodes as bits by value, for values of more than FEW_NODES nodes."""

    def matching(self, asked: Requirement) -> int:
        """Return the nodes whose value matches the requirement, as a bit set.

        The operators NotIn and DoesNotExist also match nodes without a value.
        """
        nodes = self._matching_values(asked)
        return nodes | (self._all ^ self.any) if matches_requirement(asked, {}) else nodes

    def _matching_values(self, asked: Requirement) -> int:
        match asked.operator:
            case "In":
                return self.one_of(asked.values)
            case "NotIn":
                return self.any ^ self.one_of(asked.values)
            case "Exists":
                return self.any
            case "Gt" | "Lt":
                return self._beyond(asked)
            case _:
                return 0

    def one_of(self, asked: Iterable[str]) -> int:
        """Return the nodes that have at least one of the values *asked*, as a bit set."""
        found, few = 0, list[int]()
        for value in asked:
            places = self._places.get(value, ())
            if len(places) <= FEW_NODES:
                few += places
                continue
            if value not in self._many:
                self._many[value] = bits_of(self._size, places)
            found |= self._many[value]
        return found | bits_of(self._size, few) if few else found

    @cached_property
    def any(self) -> int:
        """Return the nodes that have any value of the field, as a bit set."""
        return bits_of(self._size, chain.from_iterable(self._places.values()))

    def _beyond(self, asked: Requirement) -> int:
        limits = [number_in(text) for text in asked.values]
        if len(limits) != 1 or (limit := limits[0]) is None:
            return 0
        numbers, upward = self._ordered
        if asked.operator == "Gt":
            return upward[bisect_right(numbers, limit)]
        return upward[0] ^ upward[bisect_left(numbers, limit)]

    @cached_property
    def _ordered(self) -> tuple[list[int], list[int]]:
        """Return the integer values, ascending, and the nodes with each or a larger value.

        The nodes are bit sets; a 0 follows the last of them.
        """
        read = ((number_in(text), places) for text, places in self._places.items())
        found = sorted((number, places) for number, places in read if number is not None)
        upward = [0]
        for _, places in reversed(found):
            upward.append(upward[-1] | bits_of(self._size, places))
        return [number for number, _ in found], upward[::-1]


class Taints:
    """Index of distinct taints by key and value, which finds the taints that tolerations cover.

    It does not check every taint: each of thousands of tenants may have a taint of its own.
    """

    def __init__(self, taints: Iterable[Taint]) -> None:
        self._by_key: dict[str, dict[str, list[Taint]]] = {}
        for taint in taints:
            self._by_key.setdefault(taint.key, {}).setdefault(taint.value, []).append(taint)

    def covered(self, tolerations: Iterable[Toleration]) -> Iterator[Taint]:
        """Yield the taints that at least one toleration covers.

        A taint that several tolerations cover may be yielded several times.
        """
        for one in tolerations:
            values = [self._by_key[one.key]] if one.key in self._by_key else []
            values = values if one.key else list(self._by_key.values())
            for by_value in values:
                exact = one.operator != "Exists"
                near = [by_value.get(one.value, [])] if exact else by_value.values()
                for taint in chain.from_iterable(near):
                    if tolerates(one, taint):
                        yield taint


class _TaintIndex:
    """The nodes by their NoSchedule and NoExecute taints, as bit sets.

    Its size grows with the nodes, and with the distinct tolerations that are looked up.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        places: dict[tuple[Taint, ...], list[int]] = {}
        for place, node in enumerate(nodes):
            places.setdefault(tuple(filter(is_blocking, node.taints)), []).append(place)
        self._nodes = {taints: bits_of(len(nodes), found) for taints, found in places.items()}
        self._with_taint: dict[Taint, list[tuple[Taint, ...]]] = {}
        for taints in self._nodes:
            for taint in dict.fromkeys(taints):
                self._with_taint.setdefault(taint, []).append(taints)
        self._blocking = Taints(self._with_taint)
        self._tolerated: dict[tuple[Toleration, ...], int] = {}

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> int:
        """Return the nodes whose NoSchedule and NoExecute taints are all tolerated.

        The result is a bit set.
        """
        nodes = self._tolerated.get(tolerations)
        if nodes is None:
            covered = frozenset(self._blocking.covered(tolerations))
            near = chain.from_iterable(self._with_taint[taint] for taint in covered)
            nodes = self._nodes.get((), 0)
            for taints in dict.fromkeys(near):
                if covered.issuperset(taints):
                    nodes |= self._nodes[taints]
            self._tolerated[tolerations] = nodes
        return nodes


class NodeIndex:
    """Index of nodes by the fields that filters read, such as labels and taints.

    A set of nodes is an int: bit n is set if it contains the node at position n of *nodes*.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.all: Final = (1 << len(nodes)) - 1
        self._keys = set[str]().union(*(node.labels for node in nodes))
        self._labels: dict[str, ValueIndex] = {}
        self._absent = ValueIndex(len(nodes), ())
        self._by_function: dict[Callable[[Node], Iterable[str]], ValueIndex] = {}

    def label(self, key: str) -> ValueIndex:
        """Return the index of the nodes by their value of the label *key*.

        If no node has the label, the index is empty.
        """
        found = self._labels.get(key)
        if found is not None:
            return found
        # A key that no node has is not kept: pods may name any number of such keys.
        if key not in self._keys:
            return self._absent
        values = ((n, one.labels[key]) for n, one in enumerate(self._nodes) if key in one.labels)
        found = self._labels[key] = ValueIndex(len(self._nodes), values)
        return found

    def field(self, key: str) -> ValueIndex:
        """Return the index of the nodes by a field of matchFields in a node affinity.

        Only metadata.name is supported, as in the API; for all other keys the index is empty.
        """
        return self._names if key == NAME_FIELD else self._absent

    @cached_property
    def taints(self) -> _TaintIndex:
        """Return the index of the nodes by their NoSchedule and NoExecute taints."""
        return _TaintIndex(self._nodes)

    @cached_property
    def unschedulable(self) -> int:
        """Return the cordoned nodes, as a bit set."""
        places = (n for n, one in enumerate(self._nodes) if one.unschedulable)
        return bits_of(len(self._nodes), places)

    def by(self, values: Callable[[Node], Iterable[str]]) -> ValueIndex:
        """Return the index of the nodes by the texts that *values* returns for a node.

        Pass a module-level function, never a lambda: the index is cached by function.
        """
        index = self._by_function.get(values)
        if index is None:
            pairs = ((n, value) for n, node in enumerate(self._nodes) for value in values(node))
            index = self._by_function[values] = ValueIndex(len(self._nodes), pairs)
        return index

    @cached_property
    def _names(self) -> ValueIndex:
        return ValueIndex(len(self._nodes), ((n, one.name) for n, one in enumerate(self._nodes)))
