"""The garbage collector skips long-lived objects, and still collects everything else."""

import gc
import os
import platform
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.heap import THAW_EVERY, growing, release_memory


class Knot:
    """References itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_objects_made_while_growing_are_frozen() -> None:
    with growing():
        assert not gc.isenabled()
        lives: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert len(lives) == 1000
    assert not any(one is lives for one in gc.get_objects())


def test_collector_is_enabled_when_last_growing_ends() -> None:
    one, other = growing(), growing()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert not gc.isenabled()
    other.__exit__(None, None, None)
    assert gc.isenabled()


def test_cycles_made_before_and_after_growing_are_collected() -> None:
    before = weakref.ref(Knot())
    with growing():
        assert before() is None
    later = weakref.ref(Knot())
    gc.collect()
    assert later() is None


def test_cycles_made_while_growing_are_bounded() -> None:
    """A stored exception is such a cycle; each list of an absent kind makes one."""
    made: list[weakref.ref[Knot]] = []
    for _ in range(2 * THAW_EVERY):
        with growing():
            made.append(weakref.ref(Knot()))
    assert sum(one() is not None for one in made) <= THAW_EVERY


def test_collector_is_not_enabled_when_it_was_disabled_before() -> None:
    gc.disable()
    try:
        with growing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_free_memory_below_used_memory_is_returned() -> None:
    blocks = [bytes(2000) for _ in range(20_000)]
    last = blocks[-1]
    del blocks
    before = resident_bytes()
    release_memory()
    assert before - resident_bytes() > 20_000_000
    assert len(last) == 2000
