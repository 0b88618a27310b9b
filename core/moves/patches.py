"""Make the two patches of a move, which change the metadata of one pod.

They are strategic merge patches: owner references are merged by UID, so those of others stay. Each
is accepted for the resourceVersion that was read only. Source: patchMergeKey of ownerReferences in
k8s.io/apimachinery.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MOVE_ANNOTATION
from core.model.pod import DETACHED_LABEL, REPLICA_SET, TEMPLATE_LABEL
from core.moves.note import MoveNote
from core.writes.costs import MOVE_COST

Patch = Mapping[str, Any]
"""A strategic merge patch, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMetadata:
    """The metadata of a pod as read, on which a patch is based."""

    uid: str
    version: str
    """resourceVersion, for which alone the API server accepts the patch."""
    terminating: bool = False
    hash: str = ""
    """Label pod-template-hash; empty if the pod has none."""
    detached: str = ""
    """Label kube-ebb.io/detached; empty if the pod has none."""
    controller: tuple[str, str, str] = ("", "", "")
    """Kind, name and UID of the controller; empty texts without one."""
    cost: str | None = None
    cost_ours: str | None = None
    move: str | None = None


def detach_patch(pod: PodMetadata, uid: str, replica_set: str, note: MoveNote) -> Patch | None:
    """Return the patch that takes the pod out of its ReplicaSet, with the lowest deletion cost.

    The owner reference stays, so that the pod is deleted with its ReplicaSet. None if the pod is
    another one than *uid*, does not belong to *replica_set* any more, is terminating, or has a
    cost that somebody else has set.
    """
    kind, name, owner_uid = pod.controller
    if (pod.uid, kind, name) != (uid, REPLICA_SET, replica_set) or not pod.hash:
        return None
    if pod.terminating or pod.cost not in (None, pod.cost_ours):
        return None
    cost = str(MOVE_COST)
    return {
        "metadata": {
            "resourceVersion": pod.version,
            "labels": {TEMPLATE_LABEL: None, DETACHED_LABEL: pod.hash},
            "annotations": {
                COST_ANNOTATION: cost,
                COST_OURS_ANNOTATION: cost,
                MOVE_ANNOTATION: note.encode(),
            },
            "ownerReferences": [
                {"uid": owner_uid, "controller": False, "blockOwnerDeletion": False}
            ],
        }
    }


def attach_patch(
    pod: PodMetadata, uid: str, note: MoveNote | None, *, keep_cost: bool
) -> Patch | None:
    """Return the patch that gives the pod back to its ReplicaSet.

    *note*: the note that stays on the pod; None removes it. *keep_cost*: keep the deletion cost of
    the move, so that this pod is deleted; otherwise the cost is removed if Ebb has written it.
    None if the pod is another one than *uid*, or is not detached.
    """
    if pod.uid != uid or not pod.detached or pod.hash:
        return None
    annotations: dict[str, str | None] = {MOVE_ANNOTATION: note.encode() if note else None}
    if not keep_cost:
        annotations[COST_OURS_ANNOTATION] = None
        if pod.cost == pod.cost_ours:
            annotations[COST_ANNOTATION] = None
    return {
        "metadata": {
            "resourceVersion": pod.version,
            "labels": {TEMPLATE_LABEL: pod.detached, DETACHED_LABEL: None},
            "annotations": annotations,
        }
    }
