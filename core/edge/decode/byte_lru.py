"""Caches that are limited by bytes, because tenants choose their keys."""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

KEPT_BYTES_MAX: Final = 16 * 1024**2
"""Maximum charge of a cache; enough for thousands of ordinary templates."""
KEY_BYTES_MAX: Final = 8 * 1024
"""Maximum size of the source of an entry; values from larger sources are not cached."""
ENTRY_BYTES: Final = 512
"""Charge of an entry in addition to its bytes: dict, tuples and object headers."""
MADE_OF_BYTE: Final = 12
"""Memory that the values from one byte of JSON take, including the byte itself."""
PART_BYTES: Final = 8
"""Charge of a tuple in a key, and of any part of a key that is not text."""

Key_ = TypeVar("Key_", bound=Hashable)
Value_ = TypeVar("Value_")


class ByteBoundedCache(dict[Key_, Value_ | None]):
    """Values by key in two generations; when the young generation is full, it becomes the old one.

    `cache[key]` is None without a young entry; the lookup costs as much as that of a dict.
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
        """Return the old entry or a new one, and make it young.

        *size*: bytes of the source of the value; None: the bytes of the key.
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
        """Return one shared object for equal values; *size*: bytes of the source."""
        return self[value] or self.made(value, lambda: value, size)


def bytes_in(key: object) -> int:
    """Return the approximate size of the JSON from which a key was created."""
    if isinstance(key, bytes | str):
        return len(key)
    return PART_BYTES + (sum(map(bytes_in, key)) if isinstance(key, tuple) else 0)
