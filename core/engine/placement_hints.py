"""Remember placements for the pods of unneeded nodes between reconciliations.

A node is listed as unneeded while its pods would find places after the removal of the marked
nodes. Other unneeded nodes count as staying. A node keeps its remembered placements while they are
valid; otherwise another place is searched for. If a node has left since the last reconciliation
and its pods may have taken the place, the unneeded time of the listed node restarts.

First-fit prefers the fullest nodes, so all unneeded nodes would rely on the same room, and each
removal would restart the unneeded time of the others. So a node avoids room that two others rely
on already, if there is other room.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.engine.plan import Placement
from core.engine.snapshot import ClusterSnapshot
from core.model.now import Now
from core.placement.packer import Attempt, Packer

Known = Sequence[tuple[int, int]]
"""Pairs of pod id and node id of the packer."""
PLACES_MAX: Final = 2**18
"""Maximum number of pods whose placements are remembered; a node whose pods would exceed it is not
listed."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Planned placements of pods by node, which the next reconciliation tries first."""

    placements: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    """Placements by node, for unneeded nodes and for marked nodes that can be removed."""
    unmarked_nodes: frozenset[str] = frozenset()
    """Nodes of the last reconciliation that were unmarked and not leaving."""


class UnneededNodes:
    """Unneeded nodes (candidates whose pods all fit on other nodes), collected during one plan."""

    def __init__(
        self, before: Hints, since: Mapping[str, int], snapshot: ClusterSnapshot, now: Now
    ) -> None:
        """Start with no listed node.

        *before*: placements remembered from the last reconciliation. *since*: unix second since
        which each node has been listed as unneeded.
        """
        self._before, self._since, self._now = before, since, now
        names = frozenset(node.name for node in snapshot.cluster.nodes)
        self._unmarked_nodes = names - snapshot.leaving_nodes - snapshot.marks.keys()
        self._non_empty_nodes = snapshot.non_empty_nodes
        self._node_left = not before.unmarked_nodes <= self._unmarked_nodes
        self._placements: dict[str, tuple[Placement, ...]] = {}
        self._count = 0
        self._complete = True
        self.since: dict[str, int] = {}
        """Time since which each listed node has been listed without interruption, unix seconds."""

    def was_listed(self, node: str) -> bool:
        """Report whether the last reconciliation listed the node as unneeded."""
        return node in self._since and node in self._before.placements

    def known_placements(self, packer: Packer, node: int) -> Known:
        """Return the remembered placements of the pods that are on the node now; maybe none.

        The node id of a placement is *node* itself if the target node has left the cluster.
        Placements found in this plan replace those of the last reconciliation.
        """
        name = packer.nodes[node].name
        places = self._placements.get(name)
        if places is None:
            places = self._before.placements.get(name, ())
        ids = {packer.pods[pod].key: pod for pod in packer.on[node]} if places else {}
        # A pod is never placed on its own node, so the id of its own node stands for a node that
        # has left.
        return [(ids[pod], packer.node_ids.get(to, node)) for pod, to in places if pod in ids]

    def list_nodes(
        self, packer: Packer, nodes: Iterable[int], has_time: Callable[[str], bool]
    ) -> None:
        """List each of the *nodes* as unneeded if its pods find places, while there is time.

        Nodes whose remembered placements are all valid come first, so that the other nodes know
        which room is relied on. *has_time*: reports whether the node with this name may be
        checked. A node that is not checked stays as in the last reconciliation.
        """
        valid_attempts: list[Attempt] = []
        remaining: list[tuple[int, Known, Attempt | None]] = []
        for node in nodes:
            if not has_time(packer.nodes[node].name):
                self._keep_as_before(packer.nodes[node].name)
                continue
            known = self.known_placements(packer, node)
            attempt = packer.try_place(packer.on[node], node, preferred=known) if known else None
            if attempt is None or not _is_as_known(packer, known, attempt):
                remaining.append((node, known, attempt))
            else:
                valid_attempts.append(attempt)
                self._list(packer, node, attempt, known)
        fork = packer.fork() if remaining else packer
        for attempt in valid_attempts if remaining else ():
            fork.reserve(attempt, packer)
        for node, known, with_known in remaining:
            if has_time(packer.nodes[node].name):
                self._search(packer, fork, node, known, with_known)
            else:
                self._keep_as_before(packer.nodes[node].name)

    def _search(
        self, packer: Packer, fork: Packer, node: int, known: Known, with_known: Attempt | None
    ) -> None:
        """List the node if its pods find places, preferably places that two others do not rely on.

        *fork*: copy of the packer in which the places of listed nodes are taken. *with_known*:
        attempt with the *known* placements, or None if there are none; valid ones are kept.
        """
        attempt = with_known or packer.try_place(packer.on[node], node)
        if with_known is not None and attempt.unassigned:
            # A known placement may take the only room of a new pod: place all pods again.
            attempt = packer.try_place(packer.on[node], node)
        if attempt.unassigned:
            return
        kept = [placement for placement in known if placement in attempt.assignments]
        reserving = fork.try_place(fork.on[node], node, preferred=kept)
        if reserving.unassigned or lost_placements(kept, reserving):
            fork.reserve(attempt, packer)
        else:
            fork.reserve(reserving, fork)
            attempt = reserving
        self._list(packer, node, attempt, known)

    def _list(self, packer: Packer, node: int, attempt: Attempt, known: Known) -> None:
        """List the node as unneeded with the placements of the attempt, unless there are too many.

        Its unneeded time restarts if another node has left the cluster since the last
        reconciliation and a pod of the listed node has lost its remembered place.
        """
        name = packer.nodes[node].name
        if self.remember(name, placements(packer, attempt)):
            restart = not self.was_listed(name) or (
                self._node_left and lost_placements(known, attempt)
            )
            self.since[name] = self._now.seconds if restart else self._since[name]

    def _keep_as_before(self, node: str) -> None:
        """List the node if the last reconciliation did, because there is no time to check it."""
        self._complete = False
        if self.was_listed(node) and self.remember(node, self._before.placements[node]):
            self.since[node] = self._since[node]

    def remember(self, node: str, places: tuple[Placement, ...]) -> bool:
        """Remember the placements of the node's pods; return False if PLACES_MAX forbids it."""
        count = self._count - len(self._placements.get(node, ())) + len(places)
        if count > PLACES_MAX:
            return False
        self._placements[node], self._count = places, count
        return True

    def due_times(self, due_at: Callable[[int], int]) -> Mapping[str, int]:
        """Return by listed node the unix second from which it may be removed.

        For an empty node this is the time since which it has been listed. *due_at*: returns the
        time for a non-empty node that has been listed since a given time.
        """
        return {
            name: due_at(at) if name in self._non_empty_nodes else at
            for name, at in self.since.items()
        }

    def hints(self) -> Hints:
        """Return the placements found in this plan, which the next reconciliation tries first."""
        # If not every node was checked, the next reconciliation must notice again which nodes have
        # left.
        before = frozenset() if self._complete else self._before.unmarked_nodes
        if not self._before.placements.keys() <= self._placements.keys():
            # This plan tried the dropped places; the next one may have another result.
            self._now.expire()
        return Hints(self._placements, self._unmarked_nodes | before)


def lost_placements(known: Iterable[tuple[int, int]], attempt: Attempt) -> Known:
    """Return the pairs of pod id and node id in *known* that the attempt does not contain."""
    kept = set(attempt.assignments)
    return [placement for placement in known if placement not in kept]


def _is_as_known(packer: Packer, known: Known, attempt: Attempt) -> bool:
    """Report whether the attempt places all pods as in *known*, and no further existing pods."""
    complete = len(placements(packer, attempt)) == len(known)
    return complete and not attempt.unassigned and not lost_placements(known, attempt)


def placements(packer: Packer, attempt: Attempt) -> tuple[Placement, ...]:
    """Return the placements of an attempt with names instead of ids.

    Placeholder pods, which stand for pods that do not exist, are left out.
    """
    pods, nodes, placeholders = packer.pods, packer.nodes, packer.placeholders
    return tuple(
        Placement(pods[pod].key, nodes[node].name)
        for pod, node in attempt.assignments
        if pod not in placeholders
    )
