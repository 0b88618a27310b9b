"""Control Python's cyclic garbage collector, which stops every thread while it scans the heap."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THAW_EVERY: Final = 1000
"""Number of `growing()` blocks after which the whole heap is collected once.

A full collection takes a third of a second with 150,000 pods. With a reconciliation every ten
seconds it happens every three hours. Without it, reference cycles that are created in the blocks
would accumulate, such as 8 kB for each rejected list."""


class _Heap:
    """Nesting depth of `growing()` over all threads, and the collector state to restore."""

    def __init__(self) -> None:
        self._lock, self._inside, self._collecting = threading.Lock(), 0, False
        self._times = 0

    def begin(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._collecting = gc.isenabled()
                gc.disable()
                if self._collecting:
                    self._times += 1
                    if self._times % THAW_EVERY == 0:
                        gc.unfreeze()
                    gc.collect()  # garbage that is frozen is not freed before the next unfreeze

    def end(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._collecting:
                gc.freeze()
                gc.enable()


_HEAP = _Heap()


@contextmanager
def growing() -> Iterator[None]:
    """Exclude objects that are created in the `with` block from garbage collection for long.

    Use it for blocks that create many long-lived objects. Reference counting still frees unused
    objects. Reference cycles from a block are freed after at most THAW_EVERY further blocks.
    """
    _HEAP.begin()
    try:
        yield
    finally:
        _HEAP.end()
