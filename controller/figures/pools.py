"""Count the nodes of each pool by state, and sum up their resources.

A pool is a group of nodes for display, as in `ebb plan`: the node group that a label of the
provider names, or else the pool of the setting `pools`.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.eligibility.scalability import largest_groups
from core.engine.reconcile import ReconcileResult
from core.marks.mark import is_scale_down_allowed
from core.model.node import Node
from core.placement.usable_capacity import Amount, usable_capacity


class PlannedNodeState(StrEnum):
    """The state of a node in the latest plan; a value of a metric label.

    Each node is in exactly one state.
    """

    LEAVING = "leaving"
    """Another program is deleting or draining the node."""
    SCALE_DOWN_ALLOWED = "scale-down-allowed"
    """Marked, and its scale-down is allowed."""
    RESERVED = "reserved"
    """Empty, and kept for expected pods, marked or not."""
    MARKED = "marked"
    """Marked, and neither RELEASED nor RESERVED."""
    UNSCHEDULABLE = "unschedulable"
    """Unmarked, and cordoned or not Ready."""
    REMOVABLE = "removable"
    """Unmarked, and the plan can remove the node."""
    NEEDED = "needed"
    """Any other node."""


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The number of nodes of one pool by state, and the sums of their resources.

    Virtual nodes do not count.
    """

    states: Counter[PlannedNodeState]
    """Number of nodes by state."""
    nodes: int
    """Number of Ready and schedulable nodes."""
    pods: int
    """Number of pods on these nodes."""
    allocatable: Amount
    """Allocatable resources of these nodes."""
    requests: Amount
    """Requests of these pods."""
    usable: Amount
    """Usable capacity of these nodes (thesis 4.3)."""


def pool_figures(result: ReconcileResult, groups: Mapping[str, str]) -> dict[str, PoolFigures]:
    """Return the statistics of the largest pools and of all others, by name, sorted.

    *groups*: group of each node for display, by name of the node.
    """
    shown, pools = largest_groups(groups), dict[str, list[Node]]()
    for node in result.snapshot.cluster.nodes:
        if not node.virtual:
            pools.setdefault(shown[node.name], []).append(node)
    removals = frozenset(removal.node for removal in result.plan.removals)
    reserved = frozenset(reserved.node for reserved in result.plan.reserve)
    return {
        name: _figures(nodes, result, removals, reserved) for name, nodes in sorted(pools.items())
    }


def _figures(
    nodes: Sequence[Node],
    result: ReconcileResult,
    removals: Container[str],
    reserved: Container[str],
) -> PoolFigures:
    snapshot, usability = result.snapshot, result.plan.usability
    schedulable = [node for node in nodes if node.name not in snapshot.unschedulable_nodes]
    whole = [Amount.of(node.allocatable) for node in schedulable]
    requests = [snapshot.pod_index.requests[node.name] for node in schedulable]
    used = [Amount.of(of_node) for of_node in requests]
    usable = [usable_capacity(*pair, usability) for pair in zip(whole, used, strict=True)]
    return PoolFigures(
        Counter(_state(node, result, removals, reserved) for node in nodes),
        nodes=len(schedulable),
        pods=sum(of_node.pods for of_node in requests),
        allocatable=_total(whole),
        requests=_total(used),
        usable=_total(usable),
    )


def _total(amounts: Sequence[Amount]) -> Amount:
    return Amount(sum(cpu for cpu, _ in amounts), sum(memory for _, memory in amounts))


def _state(
    node: Node, result: ReconcileResult, removals: Container[str], reserved: Container[str]
) -> PlannedNodeState:
    snapshot, name = result.snapshot, node.name
    if name in snapshot.leaving_nodes:
        return PlannedNodeState.LEAVING
    marked = name in snapshot.marks
    if marked and is_scale_down_allowed(node):
        return PlannedNodeState.SCALE_DOWN_ALLOWED
    if name in reserved:
        return PlannedNodeState.RESERVED
    if marked:
        return PlannedNodeState.MARKED
    if name in snapshot.unschedulable_nodes:
        return PlannedNodeState.UNSCHEDULABLE
    return PlannedNodeState.REMOVABLE if name in removals else PlannedNodeState.NEEDED
