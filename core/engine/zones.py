"""Balance between zones: no removal lets one fall behind another by much."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from core.engine.survey import Survey
from core.model.node import Node
from core.model.telling import many

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
ZONE_SKEW_MAX: Final = 1
"""By how many nodes a zone may fall behind the largest by a removal."""
TAKING: Final = "node that takes pods", "nodes that take pods"
"""What counts, one and several."""


class Zones:
    """The nodes of each zone that take pods, among those that the same pods can use.

    The narrowest reach of a node that spans several zones decides: the wider ones hold nodes that
    are of no use to its pods. What nobody reaches needs no balance. A zone stays one while none of
    its nodes takes pods, so which reach decides does not change as nodes come and go.
    """

    def __init__(self, survey: Survey, standing: Iterable[Node]) -> None:
        self._survey = survey
        counts: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        self._counts: dict[str, list[Counter[str]]] = {}
        """By node, the narrowest reach first."""
        for node in standing:
            if zone := node.labels.get(ZONE_LABEL):
                self._counts[node.name] = [counts[where] for where in self._places(node)]
                for zones in self._counts[node.name]:
                    zones[zone] += self._counted(node)
        self._deciding = {
            name: next((zones for zones in own if len(zones) > 1), None)
            for name, own in self._counts.items()
        }

    def _counted(self, node: Node) -> bool:
        return node.name not in self._survey.closed

    def _places(self, node: Node) -> list[tuple[int, str]]:
        """Return where the node counts, the narrowest first."""
        survey = self._survey
        pool = survey.config.budgets.pool_of(node.labels)
        name = pool.name if pool else ""
        number = survey.ground.ids[node.name]
        sized = sorted(survey.reaches.of[number], key=lambda n: (survey.reaches.size(n), n))
        return [(reach, name) for reach in sized]

    def refusal(self, node: Node) -> str | None:
        """Say why the node's zone must not lose it, or None."""
        zones = self._deciding.get(node.name)
        if zones is None or not self._counted(node):
            return None
        zone = node.labels[ZONE_LABEL]
        left = zones[zone] - 1
        most = max(count for other, count in zones.items() if other != zone)
        if left >= most - ZONE_SKEW_MAX:
            return None
        return f"zone {zone} would have {many(left, *TAKING)} and another zone {most}"

    def take(self, node: Node) -> None:
        """Count the node as one that goes; a zone stays one when its last node has gone."""
        for zones in self._counts.get(node.name, ()):
            zones[node.labels[ZONE_LABEL]] -= self._counted(node)
