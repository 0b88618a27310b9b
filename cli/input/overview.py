"""The answer of `ebb status` as values, before a format writes it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cli.explain.caveats import Caveat, caveats, nothing_selected
from cli.explain.emptying import emptying
from cli.explain.headline import Headline, headline
from cli.input.cluster_input import ClusterInput
from cli.input.kept_empty import KeptEmpty, kept_empty
from cli.input.mark_status import MarkStatus, Protection, mark_statuses
from cli.nodes import EVERYTHING, Selection, node_rows, shown
from core.engine.maintenance_gate import may_begin
from core.engine.plan import Plan
from core.engine.reconcile import make_plan
from core.engine.reserve import RESERVE
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark
from core.model.humanize import plural
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker


class Published(NamedTuple):
    """A CapacityBuffer by which Ebb announces expected pods to autoscalers."""

    buffer: str
    """Buffer as namespace/name."""
    pods: int
    """Number of pods in the buffer."""
    accepted: int
    """Number of pods for which an autoscaler reports capacity."""
    why: str
    """Reason why `accepted` is less than `pods`; empty if it is not."""


class Count(NamedTuple):
    """Number of nodes in one state, such as marked, with the names of the state."""

    field: str
    """Key in JSON; must not change, because programs read it."""
    label: str
    """Name in the table."""
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Answer of `ebb status` for one cluster: its plan, and counts of nodes, marks and pods."""

    cluster_input: ClusterInput
    plan: Plan
    headline: Headline
    nodes: int
    """Number of selected nodes."""
    marked: tuple[MarkStatus, ...]
    """Marked nodes that are not leaving, oldest mark first; marks of one time in plan order."""
    leaving: int
    """Number of leaving nodes (core.model.node_lifecycle)."""
    being_deleted: int
    """Number of nodes whose Node object is being deleted, or that have a taint which says that an
    autoscaler is about to delete them."""
    reasons: tuple[tuple[str, int], ...]
    """(reason code, number of nodes with this reason), most nodes first; a node with several codes
    counts for each."""
    left_over_taints: tuple[str, ...]
    """Unmarked nodes with a left-over taint of Ebb, by name."""
    protected_unmarked: int
    """Number of unmarked nodes that Ebb protects from scale-down until it allows it."""
    scale_in_targets: int
    """Number of scale-in targets: scale-ins delete their pods right after pods of marked nodes."""
    reserved: int
    """Number of empty nodes whose annotation reserves them for expected pods."""
    kept_empty: tuple[KeptEmpty, ...]
    """The empty nodes that Ebb keeps from scale-down, by name."""
    published: tuple[Published, ...]
    """Buffers with Ebb's label by name, including those in other namespaces."""
    pending: int
    """Number of Pending pods."""
    unschedulable: int
    """Number of Pending pods for which Ebb searched a node and found none."""
    refused: tuple[Blocker, ...]
    """Reasons why nothing may begin now; empty if marks, moves and evictions may begin."""
    caveats: tuple[Caveat, ...]
    """Caveats about the cluster that was read."""
    now_seconds: int

    @property
    def needs_attention(self) -> bool:
        """Return whether no replica leads, a policy refuses writes, or a mark has a problem."""
        return any(self._findings())

    @property
    def problems(self) -> tuple[str, ...]:
        """Return texts about problems that an operator should solve, the worst first."""
        running = self.cluster_input.running
        stale = running.facts.stale_because if running and running.facts else None
        first = (f"cannot reconcile: {stale}",) if stale else ()
        return (*first, *self._findings(), *self.cluster_input.not_read)

    def _findings(self) -> Iterator[str]:
        running = self.cluster_input.running
        if running is not None and running.leads(self.now_seconds) is False:
            yield "no replica leads"
        facts = self.cluster_input.facts
        for refused in facts.refused_writes if facts else ():
            policy = f"the ValidatingAdmissionPolicy {refused.policy}"
            yield f"{policy} refuses Ebb's writes ({refused.change})"
        if overdue := sum(mark.overdue for mark in self.marked):
            yield f"{plural(overdue, 'mark')} overdue"
        wrong = sum(not mark.taints_correct for mark in self.marked)
        if wrong + len(self.left_over_taints):
            yield f"{plural(wrong + len(self.left_over_taints), 'node')} with a wrong taint"

    @property
    def counts(self) -> tuple[Count, ...]:
        """Return the number of nodes in each state, such as marked; a node may be in several."""
        marked = self.marked
        removable_marked = sum(
            mark.node in {r.node for r in self.plan.removals} for mark in marked
        )
        return (
            Count("nodes", "all", self.nodes),
            Count("removableNow", "removable now", len(self.plan.removals)),
            Count("removableAndMarked", "removable and marked", removable_marked),
            Count("marked", "marked", len(marked)),
            Count(
                "markedPreferNoSchedule",
                "marked PreferNoSchedule",
                sum(mark.mark is Mark.PREFER_NO_SCHEDULE for mark in marked),
            ),
            Count(
                "markedNoSchedule",
                "marked NoSchedule",
                sum(mark.mark is Mark.NO_SCHEDULE for mark in marked),
            ),
            Count("markedAndEmpty", "marked and empty", sum(mark.empty for mark in marked)),
            Count(
                "markedAndProtected",
                "marked and protected from scale-down",
                sum(mark.protection is not Protection.NONE for mark in marked),
            ),
            Count(
                "markedAndOverdue",
                "marked longer than `deadline`",
                sum(mark.overdue for mark in marked),
            ),
            Count(
                "markedWithWrongTaint",
                "marked with a wrong taint",
                sum(not mark.taints_correct for mark in marked),
            ),
            Count(
                "unmarkedAndProtected",
                "unmarked and protected from scale-down",
                self.protected_unmarked,
            ),
            Count(
                "scaleInTargets",
                "unmarked scale-in targets",
                self.scale_in_targets,
            ),
            Count("reserved", "reserved for expected pods", self.reserved),
            Count(
                "unmarkedWithLeftOverTaint",
                "unmarked with a left-over taint",
                len(self.left_over_taints),
            ),
            Count("leaving", "leaving", self.leaving),
            Count("beingDeleted", "being deleted", self.being_deleted),
        )


