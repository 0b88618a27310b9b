"""Decide pod deletion costs, so that scale-ins delete pods on marked nodes first; without I/O.

The ReplicaSet controller deletes ready pods with the lowest cost first. A scale-in that happens
anyway, for example by an HPA, thus empties marked nodes without evictions. Rollouts scale down the
old ReplicaSets of a Deployment in the same order. After the pods on marked nodes come those on
scale-in targets: a few unmarked nodes that scale-ins should empty next. If that could break the
topology spread constraints of a ReplicaSet, more of its pods get costs (core.writes.spread_order).

Source: kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost, which asks
to update costs rarely. Ebb writes a cost once while the pod's node is a scale-in target, and once
for each mark.
"""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from core.engine.unschedulable import round_robin
from core.marks.mark import mark_of, marked_since
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MOVE_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import HOST_LABEL, SpreadConstraint
from core.model.node import Node
from core.model.pod import Pod, detached_pods, goes_by_cost
from core.placement.matching import selects
from core.writes.spread_order import (
    OTHERS,
    UNORDERED,
    RankedPod,
    SkewLimit,
    spread_costs,
)
from core.writes.write import CostKind, Keys, Write

COST_MIN: Final = -100_000_000
"""Lowest cost that Ebb writes; operators can still set lower costs.

Karpenter also reads the cost: to move a pod costs 1 + cost / 2^27, and a node none of whose pods
costs more than 0 counts as empty, so that Karpenter would evict its pods. A lower minimum would
cause this. From 1.15 on, Karpenter reads karpenter.sh/disruption-cost first. Source: EvictionCost
and IsEmpty of sigs.k8s.io/karpenter v1.15.0."""
MOVE_COST: Final = COST_MIN - 1
"""Cost of a pod that a surge move replaces: the lowest of its ReplicaSet."""
UNDO_COST: Final = MOVE_COST - 1
"""Cost of the new pod of a surge move that is undone: it is deleted before the pod to move."""
COSTS_A_STEP: Final = 64
"""Number of different costs for nodes that were marked in the same step of time.

So scale-ins empty one node before the next."""
NEXT_MIN: Final = -1_000_000
"""Lowest cost on scale-in targets, which have costs up to -1; a pod without a cost counts as 0."""
COST_MAX: Final = NEXT_MIN - 1
"""Highest cost of pods on marked nodes."""
COST_EPOCH_SECONDS: Final = 1_672_531_200
"""Start of 2023; no mark is older."""
COST_STEP_SECONDS: Final = 600
"""Length of a step of time: marks in one step count as equally old.

Costs reach COST_MAX only after the year 2050."""

CONSTRAINTS_MAX: Final = 4
"""Maximum number of topology spread constraints that the costs of a ReplicaSet keep."""
DOMAINS_MAX: Final = 64
"""A ReplicaSet in more topology domains is left out: its costs follow the nodes alone."""
ORDERED_MAX: Final = 4000
"""Number of pods after whose new order a decision orders no further ReplicaSet.

The next decision goes on. A reconciliation writes fewer costs, and its removals of marks must not
wait for these orders."""

Costs = Mapping[str | None, int]
"""Costs by node."""
Numbers = Mapping[str, int]
"""Rank of scale-in targets by node; scale-ins empty the node with the lowest rank first."""
NOBODY: Final[Numbers] = {}
_OF_MOVES: Final = frozenset((str(MOVE_COST), str(UNDO_COST)))
_COST: Final = re.compile(r"0|-[0-9]{1,64}|[1-9][0-9]{0,9}")
COSTS: Final = range(-(2**31), 2**31)
"""The costs that Kubernetes accepts."""
_NEXT: Final = re.compile(r"-[1-9][0-9]{0,6}")


def cost_of(node: Node, taint_key: str) -> int:
    """Return the pod deletion cost for the pods on a marked node.

    It is lower for older marks, and always below the cost of pods on unmarked nodes.
    """
    age_steps = (marked_since(node, taint_key) - COST_EPOCH_SECONDS) // COST_STEP_SECONDS
    of_node = zlib.crc32(node.name.encode()) % COSTS_A_STEP
    return max(COST_MIN, min(COST_MIN + age_steps * COSTS_A_STEP + of_node, COST_MAX))


def next_cost(number: int) -> int:
    """Return the pod deletion cost for the pods on the scale-in target with the rank *number*.

    A scale-in target is an unmarked node that scale-ins should empty after the marked nodes. The
    cost is negative, and above the cost of pods on any marked node.
    """
    return min(NEXT_MIN + number, -1)


