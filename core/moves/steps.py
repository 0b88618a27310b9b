"""Decide the next step of a surge move, from its record and the current objects; without I/O.

A surge move replaces a pod on a marked node. It consists of these writes: the record, the deletion
cost of the pod, `scale` up by one, the record, and, once the new pod is available, the record,
`scale` down, and the removal of the record. After each of them another leader may take over: the
next step depends only on the record and on the objects.

To undo a move is to lower the replicas at any time: the ReplicaSet controller deletes pods that
are not Ready before others, so it keeps as many Ready pods as the Deployment wants. It ignores
`minReadySeconds`. So a new pod that is Ready already gets the lowest deletion cost before that:
otherwise the pod to move would be deleted, although the new pod may not be available.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from core.marks.mark import mark_of
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.moves.deployments import why_unsettled
from core.moves.new_pods import new_pod
from core.moves.objects import HPA_MANAGER, MANAGER, ObservedDeployment
from core.moves.records import CLOCKS_APART_SECONDS_MAX, MoveOutcome, MoveRecord, MoveStep
from core.writes.costs import MOVE_COST, UNDO_COST, has_cost

RAISE_SECONDS_MAX: Final = 60
"""Time from the record to the raised replicas; after it the move is abandoned."""
DEADLINE_SECONDS_MAX: Final = 600
"""Maximum time in which the new pod must become available."""
ENDING_SECONDS_MAX: Final = 60
"""Time after the deadline in which Ebb waits to see which pod was deleted."""


class Wait(NamedTuple):
    """Do nothing until an object of the move changes, or until the Unix second `until`."""

    until: int
    """Unix second at which the next step is due."""


class PutRecord(NamedTuple):
    """Store the changed record of the move in the ConfigMap."""

    record: MoveRecord


class SetCost(NamedTuple):
    """Give the pod a pod deletion cost below the costs of all other pods of its ReplicaSet."""

    pod: Pod
    cost: int = MOVE_COST


class SetReplicas(NamedTuple):
    """Set the replicas of the Deployment, unless its resourceVersion has changed.

    Ebb writes the subresource `scale`, as the field manager MANAGER.
    """

    deployment: ObservedDeployment
    replicas: int


class EndMove(NamedTuple):
    """Remove the record of the move; Ebb does not write the replicas any more."""

    outcome: MoveOutcome
    manager: str = ""
    """Field manager that set the replicas during the move; empty if none did, or if unknown."""
    reverted: bool = False
    """It set them back to the original value."""


NextStep = Wait | PutRecord | SetCost | SetReplicas | EndMove


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView:
    """The observed objects and permissions on which the next step of a surge move depends."""

    deployment: ObservedDeployment | None
    """The Deployment of this name; None if there is none."""
    pods: Sequence[Pod] = ()
    """All pods of the Deployment."""
    has_autoscaler: bool = False
    marked: Collection[str] = ()
    """Names of the marked nodes (`marked_nodes`)."""
    pods_pending: bool = False
    """Unschedulable pods exist for which Ebb keeps moves from beginning."""
    allowed: bool = True
    """False if all moves must end: surge moves are disabled, the mode is observe, or Ebb is being
    removed."""
    leader: str = ""
    """The replica of ebb-controller that decides."""
    cost_refused: bool = False
    """The deletion cost of the new pod could not be written."""

    def pod(self, record: MoveRecord) -> Pod | None:
        """Return the pod that the move replaces, or None if it is gone or terminating."""
        return next((pod for pod in self.remaining if pod.uid == record.pod_uid), None)

    @property
    def remaining(self) -> Sequence[Pod]:
        """Return the pods of the Deployment that are not terminating."""
        return [pod for pod in self.pods if not pod.terminating]


def marked_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the marked nodes, including nodes that are being removed."""
    # A move from a node that is leaving continues, because its pod ends soon in any case. A new
    # pod on such a node is misplaced as on any other marked node.
    return frozenset(node.name for node in nodes if mark_of(node.labels) is not None)


def is_kept(new: Pod) -> bool:
    """Return whether lowering the replicas now would wrongly keep the new pod of an undone move.

    The ReplicaSet controller keeps the new pod if it is Ready. Ebb then gives it the lowest
    deletion cost first. False if it already has this cost, or has a cost that Ebb did not write.
    """
    allowed = new.deletion_cost is None or new.has_our_cost
    return new.ready and allowed and not has_cost(new, UNDO_COST)


def next_step(record: MoveRecord, view: MoveView, now: Now) -> NextStep:
    """Return the next step of a move, which may be to wait (Wait) or to end it (EndMove)."""
    deployment = view.deployment
    if deployment is None or deployment.uid != record.uid:
        return EndMove(MoveOutcome.GONE)
    match record.step:
        case MoveStep.RECORDED:
            return _raise(record, view, deployment, now)
        case MoveStep.RAISED:
            return _wait_for_pod(record, view, deployment, now)
        case MoveStep.LOWERING:
            return _lower(record, view, deployment, now)


def _raise(
    record: MoveRecord, view: MoveView, deployment: ObservedDeployment, now: Now
) -> NextStep:
    # A leader may have ended after it raised the replicas. Without the field manager nobody can
    # tell whether the value is Ebb's, so it belongs to somebody else then.
    if deployment.replicas == record.raised and deployment.replicas_manager == MANAGER:
        return PutRecord(replace(record, step=MoveStep.RAISED))
    pod = view.pod(record)
    if pod is None or deployment.replicas != record.original or _is_off(record, view, deployment):
        return EndMove(MoveOutcome.ABANDONED)
    if _has_passed(record.begun + RAISE_SECONDS_MAX, now):
        return EndMove(MoveOutcome.NOT_RAISED)
    # Without the cost, the ReplicaSet controller could delete a pod on an unmarked node later.
    if not has_cost(pod, MOVE_COST):
        return SetCost(pod)
    return SetReplicas(deployment, record.raised)


