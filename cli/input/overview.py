"""All that `ebb status` says, before it is written."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cli.explain.caveats import Caveat, caveats
from cli.input.cluster_input import ClusterInput
from cli.input.node_status import Guard, NodeStatus, node_statuses
from core.engine.plan import Plan
from core.engine.reconcile import make_plan
from core.engine.reserve import RESERVE
from core.engine.snapshot import ClusterSnapshot
from core.model.now import Now


class Published(NamedTuple):
    """A CapacityBuffer by which Ebb tells autoscalers what is to be expected."""

    buffer: str
    """namespace/name."""
    asked: int
    """Pods."""
    accepted: int
    """So many of them an autoscaler keeps room for, as it says."""
    why: str
    """Why not for all; empty: for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All that the command says."""

    found: ClusterInput
    plan: Plan
    marked: tuple[NodeStatus, ...]
    """Nodes with a mark that are not leaving yet, the oldest mark first, as they are judged."""
    going: int
    """Nodes that are leaving (core.model.node_lifecycle)."""
    being_deleted: int
    """Those of them that somebody deletes."""
    reasons: tuple[tuple[str, int], ...]
    """(code, nodes that stay for it), most first; a node with several codes counts in each."""
    stray: tuple[str, ...]
    """Nodes without a mark whose taints or guard are left over, by name."""
    held: int
    """Nodes without a mark that no autoscaler is to take before Ebb hands them over."""
    next_in_line: int
    """Nodes without a mark of which scale-ins take pods first, after those of marked nodes."""
    reserved: int
    """Nodes that are kept for pods to be expected, as the engine that leads has said on them."""
    published: tuple[Published, ...]
    """By name; what bears Ebb's label elsewhere than where Ebb is, too."""
    waiting: int
    """Pods that wait for a node."""
    stuck: int
    """Those of them for which a place was looked for, and none found."""
    minded: tuple[Caveat, ...]
    """What the look cannot tell, and which nodes stand aside."""
    now_seconds: int

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return how many nodes are in which state; a node may be in several."""
        marked = self.marked
        already = sum(one.node in {r.node for r in self.plan.removals} for one in marked)
        return (
            ("nodes", len(self.found.cluster.nodes)),
            ("removable now", len(self.plan.removals)),
            ("removable and marked", already),
            ("marked", len(marked)),
            ("marked soft", sum(one.mark == "soft" for one in marked)),
            ("marked hard", sum(one.mark == "hard" for one in marked)),
            ("marked and empty", sum(one.empty for one in marked)),
            ("marked and guarded", sum(one.guard is not Guard.NONE for one in marked)),
            ("marked and overdue", sum(one.overdue for one in marked)),
            ("marked, taint not right", sum(not one.taints_right for one in marked)),
            ("not marked, and held", self.held),
            ("not marked, next for scale-ins", self.next_in_line),
            ("kept for pods to be expected", self.reserved),
            ("unmarked with a left-over taint", len(self.stray)),
            ("leaving", self.going),
            ("being deleted", self.being_deleted),
        )


def look(found: ClusterInput, now_seconds: int) -> Status:
    """Judge the cluster and count."""
    survey = ClusterSnapshot(found.cluster, found.config, Now(now_seconds))
    plan = make_plan(survey)
    every = node_statuses(found.cluster, found.config, now_seconds)
    marked = [one for one in every if one.mark is not None and not one.going]
    reasons = Counter(
        code for kept in plan.kept for code in {blocker.code for blocker in kept.blockers}
    )
    reserved = sum(one.reserved for one in every)
    if reserved:
        reasons[RESERVE.code] = reserved
    waiting = [pod for pod in found.cluster.pods if pod.node is None]
    looking = (pod for pod in waiting if not (pod.stays_with_node or pod.expendable))
    judged = {pod.key for pod in looking if not survey.pod_blockers(pod)}
    return Status(
        found=found,
        plan=plan,
        marked=tuple(sorted(marked, key=lambda one: (one.order, one.node))),
        going=sum(one.going for one in every),
        being_deleted=sum(one.being_deleted for one in every),
        reasons=tuple(sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))),
        stray=tuple(one.node for one in every if one.mark is None and not one.taints_right),
        held=sum(one.mark is None and one.guard is Guard.HELD for one in every),
        next_in_line=sum(one.mark is None and one.taken_first > 0 for one in every),
        reserved=reserved,
        published=tuple(_published(found)),
        waiting=len(waiting),
        stuck=len(judged - {pod for pod, _ in plan.pending}),
        minded=caveats(found.cluster, found.kinds, found.config),
        now_seconds=now_seconds,
    )


def _published(found: ClusterInput) -> Iterator[Published]:
    for one in found.cluster.buffers:
        if one.published is None:
            continue
        if one.namespace != found.namespace:
            why = f"it bears Ebb's label, but is not in {found.namespace}, where Ebb is"
            yield Published(one.key, one.published, 0, why)
            continue
        few = "its autoscaler keeps room for no more" if one.accepted < one.published else ""
        yield Published(one.key, one.published, one.accepted, one.fault or few)
