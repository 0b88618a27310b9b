"""Group pods with equal requests and node constraints, first by object and then by value."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from core.capacity.reaches import Groups
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources

BY_NAME: Final = attrgetter("namespace", "name")


@dataclass(slots=True, eq=False)
class EquivalenceGroup:
    """Pods with equal requests and node constraints, and the nodes that may receive them."""

    request: int
    """Requests of one pod as a vector."""
    admitting_nodes: list[int]
    """Nodes that the constraints of the pods admit, in first-fit order."""
    candidates: list[int]
    """Admitting nodes that initially have room for the smallest pod with these constraints."""
    scanned: int = 0
    """Number of candidates that have been scanned."""
    feasible: list[int] = field(default_factory=list)
    """Scanned nodes that had room when they were scanned."""
    first_feasible: int = 0
    """Position in `feasible`; the nodes before it are full and remain so."""
    feasible_count: int = 0
    """Number of nodes that have room now; counting stops at `counted_to`."""
    counted_to: int = 0
    counted_at: int = -1
    """Version of the free space at which `feasible_count` was counted."""
    open_nodes: int = 0
    """Candidates that have not been found full, as bits (core.fit.bits). Only set if inter-pod
    rules concern some pod."""


def group_by_identity(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Group pods whose requests and node constraints are the same objects, in the order of *pods*.

    Most pods share these objects with others. Comparing objects first avoids hashing 150,000
    values, which would take longer than the whole packing.
    """
    groups: defaultdict[tuple[int, int], list[Pod]] = defaultdict(list)
    for pod in pods:
        groups[id(pod.requests), id(pod.placing)].append(pod)
    return list(groups.values())


def templates(groups: Groups) -> list[NodeConstraints]:
    """Return the distinct node constraints, in an order that is independent of the pods' order."""
    return sorted({members[0].placing for members in groups}, key=repr)


def group_by_value(
    groups: Groups, numbers: Mapping[NodeConstraints, int]
) -> dict[tuple[Resources, int], Sequence[Pod]]:
    """Merge groups with equal requests and node constraints; sort each by namespace and name.

    *numbers*: a number for each set of node constraints. Return the groups by requests and this
    number.
    """
    found: dict[tuple[Resources, int], list[Sequence[Pod]]] = {}
    for members in groups:
        key = members[0].requests, numbers[members[0].placing]
        found.setdefault(key, []).append(members)
    return {key: merged(parts) for key, parts in found.items()}


def merged(parts: Sequence[Sequence[Pod]]) -> Sequence[Pod]:
    """Merge groups that are sorted by namespace and name into one such list."""
    if len(parts) == 1:
        return parts[0]
    return sorted((pod for members in parts for pod in members), key=BY_NAME)
