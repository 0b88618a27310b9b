"""Select new nodes as Cluster Autoscaler does: by its estimate and the expander `least-waste`.

Source: its estimator/binpacking and expander/waste. The Pending pods are packed into new nodes of
each group. The group with the least waste is selected, even if its nodes take only few of the
pods. GPUs do not count as waste.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.filters import first_failing_filter
from core.placement.usable_capacity import Amount
from sim.cluster import DAEMON_REQUESTS


@dataclass(frozen=True, slots=True)
class Option:
    """A possible scale-up of a node group: the number of new nodes, and the pods that fit on them.

    `shape` is the allocatable resources of a node of the group.
    """

    shape: Resources
    nodes: int
    pods: tuple[Pod, ...]

    @property
    def waste(self) -> Fraction:
        """Return the unused share of CPU plus the unused share of memory on the new nodes."""
        requested = Amount.of(Resources.total(pod.requests for pod in self.pods))
        return sum(
            (
                1 - Fraction(part, whole * self.nodes)
                for part, whole in zip(requested, Amount.of(self.shape), strict=True)
                if whole
            ),
            Fraction(),
        )


def option(template: Node, waiting: Iterable[Pod], nodes_max: int) -> Option | None:
    """Return the scale-up of one node group for Pending pods, or None if no pod fits.

    *template*: a Node of the group. The pods are packed into at most *nodes_max* new nodes by
    first-fit, the largest pod first.
    """
    whole = template.allocatable
    empty = whole - DAEMON_REQUESTS
    helped = [pod for pod in waiting if pod.requests.fits_in(empty)]
    helped = [
        pod for pod in helped if first_failing_filter(template, pod.node_constraints) is None
    ]
    helped.sort(
        key=lambda pod: _size(pod.requests, whole), reverse=True
    )  # stable: then oldest first
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
    return sum((Fraction(part, total) for part, total in pairs if total), Fraction())


def least_waste(options: Sequence[Option]) -> list[Option]:
    """Return all scale-ups with the least waste; the caller picks one of them at random."""
    least = min((choice.waste for choice in options), default=None)
    return [choice for choice in options if choice.waste == least]
