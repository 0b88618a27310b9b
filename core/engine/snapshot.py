"""Derive from one state of a cluster the facts that all steps of a reconciliation read.

The facts here are those about nodes and reaches. Facts that concern pods alone are in
core.engine.snapshot_pods, sums of requests in core.engine.utilization.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from functools import cached_property
from typing import Final

from core.config.settings import Config
from core.eligibility.drift import unprotectable
from core.eligibility.node_eligibility import node_blockers
from core.eligibility.pod_classes import count_long_lived_pods, occupied_nodes
from core.eligibility.scalability import NOT_SCALABLE, Autoscalers, NodeScalability, Scalability
from core.eligibility.unplaceable import ASKS_TOO_MUCH, pod_blockers
from core.engine.buffers import Offered, RequestedRoom, requested_rooms, requesting_buffers
from core.engine.peak import RecentTemplates
from core.engine.pod_index import PodIndex
from core.engine.snapshot_pods import SnapshotPods
from core.engine.utilization import Utilization
from core.marks.mark import ExistingMark, Mark, existing_marks
from core.marks.wellknown import TAINT_KEY
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, without_volumes
from core.model.node import Node
from core.model.node_lifecycle import (
    is_terminating,
    is_young,
    leaving_ends,
    started,
    why_unready,
)
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.placement.node_order import NodeOrder
from core.placement.reaches import REACHES_MAX, Reach, Reaches
from core.policies.all import POLICIES
from core.policies.policy import Policy

NO_TEMPLATES: Final = RecentTemplates()
NO_POOL: Final = ""
"""Name for the nodes that are in no pool."""
BEYOND: Final = (
    f"its reach (the nodes it can use) is not among the {REACHES_MAX} reaches that Ebb tracks"
)
"""Message for pods beyond the REACHES_MAX limit."""

UNREACHED: Final = Reason(
    "unreached",
    "Ebb can evaluate none of the pods that can use the node. Thresholds do not count the "
    "requests of such pods, so thresholds would not keep enough room for them.",
    "find out why Ebb cannot evaluate these pods: ebb explain pod {namespace}/{name}",
    "Ebb can evaluate at least one pod that can use the node, or no pod can use the node",
)


class ClusterSnapshot:
    """Read-only state of a cluster, with derived facts such as marks and reaches.

    A fact is computed from the inputs and from other facts when it is first read. Node ids are
    positions in `node_order`. A reach is a set of nodes that some pods can use.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        now: Now | None = None,
        before: PodIndex | None = None,
        *,
        recent_templates: RecentTemplates = NO_TEMPLATES,
        write_blocked: Collection[str] = (),
    ) -> None:
        """Store the inputs.

        *now*: None if no deadline counts as passed. *before*: pod index of the previous snapshot,
        or None. *recent_templates*: node constraints that pods had within `stabilizationWindow`.
        *write_blocked*: nodes whose last write failed. If such a node has a NoSchedule mark, the
        mark cannot be removed, so the node counts as unschedulable.
        """
        self.cluster, self.config, self.now = cluster, config, now
        self.pod_index = before.updated(cluster) if before else PodIndex.of(cluster)
        self.pods = SnapshotPods(cluster, self.pod_index, now)
        self._recent_templates, self._write_blocked = recent_templates, write_blocked

    @cached_property
    def marks(self) -> Mapping[str, ExistingMark]:
        """Return Ebb's marks by node name; all steps of a reconciliation read marks here."""
        return existing_marks(self.cluster.nodes, TAINT_KEY)

    @cached_property
    def leaving_nodes(self) -> frozenset[str]:
        """Return the names of nodes that are leaving: something announces their removal."""
        leaving = [node for node in self.cluster.nodes if is_terminating(node)]
        if self.now is not None and (ends := leaving_ends(leaving)) is not None:
            self.now.before(ends)  # the next Cluster differs then
        return frozenset(node.name for node in leaving)

    @cached_property
    def unschedulable_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that accept no pods, including leaving nodes."""
        with_no_schedule = (
            name
            for name in self._write_blocked
            if name in self.marks and self.marks[name].mark is Mark.NO_SCHEDULE
        )
        # The free capacity of a node with pods that could not be decoded is unknown.
        unreadable = self.pods.nodes_with_unreadable
        closed = (
            node.name
            for node in self.cluster.nodes
            if why_unready(node) or _is_closed_when_ready(node, unreadable)
        )
        return frozenset(closed) | self.leaving_nodes | frozenset(with_no_schedule)

    @cached_property
    def node_order(self) -> NodeOrder:
        """Return the nodes in the order in which first-fit tries to place pods on them."""
        return NodeOrder(
            self.cluster, TAINT_KEY, self.unschedulable_nodes, self.pod_index.requests
        )

    @cached_property
    def blockers(self) -> Mapping[str, Sequence[Blocker]]:
        """Return by node the reasons against its removal that lie in the Node or its pods.

        A node without such a reason has an empty sequence. Policies and limits add reasons of
        their own.
        """
        by_node = {node.name: node_blockers(node) for node in self.cluster.nodes}
        for name, verdict in self.scalability.items():
            if verdict.state is Scalability.NOT_SCALABLE:
                by_node[name].append(Blocker(NOT_SCALABLE, verdict.evidence))
        for pod in self.pods.unevaluable:
            if pod.node is not None:
                by_node[pod.node] += pod_blockers(pod)
        for name, kept in self.pods.kept():
            by_node[name].append(kept)
        for pod in self._pods_beyond_reaches:
            if pod.node is not None:
                by_node[pod.node] += self.pod_blockers(pod)
        message = "only pods that Ebb cannot evaluate can use the node"
        for number in self.reaches.unreached_nodes_for(
            pod.node_constraints for pod in self.pods.unsupported
        ):
            of_node = by_node[self.node_order.nodes[number].name]
            if not of_node:
                of_node.append(Blocker(UNREACHED, message))
        return by_node

    @cached_property
    def autoscalers(self) -> Autoscalers:
        """Return the node autoscalers that Ebb has found in the cluster."""
        return Autoscalers.of(self.cluster, self.config.cluster_autoscaler.status)

    @cached_property
    def scalability(self) -> Mapping[str, NodeScalability]:
        """Return by node whether an autoscaler can remove it, if its group is large enough."""
        return self.autoscalers.verdicts(self.cluster.nodes)

    @cached_property
    def unpromised_nodes(self) -> frozenset[str]:
        """Return the names of nodes whose removal must not be promised as savings."""
        return self.autoscalers.unpromised(self.scalability)

    @cached_property
    def unprotectable_nodes(self) -> frozenset[str]:
        """Return the names of drifted nodes that Ebb no longer protects from scale-down.

        These nodes have been reported as drifted for too long (core.eligibility.drift).
        """
        return unprotectable(self.cluster, self.now)

    @cached_property
    def movable(self) -> Sequence[Sequence[Pod]]:
        """Return the pods that Ebb can place, in groups with equal requests and constraints.

        Bound and Pending pods are included. Pods are left out if Ebb does not track their reach
        (set of usable nodes), because there are too many reaches.
        """
        beyond = self.reaches.untracked
        return [
            members
            for members in self.pods.placeable
            if without_volumes(members[0].node_constraints) not in beyond
        ]

    @cached_property
    def _pods_beyond_reaches(self) -> Sequence[Pod]:
        beyond = self.reaches.untracked
        groups = (
            members
            for members in self.pods.placeable
            if beyond and without_volumes(members[0].node_constraints) in beyond
        )
        return [pod for members in groups for pod in members]

    @cached_property
    def reaches(self) -> Reaches:
        """Return the reaches of the cluster: the sets of nodes that movable pods can use."""
        templates = self.pods.by_template
        seconds = self.config.budgets.stabilization_window_seconds
        recent = (
            self._recent_templates.within(seconds, templates.keys(), self.now) if self.now else ()
        )
        return Reaches(self.node_order.nodes, templates, self._templates_without_reach(), recent)

    def _templates_without_reach(self) -> Mapping[NodeConstraints, None]:
        """Return node constraints that define no reach but whose feasible nodes are needed.

        These are the constraints of CapacityBuffers, of unplaceable pods and of pods that Ebb
        cannot evaluate.
        """
        all_constraints = [pod.node_constraints for _, pod in self._requesting_buffers]
        all_constraints += (pod.node_constraints for pod in self.pods.unsupported)
        all_constraints += (node_constraints for _, node_constraints in self.pods.unplaceable)
        return dict.fromkeys(map(without_volumes, all_constraints))

    def pod_blockers(self, pod: Pod) -> list[Blocker]:
        """Return every reason why Ebb does not place a pod that has to leave its node.

        The list is empty if Ebb can place the pod.
        """
        blockers = pod_blockers(pod)
        if not blockers and without_volumes(pod.node_constraints) in self.reaches.untracked:
            blockers.append(Blocker(ASKS_TOO_MUCH, BEYOND, pod.key))
        return blockers

    @cached_property
    def long_lived_pods(self) -> Mapping[str, int]:
        """Return by node the number of pods that rarely terminate by themselves.

        Nodes without such pods are absent.
        """
        return count_long_lived_pods(self.pod_index.classes, self.now)

    @cached_property
    def non_empty_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that their autoscaler does not consider empty."""
        return occupied_nodes(self.cluster.nodes, self.pod_index.classes, self.now)

    @cached_property
    def idle_nodes(self) -> frozenset[str]:
        """Return the names of the empty nodes that nothing keeps from being removed."""
        return frozenset(
            node.name
            for node in self.cluster.nodes
            if node.name not in self.non_empty_nodes and not self.blockers[node.name]
        )

    @cached_property
    def starting_nodes(self) -> Mapping[str, Node]:
        """Return by name the nodes that are starting, as they will be when they have started.

        Empty if the snapshot has no time.
        """
        now = self.now
        if now is None:
            return {}
        return {
            node.name: started(node)
            for node in self.node_order.nodes
            if not (
                _is_closed_when_ready(node, self.pods.nodes_with_unreadable)
                or node.name in self.leaving_nodes
            )
            and not (node.ready and started(node) is node)
            and is_young(node, now)
        }

    def reaches_node(self, node: str) -> bool:
        """Report whether some movable pod can use the node with this name."""
        return self.node_order.ids[node] in self.reaches.reached

    @cached_property
    def reachable_allocatable(self) -> Resources:
        """Return the total allocatable resources of the nodes that a movable pod can use."""
        nodes = self.node_order.nodes
        return Resources.total(nodes[n].allocatable for n in sorted(self.reaches.reached))

    @cached_property
    def total_allocatable(self) -> Resources:
        """Return the total allocatable resources of all nodes except virtual ones.

        Nodes that no movable pod can use are included, because pods that may come can use them.
        """
        return Resources.total(
            node.allocatable for node in self.node_order.nodes if not node.virtual
        )

    @cached_property
    def pool_names(self) -> Mapping[str, str]:
        """Return by node name the name of the node's pool; nodes in no pool are absent."""
        budgets = self.config.budgets
        if not budgets.pools:
            return {}
        pools = ((node.name, budgets.pool_of(node.labels)) for node in self.cluster.nodes)
        return {name: pool.name for name, pool in pools if pool is not None}

    @property
    def policy_type(self) -> type[Policy]:
        """Return the class of the configured policy."""
        return POLICIES[self.config.policy]

    @cached_property
    def groups(self) -> Sequence[tuple[Sequence[Pod], Reach | None]]:
        """Return the groups in `movable`, each with its reach, if it has at least two nodes."""
        constraints_by_id = {
            id(members[0].node_constraints): members[0].node_constraints
            for members in self.movable
        }
        reach_by_id = {
            number: self.reaches.reach_of(node_constraints)
            for number, node_constraints in constraints_by_id.items()
        }
        return [
            (members, reach_by_id[id(members[0].node_constraints)]) for members in self.movable
        ]

    @cached_property
    def buffer_rooms(self) -> tuple[RequestedRoom, ...]:
        """Return for each CapacityBuffer how many of its pods to keep room for, if possible."""
        nodes = self.node_order.nodes
        offered_by_constraints: dict[NodeConstraints, Offered] = {}

        def offered(node_constraints: NodeConstraints) -> Offered:
            if node_constraints not in offered_by_constraints:
                members = self.reaches.members(node_constraints)
                amounts = (nodes[number].allocatable for number in members)
                offered_by_constraints[node_constraints] = members, Resources.total(amounts)
            return offered_by_constraints[node_constraints]

        return requested_rooms(self._requesting_buffers, offered, self.total_allocatable)

    @cached_property
    def _requesting_buffers(self) -> Sequence[tuple[Buffer, Pod]]:
        return requesting_buffers(self.cluster.buffers)

    @cached_property
    def utilization(self) -> Utilization:
        """Return the requests and the usable capacity of the nodes and reaches."""
        return Utilization(
            config=self.config,
            node_order=self.node_order,
            reaches=self.reaches,
            groups=self.groups,
            pending_counts=self.pod_index.pending_counts,
            resident_requests=self.pods.resident_requests,
            unschedulable_nodes=self.unschedulable_nodes,
        )


def _is_closed_when_ready(node: Node, with_unreadable_pods: Container[str]) -> bool:
    """Report whether the node accepts no pods even once it is Ready.

    *with_unreadable_pods*: names of nodes with a pod that could not be decoded.
    """
    return bool(
        node.unreadable
        or node.virtual
        or node.suspended
        or node.name in with_unreadable_pods
        or node.unschedulable
    )
