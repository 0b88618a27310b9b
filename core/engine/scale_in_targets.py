"""Choose unmarked nodes that scale-ins should empty next.

By default a scale-in deletes pods from nodes with many pods of their ReplicaSet, so it leaves a
few pods on each node and empties none. Ebb sets a low pod deletion cost on the pods of a few nodes
beside the marked ones. It chooses the nodes with the smallest requests, preferring nodes that hold
only pods that scale-ins can delete. Scale-ins then empty these nodes, and Ebb can mark one as soon
as other nodes have room for its remaining pods. A chosen node stays chosen, so that the cost of
each pod is written once, and one node empties before the next.
"""

from collections.abc import Iterable, Mapping
from itertools import count, islice
from typing import Final

from core.engine.limits import LASTING_REASONS
from core.engine.plan import UnremovableNode
from core.engine.snapshot import ClusterSnapshot

ONE_IN: Final = 10
"""One node of this many in a reach is chosen, and at least one."""
NODES_MAX: Final = 100
"""Maximum number of chosen nodes, so that pod deletion costs of a large cluster are written within
minutes."""


def choose_targets(
    before: Mapping[str, int], snapshot: ClusterSnapshot, kept: Iterable[UnremovableNode]
) -> dict[str, int]:
    """Return the nodes that scale-ins should empty, with their rank; the lowest rank comes first.

    *before*: result of the last reconciliation. *kept*: nodes that the plan does not remove, from
    which new targets are chosen. A target remains a target while it exists, is unmarked, and has
    pods that a scale-in can delete.
    """
    ids, pod_index = snapshot.node_order.ids, snapshot.pod_index
    scaled = pod_index.scale_in_pods

    def is_eligible(name: str) -> bool:
        return bool(scaled.get(name)) and not (name in snapshot.marks or snapshot.blockers[name])

    def rank(name: str) -> tuple[bool, int, str]:
        return (
            pod_index.count_movable(name) > scaled[name],
            snapshot.node_order.share(ids[name]),
            name,
        )

    targets = {
        name: number for name, number in before.items() if name in ids and is_eligible(name)
    }
    missing = _missing(snapshot, targets)
    if len(targets) >= NODES_MAX or not any(many > 0 for many in missing):
        return targets
    # A node that a budget or zone balance keeps anyway is not chosen: emptying it would free
    # nothing.
    useful = (
        node.node
        for node in kept
        if is_eligible(node.node)
        and LASTING_REASONS.isdisjoint(why.reason for why in node.blockers)
    )
    chosen: list[str] = []
    for name in sorted(useful, key=rank):
        reaches = snapshot.reaches.by_node[ids[name]]
        if name not in targets and any(missing[reach] > 0 for reach in reaches):
            chosen.append(name)
            for reach in reaches:
                missing[reach] -= 1
    numbered = zip(chosen, count(1 + max(before.values(), default=0)), strict=False)
    return targets | dict(islice(numbered, NODES_MAX - len(targets)))


def _missing(snapshot: ClusterSnapshot, targets: Iterable[str]) -> list[int]:
    """Return how many targets each reach lacks, in the order of `snapshot.reaches.all`.

    A reach is a set of nodes that some pods can use. The number is negative if it has too many
    targets.
    """
    reaches, ids = snapshot.reaches, snapshot.node_order.ids
    missing = [-(-len(reach.nodes) // ONE_IN) for reach in reaches.all]
    for name in targets:
        for reach in reaches.by_node[ids[name]]:
            missing[reach] -= 1
    return missing
