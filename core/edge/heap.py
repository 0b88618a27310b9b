"""The collector of cycles, which stops every thread while it walks the heap."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Heap:
    """Who lets it grow now, in whatever thread or task, and whether anybody collected before."""

    def __init__(self) -> None:
        self._lock, self._inside, self._collecting = threading.Lock(), 0, False

    def begin(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._collecting = gc.isenabled()
                gc.disable()
                if self._collecting:
                    gc.collect()  # what is frozen as garbage stays; there is little by now

    def end(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._collecting:
                gc.freeze()
                gc.enable()


_HEAP = _Heap()


@contextmanager
def growing() -> Iterator[None]:
    """Let much be made inside that lives long: no collection walks it, then or later.

    What is dropped goes at once all the same, now and later, but for cycles that are made inside.
    """
    _HEAP.begin()
    try:
        yield
    finally:
        _HEAP.end()
