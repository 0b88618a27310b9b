"""Of which shapes nodes are, and how much more of what they are worth a pod takes on some.

What a node has that the pod does not ask for is taken as well where nobody else can use it: the
CPU beside GPUs, or half of the memory. So a pod takes of a node's worth what its largest share of
CPU, memory and devices is of it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from core.model.cost import taken
from core.model.resources import Resources
from extender.formulas import steps_dearer

BITS: Final = 5
"""By so many of their first binary digits amounts are told apart: machines of one kind differ by
some MiB from each other."""
TAKEN_MAX: Final = 8192
"""Of pods' requests on shapes that are remembered, some 300 bytes each."""
SHAPES_MAX: Final = 50_000
"""That are remembered, twice as many as nodes: a kubelet may tell of another one at any time."""
Number = int
"""A shape's; equal ones have one."""


class NodeShapes:
    """By node."""

    def __init__(self) -> None:
        self._of: dict[str, Number] = {}
        self._shapes: list[Resources] = []
        self._numbers: dict[Resources, Number] = {}

    def put(self, name: str, allocatable: Resources) -> None:
        """Note a node's shape."""
        if len(self._shapes) >= SHAPES_MAX:
            self._renumber()
        self._of[name] = self._number(_shape(allocatable))

    def _number(self, shape: Resources) -> Number:
        number = self._numbers.setdefault(shape, len(self._shapes))
        if number == len(self._shapes):
            self._shapes.append(shape)
        return number

    def _renumber(self) -> None:
        """Forget the shapes of which no node is any more."""
        used = {name: self._shapes[number] for name, number in self._of.items()}
        self._shapes, self._numbers = [], {}
        self._of = {name: self._number(shape) for name, shape in used.items()}

    def forget(self, name: str) -> None:
        """Compare a node with others no more."""
        self._of.pop(name, None)

    def of_each(self, names: Iterable[str]) -> Sequence[Number | None]:
        """Return the shapes of nodes; None: it is not known, or not compared."""
        return list(map(self._of.get, names))

    def steps(self, asked: Resources, shapes: Iterable[Number | None]) -> dict[Number | None, int]:
        """Return for each shape how many steps more the pod takes there than where it takes least.

        *shapes*: of nodes that would take it. One that is not compared loses none.
        """
        several = set(shapes)
        found: dict[Number | None, int] = {
            one: takes
            for one in several
            if one is not None and (takes := _taken(asked, self._shapes[one])) is not None
        }
        least = min(found.values(), default=0)
        return {one: steps_dearer(found.get(one, 0), least) for one in several}


_taken: Final = lru_cache(TAKEN_MAX)(taken)


def _shape(allocatable: Resources) -> Resources:
    devices = tuple(sorted(allocatable.devices.items()))
    return Resources(
        _first_digits(allocatable.cpu_millis),
        _first_digits(allocatable.memory_bytes),
        extended=devices,
    )


def _first_digits(amount: int) -> int:
    rest = max(amount.bit_length() - BITS, 0)
    return amount >> rest << rest
