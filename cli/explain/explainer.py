"""Explain one node or one pod of a cluster.

The plan decides which nodes are removable together. An explanation covers the removal of one node
alone, or the nodes on which one pod could run now. It uses the code of the plan, so that both
agree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from cli.explain.marking import Marks, next_marks
from core.config.eviction import EvictionMode
from core.eligibility.drainability import findings, long_lived_reasons
from core.eligibility.node_eligibility import (
    BEING_DELETED,
    CORDONED,
    NOT_READY,
    UNREADABLE,
    VIRTUAL_NODE,
)
from core.eligibility.scalability import NOT_SCALABLE, NodeScalability, Scalability
from core.engine.maintenance_gate import may_begin
from core.engine.plan import Placement, Plan
from core.engine.planner import Planner, planned_here
from core.engine.reconcile import no_schedule_blockers
from core.engine.reserve import RESERVE
from core.engine.snapshot import ClusterSnapshot
from core.eviction.context import EvictionContext, EvictionInput
from core.eviction.pods import owner_of
from core.marks.mark import Mark, mark_of, reserved_for
from core.model.node import Node
from core.model.node_lifecycle import why_unready
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.moves.objects import SurgeObjects
from core.moves.planner import SurgeContext, SurgeInput
from core.placement.filters import first_failing_filter
from core.placement.node_order import SHARE_SCALE
from core.placement.packer import Packer
from core.placement.reaches import Reach

if TYPE_CHECKING:  # only a live cluster has a leader
    from controller.leader_report import LeaderFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Whether a node is removable, and why not."""

    node: Node
    order: int | None
    """Position of the node in the removal order; None if it is not removable."""
    blockers: tuple[Blocker, ...]
    """Reasons why the node is not removable; empty for a removable node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer(NodeVerdict):
    """Explanation of one node: why it is removable or not, and where its pods could run."""

    pods: tuple[Pod, ...]
    """Pods bound to the node, by name."""
    rate_limits: tuple[Blocker, ...]
    """Limits and delays that keep the controller from marking a removable node now. If the facts
    of the leader are unknown, those are missing that only the leader knows."""
    reserved: tuple[Blocker, ...]
    """Reserve because of which Ebb does not allow scale-down of the empty node, as the leader has
    written it on the Node."""
    long_lived: tuple[Blocker, ...]
    """Remarks on pods that may keep the node from becoming empty, as they rarely terminate."""
    no_schedule_blockers: tuple[Blocker, ...]
    """Reasons why a PreferNoSchedule mark does not become NoSchedule; empty if NoSchedule marks
    are disabled."""
    not_evicted: tuple[Blocker, ...]
    """Reasons why pods of the node would not be evicted now; empty if eviction is disabled."""
    not_moved: tuple[Blocker, ...]
    """Reasons why surge moves would not move pods of the marked node now; empty if they are
    disabled."""
    moved: int | None
    """Number of pods of the marked node that surge moves would move, limits aside; None if surge
    moves are disabled or unknown, or if the node has no mark."""
    placements: tuple[Placement, ...]
    """Target node of each pod: as planned for a removable node, else as if only this node were
    removed."""
    unassigned: tuple[tuple[str, str], ...]
    """(namespace/name, reason) of pods that fit on no other node."""
    planned_from: Mapping[str, str | None]
    """Node of each of these pods that the plan has placed on this node; None if it is Pending."""
    policy_text: str
    """The policy's own text about the rank of the node; empty if the rank depends on `price`,
    `to_move` and `share`."""
    price: Fraction
    to_move: int
    """Number of pods that need another node."""
    share: Fraction
    """Requests over allocatable, of the resource with the higher share."""
    reached: bool
    """True if at least one movable pod could run on the node."""
    reaches: tuple[Reach, ...]
    """Reaches that contain the node, largest first."""
    scalability: NodeScalability
    """Whether an autoscaler can remove the node according to this plan, and the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAnswer:
    """Explanation of one pod: whether it is movable, and on which nodes it could run."""

    pod: Pod
    node: Node | None
    """Node of the pod; None if the pod is Pending or its node no longer exists."""
    blockers: tuple[Blocker, ...]
    """Reasons why the pod is not movable; empty for DaemonSet and static pods."""
    remarks: tuple[Blocker, ...]
    """Remarks on lifetime and disruption of the pod; none of them blocks a removal."""
    node_answer: NodeVerdict | None
    """Whether the pod's node is removable; None if the pod has no node."""
    target: str | None
    """Node for the pod if its own node is removed; for a Pending pod the planned node."""
    why_no_target: str | None
    """Reason why no node was found."""
    reach: Reach | None
    """Reach of the pod; None if fewer than two nodes admit it, or Ebb does not track it."""
    admitted: int
    """Number of nodes that admit the pod; 0 if the pod is not movable."""
    feasible: tuple[str, ...]
    """Other unmarked nodes that could take the pod now, fullest first."""
    feasible_marked: tuple[str, ...]
    """Marked nodes that could take the pod now, or once Ebb has unmarked them."""
    rejections: tuple[tuple[str, int], ...]
    """(rule, number of nodes for which this rule is the first to reject the pod), most nodes
    first."""


