"""Decide the next step of a move, from the current objects; without I/O.

A move consists of two patches of one pod. The first one detaches it: without its label
pod-template-hash and with `controller: false` it is no pod of its ReplicaSet any more, which
creates a new one, and it goes on serving. The second one gives the label back. The ReplicaSet
controller then has a pod too many and deletes one: pods that are not Ready before others, then the
pod with the lowest pod deletion cost.

After a success, the old pod still has the lowest cost, so it is deleted. To undo a move, it is
given back without that cost: a new pod that is not Ready is deleted. A new pod that is Ready, but
perhaps not available for long enough, gets an even lower cost first.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.marks.mark import mark_of
from core.model.node import Node
from core.model.node_lifecycle import why_leaving
from core.model.now import Now
from core.model.pod import Pod
from core.moves.move import Move, controlled, new_pods
from core.moves.note import CLOCKS_APART_SECONDS_MAX
from core.moves.objects import ObservedDeployment
from core.moves.outcomes import MoveOutcome
from core.writes.costs import UNDO_COST, has_cost


class Wait(NamedTuple):
    """Do nothing until an object of the move changes, or until the Unix second `until`."""

    until: int
    """Unix second at which the next step is due."""


class End(NamedTuple):
    """Give the pod back to its ReplicaSet."""

    outcome: MoveOutcome
    lower_first: Pod | None = None
    """The new pod, if it must get UNDO_COST first, so that it is deleted and not the old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView:
    """The observed objects and permissions on which the next step of a move depends."""

    deployment: ObservedDeployment | None = None
    """The Deployment of this name; None if there is none."""
    unknown: bool = False
    """Deployments are not known now: the move waits until its deadline."""
    pods: Sequence[Pod] = ()
    """All pods of the ReplicaSet."""
    marked: Collection[str] = ()
    """Names of the marked nodes (`marked_nodes`)."""
    leaving: Collection[str] = ()
    """Names of the nodes that are cordoned or being removed (`leaving_nodes`)."""
    pods_pending: bool = False
    """Unschedulable pods exist for which Ebb keeps moves from beginning."""
    allowed: bool = True
    """False if all moves must end: surge moves are disabled, or the mode is observe."""


def marked_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the marked nodes, including nodes that are being removed."""
    return frozenset(node.name for node in nodes if mark_of(node.labels) is not None)


def leaving_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the nodes that are cordoned, or that something is removing."""
    return frozenset(
        node.name for node in nodes if node.unschedulable or why_leaving(node) is not None
    )


def next_step(move: Move, view: MoveView, now: Now) -> Wait | End:
    """Return whether the move waits or ends now, and how."""
    outcome = _why_stopped(move, view) or _why_changed(move, view)
    if outcome is not None:
        return undo(move, view.pods, outcome)
    if not view.unknown and view.deployment is not None:
        found = new_pods(move, view.pods)
        outcome = _why_undone(found, view.deployment, view)
        if outcome is not None:
            return undo(move, view.pods, outcome)
        available = _available(view.pods, view.deployment, now)
        arrived = [pod for pod in found if pod.uid in available]
        if arrived and len(available) >= view.deployment.replicas:
            if any(pod.node not in view.marked for pod in arrived):
                return End(MoveOutcome.MOVED)
            return undo(move, view.pods, MoveOutcome.MISPLACED)
    if now.reached(move.note.deadline):
        return undo(move, view.pods, MoveOutcome.TIMED_OUT)
    return Wait(_due(move, view, now))


def undo(move: Move, pods: Iterable[Pod], outcome: MoveOutcome) -> End:
    """Return the step that undoes a move, so that the ReplicaSet controller keeps the old pod.

    *pods*: all pods of the ReplicaSet.
    """
    # The API server notes when a pod was created, and a leader when the move began.
    new = new_pods(move, pods, clocks_apart_seconds=CLOCKS_APART_SECONDS_MAX)
    newest = new[-1] if new else None
    # If it is not Ready, it is deleted first anyway, and the cost would stay on another pod.
    if newest is None or not newest.ready or has_cost(newest, UNDO_COST):
        return End(outcome)
    # A cost that somebody else has set stays.
    ours = newest.deletion_cost in (None, newest.deletion_cost_ours)
    return End(outcome, newest if ours else None)


def _why_stopped(move: Move, view: MoveView) -> MoveOutcome | None:
    if move.others is None or not view.allowed:
        return MoveOutcome.STOPPED
    if move.node in view.leaving:
        return MoveOutcome.CORDONED
    return None if move.node in view.marked else MoveOutcome.NODE_UNMARKED


def _why_changed(move: Move, view: MoveView) -> MoveOutcome | None:
    deployment = view.deployment
    if view.unknown:
        return None
    if deployment is None or deployment.uid != move.deployment_uid:
        return MoveOutcome.GONE
    return MoveOutcome.CHANGED if deployment.generation != move.generation else None


def _why_undone(
    new: Sequence[Pod], deployment: ObservedDeployment, view: MoveView
) -> MoveOutcome | None:
    if deployment.replica_failure:
        return MoveOutcome.REFUSED
    if any(pod.unschedulable for pod in new):
        return MoveOutcome.UNSCHEDULABLE
    return MoveOutcome.PENDING_PODS if view.pods_pending else None


def _available(pods: Iterable[Pod], deployment: ObservedDeployment, now: Now) -> frozenset[str]:
    """Return the UIDs of the pods that are available, as the ReplicaSet controller counts them.

    The status of a Deployment is no substitute: it is stale for a moment after a detach, and for
    as long as the controller manager does not run.
    """
    return frozenset(
        pod.uid
        for pod in controlled(pods)
        if pod.ready and now.reached(_available_at(pod, deployment, now))
    )


def _available_at(pod: Pod, deployment: ObservedDeployment, now: Now) -> int:
    """Return the Unix second at which a Ready pod is available. Source: IsPodAvailable."""
    if not deployment.min_ready_seconds:
        return now.seconds
    since = now.seconds if pod.ready_seconds is None else pod.ready_seconds
    return since + deployment.min_ready_seconds + 1


def _due(move: Move, view: MoveView, now: Now) -> int:
    if view.deployment is None:
        return move.note.deadline
    ready = [pod for pod in controlled(view.pods) if pod.ready]
    later = (_available_at(pod, view.deployment, now) for pod in ready)
    return min((at for at in later if not now.reached(at)), default=move.note.deadline)
