"""Keep the objects of a kind sorted as in a Cluster while objects change."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

Object_ = TypeVar("Object_")

BY_NAME: Final = attrgetter("name")
BY_NAMESPACE_AND_NAME: Final = attrgetter("namespace", "name")


class SortedObjects(Generic[Object_]):
    """Objects sorted by a key that is unique among them, such as their name."""

    # A snapshot copies the sorted list. To sort 150,000 pods for each snapshot would take a
    # hundred times as long.

    def __init__(self, order: Callable[[Object_], Any], objects: Iterable[Object_]) -> None:
        self._order = order
        self._objects = sorted(objects, key=order)

    def update(self, before: Object_ | None, after: Object_ | None) -> None:
        """Add, replace or remove an object.

        *before*: the known object, or None to add an object. *after*: the object that replaces it,
        or None to remove the known object.
        """
        order, objects = self._order, self._objects
        if before is not None:
            key = order(before)
            index = bisect_left(objects, key, key=order)
            if after is not None and order(after) == key:
                objects[index] = after
                return
            del objects[index]
        if after is not None:
            insort(objects, after, key=order)

    def snapshot(self) -> tuple[Object_, ...]:
        """Return all known objects, sorted; later updates do not affect the result."""
        return tuple(self._objects)
