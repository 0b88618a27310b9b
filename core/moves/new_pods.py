"""Find the pods that surge moves have added.

A surge move raises the replicas of a Deployment by one; the new pod replaces a pod on a marked
node. No other module decides which pod is the new one.
"""

from collections.abc import Iterable, Sequence

from core.engine.unschedulable import is_unschedulable
from core.model.pod import Pod
from core.moves.objects import SurgeObjects
from core.moves.records import MoveRecord


def new_pod(record: MoveRecord, pods: Sequence[Pod]) -> Pod | None:
    """Return the pod that a surge move has added: the newest pod of its Deployment.

    None if the Deployment has no more pods than before the move; terminating pods do not count.
    *record*: the move. *pods*: all pods of the Deployment.
    """
    left = [pod for pod in pods if not pod.terminating]
    if len(left) <= record.original:
        return None
    others = [pod for pod in left if pod.uid != record.pod_uid]
    return max(others, key=lambda pod: (pod.created_seconds or 0, pod.name), default=None)


def unschedulable_new_pods(
    pods: Sequence[Pod], objects: SurgeObjects, moves: Iterable[MoveRecord]
) -> dict[str, Pod]:
    """Return the unschedulable pods that surge moves have added, by the UID of their Deployment.

    Ebb undoes their moves at once, so these pods need no room. *pods*: all pods of the cluster.
    *moves*: the moves in progress.
    """
    by_key = {move.deployment_key: move for move in moves}
    if not by_key:
        return {}
    waiting = {key for pod in pods if is_unschedulable(pod) and (key := _key(pod, objects))}
    of_deployment: dict[str, list[Pod]] = {key: [] for key in by_key if key in waiting}
    if not of_deployment:
        return {}
    for pod in pods:
        if (key := _key(pod, objects)) in of_deployment:
            of_deployment[key].append(pod)
    found = {by_key[key].uid: new_pod(by_key[key], of) for key, of in of_deployment.items()}
    return {uid: pod for uid, pod in found.items() if pod is not None and is_unschedulable(pod)}


def _key(pod: Pod, objects: SurgeObjects) -> str:
    """Return namespace/name of the pod's Deployment, or an empty string if it has none."""
    deployment = objects.deployment_of(pod)
    return "" if deployment is None else deployment.key
