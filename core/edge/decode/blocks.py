"""Objects in order, of which whoever looks keeps a moment without a copy of all.

A copy of 150,000 references takes three milliseconds in which no other thread runs, since every
object is touched. Here a change makes one block anew, and a moment is the blocks that there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final

BLOCK_MAX: Final = 256
"""Objects of a block; a larger one becomes two."""

Moment = tuple[tuple[Any, ...], ...]
"""Blocks, none of them empty; one that has not changed since an earlier moment is the same."""


class Blocks:
    """Objects by a key that no two have; the blocks are never written to."""

    def __init__(self, known: Mapping[str, Any], key: Callable[[Any], str]) -> None:
        """Begin with what is *known* by key."""
        self._key = key
        ordered = [known[one] for one in sorted(known)]
        self._blocks = [
            tuple(ordered[start : start + BLOCK_MAX // 2])
            for start in range(0, len(ordered), BLOCK_MAX // 2)
        ]

    def moment(self) -> Moment:
        """Return all as they stand."""
        return tuple(self._blocks)

    def put(self, one: Any) -> None:  # noqa: ANN401 any object that has a key
        """Add one, or put it in the place of the one that has its key."""
        at, place, there = self._place(self._key(one))
        block = self._blocks[at] if self._blocks else ()
        made = (*block[:place], one, *block[place + there :])
        half = len(made) // 2 if len(made) > BLOCK_MAX else len(made)
        self._blocks[at : at + 1] = [part for part in (made[:half], made[half:]) if part]

    def drop(self, key: str) -> None:
        """Take away the one that has the key, if there is one."""
        at, place, there = self._place(key)
        if there:
            block = self._blocks[at]
            left = (*block[:place], *block[place + 1 :])
            self._blocks[at : at + 1] = [left] if left else []

    def _place(self, key: str) -> tuple[int, int, bool]:
        """Return the block where the key belongs, the place in it, and whether it is there."""
        at = max(0, bisect_right(self._blocks, key, key=lambda block: self._key(block[0])) - 1)
        block = self._blocks[at] if self._blocks else ()
        place = bisect_left(block, key, key=self._key)
        return at, place, place < len(block) and self._key(block[place]) == key


def in_order(moment: Moment) -> list[Any]:
    """Return the objects; other threads may run after each block."""
    return list(chain.from_iterable(block for block in moment))
