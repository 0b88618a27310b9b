"""Objects of a kind in the order of a Cluster, updated with each change."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

Object_ = TypeVar("Object_")

BY_NAME: Final = attrgetter("name")
BY_NAMESPACE_AND_NAME: Final = attrgetter("namespace", "name")


class SortedObjects(Generic[Object_]):
    """Objects sorted by a key that is different for each of them."""

    # A snapshot copies the list. To sort 150,000 pods for each snapshot would take a hundred times
    # as long.

    def __init__(self, order: Callable[[Object_], Any], objects: Iterable[Object_]) -> None:
        self._order = order
        self._objects = sorted(objects, key=order)

    def update(self, before: Object_ | None, after: Object_ | None) -> None:
        """Replace an object; None: there was or is no object."""
        order, objects = self._order, self._objects
        if before is not None:
            place = order(before)
            index = bisect_left(objects, place, key=order)
            if after is not None and order(after) == place:
                objects[index] = after
                return
            del objects[index]
        if after is not None:
            insort(objects, after, key=order)

    def snapshot(self) -> tuple[Object_, ...]:
        """Return the objects in their order."""
        return tuple(self._objects)