def summarize(
    cluster_input: ClusterInput, now_seconds: int, selection: Selection = EVERYTHING
) -> ClusterStatus:
    """Make a plan for the cluster, and return its status.

    *selection*: the nodes and pods to count; the plan is made for all nodes.
    """
    cluster, names = cluster_input.cluster, selection.names(cluster_input.cluster)
    snapshot = ClusterSnapshot(cluster, cluster_input.config, Now(now_seconds))
    whole = make_plan(snapshot)
    plan = shown(whole, names)
    statuses = [
        status
        for status in mark_statuses(cluster, now_seconds)
        if names is None or status.node in names
    ]
    marked = [status for status in statuses if status.mark is not None and not status.leaving]
    reasons = Counter(
        code for kept in plan.kept for code in {blocker.code for blocker in kept.blockers}
    )
    reserved = sum(status.reserved for status in statuses)
    if reserved:
        reasons[RESERVE.code] = reserved
    pending = [pod for pod in cluster.pods if pod.node is None and selection.has(pod)]
    return ClusterStatus(
        cluster_input=cluster_input,
        plan=plan,
        headline=_headline(cluster_input, snapshot, whole, plan, now_seconds),
        nodes=len(statuses),
        marked=tuple(sorted(marked, key=lambda status: (status.order, status.node))),
        leaving=sum(status.leaving for status in statuses),
        being_deleted=sum(status.being_deleted for status in statuses),
        reasons=tuple(sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))),
        left_over_taints=tuple(
            status.node for status in statuses if status.mark is None and not status.taints_correct
        ),
        protected_unmarked=sum(
            status.mark is None and status.protection is Protection.UNMARKED for status in statuses
        ),
        scale_in_targets=sum(
            status.mark is None and status.scaled_in_first > 0 for status in statuses
        ),
        reserved=reserved,
        kept_empty=kept_empty(statuses, cluster, cluster_input.config),
        published=tuple(_published(cluster_input)),
        pending=len(pending),
        unschedulable=_unschedulable(snapshot, plan, pending),
        refused=tuple(
            may_begin(
                cluster_input.config,
                Now(now_seconds),
                cluster_input.facts.refused_write() if cluster_input.facts else None,
            ).blockers
        ),
        caveats=(
            *nothing_selected(names),
            *caveats(
                cluster_input.cluster,
                cluster_input.kinds,
                cluster_input.config,
                cluster_input.dump_time.running_nowhere,
            ),
        ),
        now_seconds=now_seconds,
    )


def _unschedulable(snapshot: ClusterSnapshot, plan: Plan, pending: Iterable[Pod]) -> int:
    """Return the number of *pending* pods for which the plan searched a node and found none."""
    searched = (pod for pod in pending if not (pod.stays_with_node or pod.expendable))
    evaluated = {pod.key for pod in searched if not snapshot.pod_blockers(pod)}
    return len(evaluated - {pod for pod, _ in plan.pending})


def _headline(
    cluster_input: ClusterInput,
    snapshot: ClusterSnapshot,
    whole: Plan,
    plan: Plan,
    now_seconds: int,
) -> Headline:
    """Return the summary of *plan*, which has only the selected nodes.

    *whole*: the same plan with all nodes, which decides the marks that are due now.
    """
    cluster, config, namespace = snapshot.cluster, snapshot.config, cluster_input.namespace
    surge_objects = cluster_input.surge_objects
    leader = cluster_input.leader_pod
    emptied = emptying(cluster, plan, config, surge_objects, namespace, now_seconds, leader)
    rows = node_rows(plan, cluster, config, now_seconds)
    facts, mode = cluster_input.facts, cluster_input.mode
    return headline(snapshot, whole, rows, emptied, facts, mode, now_seconds)


def _published(cluster_input: ClusterInput) -> Iterator[Published]:
    for buffer in cluster_input.cluster.buffers:
        if buffer.published is None:
            continue
        if buffer.namespace != cluster_input.namespace:
            home = f"Ebb's namespace {cluster_input.namespace}"
            why = f"the buffer has Ebb's label, but is not in {home}"
            yield Published(buffer.key, buffer.published, 0, why)
            continue
        few = (
            "the autoscaler has no capacity for more pods"
            if buffer.accepted < buffer.published
            else ""
        )
        yield Published(buffer.key, buffer.published, buffer.accepted, buffer.fault or few)
