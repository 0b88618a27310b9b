"""Add the state of surge moves, on which plans depend, to a Cluster.

A move replaces a pod on a marked node by a new one, before the old one is deleted.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from core.engine.unschedulable import is_unschedulable
from core.model.cluster import Cluster, SurgeFacts
from core.model.pod import REPLICA_SET, Pod, detached_pods
from core.moves.deployments import consents
from core.moves.move import found_move, new_pods
from core.moves.objects import SurgeObjects, is_controller

AddMoves = Callable[[Cluster], Cluster]
"""Adds to a cluster what plans need to know of surge moves, in any thread."""
ReplicaSetKey = tuple[str, str]
"""Namespace and name of a ReplicaSet."""


def with_moves(
    cluster: Cluster,
    objects: SurgeObjects,
    own_namespace: str,
    *,
    moving_before: Collection[ReplicaSetKey] = (),
    refused: Collection[ReplicaSetKey] = (),
) -> Cluster:
    """Return the cluster with its field `surge` set, which tells the next plan about surge moves.

    The field has the ReplicaSets whose Deployments allow moves, the ReplicaSets with a move, and
    the pods that moves replace. A new pod of a move that is unschedulable is left out of the
    cluster. Ebb undoes its move, so the pod must affect neither marks nor other moves.

    *own_namespace*: Ebb's namespace, with the leader, which Ebb does not move. *moving_before*:
    ReplicaSets with a move at the previous plan. *refused*: ReplicaSets whose pods cannot be moved
    for a reason that only a running controller knows.
    """
    detached = detached_pods(cluster.pods)
    moving = {(pod.namespace, pod.owner_name) for pod in detached}
    replaced, undone = _replaced_and_undone(cluster, detached, moving)
    facts = SurgeFacts(
        allowed=frozenset(
            key
            for one in objects.deployments.values()
            if consents(one, objects) and not is_controller(one, own_namespace)
            if (key := (one.namespace, one.replica_set)) not in refused
        ),
        moving=frozenset((*moving, *moving_before)),
        replaced=replaced,
    )
    if not undone:
        return cluster if facts == cluster.surge else replace(cluster, surge=facts)
    pods = tuple(pod for pod in cluster.pods if pod.key not in undone)
    return replace(cluster, pods=pods, surge=facts)


def _replaced_and_undone(
    cluster: Cluster, detached: Collection[Pod], moving: Collection[ReplicaSetKey]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the detached pods that have a new pod, and the new pods that are unschedulable."""
    # Anybody may have labeled a pod of another controller, or of none.
    detached = [pod for pod in detached if pod.owner_kind == REPLICA_SET]
    if not detached:
        return frozenset(), frozenset()
    of: dict[ReplicaSetKey, list[Pod]] = {key: [] for key in moving}
    for pod in cluster.pods:
        if pod.owner_kind == REPLICA_SET and (key := (pod.namespace, pod.owner_name)) in of:
            of[key].append(pod)
    replaced, undone = set(), set()
    for pod in detached:
        new = new_pods(found_move(pod), of[pod.namespace, pod.owner_name])
        waiting = {one.key for one in new if is_unschedulable(one)}
        undone |= waiting
        if len(new) > len(waiting):
            replaced.add(pod.key)
    return frozenset(replaced), frozenset(undone)
