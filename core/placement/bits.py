"""Represent sets of nodes as integers: one bit for each node, the lowest for the first one."""

from collections.abc import Iterable, Iterator


def bits_of(size: int, places: Iterable[int]) -> int:
    """Return an integer in which exactly the bits at *places* are set.

    *places*: ids of the nodes in the set. *size*: a number above all places.
    """
    raw = bytearray(size // 8 + 1)
    for place in places:
        raw[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(raw, "little")


def set_bits(nodes: int) -> Iterator[int]:
    """Yield the positions of the bits that are set in *nodes*, ascending: the ids of the nodes."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest
