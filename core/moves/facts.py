"""Add to the cluster what plans need to know about surge moves."""

from collections.abc import Callable
from dataclasses import replace

from core.model.cluster import Cluster, SurgeFacts
from core.moves.new_pods import unschedulable_new_pods
from core.moves.objects import SurgeObjects, consents
from core.moves.records import MoveRecords, MoveStep

AddMoves = Callable[[Cluster], Cluster]
"""Adds to a cluster what plans need to know of surge moves, in any thread."""


def with_moves(
    cluster: Cluster,
    objects: SurgeObjects,
    records: MoveRecords,
    before: MoveRecords,
    own_namespace: str,
) -> Cluster:
    """Return the cluster with the facts for a plan; *before*: the records at the plan before it.

    The cluster does not have new pods of moves that are unschedulable, because these moves are
    undone. So such a pod affects neither a mark nor other moves.
    """
    moves = records.moves
    undone = unschedulable_new_pods(cluster.pods, objects, moves.values())
    deployments = objects.deployments
    moving = (
        deployments.get(move.deployment_key) for move in (*moves.values(), *before.moves.values())
    )
    facts = SurgeFacts(
        allowed=frozenset(
            (one.namespace, one.replica_set)
            for one in deployments.values()
            if consents(one) and one.namespace != own_namespace
        ),
        moving=frozenset((one.namespace, one.replica_set) for one in moving if one is not None),
        replaced=frozenset(
            f"{move.namespace}/{move.pod}"
            for move in moves.values()
            if move.step is MoveStep.RAISED and move.uid not in undone
        ),
    )
    if not undone:
        return cluster if facts == cluster.surge else replace(cluster, surge=facts)
    without = {pod.key for pod in undone.values()}
    pods = tuple(pod for pod in cluster.pods if pod.key not in without)
    return replace(cluster, pods=pods, surge=facts)
