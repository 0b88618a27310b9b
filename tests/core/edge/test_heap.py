"""What lives long is not walked by the collector of cycles, and everything else still is."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from core.edge.heap import THAW_EVERY, growing


class Knot:
    """Holds on to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_made_inside_is_not_walked_afterwards() -> None:
    with growing():
        assert not gc.isenabled()
        lives: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert len(lives) == 1000
    assert not any(one is lives for one in gc.get_objects())


def test_who_ends_first_lets_the_others_go_on() -> None:
    one, other = growing(), growing()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert not gc.isenabled()
    other.__exit__(None, None, None)
    assert gc.isenabled()


def test_garbage_of_before_is_collected_and_a_cycle_of_later_too() -> None:
    before = weakref.ref(Knot())
    with growing():
        assert before() is None
    later = weakref.ref(Knot())
    gc.collect()
    assert later() is None


def test_cycles_that_are_made_inside_do_not_pile_up() -> None:
    """As exceptions are that somebody keeps: a list of a kind that is not there makes one."""
    made: list[weakref.ref[Knot]] = []
    for _ in range(2 * THAW_EVERY):
        with growing():
            made.append(weakref.ref(Knot()))
    assert sum(one() is not None for one in made) <= THAW_EVERY


def test_whoever_collects_nothing_is_left_so() -> None:
    gc.disable()
    try:
        with growing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
