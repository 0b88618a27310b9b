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
        return ReachKeys(nodes, {reach.key: reach.nodes for reach in reaches})

    def within(self, key: str, nodes: frozenset[str]) -> frozenset[str]:
        """Return the names of the reach's nodes that are in *nodes*."""
        return nodes.intersection(self.nodes[number] for number in self.reaches[key])


def renamed(before: ReachKeys, now: ReachKeys) -> RenamedKeys:
    """Return the current keys of the reaches whose key has changed since *before*.

    Reaches are compared by the nodes that exist in both snapshots. If several reaches have the
    same nodes there, they are paired by size, largest first.
    """
    old_keys = before.reaches.keys() - now.reaches.keys()
    new_keys = now.reaches.keys() - before.reaches.keys()
    if not old_keys or not new_keys:
        return {}
    both = frozenset(before.nodes).intersection(now.nodes)
    keys_by_nodes: dict[frozenset[str], list[str]] = {}
    for key in _largest_first(before, old_keys):
        keys_by_nodes.setdefault(before.within(key, both), []).append(key)
    keys_by_nodes.pop(frozenset(), None)
    renames: dict[str, str] = {}
    for key in _largest_first(now, new_keys):
        if names := keys_by_nodes.get(now.within(key, both)):
            renames[names.pop(0)] = key
    return renames


def _largest_first(snapshot: ReachKeys, keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (-len(snapshot.reaches[key]), key))
