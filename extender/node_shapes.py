"""Group nodes with equal allocatable resources, and compute how much of a node a pod takes.

A pod can make resources useless that it does not request: a pod that takes all CPU of a node
blocks its GPUs. So a pod takes the largest of its shares of the node's CPU, memory and devices.
This share of the node's cost is compared between nodes. The cost of a node is its allocatable CPU,
memory and GPUs, converted to millicores (core.model.cost).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from core.model.cost import taken
from core.model.resources import Resources
from extender.formulas import steps_lost
from kube.decode.byte_lru import ByteBoundedCache

BITS: Final = 5
"""Number of leading binary digits of CPU and memory that are compared.

Further digits are ignored, because machines of one type differ by some MiB."""
NO_FIT: Final = -1
"""Value instead of a share if the pod does not fit on the empty node."""
AMOUNTS_BYTES: Final = 64
"""Size of a cache key without the names of its extended resources, in bytes."""
ShapeNumber = int
"""Number of a shape; equal shapes have equal numbers, and no number is used again."""


class NodeShapes:
    """The shape of each unmarked node: its allocatable CPU and memory, rounded, and its devices.

    Equal shapes have one number. A shape that no node has any more is removed.
    """

    # A kubelet may report another shape at any time, with 256 resource names of 317 characters.

    def __init__(self) -> None:
        self._by_node: dict[str, ShapeNumber] = {}
        self._shapes: dict[ShapeNumber, Resources] = {}
        self._numbers: dict[Resources, ShapeNumber] = {}
        self._nodes: Counter[ShapeNumber] = Counter()
        """Number of nodes of each shape."""
        self._next = 0
        self._shares = ByteBoundedCache[tuple[Resources, ShapeNumber], int]()
        """Share of the node's cost that a pod takes, by requests and shape; or NO_FIT."""

    def put(self, name: str, allocatable: Resources) -> None:
        """Store the shape of the node *name*, in place of its earlier shape."""
        shape = _shape(allocatable)
        number, before = self._numbers.get(shape), self._by_node.get(name)
        if number is None:
            number = self._numbers[shape] = self._next
            self._shapes[number] = shape
            self._next += 1
        if number != before:  # few events change the shape of a node
            self._nodes[number] += 1
            self.forget(name)
            self._by_node[name] = number

    def forget(self, name: str) -> None:
        """Remove a node, so that it is not compared with others; an unknown name is ignored."""
        number = self._by_node.pop(name, None)
        if number is None:
            return
        self._nodes[number] -= 1
        if not self._nodes[number]:
            del self._nodes[number], self._numbers[self._shapes.pop(number)]

    def of_nodes(self, names: Iterable[str]) -> Sequence[ShapeNumber | None]:
        """Return the number of each node's shape, in the order of *names*; None if unknown."""
        return list(map(self._by_node.get, names))

    def steps(
        self, requests: Resources, shapes: Iterable[ShapeNumber | None]
    ) -> dict[ShapeNumber | None, int]:
        """Return, by shape, the points that a node loses because the pod takes more of its cost.

        *shapes*: shapes of the nodes of the call; their cheapest shape for the pod is the
        standard, and loses no points. None (an unknown node) and shapes too small for the pod lose
        no points either.
        """
        numbers = set(shapes)
        shares: dict[ShapeNumber | None, int] = {
            number: share
            for number in numbers
            if number is not None and (share := self._share(requests, number)) != NO_FIT
        }
        least_share = min(shares.values(), default=0)
        return {number: steps_lost(shares.get(number, 0), least_share) for number in numbers}

    def _share(self, requests: Resources, number: ShapeNumber) -> int:
        key = requests, number
        share = self._shares[key]
        if share is not None:
            return share
        size = AMOUNTS_BYTES + sum(len(name) for name, _ in requests.extended)
        return self._shares.compute(key, lambda: _taken(requests, self._shapes[number]), size)


def _taken(requests: Resources, shape: Resources) -> int:
    share = taken(requests, shape)
    return NO_FIT if share is None else share


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