def number_of(cost: str | None) -> int:
    """Return a pod deletion cost as the ReplicaSet controller reads it.

    *cost*: value of the annotation. The result is 0 if it is absent or invalid.
    """
    text = cost or ""
    number = int(text) if _COST.fullmatch(text) else 0
    return number if number in COSTS else 0


def has_cost(pod: Pod, cost: int) -> bool:
    """Return whether the pod has the pod deletion cost *cost*, and Ebb has written it."""
    return pod.has_our_cost and pod.deletion_cost == str(cost)


def cost_write(pod: Pod, cost: int) -> Write[Pod]:
    """Return the write that sets the pod deletion cost *cost*, and records it as Ebb's."""
    keys = COST_ANNOTATION, COST_OURS_ANNOTATION
    return Write.of(CostKind.SET, pod, {}, dict.fromkeys(keys, str(cost)), "")


Place = tuple[tuple[int, int], tuple[str | None, ...]]
"""Rank of a node and its topology domains (RankedPod)."""


class ReplicaSetOrder(NamedTuple):
    """The costs that order the Ready pods of a ReplicaSet, and what they follow from."""

    pods: list[Pod]
    places: list[Place]
    """Places of the pods."""
    updates: list[tuple[int, Pod]] | None
    """Costs to set, each with its pod. None: the costs follow the nodes alone."""
    broken: bool
    """Scale-ins may break a topology spread constraint."""


Orders = Mapping[tuple[str, str], ReplicaSetOrder]
"""Orders by the namespace and name of the ReplicaSet."""
NO_ORDERS: Final[Orders] = {}


class CostDecision(NamedTuple):
    """The writes of pod deletion costs, and what they follow from."""

    writes: tuple[Write[Pod], ...] = ()
    orders: Orders = NO_ORDERS
    """Orders of ReplicaSets whose pods must stay spread, for the next decision."""

    @property
    def unspread(self) -> int:
        """Return the number of ReplicaSets whose scale-ins may break a spread constraint.

        Their constraints, or costs that are not Ebb's, admit no order that keeps all constraints.
        """
        return sum(order.broken for order in self.orders.values())

    @property
    def to_order(self) -> int:
        """Return the number of pods whose cost the orders change."""
        return sum(len(order.updates or ()) for order in self.orders.values())


NO_COSTS: Final = CostDecision()


def decide_costs(
    cluster: Cluster,
    taint_key: str,
    next_in_line: Numbers = NOBODY,
    before: Orders = NO_ORDERS,
    *,
    enabled: bool,
    keep_orders: bool = False,
    reorder: bool = True,
) -> CostDecision:
    """Decide on the writes that set or remove the pod deletion costs of Ebb.

    *next_in_line*: ranks, by name, of unmarked nodes whose pods also get a cost
    (core.engine.scale_in_targets). *before*: orders of the last decision. *enabled*: False removes
    all costs of Ebb. *keep_orders*: a ReplicaSet of *before* keeps its costs when none of its pods
    is on such a node any more, so that they are not removed and soon set again. *reorder*: False
    leaves the orders of *before* as they are, which takes much less time. While a surge move has
    detached a pod of a ReplicaSet, the costs of its pods stay: they decide which pod is deleted
    when the detached one is given back.

    Removals and updates alternate as long as there are both, and namespaces take turns in each. Of
    the updates of a namespace, those on nodes with the oldest marks come first.

    The writes depend only on the cluster and the targets, so any leader cleans up after another.
    Applied to its own result, the function returns no writes. Costs of others are never changed.
    """
    costs = _costs(cluster, taint_key, next_in_line) if enabled else {}
    moving = {_replica_set(pod) for pod in detached_pods(cluster.pods)}
    pods = [
        pod
        for pod in cluster.pods
        if (pod.deletion_cost_ours is not None or pod.move is not None or pod.node in costs)
        and not pod.terminating
        and not (moving and _replica_set(pod) in moving)
    ]
    of_interest = _must_stay_spread(pods, costs)
    if enabled and keep_orders:
        kept = {key for key, order in before.items() if order.updates is not None}
        of_interest |= kept - moving
    orders: Orders = {key: order for key, order in before.items() if key in of_interest}
    left_alone = set[tuple[str, str]]()
    if reorder:
        orders, left_alone = _spread_costs(cluster, of_interest, costs, before)
    in_order = left_alone.union(key for key, one in orders.items() if one.updates is not None)
    removals, updated = list[Write[Pod]](), list[tuple[int, Pod]]()
    for pod in pods:
        ordered = (pod.namespace, pod.owner_name) in in_order
        if _to_remove(pod, costs, in_order=ordered) or (pod.move is not None and not enabled):
            removals.append(_removal(pod))
        elif not ordered and _to_set(pod, costs):
            updated.append((costs[pod.node], pod))
    if reorder:
        updated += [update for order in orders.values() for update in order.updates or ()]
    updated.sort(key=lambda update: (update[0], update[1].namespace, update[1].name))
    updates = [cost_write(pod, cost) for cost, pod in updated]
    # A reconciliation applies only the first writes. A user who may write Pods in one namespace
    # can forge any number of costs to remove, after each reconciliation again, and must not delay
    # all other writes.
    pairs = zip_longest(_in_turns(removals), _in_turns(updates))
    return CostDecision(
        tuple(write for pair in pairs for write in pair if write is not None), orders
    )


