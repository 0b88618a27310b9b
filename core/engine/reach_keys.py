"""Keep the history of a reach when its key changes.

A reach is a set of nodes that some pods can use. Its key is the shortest text of the constraints
that select its nodes. The key changes when a pod selects the same nodes in a shorter way, or when
the last such pod is deleted. The history of these nodes stays valid. Since nodes come and go,
reaches are compared by the nodes that exist in both snapshots.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.placement.reaches import Reach

RenamedKeys = Mapping[str, str]
"""Current key of a reach by its previous key."""


class ReachKeys(NamedTuple):
    """The reaches of a snapshot by key, and the names of all nodes of the snapshot."""

    nodes: Sequence[str] = ()
    """Names of all nodes, by id."""
    reaches: Mapping[str, tuple[int, ...]] = {}
    """Node ids of each reach, by its key."""

    @staticmethod
    def of(nodes: Sequence[str], reaches: Iterable[Reach]) -> "ReachKeys":
        """Return ReachKeys for the given reaches; *nodes*: names of all nodes by id."""
        return ReachKeys(nodes, {reach.key: reach.nodes for reach in reaches})

    def within(self, key: str, nodes: frozenset[str]) -> frozenset[str]:
        """Return those of *nodes* (names) that belong to the reach with this key."""
        return nodes.intersection(self.nodes[number] for number in self.reaches[key])


def renamed(before: ReachKeys, now: ReachKeys) -> RenamedKeys:
    """Return the current key of each reach whose key has changed, by its key in *before*.

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
