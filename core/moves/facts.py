"""Add the state of surge moves, on which plans depend, to a Cluster.

A surge move adds a pod to a Deployment, and then deletes another pod of it on a marked node.
"""

from collections.abc import Callable
from dataclasses import replace

from core.model.cluster import Cluster, SurgeFacts
from core.moves.deployments import consents
from core.moves.new_pods import unschedulable_new_pods
from core.moves.objects import SurgeObjects
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
    """Return the cluster with its field `surge` set, which tells the next plan about surge moves.

    The field has the ReplicaSets whose Deployments allow moves, the ReplicaSets with a move, and
    the pods that moves replace. A new pod of a move that is unschedulable is left out of the
    cluster. Ebb undoes its move, so the pod must affect neither marks nor other moves.

    *records*: the moves now. *before*: the moves at the previous plan. *own_namespace*: Ebb's
    namespace, in which Ebb moves no pods.
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
            if consents(one, objects) and one.namespace != own_namespace
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
