"""Represent sets of nodes as integers: one bit for each node, the lowest for the first one."""

from collections.abc import Iterable, Iterator


def bits_of(size: int, places: Iterable[int]) -> int:
    """Return the set of the nodes at these places, out of *size* nodes."""
    raw = bytearray(size // 8 + 1)
    for place in places:
        raw[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(raw, "little")


def set_bits(found: int) -> Iterator[int]:
    """Yield the places of the nodes in the set, ascending."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest
