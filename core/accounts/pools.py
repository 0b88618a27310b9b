"""Count the nodes of each pool by state, and sum up their resources."""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum

from core.capacity.usable import NOTHING, Amount, usable_capacity
from core.engine.reconcile import PassResult
from core.engine.snapshot import NO_POOL
from core.marks.mark import is_released_to_autoscaler
from core.model.node import Node


class PlannedNodeState(StrEnum):
    """The state of a node in the latest plan; each node is in one state. A metric label."""

    LEAVING = "leaving"
    """Another program is deleting or draining the node."""
    RELEASED = "released"
    """Marked, and released to the autoscaler."""
    RESERVED = "reserved"
    """Empty, and kept for expected pods, marked or not."""
    MARKED = "marked"
    """Marked, and neither released nor reserved."""
    UNSCHEDULABLE = "unschedulable"
    """Unmarked, and cordoned or not Ready."""
    REMOVABLE = "removable"
    """Unmarked, and the plan can remove the node."""
    NEEDED = "needed"
    """Any other node."""


@dataclass(slots=True)
class PoolFigures:
    """Figures of one pool, without virtual nodes."""

    states: Counter[PlannedNodeState] = field(default_factory=Counter)
    """Number of nodes by state."""
    allocatable: Amount = NOTHING
    """Allocatable resources of the Ready and schedulable nodes."""
    requests: Amount = NOTHING
    """Requests of the pods on these nodes."""
    usable: Amount = NOTHING
    """Usable capacity of these nodes (thesis 4.3)."""

    def add_resources(self, allocatable: Amount, requests: Amount, usable: Amount) -> None:
        """Add the resources of a node."""
        self.allocatable = self.allocatable.plus(allocatable)
        self.requests = self.requests.plus(requests)
        self.usable = self.usable.plus(usable)


def pool_figures(found: PassResult) -> dict[str, PoolFigures]:
    """Return the figures by pool: NO_POOL for the nodes in no pool, then all configured pools."""
    snapshot, usability = found.snapshot, found.plan.usability
    pools = {NO_POOL: PoolFigures()}
    pools.update((pool.name, PoolFigures()) for pool in snapshot.config.budgets.pools)
    removals = frozenset(removal.node for removal in found.plan.removals)
    reserved = frozenset(one.node for one in found.plan.reserve)
    for node in snapshot.cluster.nodes:
        if node.virtual:
            continue
        pool = pools[snapshot.pool_names.get(node.name, NO_POOL)]
        pool.states[_state(node, found, removals, reserved)] += 1
        if node.name not in snapshot.unschedulable_nodes:
            whole = Amount.of(node.allocatable)
            used = Amount.of(snapshot.pod_index.requests[node.name])
            pool.add_resources(whole, used, usable_capacity(whole, used, usability))
    return pools


def _state(
    node: Node, found: PassResult, removals: Container[str], reserved: Container[str]
) -> PlannedNodeState:
    """Return the state of a node; *removals* and *reserved*: nodes of the plan, by name."""
    snapshot, name = found.snapshot, node.name
    if name in snapshot.leaving_nodes:
        return PlannedNodeState.LEAVING
    marked = name in snapshot.marks
    if marked and is_released_to_autoscaler(node):
        return PlannedNodeState.RELEASED
    if name in reserved:
        return PlannedNodeState.RESERVED
    if marked:
        return PlannedNodeState.MARKED
    if name in snapshot.unschedulable_nodes:
        return PlannedNodeState.UNSCHEDULABLE
    return PlannedNodeState.REMOVABLE if name in removals else PlannedNodeState.NEEDED
