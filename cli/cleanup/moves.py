"""End surge moves: set the replicas of their Deployments back, and remove their records.

A surge move adds a replica to a Deployment, so that a pod on a marked node can be deleted. A
ConfigMap records the moves in progress.
"""

from contextlib import suppress
from functools import partial

from core.moves.new_pods import new_pod
from core.moves.records import MoveRecord, MoveStep, decode
from kube.stores.move_records import MoveRecordStore

from cli.cleanup.removals import Removals
from core.model.cluster import Cluster
from core.model.errors import ConflictError, InvalidInputError, UnavailableError
from core.model.pod import Pod
from core.moves.objects import MANAGER
from core.moves.steps import is_kept
from core.writes.costs import UNDO_COST, cost_write
from kube.client import ApiError, Client
from kube.decode.kinds import DEPLOYMENTS
from kube.stores.objects import TRIES_MAX, pods, write_as_decided
from kube.stores.scales import ScaleStore


async def end_moves(client: Client, namespace: str, cluster: Cluster, removals: Removals) -> None:
    """Restore the replicas of each Deployment with a surge move, then remove the move records.

    *namespace*: namespace of Ebb. *removals* makes or only prints each write. If a Deployment
    cannot be changed, the records remain, so that the command can be run again. Raises:
    UnavailableError.
    """
    store = MoveRecordStore(client, namespace)
    try:
        stored = await store.read()
    except ApiError as fault:
        if not fault.forbidden:
            raise
        removals.reject(
            f"configmap {store.key}: {fault}. If surge moves are in progress, the replicas of "
            "these Deployments remain raised: run the command with permission to get and update it"
        )
        return
    if stored is None or not stored.data:
        return
    rejected_before = removals.rejected
    for move in decode(stored.data).records.moves.values():
        restore = partial(_restore_replicas, client, move, _pod_to_delete(cluster, move))
        what = f"replicas of a surge move set back from {move.raised} to {move.original}"
        await removals.make("deployment", move.deployment_key, what, restore)
    if removals.rejected == rejected_before:
        remove = partial(_remove_records, store)
        await removals.make("configmap", store.key, "records of surge moves", remove)


def _pod_to_delete(cluster: Cluster, move: MoveRecord) -> Pod | None:
    """Return the pod that a move has added, if the ReplicaSet controller would keep it.

    This pod must get the lowest pod deletion cost, so that the controller deletes it and not the
    old pod. Returns None if the old or new pod does not exist, or if the new pod needs no other
    cost.
    """
    old = next((pod for pod in cluster.pods if pod.uid == move.pod_uid), None)
    if old is None:
        return None
    owner = old.namespace, old.owner_name
    new = new_pod(move, [pod for pod in cluster.pods if (pod.namespace, pod.owner_name) == owner])
    return new if new is not None and is_kept(new) else None


async def _restore_replicas(client: Client, move: MoveRecord, new: Pod | None) -> None:
    """Set the Deployment of a move back to its original replicas.

    Nothing happens if another client has set the replicas. *new*: pod that first gets the lowest
    pod deletion cost; None for no pod. Raises: ConflictError.
    """
    scales = ScaleStore(client)
    for _ in range(TRIES_MAX):
        scale = await scales.read(move.namespace, move.deployment)
        if scale is None or (scale.uid, scale.replicas) != (move.uid, move.raised):
            return
        if not await _is_raised_by_ebb(client, move):
            return
        if new is not None:
            # If this write fails, the new pod may remain instead of the old one; it is Ready.
            with suppress(UnavailableError):
                lowest = cost_write(new, UNDO_COST)
                await write_as_decided(pods(client), new.key, lowest.if_unchanged)
        with suppress(ConflictError):
            await scales.write(move.namespace, move.deployment, scale.version, move.original)
            return
    raise ConflictError("another client keeps changing the Deployment")


async def _is_raised_by_ebb(client: Client, move: MoveRecord) -> bool:
    """Return whether Ebb has raised the replicas of a move's Deployment.

    Returns True if the Deployment cannot be read, for example for lack of permission.
    """
    try:
        raw = await client.find(DEPLOYMENTS.path_of(move.deployment_key))
        deployment = None if raw is None else DEPLOYMENTS.decode(raw)
    except (ApiError, InvalidInputError):
        return True
    manager = deployment.observed.replicas_manager if deployment else ""
    return manager == MANAGER or (not manager and move.step is not MoveStep.RECORDED)


async def _remove_records(store: MoveRecordStore) -> None:
    for _ in range(TRIES_MAX):
        stored = await store.read()
        if stored is None or not stored.data:
            return
        with suppress(ConflictError):
            await store.write(stored, {})
            return
    raise ConflictError("the controller keeps writing the records: scale it to 0 first")
