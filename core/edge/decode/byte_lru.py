"""Caches that are bounded by bytes: their keys are what tenants send."""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

KEPT_BYTES_MAX: Final = 16 * 1024**2
"""Of each cache, by what its entries are charged for; of common templates that is thousands."""
KEY_BYTES_MAX: Final = 8 * 1024
"""What is made of more bytes is made anew each time."""
ENTRY_BYTES: Final = 512
"""What an entry is charged for beside its bytes: dict, tuples, and the objects' own heads."""
MADE_OF_BYTE: Final = 12
"""What is made of one byte of JSON takes about so many, the byte itself among them."""
PART_BYTES: Final = 8
"""Of a tuple in a key, or of anything else there that is no text, beside what it holds."""

Key_ = TypeVar("Key_", bound=Hashable)
Value_ = TypeVar("Value_")


class ByteBoundedCache(dict[Key_, Value_ | None]):
    """Values by key, in two generations: when the young one is full, it takes the old one's place.

    `kept[key]` is None where there is no young entry; a look-up is that of a dict.
    """

    __slots__ = ("_charged", "_half", "_old")

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        super().__init__()
        self._half = bytes_max // 2
        self._charged = 0
        self._old: dict[Key_, Value_ | None] = {}

    def __missing__(self, key: Key_) -> None:
        return None

    def made(self, key: Key_, make: Callable[[], Value_], size: int | None = None) -> Value_:
        """Return the old entry, or a new one; it is young again.

        *size*: of how many bytes it is made; None: of those in the key.
        """
        found = self._old.get(key)
        value = make() if found is None else found
        size = bytes_in(key) if size is None else size
        if size > KEY_BYTES_MAX:
            return value
        charge = ENTRY_BYTES + size * MADE_OF_BYTE
        if self._charged + charge > self._half:
            self._old = dict(self)
            self.clear()
            self._charged = 0
        self._charged += charge
        self[key] = value
        return value

    def same(self: "ByteBoundedCache[Key_, Key_]", value: Key_, size: int) -> Key_:
        """Return one object for equal ones, which were made of so many bytes."""
        return self[value] or self.made(value, lambda: value, size)


def bytes_in(key: object) -> int:
    """Return about how many bytes of JSON a key is made of."""
    if isinstance(key, bytes | str):
        return len(key)
    return PART_BYTES + (sum(map(bytes_in, key)) if isinstance(key, tuple) else 0)
