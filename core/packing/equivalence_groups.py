"""Pods that ask for as much and of their node the same: groups, by object and then by value.

Packing knows them as kinds, each with the nodes that may take its pods.
"""

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


@dataclass(slots=True)
class EquivalenceGroup:
    """Pods with equal requests and template."""

    request: int
    admitting_nodes: list[int]
    """Nodes that admit the template, in first-fit order."""
    candidates: list[int]
    """Those among them with room for the smallest pod of the template at the start."""
    scanned: int = 0
    feasible: list[int] = field(default_factory=list)
    """Those of the scanned that had room when they were scanned."""
    first_feasible: int = 0
    """Entries of `fits` before this one never fit again."""
    open_nodes: int = 0
    """The allowed nodes but those that were found to be full, as bits (core.fit.bits); written
    where other pods matter to some pod."""


def group_by_identity(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Group pods by the objects of their requests and template, in the order of *pods*.

    Most pods share these objects with others, so objects are told apart before values: hashing
    150,000 values costs more than the whole packing.
    """
    groups: defaultdict[tuple[int, int], list[Pod]] = defaultdict(list)
    for pod in pods:
        groups[id(pod.requests), id(pod.placing)].append(pod)
    return list(groups.values())


def templates(groups: Groups) -> list[NodeConstraints]:
    """Return the distinct templates in an order that does not depend on the pods' order."""
    return sorted({members[0].placing for members in groups}, key=repr)


def group_by_value(
    groups: Groups, numbers: Mapping[NodeConstraints, int]
) -> dict[tuple[Resources, int], Sequence[Pod]]:
    """Put groups together that are alike by value, each by namespace and name."""
    found: dict[tuple[Resources, int], list[Sequence[Pod]]] = {}
    for members in groups:
        key = members[0].requests, numbers[members[0].placing]
        found.setdefault(key, []).append(members)
    return {key: merged(parts) for key, parts in found.items()}


def merged(parts: Sequence[Sequence[Pod]]) -> Sequence[Pod]:
    """Return the pods of groups that are each by namespace and name as one that is."""
    if len(parts) == 1:
        return parts[0]
    return sorted((pod for members in parts for pod in members), key=BY_NAME)