def _is_off(record: MoveRecord, view: MoveView, deployment: ObservedDeployment) -> bool:
    """Return whether conditions have changed, so that the move must not raise the replicas."""
    return (
        record.leader != view.leader
        or not view.allowed
        or view.pods_pending
        or record.node not in view.marked
        or why_unsettled(deployment) is not None
    )


def _wait_for_pod(
    record: MoveRecord, view: MoveView, deployment: ObservedDeployment, now: Now
) -> NextStep:
    if not _holds_raised(record, deployment):
        return _taken_over(record, view, deployment)
    outcome = _outcome(record, view, deployment, now)
    if outcome is None:
        return Wait(record.deadline)
    return PutRecord(replace(record, step=MoveStep.LOWERING, outcome=outcome))


def _holds_raised(record: MoveRecord, deployment: ObservedDeployment) -> bool:
    """Return whether the Deployment has the raised replicas, and nobody but Ebb has set them."""
    return deployment.replicas == record.raised and deployment.replicas_manager in ("", MANAGER)


def _taken_over(record: MoveRecord, view: MoveView, deployment: ObservedDeployment) -> EndMove:
    """Return the end of a move whose replicas were set by another program; its value stays.

    The outcome is MOVED if a HorizontalPodAutoscaler has thereby completed the move.
    """
    manager = deployment.replicas_manager
    reverted = deployment.replicas == record.original
    if view.has_autoscaler and manager in ("", HPA_MANAGER):
        # A scale-in by the HPA deletes the pod to move once the new one is Ready. And it may raise
        # the replicas again before Ebb sees that its own scale-in has deleted the pod.
        lowered = reverted or record.outcome is MoveOutcome.MOVED
        moved = lowered and view.pod(record) is None
        outcome = MoveOutcome.MOVED if moved else MoveOutcome.SCALED
        return EndMove(outcome, manager, reverted)
    return EndMove(MoveOutcome.INTERFERED, manager, reverted)


def _outcome(
    record: MoveRecord, view: MoveView, deployment: ObservedDeployment, now: Now
) -> MoveOutcome | None:
    """Return how the move ends, or None while the new pod may still become available."""
    pod = view.pod(record)
    if pod is None:
        return MoveOutcome.POD_GONE
    if pod.owner_name != deployment.replica_set:
        return MoveOutcome.ROLLOUT
    new = new_pod(record, view.pods)
    if new is not None and _is_available(record, deployment):
        found = new.node is not None and new.node not in view.marked
        return MoveOutcome.MOVED if found else MoveOutcome.MISPLACED
    return _why_undone(record, view, deployment) or (
        MoveOutcome.TIMED_OUT if _has_passed(record.deadline, now) else None
    )


def _is_available(record: MoveRecord, deployment: ObservedDeployment) -> bool:
    """Return whether all pods of the Deployment, including the added one, are available."""
    counts = deployment.pods, deployment.updated, deployment.available
    return not deployment.outdated and counts == (record.raised,) * 3


def _why_undone(
    record: MoveRecord, view: MoveView, deployment: ObservedDeployment
) -> MoveOutcome | None:
    """Return the outcome with which the move must be undone now, or None if it need not be."""
    if not view.allowed:
        return MoveOutcome.STOPPED
    if record.node not in view.marked:
        return MoveOutcome.NODE_UNMARKED
    if deployment.replica_failure:
        return MoveOutcome.REFUSED
    if any(pod.unschedulable for pod in view.remaining):
        return MoveOutcome.UNSCHEDULABLE
    return MoveOutcome.PENDING_PODS if view.pods_pending else None


def _lower(
    record: MoveRecord, view: MoveView, deployment: ObservedDeployment, now: Now
) -> NextStep:
    if _holds_raised(record, deployment):
        return _before_lowering(record, view, deployment)
    if deployment.replicas != record.original:
        return _taken_over(record, view, deployment)
    until = record.deadline + ENDING_SECONDS_MAX
    seen = not deployment.outdated and len(view.remaining) <= record.original
    if not seen and not _has_passed(until, now):
        return Wait(until)
    if record.outcome is MoveOutcome.MOVED and view.pod(record) is not None:
        return EndMove(MoveOutcome.OTHER_POD)
    return EndMove(record.outcome)


def _before_lowering(
    record: MoveRecord, view: MoveView, deployment: ObservedDeployment
) -> NextStep:
    """Return the next step on the way to lower replicas, so that the right pod is deleted.

    After a success, the step is to lower the replicas, or to wait for the new pod again if a pod
    has become unavailable. If the move is undone, a Ready new pod gets the lowest deletion cost
    first.
    """
    if record.outcome is MoveOutcome.MOVED:
        if _is_available(record, deployment):
            return SetReplicas(deployment, record.original)
        # A pod has become unavailable since, perhaps before another leader took over.
        return PutRecord(replace(record, step=MoveStep.RAISED, outcome=MoveOutcome.NONE))
    old, new = view.pod(record), new_pod(record, view.pods)
    if (
        old is not None
        and new is not None
        and new.owner_name == old.owner_name
        and is_kept(new)
        and not view.cost_refused
    ):
        return SetCost(new, UNDO_COST)
    return SetReplicas(deployment, record.original)


def _has_passed(moment: int, now: Now) -> bool:
    """Return whether *moment* has passed, a Unix second from a record.

    True also if it is so far in the future that no leader can have written it.
    """
    possible = now.reached(moment - DEADLINE_SECONDS_MAX - CLOCKS_APART_SECONDS_MAX)
    return not possible or now.reached(moment)
