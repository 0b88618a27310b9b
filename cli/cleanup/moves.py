"""End surge moves: give each detached pod back to its ReplicaSet."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from cli.cleanup.removals import Removals, warn
from core.model.cluster import Cluster
from core.model.humanize import plural
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL, Pod
from core.moves.move import found_move
from core.moves.outcomes import MoveOutcome
from core.moves.patches import Patch, PodMetadata, attach_patch
from core.moves.steps import undo
from core.writes.costs import UNDO_COST, cost_write
from kube.client import ApiError, Client, answered
from kube.decode.kinds import PODS
from kube.listing import Listed, Part
from kube.stores.objects import pods, write_as_decided
from kube.stores.pod_moves import PodMoves

OLD_RECORDS: Final = "ebb-moves"
"""ConfigMap in which development versions recorded moves that scaled Deployments."""


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


_DECODER: Final = msgspec.json.Decoder(_ConfigMap)


async def end_moves(client: Client, cluster: Cluster, removals: Removals) -> Cluster:
    """Attach all detached pods, so that their ReplicaSets delete the new pods of these moves.

    *removals* makes or only prints each write. Returns the cluster as it is then: its pods that
    are still detached could not be changed. Raises: UnavailableError.
    """
    after = []
    for pod in cluster.pods:
        if DETACHED_LABEL in pod.labels:
            rejected = removals.rejected
            what = "surge move ended, pod attached to its ReplicaSet"
            await removals.make("pod", pod.key, what, partial(_attach, client, pod))
            after.append(_attached(pod) if removals.rejected == rejected else pod)
        else:
            after.append(pod)
    return replace(cluster, pods=tuple(after))


async def _attach(client: Client, old: Pod) -> None:
    """Give a pod back to its ReplicaSet, without the deletion cost of its move.

    If the new pod is Ready, it first gets the lowest cost, so that it is deleted and not the old
    one. Raises: UnavailableError.
    """
    move = found_move(old)
    if old.detached and old.ready:
        beside = Listed()
        await beside.read(client, PODS, Part(label_selector=f"{TEMPLATE_LABEL}={move.hash}"))
        of_owner = [pod for pod in beside.objects if (pod.namespace, pod.owner_name) == move.owner]
        new = undo(move, of_owner, MoveOutcome.STOPPED).lower_first
        if new is not None:
            # If the API server refuses it, the new pod may remain instead: it is Ready.
            with suppress(ApiError):
                lowest = cost_write(new, UNDO_COST)
                await write_as_decided(pods(client), new.key, lowest.if_unchanged)
    await PodMoves(client).patch(move.key, partial(_attach_patch, move.uid))


def _attach_patch(uid: str, pod: PodMetadata) -> Patch | None:
    """Return the patch that ends the move of a pod; None if there is nothing to end."""
    if pod.hash and pod.detached and pod.uid == uid:  # attached by hand
        labels = {DETACHED_LABEL: None}
        return {"metadata": {"resourceVersion": pod.version, "labels": labels}}
    return attach_patch(pod, uid, None, keep_cost=False)


def _attached(pod: Pod) -> Pod:
    labels = {key: value for key, value in pod.labels.items() if key != DETACHED_LABEL}
    if not pod.detached:
        return replace(pod, labels=labels)
    return replace(
        pod,
        labels={**labels, TEMPLATE_LABEL: pod.detached},
        move=None,
        deletion_cost=None if pod.has_our_cost else pod.deletion_cost,
        deletion_cost_ours=None,
    )


async def warn_of_old_records(client: Client, namespace: str) -> None:
    """Warn if a development version has left records of moves that scaled Deployments.

    *namespace*: namespace of Ebb. Raises: UnavailableError.
    """
    try:
        raw = await client.find(f"/api/v1/namespaces/{namespace}/configmaps/{OLD_RECORDS}")
    except ApiError as fault:
        if fault.forbidden:
            return
        raise
    data = (answered(_DECODER, raw).data if raw is not None else None) or {}
    if moves := sum(key.startswith("move.") for key in data):
        warn(
            f"configmap {namespace}/{OLD_RECORDS}: an older version of Ebb has recorded "
            f"{plural(moves, 'surge move')} there, and may have left one replica too many in each "
            "Deployment. The entries name each Deployment and its original replicas: set "
            f"these replicas, then run kubectl -n {namespace} delete configmap {OLD_RECORDS}"
        )
