"""Which nodes without a mark no autoscaler is to take, because Ebb has not handed them over; pure.

With `scope: all` that is every node that holds pods, and in any but `marked` every empty one that
Ebb will mark once it can do without it. A node that Ebb leaves alone is its autoscaler's: one
that somebody works on or keeps, that is not ready, or in no pool; an empty one also while it backs
off or has refused its mark, or if something keeps Ebb from ever marking it. Nobody would hand
these over. So it is with
one that is empty for its autoscaler alone: Ebb looks for places for its pods, and may find none.
"""

from collections.abc import Iterable

from core.config.settings import Config, Scope
from core.engine.leader_state import RateLimits
from core.engine.plan import ReservedNode
from core.engine.snapshot import ClusterSnapshot
from core.guards.node_eligibility import REASONS
from core.model.node import Node


def protected_unmarked(
    snapshot: ClusterSnapshot, reserve: Iterable[ReservedNode], pace: RateLimits
) -> frozenset[str]:
    """Return them by name; *reserve*: the empty nodes that are kept for pods to be expected."""
    scope = snapshot.config.hand_over.scope
    left_alone = (pace.backing_off.keys() | pace.failed_writes.keys()) - {
        one.node for one in reserve
    }
    return frozenset(
        node.name
        for node in snapshot.cluster.nodes
        if node.name not in snapshot.marks
        and _is_ours(snapshot, node)
        and (
            scope is Scope.ALL
            if node.name in snapshot.non_empty_nodes
            else not snapshot.blockers[node.name]
            and node.name not in left_alone
            and not snapshot.pod_index.count_movable(node.name)
        )
    )


def protects_empty(snapshot: ClusterSnapshot, node: Node) -> bool:
    """Say whether Ebb would hold the node, which is empty, where it is kept for somebody."""
    return _may_hold(snapshot.config, node) and not snapshot.pod_index.count_movable(node.name)


def _may_hold(config: Config, node: Node) -> bool:
    """Say whether the node is in a pool, and nodes without a mark are held at all."""
    budgets = config.budgets
    in_pool = not budgets.pools or budgets.pool_of(node.labels) is not None
    return in_pool and config.hand_over.scope is not Scope.MARKED


def _is_ours(snapshot: ClusterSnapshot, node: Node) -> bool:
    """Say whether nothing but its pods, and the moment, may speak against its going."""
    own = any(one.reason in REASONS for one in snapshot.blockers[node.name])
    return not own and _may_hold(snapshot.config, node)