class Explainer:
    """Explain nodes and pods of one cluster and its plan; values for several are computed once."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        plan: Plan,
        now_seconds: int,
        own_namespace: str = "",
        surge_objects: SurgeObjects | None = None,
        facts: "LeaderFacts | None" = None,
        leader_pod: str = "",
    ) -> None:
        """Prepare explanations; *snapshot* is the snapshot from which *plan* was made.

        *own_namespace* is the namespace in which Ebb is installed. *surge_objects*: objects that
        surge moves depend on, such as Deployments; None if they are unknown. *facts*: state of the
        leader; None if it is unknown. *leader_pod*: its pod as namespace/name; empty if unknown.
        """
        self._surge_objects, self._facts = surge_objects, facts
        self._leader_pod = leader_pod
        cluster = self._cluster = snapshot.cluster
        self._snapshot, self._config, self._plan = snapshot, snapshot.config, plan
        self._now, self._own_namespace = Now(now_seconds), own_namespace
        self._nodes = {node.name: node for node in cluster.nodes}
        self._removals = {removal.node: removal for removal in plan.removals}
        self._unremovable = {unremovable.node: unremovable for unremovable in plan.kept}

    def node(self, name: str) -> NodeAnswer | None:
        """Return the explanation of the node *name*; None if the node does not exist."""
        node = self._nodes.get(name)
        if node is None:
            return None
        removal, blockers = self._removals.get(name), self._blockers(name)
        placements, unassigned = self._if_only_removal(name)
        pods = tuple(pod for pod in self._cluster.pods if pod.node == name)
        node_order, reaches = self._snapshot.node_order, self._snapshot.reaches
        moved, not_moved = self._surge_moves(name)
        return NodeAnswer(
            node=node,
            pods=pods,
            order=removal.order if removal else None,
            blockers=blockers,
            rate_limits=tuple(self._marks.blockers.get(name, ())) if removal else (),
            reserved=self._reserved(node),
            long_lived=tuple(long_lived_reasons(pods, self._now)),
            no_schedule_blockers=self._no_schedule_blockers(node),
            not_evicted=self._not_evicted(pods),
            not_moved=not_moved,
            moved=moved,
            placements=removal.placements if removal else placements,
            unassigned=() if removal else unassigned,
            planned_from={
                pod: self._nodes_of_pods[pod]
                for pod, _ in (removal.placements if removal else (*placements, *unassigned))
                if self._nodes_of_pods[pod] != name
            },
            policy_text=self._planner.describe(name),
            price=self._config.price_of(node.labels),
            to_move=len(placements) + len(unassigned),
            share=Fraction(node_order.share(node_order.ids[name]), SHARE_SCALE),
            reached=self._snapshot.reaches_node(name),
            reaches=tuple(reaches.all[number] for number in reaches.by_node[node_order.ids[name]]),
            scalability=self._scalability(name, blockers),
        )

    def _blockers(self, name: str) -> tuple[Blocker, ...]:
        return () if name in self._removals else self._unremovable[name].blockers

    def pod(self, key: str) -> PodAnswer | None:
        """Return the explanation of the pod *key* (namespace/name); None if it does not exist."""
        pod = next((pod for pod in self._cluster.pods if pod.key == key), None)
        if pod is None:
            return None
        node_answer = self._node_of(pod)
        blockers = [] if pod.stays_with_node else self._snapshot.pod_blockers(pod)
        evaluated = pod.node is None if node_answer is None else not node_answer.node.virtual
        moves = not pod.stays_with_node and not blockers and evaluated
        target, why_no_target = (
            self._target(pod, node_answer) if moves else (self._planned_nodes.get(key), None)
        )
        reaches = self._snapshot.reaches
        feasible, rejections = _feasible_nodes(self._snapshot, pod) if moves else ([], ())
        marked = [name for name in feasible if mark_of(self._nodes[name].labels) is not None]
        return PodAnswer(
            pod=pod,
            node=node_answer.node if node_answer else None,
            blockers=tuple(blockers),
            remarks=tuple(blocker for _, blocker in findings(pod, self._now)),
            node_answer=node_answer,
            target=target,
            why_no_target=why_no_target,
            reach=reaches.reach_of(pod.node_constraints) if moves else None,
            admitted=len(reaches.members(pod.node_constraints)) if moves else 0,
            feasible=tuple(name for name in feasible if name not in marked),
            feasible_marked=tuple(marked),
            rejections=rejections,
        )

    def _node_of(self, pod: Pod) -> NodeVerdict | None:
        name = pod.node
        if name is None or (node := self._nodes.get(name)) is None:
            return None
        removal = self._removals.get(name)
        return NodeVerdict(
            node=node, order=removal.order if removal else None, blockers=self._blockers(name)
        )

    def _scalability(self, name: str, blockers: Iterable[Blocker]) -> NodeScalability:
        """Return whether an autoscaler can remove the node, and the evidence.

        *blockers*: reasons of the plan against the removal of the node. The reason *not scalable*
        among them takes precedence: it considers the minimum size of the node group too.
        """
        verdict = self._snapshot.scalability[name]
        why = next(
            (blocker.message for blocker in blockers if blocker.reason is NOT_SCALABLE), None
        )
        return (
            verdict
            if why is None
            else NodeScalability(Scalability.NOT_SCALABLE, why, verdict.group)
        )

    @cached_property
    def _nodes_of_pods(self) -> Mapping[str, str | None]:
        """Return the node of each pod (namespace/name); None for a Pending pod."""
        return {pod.key: pod.node for pod in self._cluster.pods}

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self._snapshot)

    @cached_property
    def _marks(self) -> Marks:
        """Return the marks of the next reconciliation, and why other removable nodes wait."""
        removable = self._removals.keys() - self._snapshot.marks.keys()
        facts = self._facts if self._facts and self._facts.knows_limits else None
        return next_marks(self._snapshot, removable, facts, self._now.seconds)

    def _reserved(self, node: Node) -> tuple[Blocker, ...]:
        """Return why the empty node is reserved for expected pods; empty if it is not.

        The annotation may remain on a node that has pods again, so that node does not count as
        reserved.
        """
        reserve_text = None if node.name in self._snapshot.non_empty_nodes else reserved_for(node)
        return (Blocker(RESERVE, reserve_text),) if reserve_text else ()

    def _no_schedule_blockers(self, node: Node) -> tuple[Blocker, ...]:
        if (
            not self._config.sets_no_schedule
            or mark_of(node.labels) is not Mark.PREFER_NO_SCHEDULE
        ):
            return ()
        blockers = no_schedule_blockers(self._snapshot, {}, self._now)[node.name]
        return (*self._may_not_begin, *blockers)

    @cached_property
    def _may_not_begin(self) -> Sequence[Blocker]:
        """Return why no mark, surge move or eviction may begin now; empty if they may."""
        return may_begin(self._config, self._now).blockers

    @cached_property
    def _eviction_context(self) -> EvictionContext:
        eviction_input = EvictionInput(
            cluster=self._cluster,
            plan=self._plan,
            config=self._config,
            no_schedule_blockers={},
            watched_seconds=0,
            now_seconds=self._now.seconds,
            own_namespace=self._own_namespace,
        )
        return EvictionContext(eviction_input, map(owner_of, self._cluster.pods))

    def _not_evicted(self, pods: Iterable[Pod]) -> tuple[Blocker, ...]:
        if self._config.eviction.mode is not EvictionMode.ENABLED:
            return ()
        reasons = (self._eviction_context.why_not_now(pod) for pod in pods)
        return (*self._may_not_begin, *(blocker for blocker in reasons if blocker is not None))

    @cached_property
    def _surge_context(self) -> SurgeContext | None:
        if self._surge_objects is None or not self._config.surges:
            return None
        return SurgeContext(
            SurgeInput(
                cluster=self._cluster,
                plan=self._plan,
                config=self._config,
                objects=self._surge_objects,
                own_namespace=self._own_namespace,
                leader_pod=self._leader_pod,
                now_seconds=self._now.seconds,
            )
        )

    def _surge_moves(self, name: str) -> tuple[int | None, tuple[Blocker, ...]]:
        """Return how many pods of a marked node surge moves would move, and why not the others.

        The number is None if surge moves are disabled or unknown, or if the node has no mark. In a
        surge move, Ebb starts a replacement before a pod is deleted.
        """
        context = self._surge_context
        if context is None or name not in context.on:
            return None, ()
        blockers = [context.blockers(pod) for pod in context.on[name]]
        waits = (*self._may_not_begin, *chain.from_iterable(blockers))
        return sum(not reasons for reasons in blockers), waits

    def _if_only_removal(
        self, name: str
    ) -> tuple[tuple[Placement, ...], tuple[tuple[str, str], ...]]:
        """Return the placements if only this node is removed, and the pods that fit nowhere.

        The latter are pairs of namespace/name and the reason.
        """
        packer = self._planner.packer
        node = packer.node_ids[name]
        attempt = packer.try_place(packer.on[node], node)
        unassigned = (
            (
                packer.pods[pod].key,
                planned_here(packer.pods[pod], name)
                + self._planner.why_no_room(pod, node, attempt)[1],
            )
            for pod in attempt.unassigned
            if pod not in packer.placeholders
        )
        return self._planner.placements(attempt), tuple(unassigned)

    @cached_property
    def _planned_nodes(self) -> Mapping[str, str]:
        """Return the final node of each pod (namespace/name) that the plan places.

        A plan may move a pod more than once.
        """
        placements = chain(
            self._plan.pending, *(removal.placements for removal in self._plan.removals)
        )
        return dict(placements)

    def _target(self, pod: Pod, node_answer: NodeVerdict | None) -> tuple[str | None, str | None]:
        """Return (node, None) if the plan has a node for the pod, else (None, reason).

        *node_answer*: the node on which the pod runs; None for a Pending pod.
        """
        target, why = self._planned_nodes.get(pod.key), None
        if node_answer is not None and node_answer.order is None:
            placements, unassigned = self._if_only_removal(node_answer.node.name)
            why = dict(unassigned).get(pod.key)
            if node_answer.node.name not in self._snapshot.leaving_nodes:
                target = dict(placements).get(pod.key)
        if target is not None:
            return target, None
        return None, why or (
            "no node that admits the pod has enough free capacity beside the pods that are placed "
            "before it"
        )


def _feasible_nodes(
    snapshot: ClusterSnapshot, pod: Pod
) -> tuple[list[str], tuple[tuple[str, int], ...]]:
    """Return the nodes that could take the pod now, and how many nodes each rule rejects.

    Marked nodes are included. Rules are pairs of name and number of nodes, most nodes first.
    First-fit runs repeatedly, each time without the nodes that it has returned before.
    """
    packer = Packer(snapshot.cluster, snapshot.node_order, movable=[[pod]])
    own = packer.node_ids.get(pod.node or "", -1)
    feasible: list[str] = []
    while not (attempt := packer.try_place([0], own)).unassigned:
        _, node = attempt.assignments[0]
        packer.space.close(node)
        feasible.append(packer.nodes[node].name)
    inter_pod_filters = ", ".join(sorted(attempt.refused_by.get(0, ()))) or "other pods"
    not_rejecting = {pod.node, *feasible}
    counts = Counter(
        _rejection(snapshot, pod, node) or inter_pod_filters
        for node in snapshot.node_order.nodes
        if node.name not in not_rejecting
    )
    return feasible, tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _rejection(snapshot: ClusterSnapshot, pod: Pod, node: Node) -> str:
    """Return the first rule by which the node rejects the pod, such as a filter's name.

    Returns an empty text if only rules between pods can reject it.
    """
    conditions = (node.virtual, node.name in snapshot.leaving_nodes, why_unready(node) is not None)
    if any(conditions):
        return (VIRTUAL_NODE, BEING_DELETED, NOT_READY)[conditions.index(True)].code
    if (failing := first_failing_filter(node, pod.node_constraints)) is not None:
        return failing
    if node.name in snapshot.unschedulable_nodes:
        return (CORDONED if node.unschedulable else UNREADABLE).code
    node_order = snapshot.node_order
    insufficient = _insufficient(
        pod.requests, node.allocatable - node_order.used[node_order.ids[node.name]]
    )
    return f"insufficient {', '.join(insufficient)}" if insufficient else ""


def _insufficient(requested: Resources, free: Resources) -> list[str]:
    """Return the names of resources of which less is free than requested, as in kube-scheduler."""
    free_extended = dict(free.extended)
    amounts = [
        ("cpu", requested.cpu_millis, free.cpu_millis),
        ("memory", requested.memory_bytes, free.memory_bytes),
        ("ephemeral-storage", requested.ephemeral_bytes, free.ephemeral_bytes),
        ("pods", requested.pods, free.pods),
        *((name, amount, free_extended.get(name, 0)) for name, amount in requested.extended),
    ]
    return [name for name, needed, available in amounts if needed > 0 and needed > available]
