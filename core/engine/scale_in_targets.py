"""Which nodes without a mark scale-ins are to empty next; pure.

A scale-in that is told nothing takes pods where many of their set are, so it leaves a few pods on
each node and empties none. Here it is told of a few nodes beside the marked ones: those of which
least is asked for, and of these first the ones that hold no pods but such as scale-ins take. They
empty, and are marked when the others can take what is left on them. A node that was chosen stays
chosen, so that pods are written once and one node empties before the next.
"""

from collections.abc import Iterable, Mapping
from itertools import count, islice
from typing import Final

from core.engine.limits import LASTING_REASONS
from core.engine.plan import UnremovableNode
from core.engine.snapshot import ClusterSnapshot

ONE_IN: Final = 10
"""Of so many nodes that a pod can use one is chosen, and of fewer one too."""
NODES_MAX: Final = 100
"""In all, so that new costs for the pods of a large cluster are written within minutes."""


def choose_targets(
    before: Mapping[str, int], snapshot: ClusterSnapshot, kept: Iterable[UnremovableNode]
) -> dict[str, int]:
    """Return them by name, each with its number: the lower, the sooner it is to be empty.

    *before*: those of the last look, *kept*: the plan's nodes that stay. A node that was chosen
    stays so as long as it is there, has no mark, and holds pods that scale-ins take.

    None of them is kept by anything but its pods' room and the moment: to empty one that a budget
    or its zone keeps anyway would free nothing.
    """
    ids, census = snapshot.node_order.ids, snapshot.pod_index
    scaled = census.scale_in_pods

    def may(name: str) -> bool:
        return bool(scaled.get(name)) and not (name in snapshot.marks or snapshot.blockers[name])

    def rank(name: str) -> tuple[bool, int, str]:
        return (
            census.count_movable(name) > scaled[name],
            snapshot.node_order.share(ids[name]),
            name,
        )

    stays = {name: number for name, number in before.items() if name in ids and may(name)}
    missing = _missing(snapshot, stays)
    if len(stays) >= NODES_MAX or not any(many > 0 for many in missing):
        return stays
    free = (
        one.node
        for one in kept
        if may(one.node) and LASTING_REASONS.isdisjoint(why.reason for why in one.blockers)
    )
    chosen: list[str] = []
    for name in sorted(free, key=rank):
        its = snapshot.reaches.by_node[ids[name]]
        if name not in stays and any(missing[reach] > 0 for reach in its):
            chosen.append(name)
            for reach in its:
                missing[reach] -= 1
    numbered = zip(chosen, count(1 + max(before.values(), default=0)), strict=False)
    return stays | dict(islice(numbered, NODES_MAX - len(stays)))


def _missing(snapshot: ClusterSnapshot, there: Iterable[str]) -> list[int]:
    """Return by reach how many nodes there are too few; below 0: too many."""
    reaches, ids = snapshot.reaches, snapshot.node_order.ids
    missing = [-(-len(reach.nodes) // ONE_IN) for reach in reaches.all]
    for name in there:
        for reach in reaches.by_node[ids[name]]:
            missing[reach] -= 1
    return missing
