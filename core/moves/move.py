"""Define a move in progress, and find the new pods that its ReplicaSet has created."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from core.model.pod import Pod
from core.moves.note import MoveNote, decode

NO_NOTE: Final = MoveNote(0, 0)
"""The note of a detached pod whose annotation is missing or invalid: its deadline has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A pod that is detached from its ReplicaSet, and what is known of its move."""

    namespace: str
    pod: str
    uid: str
    """UID of the pod."""
    node: str
    replica_set: str
    """Name of the ReplicaSet; empty if the pod has no reference to one any more."""
    hash: str
    """Value of the label pod-template-hash, which the ReplicaSet selects on."""
    note: MoveNote
    deployment: str = ""
    """Name of the Deployment; empty if another leader began the move."""
    deployment_uid: str = ""
    generation: int = 0
    """Generation of the Deployment when the move began: a change of its spec raises it."""
    others: frozenset[str] | None = None
    """UIDs of all pods of the ReplicaSet when the move began.

    None if another leader began the move: it is undone."""

    @property
    def key(self) -> str:
        """Return namespace/name of the pod."""
        return f"{self.namespace}/{self.pod}"

    @property
    def deployment_key(self) -> str:
        """Return namespace/name of the Deployment, or an empty string if it is unknown."""
        return f"{self.namespace}/{self.deployment}" if self.deployment else ""

    @property
    def owner(self) -> tuple[str, str]:
        """Return namespace and name of the ReplicaSet."""
        return self.namespace, self.replica_set


def found_move(pod: Pod) -> Move:
    """Return the move of a detached pod that another leader, or somebody else, has begun."""
    return Move(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        node=pod.node or "",
        replica_set=pod.owner_name,
        hash=pod.detached,
        note=decode(pod.move) or NO_NOTE,
    )


def controlled(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that their ReplicaSet counts: neither detached nor terminating."""
    return [pod for pod in pods if not pod.detached and not pod.terminating]


def new_pods(move: Move, pods: Iterable[Pod], *, clocks_apart_seconds: int = 0) -> list[Pod]:
    """Return the pods that the ReplicaSet has created since the move began, oldest first.

    *pods*: all pods of the ReplicaSet. Without the pods at the beginning of the move, those count
    that were not created before its second; *clocks_apart_seconds*: nor so long before it.
    """
    since = move.note.begun - clocks_apart_seconds
    found = [
        pod
        for pod in controlled(pods)
        if (
            (pod.created_seconds or 0) >= since
            if move.others is None
            else pod.uid not in move.others
        )
    ]
    return sorted(found, key=lambda pod: (pod.created_seconds or 0, pod.name))
