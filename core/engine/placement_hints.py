"""Where the pods of nodes that are not needed are to go, remembered from look to look; pure.

A node is listed while its own pods would find places beside all that stands once marked nodes
have gone; other listed nodes are not thought away for it. Its places stay what they are for as
long as they hold. Where one does not, another is looked for; and if a node has gone since the
last look, whose pods may have taken it, the listed node's time starts anew.

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
        self, before: Hints, since: Mapping[str, int], survey: ClusterSnapshot, now: Now
    ) -> None:
        """Begin with what was remembered *before*, and *since* when who has been listed."""
        self._before, self._since, self._now = before, since, now
        names = frozenset(node.name for node in survey.cluster.nodes)
        self._standing = names - survey.leaving_nodes - survey.marks.keys()
        self._occupied = survey.non_empty_nodes
        self._has_gone = not before.unmarked_nodes <= self._standing
        self._of: dict[str, tuple[Placement, ...]] = {}
        self._count = 0
        self._complete = True
        self.since: dict[str, int] = {}
        """Since when each node that is listed has been so without a break."""

    def was(self, node: str) -> bool:
        """Say whether the node was listed at the last look."""
        return node in self._since and node in self._before.placements

    def known(self, packer: Packer, node: int) -> Known:
        """Return the places that pods on the node have, as far as they have been found."""
        name = packer.nodes[node].name
        places = self._of.get(name)
        if places is None:
            places = self._before.placements.get(name, ())
        here = {packer.pods[pod].key: pod for pod in packer.on[node]} if places else {}
        # On the node itself nothing is placed: that stands for nodes that have left the cluster.
        return [(here[pod], packer.node_ids.get(to, node)) for pod, to in places if pod in here]

    def find(self, packer: Packer, nodes: Iterable[int], has_time: Callable[[str], bool]) -> None:
        """List those of the *nodes* whose pods find places, as long as there is time.

        Those whose places all hold come first: the others are to know what they count on.
        """
        settled: list[Attempt] = []
        waiting: list[tuple[int, Known, Attempt | None]] = []
        for node in nodes:
            if not has_time(packer.nodes[node].name):
                self._leave(packer.nodes[node].name)
                continue
            known = self.known(packer, node)
            attempt = packer.attempt(packer.on[node], node, kept=known) if known else None
            if attempt is None or not _holds(packer, known, attempt):
                waiting.append((node, known, attempt))
            else:
                settled.append(attempt)
                self._take(packer, node, attempt, known)
        draft = packer.draft() if waiting else packer
        for attempt in settled if waiting else ():
            draft.promise(attempt, packer)
        for node, known, alone in waiting:
            if has_time(packer.nodes[node].name):
                self._look(packer, draft, node, known, alone)
            else:
                self._leave(packer.nodes[node].name)

    def _look(
        self, packer: Packer, draft: Packer, node: int, known: Known, alone: Attempt | None
    ) -> None:
        """Look for places where not two others count on the room; if there are none, anywhere.

        *alone*: with the *known* places, if there are any; those that hold are kept.
        """
        found = alone or packer.attempt(packer.on[node], node)
        if found.unplaced:
            return
        held = [one for one in known if one in found.placements]
        beside = draft.attempt(draft.on[node], node, kept=held)
        if beside.unplaced or lost(held, beside):
            draft.promise(found, packer)
        else:
            draft.promise(beside, draft)
            found = beside
        self._take(packer, node, found, known)

    def _take(self, packer: Packer, node: int, found: Attempt, known: Known) -> None:
        """List the node; its time starts anew if it has lost a place since a node has gone."""
        name = packer.nodes[node].name
        if self.note(name, placements(packer, found)):
            anew = not self.was(name) or (self._has_gone and lost(known, found))
            self.since[name] = self._now.seconds if anew else self._since[name]

    def _leave(self, node: str) -> None:
        """Let stand what is known of a node that there is no time to look at."""
        self._complete = False
        if self.was(node) and self.note(node, self._before.placements[node]):
            self.since[node] = self._since[node]

    def note(self, node: str, places: tuple[Placement, ...]) -> bool:
        """Remember these places, if there is room for them."""
        count = self._count - len(self._of.get(node, ())) + len(places)
        if count > PLACES_MAX:
            return False
        self._of[node], self._count = places, count
        return True

    def delays(self, due_at: Callable[[int], int]) -> Mapping[str, int]:
        """Return by listed node when its delay ends, unix seconds; of an empty node: at once.

        *due_at*: returns that for a node that has been listed since a unix second.
        """
        return {
            name: due_at(at) if name in self._occupied else at for name, at in self.since.items()
        }

    def seen(self) -> Hints:
        """Return what is to be remembered.

        Where not every node could be looked at, who has gone is noticed at the next look again.
        """
        before = frozenset() if self._complete else self._before.unmarked_nodes
        return Hints(self._of, self._standing | before)


def lost(known: Iterable[tuple[int, int]], found: Attempt) -> Known:
    """Return the known places that the attempt has not kept."""
    kept = set(found.placements)
    return [one for one in known if one not in kept]


def _holds(packer: Packer, known: Known, found: Attempt) -> bool:
    """Say whether all pods are where they were to go, and no new ones are there."""
    complete = len(placements(packer, found)) == len(known)
    return complete and not found.unplaced and not lost(known, found)


def placements(packer: Packer, attempt: Attempt) -> tuple[Placement, ...]:
    """Write an attempt with names instead of ids, without the pods that do not exist."""
    pods, nodes, spare = packer.pods, packer.nodes, packer.spare
    return tuple(
        Placement(pods[pod].key, nodes[node].name)
        for pod, node in attempt.placements
        if pod not in spare
    )
