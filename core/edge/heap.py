"""The collector of cycles, which stops every thread while it walks the heap."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THAW_EVERY: Final = 1000
"""After so many times all is walked once, a third of a second with 150,000 pods: cycles that were
made inside would pile up, 8 kB for each list that is refused. With a pass each ten seconds: after
three hours."""


class _Heap:
    """Who lets it grow now, in whatever thread or task, and whether anybody collected before."""

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
                    gc.collect()  # what is frozen as garbage stays until then

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

    What is dropped goes at once all the same, now and later, but for cycles that are made inside:
    they go after THAW_EVERY times at the latest.
    """
    _HEAP.begin()
    try:
        yield
    finally:
        _HEAP.end()
