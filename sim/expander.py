"""Which nodes an autoscaler adds, and how many: Cluster Autoscaler's estimate and `least-waste`.

Source: its estimator/binpacking and expander/waste. What waits is packed into new nodes of each
group alone; of the groups that could help, the one whose new nodes would be used best is taken,
however many pods it is for. GPUs do not count as waste.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from core.capacity.usable import Amount
from core.fit.filters import first_failing_filter
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from sim.cluster import DAEMON_REQUESTS


@dataclass(frozen=True, slots=True)
class Option:
    """So many new nodes of a group, for these pods."""

    shape: Resources
    nodes: int
    pods: tuple[Pod, ...]

    @property
    def waste(self) -> Fraction:
        """Return the shares of CPU and of memory that the pods would leave, added up."""
        asked = Amount.of(Resources.total(pod.requests for pod in self.pods))
        return sum(
            (
                1 - Fraction(requested, whole * self.nodes)
                for requested, whole in zip(asked, Amount.of(self.shape), strict=True)
                if whole
            ),
            Fraction(),
        )


def option(template: Node, waiting: Iterable[Pod], nodes_max: int) -> Option | None:
    """Pack what waits into new nodes, largest first, first-fit; None: they help nobody."""
    whole = template.allocatable
    empty = whole - DAEMON_REQUESTS
    helped = [pod for pod in waiting if pod.requests.fits_in(empty)]
    helped = [pod for pod in helped if first_failing_filter(template, pod.placing) is None]
    helped.sort(key=lambda pod: _size(pod.requests, whole), reverse=True)  # stable: then by wait
    rooms: list[Resources] = []
    placed: list[Pod] = []
    for pod in helped:
        at = next((n for n, room in enumerate(rooms) if pod.requests.fits_in(room)), len(rooms))
        if at == nodes_max:
            continue
        if at == len(rooms):
            rooms.append(empty)
        rooms[at] -= pod.requests
        placed.append(pod)
    return Option(whole, len(rooms), tuple(placed)) if placed else None


def _size(requests: Resources, whole: Resources) -> Fraction:
    pairs = zip(Amount.of(requests), Amount.of(whole), strict=True)
    return sum((Fraction(asked, most) for asked, most in pairs if most), Fraction())


def least_waste(options: Sequence[Option]) -> list[Option]:
    """Return those that waste least; several, if they waste the same. Of them chance decides."""
    least = min((one.waste for one in options), default=None)
    return [one for one in options if one.waste == least]
