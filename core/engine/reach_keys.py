"""A reach that other words name now: what is remembered of it moves along; pure.

A reach is named by the shortest words in which some pod asks for its nodes. Anybody may ask for
the same nodes in shorter ones, and whoever asked so may leave: what has happened there stays true.
Nodes come and go all the time, so they are compared as far as both looks have seen them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.capacity.reaches import Reach

RenamedKeys = Mapping[str, str]
"""By the key that it had: the key that a reach has."""


class ReachKeys(NamedTuple):
    """The reaches of a look."""

    nodes: Sequence[str] = ()
    """All nodes, by id."""
    reaches: Mapping[str, tuple[int, ...]] = {}
    """By key."""

    @staticmethod
    def of(nodes: Sequence[str], reaches: Iterable[Reach]) -> "ReachKeys":
        """Note them."""
        return ReachKeys(nodes, {one.key: one.nodes for one in reaches})

    def within(self, key: str, nodes: frozenset[str]) -> frozenset[str]:
        """Return those of the reach's nodes."""
        return nodes.intersection(self.nodes[number] for number in self.reaches[key])


def renamed(before: ReachKeys, now: ReachKeys) -> RenamedKeys:
    """Return which reaches of the look *before* have another key now.

    Where several had the same nodes, the largest of then becomes the largest of now.
    """
    gone = before.reaches.keys() - now.reaches.keys()
    new = now.reaches.keys() - before.reaches.keys()
    if not gone or not new:
        return {}
    both = frozenset(before.nodes).intersection(now.nodes)
    known: dict[frozenset[str], list[str]] = {}
    for key in _largest_first(before, gone):
        known.setdefault(before.within(key, both), []).append(key)
    known.pop(frozenset(), None)
    found: dict[str, str] = {}
    for key in _largest_first(now, new):
        if names := known.get(now.within(key, both)):
            found[names.pop(0)] = key
    return found


def _largest_first(words: ReachKeys, keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (-len(words.reaches[key]), key))
