"""Which pods a scale-in should take first: those of ReplicaSets on marked and next nodes; pure.

Of pods that are bound and ready the ReplicaSet controller deletes those of the lowest cost first.
So a scale-in that comes anyway, an HPA's too, empties marked nodes, and nothing is evicted. A
rollout scales the old ReplicaSets of a Deployment down, by the same order: none is an exception.
Source: kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost, which asks
to write it seldom: here it is once for each pod while its node is next in line, and once for each
mark.
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

from core.engine.unschedulable import round_robin
from core.marks.mark import mark_of, marked_since
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.workload import goes_by_cost
from core.writes.write import CostKind, Keys, Write

COST_MIN: Final = -100_000_000
"""There is room below for a person who wants a pod to go before these.

It is not as low as can be, for Karpenter reads the cost too: to move a pod costs 1 + cost / 2^27,
and a node none of whose pods costs more than 0 is empty to it, so that it would evict them.
Source: EvictionCost and IsEmpty of sigs.k8s.io/karpenter v1.14.0.
"""
COSTS_A_STEP: Final = 64
"""Nodes of one age still get costs of their own, so that one empties before the next."""
NEXT_MIN: Final = -1_000_000
"""From here up to -1 is for nodes that are next in line; a pod without a cost counts as 0."""
COST_MAX: Final = NEXT_MIN - 1
"""Of pods on marked nodes."""
COST_EPOCH_SECONDS: Final = 1_672_531_200
"""2023: no mark is older."""
COST_STEP_SECONDS: Final = 600
"""Marks of one step are of one age; so the costs reach COST_MAX after the year 2050 only."""

Costs = Mapping[str | None, int]
"""By node."""
Numbers = Mapping[str, int]
"""By node: how soon it is to be empty."""
NOBODY: Final[Numbers] = {}
_NEXT: Final = re.compile(r"-[1-9][0-9]{0,6}")


def cost_of(node: Node, taint_key: str) -> int:
    """Return the cost of a marked node's pods: below every default, older marks lower."""
    age_steps = (marked_since(node, taint_key) - COST_EPOCH_SECONDS) // COST_STEP_SECONDS
    of_node = zlib.crc32(node.name.encode()) % COSTS_A_STEP
    return max(COST_MIN, min(COST_MIN + age_steps * COSTS_A_STEP + of_node, COST_MAX))


def next_cost(number: int) -> int:
    """Return the cost of the pods of a node with that number in line: above that of any mark."""
    return min(NEXT_MIN + number, -1)


def decide_costs(
    cluster: Cluster, taint_key: str, next_in_line: Numbers = NOBODY, *, enabled: bool
) -> tuple[Write[Pod], ...]:
    """Return the writes that bring the pods' costs to where the marks want them.

    *next_in_line*: numbers of nodes whose pods have a cost though no mark asks for it
    (core.engine.scale_in_targets).

    One that takes away, then one that sets, in turn, as long as there are both; of each in turns
    of namespaces, by pod and those of the oldest marks first. A pass writes the first of them
    only, and who may write on the pods of one namespace may forge as many traces to be taken away
    as there are pods, and again after each pass. All follows from what stands in the cluster and
    from what is next, so that any leader cleans up what another one has left, and applied to its
    own answer it leaves nothing to write. A cost that is not ours is never touched, and what is
    ours is written anew only when a mark has come to the node or has gone: pods do not move, so it
    stays right.
    """
    costs = _costs(cluster, taint_key, next_in_line) if enabled else {}
    concerned = [
        pod
        for pod in cluster.pods
        if (pod.deletion_cost_ours is not None or pod.node in costs) and not pod.terminating
    ]
    clears = [pod for pod in concerned if _to_clear(pod, costs)]
    sets = [pod for pod in concerned if _to_set(pod, costs)]
    both = zip_longest(*map(_in_turns, (map(_clear, clears), _sets(sets, costs))))
    return tuple(write for pair in both for write in pair if write is not None)


def _costs(cluster: Cluster, taint_key: str, next_in_line: Numbers) -> Costs:
    found: dict[str | None, int] = {}
    for node in cluster.nodes:
        if mark_of(node.labels) is not None:
            found[node.name] = cost_of(node, taint_key)
        elif node.name in next_in_line:
            found[node.name] = next_cost(next_in_line[node.name])
    return found


def _in_turns(writes: Iterable[Write[Pod]]) -> list[Write[Pod]]:
    return round_robin(writes, lambda write: write.before.namespace)


def _to_clear(pod: Pod, costs: Costs) -> bool:
    """Say whether our trace goes: the node has no cost, or a person has written another one.

    A cost of ours that a person took away, and nothing more, stays away as long as the node has
    one: its trace says that it was written once.
    """
    ours = pod.deletion_cost_ours
    return ours is not None and (
        pod.node not in costs or pod.deletion_cost not in (None, ours) or not goes_by_cost(pod)
    )


def _to_set(pod: Pod, costs: Costs) -> bool:
    if pod.node not in costs or not goes_by_cost(pod):
        return False
    stands = pod.deletion_cost
    if stands != pod.deletion_cost_ours:
        return False
    return stands is None or _is_next(stands) is not (costs[pod.node] >= NEXT_MIN)


def _is_next(cost: str) -> bool:
    """Say whether a cost that stands on a pod is one of nodes that are next in line."""
    return _NEXT.fullmatch(cost) is not None and int(cost) >= NEXT_MIN


def _clear(pod: Pod) -> Write[Pod]:
    costs: Keys = {COST_ANNOTATION: None} if pod.has_our_cost else {}
    return Write.of(CostKind.CLEAR, pod, {}, {COST_OURS_ANNOTATION: None, **costs}, "")


def _sets(pods: Iterable[Pod], costs: Costs) -> list[Write[Pod]]:
    found = ((costs[pod.node], pod) for pod in pods)
    ordered = sorted(found, key=lambda one: (one[0], one[1].namespace, one[1].name))
    keys = COST_ANNOTATION, COST_OURS_ANNOTATION
    return [
        Write.of(CostKind.SET, pod, {}, dict.fromkeys(keys, str(cost)), "")
        for cost, pod in ordered
    ]
