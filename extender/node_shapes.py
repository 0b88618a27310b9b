"""Classes of nodes with equal allocatable resources, and the share of a node that a pod takes.

A pod can make resources of a node useless that it does not request: the CPU beside GPUs, or half
of the memory. So a pod takes its largest share of CPU, memory and devices of a node's value.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from core.model.cost import taken
from core.model.resources import Resources
from extender.formulas import steps_lost

BITS: Final = 5
"""Leading binary digits of amounts that are compared: machines of one type differ by some MiB."""
SHARES_MAX: Final = 8192
"""Pairs of pod requests and shape in the cache, about 300 bytes each."""
SHAPES_MAX: Final = 50_000
"""Shapes in memory, twice the number of nodes: a kubelet may report another shape at any time."""
ShapeNumber = int
"""Number of a shape; equal shapes have equal numbers."""


class NodeShapes:
    """Shapes of nodes, by node name."""

    def __init__(self) -> None:
        self._by_node: dict[str, ShapeNumber] = {}
        self._shapes: list[Resources] = []
        self._numbers: dict[Resources, ShapeNumber] = {}

    def put(self, name: str, allocatable: Resources) -> None:
        """Store the shape of a node."""
        if len(self._shapes) >= SHAPES_MAX:
            self._renumber()
        self._by_node[name] = self._number(_shape(allocatable))

    def _number(self, shape: Resources) -> ShapeNumber:
        number = self._numbers.setdefault(shape, len(self._shapes))
        if number == len(self._shapes):
            self._shapes.append(shape)
        return number

    def _renumber(self) -> None:
        """Drop shapes that no node has any more."""
        used = {name: self._shapes[number] for name, number in self._by_node.items()}
        self._shapes, self._numbers = [], {}
        self._by_node = {name: self._number(shape) for name, shape in used.items()}

    def forget(self, name: str) -> None:
        """Drop the node, so that it is not compared with others."""
        self._by_node.pop(name, None)

    def of_nodes(self, names: Iterable[str]) -> Sequence[ShapeNumber | None]:
        """Return the shapes of nodes; None for a node that is unknown or not compared."""
        return list(map(self._by_node.get, names))

    def steps(
        self, requests: Resources, shapes: Iterable[ShapeNumber | None]
    ) -> dict[ShapeNumber | None, int]:
        """Return for each shape the steps that the pod loses compared with the best shape.

        *shapes* are those of feasible nodes. A node that is not compared (None) loses no steps.
        """
        numbers = set(shapes)
        shares: dict[ShapeNumber | None, int] = {
            number: share
            for number in numbers
            if number is not None and (share := _share(requests, self._shapes[number])) is not None
        }
        least_share = min(shares.values(), default=0)
        return {number: steps_lost(shares.get(number, 0), least_share) for number in numbers}


_share: Final = lru_cache(SHARES_MAX)(taken)


def _shape(allocatable: Resources) -> Resources:
    devices = tuple(sorted(allocatable.devices.items()))
    return Resources(
        _first_digits(allocatable.cpu_millis),
        _first_digits(allocatable.memory_bytes),
        extended=devices,
    )


def _first_digits(amount: int) -> int:
    shift = max(amount.bit_length() - BITS, 0)
    return amount >> shift << shift
