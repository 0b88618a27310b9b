"""Where the pods of nodes that are not needed are to go, remembered from look to look; pure.

A node is listed while its own pods would find places beside all that stands once marked nodes
have gone; other listed nodes are not thought away for it. Its places stay what they are for as
long as they hold. Where one does not, another is looked for; and if a node has gone since the
last look, whose pods may have taken it, the listed node's time starts anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from core.engine.plan import Placement
from core.engine.survey import Survey

PLACES_MAX: Final = 2**18
"""Pods whose places are remembered; a node whose pods are beyond is not listed."""


@dataclass(frozen=True, slots=True)
class Places:
    """What is remembered."""

    of: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    """By node that is listed, or marked and can go: the places of its pods, as they were found."""
    standing: frozenset[str] = frozenset()
    """Nodes that were there, had no mark and were not leaving."""


class Listing:
    """Which nodes are not needed, found out while one plan is made."""

    def __init__(
        self, before: Places, since: Mapping[str, int], survey: Survey, now_seconds: int
    ) -> None:
        """Begin with what was remembered *before*, and *since* when who has been listed."""
        self._before, self._since, self._now = before, since, now_seconds
        names = frozenset(node.name for node in survey.cluster.nodes)
        self._standing = names - survey.gone - survey.marks.keys()
        self._has_gone = not before.standing <= self._standing
        self._of: dict[str, tuple[Placement, ...]] = {}
        self._count = 0
        self._complete = True
        self.since: dict[str, int] = {}
        """Since when each node that is listed has been so without a break."""

    def was(self, node: str) -> bool:
        """Say whether the node was listed at the last look."""
        return node in self._since and node in self._before.of

    def places(self, node: str) -> tuple[Placement, ...]:
        """Return where pods of the node are to go, as far as that has been found out."""
        found = self._of.get(node)
        return self._before.of.get(node, ()) if found is None else found

    def take(self, node: str, places: tuple[Placement, ...], *, lost: bool) -> None:
        """List the node; *lost*: some place that it had does not hold any more."""
        if not self.note(node, places):
            return
        anew = not self.was(node) or (lost and self._has_gone)
        self.since[node] = self._now if anew else self._since[node]

    def leave(self, node: str) -> None:
        """Let stand what is known of a node that there is no time to look at."""
        self._complete = False
        if self.was(node) and self.note(node, self._before.of[node]):
            self.since[node] = self._since[node]

    def note(self, node: str, places: tuple[Placement, ...]) -> bool:
        """Remember these places, if there is room for them."""
        count = self._count - len(self._of.get(node, ())) + len(places)
        if count > PLACES_MAX:
            return False
        self._of[node], self._count = places, count
        return True

    def due(self, waited: Callable[[int], bool]) -> frozenset[str]:
        """Return the nodes of whose seconds *waited* says that they may go."""
        return frozenset(name for name, at in self.since.items() if waited(self._now - at))

    def seen(self) -> Places:
        """Return what is to be remembered.

        Where not every node could be looked at, who has gone is noticed at the next look again.
        """
        before = frozenset() if self._complete else self._before.standing
        return Places(self._of, self._standing | before)
