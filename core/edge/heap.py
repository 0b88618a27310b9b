"""The collector of cycles, which stops every thread while it walks the heap."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def growing() -> Iterator[None]:
    """Collect nothing inside: where much is made that lives, walking it again and again is waste.

    What is dropped there goes at once all the same, but for cycles: those wait until it is over.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
