"""Sets of nodes as whole numbers: one bit a node, that of the first one the lowest."""

from collections.abc import Iterable, Iterator


def bits_of(size: int, places: Iterable[int]) -> int:
    """Return the nodes at these places, of so many."""
    raw = bytearray(size // 8 + 1)
    for place in places:
        raw[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(raw, "little")


def set_bits(found: int) -> Iterator[int]:
    """Yield the places of the nodes, ascending."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest
