"""Cache values up to a limit of bytes, because users of the cluster choose the keys."""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

KEPT_BYTES_MAX: Final = 16 * 1024**2
"""Maximum charge of a cache: the estimated memory of its entries. It is enough for the constraints
of thousands of ordinary pod templates."""
KEY_BYTES_MAX: Final = 8 * 1024
"""Maximum size of the JSON of an entry; values decoded from larger JSON are not cached."""
ENTRY_BYTES: Final = 512
"""Bytes charged for every entry: dict, tuples and object headers."""
MADE_OF_BYTE: Final = 12
"""Bytes charged for each byte of JSON: the byte itself, and the values decoded from it."""
PART_BYTES: Final = 8
"""Size of a tuple in a key, and of any part of a key that is not text."""

Key_ = TypeVar("Key_", bound=Hashable)
Value_ = TypeVar("Value_")


class ByteBoundedCache(dict[Key_, Value_ | None]):
    """A cache with a limit on the estimated memory of its entries, in two generations.

    When the young generation is full, it replaces the old generation. `cache[key]` returns a young
    entry or None, as fast as a dict; `compute` also looks for an old entry.
    """

    __slots__ = ("_charged", "_half", "_old")

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        super().__init__()
        self._half = bytes_max // 2
        self._charged = 0
        self._old: dict[Key_, Value_ | None] = {}

    def __missing__(self, key: Key_) -> None:
        return None

    def compute(self, key: Key_, make: Callable[[], Value_], size: int | None = None) -> Value_:
        """Return the cached value for *key*; if there is none, create it with *make* and cache it.

        *size*: size of the JSON of the value in bytes; None: the size of the key. A value with
        more than KEY_BYTES_MAX is not cached.
        """
        old = self._old.get(key)
        value = make() if old is None else old
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
        """Return one shared object for equal values; *size*: size of its JSON in bytes."""
        return self[value] or self.compute(value, lambda: value, size)


def bytes_in(key: object) -> int:
    """Return the approximate size in bytes of the JSON from which a key was created."""
    if isinstance(key, bytes | str):
        return len(key)
    return PART_BYTES + (sum(map(bytes_in, key)) if isinstance(key, tuple) else 0)
