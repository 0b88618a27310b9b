"""Attribute each unschedulable pod to a cause: a mark of Ebb, missing room, or anything else.

The answer is for operators; no decision depends on it. In doubt a mark is the cause: constraints
that Ebb cannot evaluate count as satisfied on nodes with a NoSchedule mark.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from core.engine.mark_limits import DelayAfterPending
from core.engine.reconcile import ReconcileResult
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import by_namespace_in_turns, shape
from core.marks.mark import Mark
from core.marks.taints import without_our_taint
from core.marks.wellknown import TAINT_KEY
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.node_classes import NodeClasses

SHAPES_MAX: Final = 256
"""Maximum number of pod shapes that are checked against NoSchedule marks; namespaces take turns.
Pods of further shapes count as not blocked by a mark."""


class Cause(StrEnum):
    """Why a pod is Pending; a value of a metric label."""

    MARK = "mark"
    """A node with a NoSchedule mark has room for the pod."""
    ROOM = "room"
    """No node has room, but some node could hold the pod if it were empty."""
    OTHER = "other"
    """No node could hold the pod, its constraints are unknown, or kube-scheduler has not retried
    the pod since there is room."""


@dataclass(frozen=True, slots=True)
class PendingFigures:
    """The number of unschedulable pods by cause, and the sum of the times they were Pending."""

    pods: Counter[Cause] = field(default_factory=Counter)
    """Number of pods in the last reconciliation."""
    pod_seconds: Counter[Cause] = field(default_factory=Counter)
    """Seconds times pods, since this replica first led."""

    def observe(self, result: ReconcileResult, seconds: int) -> "PendingFigures":
        """Return the statistics after a reconciliation, *seconds* after the previous one."""
        passed = Counter({cause: pods * seconds for cause, pods in self.pods.items()})
        pods = self.pods if result.skipped else pending_pods(result)
        return PendingFigures(pods, self.pod_seconds + passed)


def pending_pods(result: ReconcileResult) -> Counter[Cause]:
    """Return the number of unschedulable pods by cause."""
    snapshot = result.snapshot
    pods = snapshot.pods.unschedulable
    if not pods:
        return Counter()
    blocked = _blocked_by_mark(snapshot, pods)
    placed = {placement.pod for placement in result.plan.pending}
    feasible = result.state.limit(DelayAfterPending).pods

    def cause(pod: Pod) -> Cause:
        if shape(pod) in blocked:
            return Cause.MARK
        short = pod.key in feasible and pod.key not in placed
        return Cause.ROOM if short else Cause.OTHER

    return Counter(map(cause, pods))


def _blocked_by_mark(
    snapshot: ClusterSnapshot, pods: Sequence[Pod]
) -> frozenset[tuple[NodeConstraints, Resources]]:
    """Return the node constraints and requests of the *pods* that a NoSchedule mark may block.

    That is, for which a node with a NoSchedule mark has room.
    """
    marks, closed = snapshot.marks, snapshot.unschedulable_nodes
    nodes = [
        without_our_taint(node, TAINT_KEY)
        for node in snapshot.cluster.nodes
        if node.name in marks
        and marks[node.name].mark is Mark.NO_SCHEDULE
        and node.name not in closed
    ]
    if not nodes:
        return frozenset()
    shapes = list(dict.fromkeys(map(shape, by_namespace_in_turns(pods))))[:SHAPES_MAX]
    used = snapshot.pod_index.requests
    free = [node.allocatable - used[node.name] for node in nodes]
    classes = NodeClasses(nodes, {node_constraints for node_constraints, _ in shapes})
    return frozenset(
        (node_constraints, requests)
        for node_constraints, requests in shapes
        if any(requests.fits_in(free[number]) for number in classes.allowing(node_constraints))
    )
