"""Control when Python collects garbage, and when the process returns free memory."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

THAW_EVERY: Final = 1000
"""Number of `growing()` blocks after which the whole heap is collected once.

A full collection takes a third of a second with 150,000 pods. With a reconciliation every ten
seconds it happens every three hours. Without it, reference cycles that are created in the blocks
would accumulate, such as 8 kB for each rejected list."""


class _Heap:
    """A switch for Python's garbage collector, which is off while any thread is in `growing()`."""

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
    """Postpone garbage collection of the objects that are created in the `with` block.

    Use it for blocks that create many long-lived objects. Reference counting still frees unused
    objects. Reference cycles from a block are freed after at most THAW_EVERY further blocks.
    """
    _HEAP.begin()
    try:
        yield
    finally:
        _HEAP.end()


def release_memory() -> None:
    """Return the free memory of the process to the operating system, if the C library is glibc.

    Call it after work that needs much memory for a short time, such as a list or a plan.
    """
    # By itself glibc returns free memory only at the end of its heap, so one object there retains
    # all free memory before it. With the environment variable MALLOC_TRIM_THRESHOLD_, glibc would
    # return memory after every page of a list, which makes a list a quarter slower.
    if (trim := _malloc_trim()) is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    from ctypes import CDLL  # noqa: PLC0415 commands do not need it

    return getattr(CDLL(None), "malloc_trim", None)
