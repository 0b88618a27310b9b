"""Where the pods of nodes that are not needed are to go, remembered from look to look; pure.

A node is listed while its own pods would find places reserving all that stands once marked nodes
have gone; other listed nodes are not thought away for it. Its places stay what they are for as
long as they hold. Where one does not, another is looked for; and if a node has gone since the
last look, whose pods may have taken it, the listed node's time starts restart.

First-fit takes the fullest nodes, so all listed nodes would count on the same room, and each one
that goes would set all others back. So room that two of them count on already is passed over by
a third, as long as there is other room.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.engine.plan import Placement
from core.engine.snapshot import ClusterSnapshot
from core.model.now import Now
from core.packing.packer import Attempt, Packer

Known = Sequence[tuple[int, int]]
"""Pods and nodes, by their ids of the packer."""
PLACES_MAX: Final = 2**18
"""Pods whose places are remembered; a node whose pods are beyond is not listed."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What is remembered."""

    placements: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    """By node that is listed, or marked and can go: the places of its pods, as they were found."""
    unmarked_nodes: frozenset[str] = frozenset()
    """Nodes that were there, had no mark and were not leaving."""


class UnneededNodes:
    """Which nodes are not needed, found out while one plan is made."""

    def __init__(
        self, before: Hints, since: Mapping[str, int], snapshot: ClusterSnapshot, now: Now
    ) -> None:
        """Begin with what was remembered *before*, and *since* when who has been listed."""
        self._before, self._since, self._now = before, since, now
        names = frozenset(node.name for node in snapshot.cluster.nodes)
        self._unmarked_nodes = names - snapshot.leaving_nodes - snapshot.marks.keys()
        self._non_empty_nodes = snapshot.non_empty_nodes
        self._node_left = not before.unmarked_nodes <= self._unmarked_nodes
        self._placements: dict[str, tuple[Placement, ...]] = {}
        self._count = 0
        self._complete = True
        self.since: dict[str, int] = {}
        """Since when each node that is listed has been so without a break."""

    def was_listed(self, node: str) -> bool:
        """Say whether the node was listed at the last look."""
        return node in self._since and node in self._before.placements

    def known_placements(self, packer: Packer, node: int) -> Known:
        """Return the places that pods on the node have, as far as they have been found."""
        name = packer.nodes[node].name
        places = self._placements.get(name)
        if places is None:
            places = self._before.placements.get(name, ())
        here = {packer.pods[pod].key: pod for pod in packer.on[node]} if places else {}
        # On the node itself nothing is placed: that stands for nodes that have left the cluster.
        return [(here[pod], packer.node_ids.get(to, node)) for pod, to in places if pod in here]

    def list_nodes(
        self, packer: Packer, nodes: Iterable[int], has_time: Callable[[str], bool]
    ) -> None:
        """List those of the *nodes* whose pods find places, as long as there is time.

        Those whose places all hold come first: the others are to know what they count on.
        """
        kept_attempts: list[Attempt] = []
        waiting: list[tuple[int, Known, Attempt | None]] = []
        for node in nodes:
            if not has_time(packer.nodes[node].name):
                self._keep_as_before(packer.nodes[node].name)
                continue
            known = self.known_placements(packer, node)
            attempt = packer.try_place(packer.on[node], node, preferred=known) if known else None
            if attempt is None or not _holds(packer, known, attempt):
                waiting.append((node, known, attempt))
            else:
                kept_attempts.append(attempt)
                self._list(packer, node, attempt, known)
        fork = packer.fork() if waiting else packer
        for attempt in kept_attempts if waiting else ():
            fork.reserve(attempt, packer)
        for node, known, alone in waiting:
            if has_time(packer.nodes[node].name):
                self._search(packer, fork, node, known, alone)
            else:
                self._keep_as_before(packer.nodes[node].name)

    def _search(
        self, packer: Packer, fork: Packer, node: int, known: Known, alone: Attempt | None
    ) -> None:
        """Look for places where not two others count on the room; if there are none, anywhere.

        *alone*: with the *known* places, if there are any; those that hold are kept.
        """
        found = alone or packer.try_place(packer.on[node], node)
        if found.unassigned:
            return
        kept = [one for one in known if one in found.assignments]
        reserving = fork.try_place(fork.on[node], node, preferred=kept)
        if reserving.unassigned or lost_placements(kept, reserving):
            fork.reserve(found, packer)
        else:
            fork.reserve(reserving, fork)
            found = reserving
        self._list(packer, node, found, known)

    def _list(self, packer: Packer, node: int, found: Attempt, known: Known) -> None:
        """List the node; its time starts restart if it has lost a place since a node has gone."""
        name = packer.nodes[node].name
        if self.remember(name, placements(packer, found)):
            restart = not self.was_listed(name) or (
                self._node_left and lost_placements(known, found)
            )
            self.since[name] = self._now.seconds if restart else self._since[name]

    def _keep_as_before(self, node: str) -> None:
        """Let stand what is known of a node that there is no time to look at."""
        self._complete = False
        if self.was_listed(node) and self.remember(node, self._before.placements[node]):
            self.since[node] = self._since[node]

    def remember(self, node: str, places: tuple[Placement, ...]) -> bool:
        """Remember these places, if there is room for them."""
        count = self._count - len(self._placements.get(node, ())) + len(places)
        if count > PLACES_MAX:
            return False
        self._placements[node], self._count = places, count
        return True

    def due_times(self, due_at: Callable[[int], int]) -> Mapping[str, int]:
        """Return by listed node when its delay ends, unix seconds; of an empty node: at once.

        *due_at*: returns that for a node that has been listed since a unix second.
        """
        return {
            name: due_at(at) if name in self._non_empty_nodes else at
            for name, at in self.since.items()
        }

    def hints(self) -> Hints:
        """Return what is to be remembered.

        Where not every node could be looked at, who has gone is noticed at the next look again.
        """
        before = frozenset() if self._complete else self._before.unmarked_nodes
        return Hints(self._placements, self._unmarked_nodes | before)


def lost_placements(known: Iterable[tuple[int, int]], found: Attempt) -> Known:
    """Return the known places that the attempt has not kept."""
    kept = set(found.assignments)
    return [one for one in known if one not in kept]


def _holds(packer: Packer, known: Known, found: Attempt) -> bool:
    """Say whether all pods are where they were to go, and no new ones are there."""
    complete = len(placements(packer, found)) == len(known)
    return complete and not found.unassigned and not lost_placements(known, found)


def placements(packer: Packer, attempt: Attempt) -> tuple[Placement, ...]:
    """Write an attempt with names instead of ids, without the pods that do not exist."""
    pods, nodes, spare = packer.pods, packer.nodes, packer.placeholders
    return tuple(
        Placement(pods[pod].key, nodes[node].name)
        for pod, node in attempt.assignments
        if pod not in spare
    )
