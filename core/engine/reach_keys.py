"""Keep history when the key of a reach changes.

The key of a reach is the shortest text of the constraints that select its nodes. It changes when a
pod selects the same nodes in a shorter way, or when the last such pod is deleted. The history of
these nodes stays valid. Since nodes come and go, reaches are compared by the nodes that exist in
both snapshots.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.placement.reaches import Reach

RenamedKeys = Mapping[str, str]
"""Current key of a reach by its previous key."""


class ReachKeys(NamedTuple):
    """The reaches of a snapshot, with the names of their nodes."""

    nodes: Sequence[str] = ()
    """Names of all nodes, by id."""
    reaches: Mapping[str, tuple[int, ...]] = {}
    """Node ids of each reach, by its key."""

    @staticmethod
    def of(nodes: Sequence[str], reaches: Iterable[Reach]) -> "ReachKeys":
        """Return the given reaches by key; *nodes*: names of all nodes by id."""
        return ReachKeys(nodes, {one.key: one.nodes for one in reaches})

    def within(self, key: str, nodes: frozenset[str]) -> frozenset[str]:
        """Return the names of the reach's nodes that are in *nodes*."""
        return nodes.intersection(self.nodes[number] for number in self.reaches[key])


def renamed(before: ReachKeys, now: ReachKeys) -> RenamedKeys:
    """Return the current keys of the reaches whose key has changed since *before*.

    Reaches are compared by the nodes that exist in both snapshots. If several reaches have the
    same ones, they are paired by size, largest first.
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