def pods_of_other_writers(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods whose pod deletion cost is written by another controller.

    Examples are Karpenter's PodDeletionCostManagement and Koordinator's ScaleDownBinPack: they set
    a cost on each pod that depends on its node. Ebb cannot decide which of these pods a scale-in
    deletes. Costs from a pod template are equal on all pods of a ReplicaSet, so they do not count.
    """
    foreign: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if pod.deletion_cost is not None and not pod.has_our_cost and goes_by_cost(pod):
            foreign.setdefault((pod.namespace, pod.owner_name), []).append(pod)
    return tuple(
        pod
        for siblings in foreign.values()
        if len({pod.deletion_cost for pod in siblings}) > 1
        or any(pod.deletion_cost_ours is not None for pod in siblings)
        for pod in siblings
    )


def _costs(cluster: Cluster, taint_key: str, next_in_line: Numbers) -> Costs:
    costs: dict[str | None, int] = {}
    for node in cluster.nodes:
        if mark_of(node.labels) is not None:
            costs[node.name] = cost_of(node, taint_key)
        elif node.name in next_in_line:
            costs[node.name] = next_cost(next_in_line[node.name])
    return costs


def _in_turns(writes: Iterable[Write[Pod]]) -> list[Write[Pod]]:
    return round_robin(writes, lambda write: write.before.namespace)


def _replica_set(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.owner_name


def _must_stay_spread(pods: Iterable[Pod], costs: Costs) -> set[tuple[str, str]]:
    """Return the ReplicaSets with topology spread constraints of which some pods get a cost."""
    return {
        _replica_set(pod)
        for pod in pods
        if pod.node in costs
        and (pod.pod_constraints.spread or pod.soft_spread)
        and goes_by_cost(pod)
        and _is_ours(pod)
    }


def _spread_costs(
    cluster: Cluster, of_interest: set[tuple[str, str]], costs: Costs, before: Orders
) -> tuple[Orders, set[tuple[str, str]]]:
    """Return the orders of these ReplicaSets, and those to be left alone.

    Unchanged ones keep their order of *before*. Those left alone have their turn in a later
    reconciliation. *costs*: by node.
    """
    if not of_interest:
        return NO_ORDERS, set()
    turns = round_robin(sorted(of_interest), lambda replica_set: replica_set[0])
    turns.sort(key=lambda replica_set: replica_set in before)  # those left alone come first
    members: dict[tuple[str, str], list[Pod]] = {replica_set: [] for replica_set in turns}
    for pod in cluster.pods:
        if (
            (pod.soft_spread or pod.pod_constraints.spread)
            and pod.ready
            and (found := members.get((pod.namespace, pod.owner_name))) is not None
            and pod.node is not None
            and not pod.terminating
            and goes_by_cost(pod)
        ):
            found.append(pod)
    places = _Places(cluster.nodes, costs)
    orders, left_alone, ordered = {}, set[tuple[str, str]](), 0
    for key, replicas in members.items():
        limits, at = places.of(replicas)
        order = before.get(key)
        if order is None or order.places != at or order.pods != replicas:
            if ordered >= ORDERED_MAX:
                left_alone.add(key)
                continue
            order = _order_of(replicas, limits, at)
            ordered += len(replicas) if order.updates else 0  # to find no change takes less time
        orders[key] = order
    return orders, left_alone


class _Places:
    """Where pods are: the rank of their node, and its topology domains."""

    def __init__(self, nodes: Iterable[Node], costs: Costs) -> None:
        self._labels = {node.name: node.labels for node in nodes}
        self._costs = costs
        self._of_keys: dict[tuple[str, ...], dict[str | None, Place]] = {}

    def of(self, replicas: Sequence[Pod]) -> tuple[list[SkewLimit], list[Place]]:
        """Return what the constraints of the pods of a ReplicaSet allow, and the pods' places."""
        constraints = _constraints_of(replicas[0]) if replicas else []
        keys = tuple(constraint.topology_key for constraint, _ in constraints)
        of_nodes = self._of_keys.setdefault(keys, {})
        for pod in replicas:
            if pod.node not in of_nodes:
                labels = self._labels.get(pod.node or "", {})
                domains = tuple(map(labels.get, keys))
                of_nodes[pod.node] = _rank(self._costs.get(pod.node, 0)), domains
        limits = [SkewLimit(constraint.max_skew, hard) for constraint, hard in constraints]
        return limits, [of_nodes[pod.node] for pod in replicas]


def _order_of(
    replicas: list[Pod], limits: Sequence[SkewLimit], places: list[Place]
) -> ReplicaSetOrder:
    if len({domains for _, domains in places}) > DOMAINS_MAX:
        by_name, broken = UNORDERED
    else:
        ranked = [_ranked(pod, *place) for pod, place in zip(replicas, places, strict=True)]
        by_name, broken = spread_costs(ranked, limits, range(COST_MIN, 0), NEXT_MIN)
    if by_name is None:
        return ReplicaSetOrder(replicas, places, None, broken)
    wanted = ((by_name.get(pod.name), pod) for pod in replicas)
    updates = [(cost, pod) for cost, pod in wanted if cost is not None and not has_cost(pod, cost)]
    return ReplicaSetOrder(replicas, places, updates, broken)


def _constraints_of(pod: Pod) -> list[tuple[SpreadConstraint, bool]]:
    """Return the constraints that deletions of such pods could break; whether each is hard."""
    hard = [(constraint, True) for constraint in pod.pod_constraints.spread]
    soft = [(constraint, False) for constraint in pod.soft_spread]
    # A constraint on the hostname would keep pods on every node, so that none could become empty.
    return [
        (constraint, is_hard)
        for constraint, is_hard in hard + soft
        if constraint.topology_key != HOST_LABEL and selects(constraint.selector, pod)
    ][:CONSTRAINTS_MAX]


def _ranked(pod: Pod, rank: tuple[int, int], domains: tuple[str | None, ...]) -> RankedPod:
    cost = number_of(pod.deletion_cost)
    if not _is_ours(pod):
        return RankedPod(pod.name, _rank(cost), domains, cost, fixed=True)
    present = cost if pod.deletion_cost is not None and COST_MIN <= cost < 0 else None
    return RankedPod(pod.name, rank, domains, present)


def _is_ours(pod: Pod) -> bool:
    """Return whether Ebb may set the cost of the pod."""
    if pod.deletion_cost in _OF_MOVES:
        # A move that succeeded has given the pod back, and it is about to be deleted.
        return pod.has_our_cost and pod.move is None
    return pod.deletion_cost == pod.deletion_cost_ours


def _rank(cost: int) -> tuple[int, int]:
    return (0 if cost < NEXT_MIN else 1 if cost < 0 else OTHERS), cost


def _to_remove(pod: Pod, costs: Costs, *, in_order: bool) -> bool:
    # Remove the cost if the node of the pod gives it no cost any more, or if someone changed it.
    # If a person removed the cost only (None), keep Ebb's own annotation: it shows that the cost
    # was written once, so that Ebb does not write it again.
    ours = pod.deletion_cost_ours
    return ours is not None and (
        not (pod.node in costs or in_order)
        or pod.deletion_cost not in (None, ours)
        or not goes_by_cost(pod)
    )


def _to_set(pod: Pod, costs: Costs) -> bool:
    if pod.node not in costs or not goes_by_cost(pod) or not _is_ours(pod):
        return False
    current = pod.deletion_cost
    if current in _OF_MOVES:
        return True
    # Pods do not move, so a cost stays right until Ebb marks or unmarks the node.
    return current is None or _is_target_cost(current) is not (costs[pod.node] >= NEXT_MIN)


def _is_target_cost(cost: str) -> bool:
    """Return whether *cost* is a pod deletion cost that Ebb gives to pods on scale-in targets."""
    return _NEXT.fullmatch(cost) is not None and int(cost) >= NEXT_MIN


def _removal(pod: Pod) -> Write[Pod]:
    costs: Keys = {COST_ANNOTATION: None} if pod.has_our_cost else {}
    notes: Keys = {MOVE_ANNOTATION: None} if pod.move is not None else {}
    removed: Keys = {COST_OURS_ANNOTATION: None, **costs, **notes}
    return Write.of(CostKind.REMOVE, pod, {}, removed, "")
