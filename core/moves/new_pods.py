"""Find the pods that surge moves have added: nothing else decides which pod is one."""

from collections.abc import Iterable, Sequence

from core.engine.unschedulable import is_unschedulable
from core.model.pod import Pod
from core.moves.objects import SurgeObjects
from core.moves.records import MoveRecord


def new_pod(record: MoveRecord, pods: Sequence[Pod]) -> Pod | None:
    """Return the pod that the move has added, or None; *pods*: all pods of the Deployment.

    It is the newest one, if the Deployment has more pods than before the move.
    """
    left = [pod for pod in pods if not pod.terminating]
    if len(left) <= record.original:
        return None
    others = [pod for pod in left if pod.uid != record.pod_uid]
    return max(others, key=lambda pod: (pod.created_seconds or 0, pod.name), default=None)


def unschedulable_new_pods(
    pods: Sequence[Pod], objects: SurgeObjects, moves: Iterable[MoveRecord]
) -> dict[str, Pod]:
    """Return the new pods that are unschedulable, by the UID of their Deployment.

    Their moves are undone at once, so these pods need no room; *pods*: all pods of the cluster.
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
    """Return the key of the pod's Deployment, or an empty text."""
    deployment = objects.deployment_of(pod)
    return "" if deployment is None else deployment.key
