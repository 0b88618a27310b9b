"""Decide which unmarked nodes to protect from the autoscaler's scale-down.

The setting `scope: all` protects every node, `scope: all-empty` only empty nodes,
`scope: reserved` only empty nodes that the reserve names, and `scope: marked` no unmarked node.
Nodes of Karpenter have `reserved` instead of `all`: their NodePool says what Karpenter removes,
and its annotation would also stop the replacement of drifted and expired nodes.

Nodes that Ebb ignores are not protected, because Ebb would never allow their scale-down: nodes
that are cordoned, opted out, not Ready, not scalable, or in no pool. The same holds for an empty
node with a reason that keeps it from being marked, such as a backoff. An autoscaler may consider a
node empty although Ebb would have to move pods from it. Such a node is not protected either,
because Ebb may find no places for these pods. A node that Karpenter reports as drifted is
protected for an hour only (core.eligibility.drift).
"""

from collections.abc import Iterable

from core.config.settings import Config, Mode, Scope
from core.eligibility.node_eligibility import REASONS
from core.eligibility.scalability import NOT_SCALABLE
from core.engine.leader_state import RateLimits
from core.engine.mark_limits import BACKOFF, MARK_REFUSED
from core.engine.plan import Plan, ReserveCause, ReservedNode
from core.engine.snapshot import ClusterSnapshot
from core.marks.wellknown import KARPENTER_LABEL
from core.model.node import Node


def protected_unmarked(
    snapshot: ClusterSnapshot, reserve: Iterable[ReservedNode], limits: RateLimits
) -> frozenset[str]:
    """Return the names of the unmarked nodes to protect from the autoscaler's scale-down.

    *reserve*: empty nodes kept for expected pods; a backoff of these nodes is ignored. *limits*:
    the current rate limits, for the backoffs of nodes.
    """
    reserved = frozenset(node.node for node in reserve)
    skipped = (limits.of(BACKOFF).keys() | limits.of(MARK_REFUSED).keys()) - reserved
    return frozenset(
        node.name
        for node in snapshot.cluster.nodes
        if node.name not in snapshot.marks
        and node.name not in snapshot.unprotectable_nodes
        and _scope_includes(snapshot.config, node)
        and not _has_own_blocker(snapshot, node)
        and (
            _scope(snapshot.config, node) is Scope.ALL
            if node.name in snapshot.non_empty_nodes
            else not snapshot.blockers[node.name]
            and node.name not in skipped
            and (_scope(snapshot.config, node) is not Scope.RESERVED or node.name in reserved)
            and not snapshot.pod_index.count_movable(node.name)
        )
    )


def kept_empty_nodes(snapshot: ClusterSnapshot, plan: Plan) -> dict[str, ReserveCause]:
    """Return the cause by name of each empty node that Ebb keeps from scale-down.

    Empty in mode observe, which protects no node.
    """
    if snapshot.config.mode is Mode.OBSERVE:
        return {}
    protected = plan.protected | snapshot.marks.keys()
    kept = dict.fromkeys(sorted(plan.protected - snapshot.non_empty_nodes), ReserveCause.SCOPE)
    return kept | {node.node: node.cause for node in plan.reserve if node.node in protected}


def protects_empty(snapshot: ClusterSnapshot, node: Node) -> bool:
    """Report whether Ebb would protect an empty unmarked node that expected pods need."""
    return (
        _scope_includes(snapshot.config, node)
        and node.name not in snapshot.unprotectable_nodes
        and not snapshot.pod_index.count_movable(node.name)
    )


def _scope(config: Config, node: Node) -> Scope:
    scope = config.scale_down_protection.scope
    karpenters = KARPENTER_LABEL in node.labels
    return Scope.RESERVED if scope is Scope.ALL and karpenters else scope


def _scope_includes(config: Config, node: Node) -> bool:
    budgets = config.budgets
    in_pool = not budgets.pools or budgets.pool_of(node.labels) is not None
    return in_pool and config.scale_down_protection.scope is not Scope.MARKED


def _has_own_blocker(snapshot: ClusterSnapshot, node: Node) -> bool:
    """Report whether a reason in the Node itself, not in its pods, forbids to remove the node."""
    return any(
        blocker.reason in REASONS or blocker.reason is NOT_SCALABLE
        for blocker in snapshot.blockers[node.name]
    )
