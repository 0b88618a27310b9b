"""Derive from one state of a cluster the data that all steps of a reconciliation read."""

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Final

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.eligibility.drainability import KEPT, why_kept
from core.eligibility.drift import unprotectable
from core.eligibility.node_eligibility import node_blockers
from core.eligibility.pod_classes import count_long_lived_pods, occupied_nodes
from core.eligibility.scalability import NOT_SCALABLE, Autoscalers, NodeScalability, Scalability
from core.eligibility.surge import count_not_replaceable
from core.eligibility.unplaceable import ASKS_TOO_MUCH, pod_blockers
from core.engine.buffers import Offered, RequestedRoom, requested_rooms, requesting_buffers
from core.engine.peak import RecentTemplates
from core.engine.pod_index import GroupKey, PodIndex
from core.engine.unschedulable import is_unschedulable, never_schedulable
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
from core.model.pod import STATEFUL_SET, Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources, is_device
from core.placement.node_order import NodeOrder
from core.placement.packer import Packer
from core.placement.reach_utilization import (
    DeviceUtilization,
    PoolTotals,
    ReachUtilization,
    pool_totals,
)
from core.placement.reaches import REACHES_MAX, Reach, Reaches
from core.placement.usable_capacity import (
    NOTHING,
    Amount,
    PooledRatios,
    Share,
    Usability,
    derive_usability,
)
from core.placement.utilization_ledger import NodeLoad, UtilizationLedger
from core.policies.all import POLICIES
from core.policies.policy import Policy, PolicyInput

DEVICES_PER_REACH_MAX: Final = 16
"""Maximum number of devices with a threshold in one reach. A kubelet can name any number."""
NO_LABELS: Final[Mapping[str, str]] = {}
"""Labels that no pool selects, so that the settings of the cluster apply."""
NO_COUNTS: Final[Mapping[str, int]] = {}
Shapes = Counter[tuple[int, int]]
"""Number of pods by their requests (CPU millicores, memory bytes)."""
NO_REQUESTS: Final = Resources()
NO_TEMPLATES: Final = RecentTemplates()
WHOLE: Final = ""
"""Key for the whole cluster in mappings that are keyed by reach."""
NO_POOL: Final = ""
"""Name for the nodes that are in no pool."""
BEYOND: Final = f"its reach (the nodes it can use) is beyond the {REACHES_MAX} that Ebb tracks"
"""Message for pods beyond the REACHES_MAX limit."""

UNREACHED: Final = Reason(
    "unreached",
    "All pods that can use the node are pods that Ebb cannot evaluate. Thresholds count only the "
    "requests of other pods, so they would not keep enough room for these.",
    "find out why Ebb cannot evaluate these pods: ebb explain pod {namespace}/{name}",
    "at least one pod that Ebb can evaluate can use the node, or no pod at all can use it",
)


class ClusterSnapshot:
    """Read-only state of a cluster, with derived data such as marks and reaches.

    Data is computed from the inputs and from other data when it is first read. Node ids are
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
        """Store the inputs; derived data is computed when it is first read.

        *now*: None if no deadline counts as passed. *before*: pod index of the previous snapshot,
        or None. *recent_templates*: node constraints that pods had within `stabilizationWindow`.
        *write_blocked*: nodes whose last write failed. If such a node has a NoSchedule mark, the
        mark cannot be removed, so the node counts as unschedulable.
        """
        self.cluster, self.config, self.now = cluster, config, now
        self.pod_index = before.updated(cluster) if before else PodIndex.of(cluster)
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
            name for name in self._write_blocked if self._is_marked_no_schedule(name)
        )
        # The free capacity of a node with pods that could not be decoded is unknown.
        unreadable = self._nodes_with_unreadable_pods
        closed = (
            node.name
            for node in self.cluster.nodes
            if why_unready(node) or _is_closed_when_ready(node, unreadable)
        )
        return frozenset(closed) | self.leaving_nodes | frozenset(with_no_schedule)

    def _is_marked_no_schedule(self, name: str) -> bool:
        return name in self.marks and self.marks[name].mark is Mark.NO_SCHEDULE

    @cached_property
    def _nodes_with_unreadable_pods(self) -> frozenset[str]:
        return frozenset(pod.node or "" for pod in self.pod_index.unevaluable if pod.unreadable)

    @cached_property
    def unschedulable_pods(self) -> Sequence[Pod]:
        """Return the Pending pods that the scheduler has tried and could not place."""
        return [pod for pod in self.pod_index.pending if is_unschedulable(pod)]

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
        for pod in self._unevaluable_pods:
            if pod.node is not None:
                by_node[pod.node] += pod_blockers(pod)
        for name, kept in self._kept_pods():
            by_node[name].append(kept)
        for pod in self._pods_beyond_reaches:
            if pod.node is not None:
                by_node[pod.node] += self.pod_blockers(pod)
        message = "only pods that Ebb cannot evaluate can use it"
        for number in self.reaches.unreached_nodes_for(
            pod.node_constraints for pod in self._unsupported_pods
        ):
            of_node = by_node[self.node_order.nodes[number].name]
            if not of_node:
                of_node.append(Blocker(UNREACHED, message))
        return by_node

    @cached_property
    def autoscalers(self) -> Autoscalers:
        """Return the node autoscalers that Ebb has found in the cluster."""
        return Autoscalers.of(self.cluster, self.config.cluster_autoscaler.status_key)

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
    def _unevaluable_pods(self) -> Sequence[Pod]:
        """Return the pods that Ebb cannot place and that do not end with their node.

        Ebb cannot evaluate their constraints, or they count as pods of a nominated node only. Pods
        on virtual nodes are left out.
        """
        return [
            pod
            for pod in self.pod_index.unevaluable
            if not pod.stays_with_node
            and not self.pod_index.virtual.get(pod.node or "")
            and pod.key not in self.overdue
        ]

    @cached_property
    def overdue(self) -> Mapping[str, Pod]:
        """Return by namespace/name the pods that should have terminated long ago.

        Such a pod ends with its node and needs no room elsewhere, as for Cluster Autoscaler
        (LongTerminating). On a node that stays, it keeps its room. Pods of StatefulSets are not
        included: their replacements are created only when the pods are gone, and need room.
        """
        return {
            pod.key: pod
            for pod in self.pod_index.terminating
            if pod.node is not None
            and pod.owner_kind != STATEFUL_SET
            and not pod.stays_with_node
            and pod.overdue(self.now)
        }

    @cached_property
    def _ending_pods(self) -> Mapping[str, Pod]:
        """Return by namespace/name the pods on nodes that need no room elsewhere.

        These are overdue pods, and pods that a surge move replaces: their Deployment has one more
        replica for a while, and the new pod has taken the room already.
        """
        replaced = self.cluster.surge.replaced
        if not replaced:
            return self.overdue
        replaced_pods = {pod.key: pod for pod in self.cluster.pods if pod.key in replaced}
        return {
            **self.overdue,
            **{key: pod for key, pod in replaced_pods.items() if pod.node is not None},
        }

    @cached_property
    def _resident_requests(self) -> Mapping[str, Resources]:
        """Return by node the requests of the pods that end with the node.

        These are DaemonSet pods, static pods, overdue pods and pods that a surge move replaces.
        """
        requests = dict(self.pod_index.resident_requests)
        for pod in self._ending_pods.values():
            if (name := pod.node) in self.pod_index.virtual and name is not None:
                requests[name] = requests.get(name, NO_REQUESTS) + pod.requests
        return requests

    @cached_property
    def _unsupported_pods(self) -> Sequence[Pod]:
        """Return the pods that Ebb cannot evaluate but whose requests it knows."""
        return [pod for pod in self._unevaluable_pods if pod.estimable]

    @cached_property
    def unplaceable(self) -> AbstractSet[GroupKey]:
        """Return the groups of Pending pods that no node can ever hold.

        A group is the requests and node constraints that its pods share. Ebb does not count these
        pods as a lack of room, and reserves no room for them.
        """
        return self._unplaceable_evaluated.keys()

    @cached_property
    def unevaluated(self) -> frozenset[GroupKey]:
        """Return the groups in `unplaceable` that count as unplaceable without a check.

        A group is the requests and node constraints of pods. After IMPOSSIBLE_MAX unplaceable
        groups, further groups are not checked.
        """
        return frozenset(
            group for group, checked in self._unplaceable_evaluated.items() if not checked
        )

    @cached_property
    def _unplaceable_evaluated(self) -> Mapping[GroupKey, bool]:
        """Return the groups of Pending pods that no node can hold; False if not checked.

        A group is the requests and node constraints that its pods share. Groups beyond
        IMPOSSIBLE_MAX are not checked, but count as groups that no node can hold.
        """
        groups = self.pod_index.groups.values()
        pending = (pods[0] for pods in groups if all(pod.node is None for pod in pods))
        unplaceable = never_schedulable(self.cluster, pending, TAINT_KEY)
        return {(pod.requests, pod.node_constraints): checked for pod, checked in unplaceable}

    @cached_property
    def _placeable_groups(self) -> Sequence[Sequence[Pod]]:
        """Return the pods that Ebb can place, grouped by requests and node constraints.

        Pods that no node can hold, or that need no room elsewhere, are left out. Pods whose reach
        (set of usable nodes) is not tracked are included.
        """
        groups = (
            members
            for key, members in self.pod_index.groups.items()
            if key not in self.unplaceable
        )
        if self._ending_pods:
            remaining = (
                [pod for pod in members if pod.key not in self._ending_pods] for members in groups
            )
            return sorted(filter(None, remaining), key=_first_key)
        return sorted(groups, key=_first_key)

    @cached_property
    def _groups_by_template(self) -> Mapping[NodeConstraints, Sequence[Sequence[Pod]]]:
        """Return the placeable groups of pods by their node constraints without volumes."""
        groups: dict[NodeConstraints, list[Sequence[Pod]]] = {}
        for members in self._placeable_groups:
            groups.setdefault(without_volumes(members[0].node_constraints), []).append(members)
        return groups

    @cached_property
    def movable(self) -> Sequence[Sequence[Pod]]:
        """Return the pods that Ebb can place, in groups with equal requests and constraints.

        Bound and Pending pods are included. Pods are left out if Ebb does not track their reach
        (set of usable nodes), because there are too many reaches.
        """
        beyond = self.reaches.untracked
        return [
            members
            for members in self._placeable_groups
            if without_volumes(members[0].node_constraints) not in beyond
        ]

    @cached_property
    def _pods_beyond_reaches(self) -> Sequence[Pod]:
        beyond = self.reaches.untracked
        groups = (
            members
            for members in self._placeable_groups
            if beyond and without_volumes(members[0].node_constraints) in beyond
        )
        return [pod for members in groups for pod in members]

    @cached_property
    def _requesting_buffers(self) -> Sequence[tuple[Buffer, Pod]]:
        return requesting_buffers(self.cluster.buffers)

    @cached_property
    def reaches(self) -> Reaches:
        """Return the reaches of the cluster: the sets of nodes that movable pods can use."""
        templates, seconds = (
            self._groups_by_template,
            self.config.budgets.stabilization_window_seconds,
        )
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
        all_constraints += (pod.node_constraints for pod in self._unsupported_pods)
        all_constraints += (node_constraints for _, node_constraints in self.unplaceable)
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

    def pods_not_replaceable(self, crowded: Collection[str] = ()) -> Mapping[str, int]:
        """Return by node the number of pods that no surge move can replace.

        A surge move starts a second pod, so that a pod on a marked node can be deleted. Nodes
        without pods to count are absent. The result is empty if surge moves are disabled.
        *crowded*: pods, as namespace/name, for which a second pod has no place.
        """
        if not self.config.surges:
            return {}
        return count_not_replaceable(
            self.cluster.pods,
            self.cluster.surge.allowed,
            self.now,
            crowded=crowded,
            keep_local_storage=self.config.surge.keep_local_storage,
        )

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
                _is_closed_when_ready(node, self._nodes_with_unreadable_pods)
                or node.name in self.leaving_nodes
            )
            and not (node.ready and started(node) is node)
            and is_young(node, now)
        }

    def _kept_pods(self) -> Iterator[tuple[str, Blocker]]:
        """Yield the nodes with pods that keep them from being marked, each with the reason."""
        # Few clusters have such pods, and each reconciliation would ask all pods.
        kept = (one for one in self.pod_index.classes.values() if why_kept(one.example))
        nodes = frozenset(chain.from_iterable(one.by_node for one in kept))
        for pod in self.cluster.pods if nodes else ():
            if pod.node in nodes and (why := why_kept(pod)) is not None:
                yield pod.node, Blocker(KEPT, why, pod.key)

    def reaches_node(self, node: str) -> bool:
        """Report whether some movable pod can use the node with this name."""
        return self.node_order.ids[node] in self.reaches.reached

    def packer(self, placeholders: Sequence[Pod] = ()) -> Packer:
        """Return a new packer for the movable pods and for *placeholders*.

        A placeholder stands for a pod that does not exist, so that its room remains free.
        """
        return Packer(
            self.cluster,
            self.node_order,
            movable=self.movable,
            placeholders=placeholders,
            admitting=self.reaches.admitting,
            total_capacity=self.reachable_allocatable,
            constrained=self.pod_index.constrained,
        )

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
    def pool_totals(self) -> tuple[PoolTotals, dict[str, PoolTotals]]:
        """Return the totals of the cluster, and by pool name, of nodes that accept pods."""
        budgets = self.config.budgets
        accepting = (
            node
            for node in self.cluster.nodes
            if node.name not in self.unschedulable_nodes and not node.virtual
        )
        names = (pool.name for pool in budgets.pools)
        return pool_totals(
            accepting,
            self.pod_index.requests,
            names,
            lambda node: self.pool_names.get(node.name),
        )

    @cached_property
    def pool_names(self) -> Mapping[str, str]:
        """Return by node name the name of the node's pool; nodes in no pool are absent."""
        budgets = self.config.budgets
        if not budgets.pools:
            return {}
        pools = ((node.name, budgets.pool_of(node.labels)) for node in self.cluster.nodes)
        return {name: pool.name for name, pool in pools if pool is not None}

    def new_ledger(self, peak_excess: Mapping[str, Amount] | None = None) -> UtilizationLedger:
        """Return a new ledger with the sums of the cluster and of each reach.

        *peak_excess*: by key of a reach, how far the highest requests within `stabilizationWindow`
        exceed the current ones; the key WHOLE is the cluster. None means nowhere.
        """
        excess = peak_excess or {}
        sums = [self._sums(None, excess.get(WHOLE, NOTHING))]
        sums += [self._sums(reach, excess.get(reach.key, NOTHING)) for reach in self.reaches.all]
        nodes = self.node_order.nodes
        return UtilizationLedger(
            nodes,
            self.reaches,
            sums,
            loads=self._loads,
            is_open=[
                node.name not in self.unschedulable_nodes and not node.virtual for node in nodes
            ],
            devices=list(self._device_sums()) if self.policy_type.thresholds else (),
        )

    def _device_sums(self) -> Iterator[DeviceUtilization]:
        """Yield a zero sum for each reach and each device that pods of the reach request.

        A device is an extended resource such as a GPU.
        """
        # Extended resources that are no devices, such as huge pages, have no threshold.
        for number, reach in enumerate(self.reaches.all):
            templates = self.reaches.templates_of(number)
            names = {
                name
                for node_constraints in templates
                for name in node_constraints.extended
                if is_device(name)
            }
            if names:
                enter, release = self._reach_thresholds(reach)
                for name in sorted(names)[:DEVICES_PER_REACH_MAX]:
                    yield DeviceUtilization(
                        reach,
                        name,
                        min(thresholds.for_devices for thresholds in enter),
                        min(thresholds.for_devices for thresholds in release),
                    )

    @property
    def policy_type(self) -> type[Policy]:
        """Return the class of the configured policy."""
        return POLICIES[self.config.policy]

    def policy(
        self,
        ledger: UtilizationLedger,
        count_to_move: Callable[[int], int] = lambda _: 0,
        candidates: Collection[str] | None = None,
        pods_not_replaceable: Mapping[str, int] = NO_COUNTS,
    ) -> Policy:
        """Return a new object of the configured policy, which proposes nodes for removal.

        *ledger*: sums of the plan in progress. *count_to_move*: returns the number of pods that
        must move if the node with this id is removed. *candidates*: names of current candidates;
        None if no unneeded time applies. *pods_not_replaceable*: number of pods by node that no
        surge move can replace, which only ranks depend on.
        """
        ids, nodes = self.node_order.ids, self.node_order.nodes
        policy_input = PolicyInput(
            nodes=nodes,
            ledger=ledger,
            settings=self.config.policy_settings(),
            marked=frozenset(ids[name] for name in self.marks.keys() - self.leaving_nodes),
            candidates=(
                None if candidates is None else frozenset(ids[name] for name in candidates)
            ),
            is_blocked=lambda node: bool(self.blockers[nodes[node].name]),
            pods_on=lambda node: self._pods_by_node.get(nodes[node].name, ()),
            price=self.config.price_of,
            long_lived_pods=self.long_lived_pods,
            pods_not_replaceable=pods_not_replaceable,
            count_to_move=count_to_move,
            share=self.node_order.share,
        )
        return self.policy_type(policy_input)

    @cached_property
    def _pods_by_node(self) -> Mapping[str, Sequence[Pod]]:
        pods: dict[str, list[Pod]] = {}
        for pod in self.cluster.pods:
            if pod.node is not None:
                pods.setdefault(pod.node, []).append(pod)
        return pods

    @cached_property
    def _loads(self) -> list[NodeLoad]:
        """Return the requests on each node in node order, at most its allocatable resources."""
        loads = []
        for node, used in zip(self.node_order.nodes, self.node_order.used, strict=True):
            allocatable, requests = Amount.of(node.allocatable), Amount.of(used)
            resident_requests = self._resident_requests.get(node.name, NO_REQUESTS)
            resident = Amount.of(resident_requests)
            # A pod with `spec.nodeName` set, or a kubelet, can request more than the node has.
            # That must not count as load of other nodes.
            most = requests.at_most(allocatable)
            load = NodeLoad(most, resident.at_most(allocatable), requests.minus(most))
            if used.extended:
                load = replace(
                    load,
                    devices=_device_requests(used, node.allocatable),
                    resident_devices=_device_requests(resident_requests, node.allocatable),
                )
            loads.append(load)
        return loads

    def _sums(self, reach: Reach | None, peak_excess: Amount) -> ReachUtilization:
        enter, release = map(_strictest, self._reach_thresholds(reach))
        return ReachUtilization(reach, self._usability(reach), enter, release, peak_excess)

    def _reach_thresholds(self, reach: Reach | None) -> Iterator[Collection[Thresholds]]:
        """Yield the different `thresholds` of a reach's nodes, then their `releaseThresholds`.

        *reach*: None for the whole cluster.
        """
        numbers = reach.nodes if reach else ()
        for own, whole in self._thresholds:
            yield ({id(own[n]): own[n] for n in numbers}.values() if own else ()) or (whole,)

    @cached_property
    def _thresholds(self) -> tuple[tuple[list[Thresholds], Thresholds], ...]:
        """Return a pair for `thresholds`, then a pair for `releaseThresholds`.

        Each pair is the thresholds of each node by id, and those of the cluster. The list by node
        is empty if no pool has thresholds of its own.
        """
        config = self.config
        pools = config.budgets.pools
        some = any(pool.thresholds or pool.release_thresholds for pool in pools)
        labels = [node.labels for node in self.node_order.nodes] if some else []
        pool_by_node = [config.budgets.pool_of(of_node) for of_node in labels]
        thresholds = []
        for limit in (config.thresholds_of, config.leave_of):
            # A pool's thresholds are looked up once, not for every node.
            known: dict[int, Thresholds] = {}
            row = []
            for pool, of_node in zip(pool_by_node, labels, strict=True):
                if id(pool) not in known:
                    known[id(pool)] = limit(of_node)
                row.append(known[id(pool)])
            thresholds.append((row, limit(NO_LABELS)))
        return tuple(thresholds)

    def _usability(self, reach: Reach | None) -> Usability | None:
        if not self.policy_type.thresholds:
            return None
        match self.config.usability:
            case UsabilityMode.AUTO:
                return self._derived_usability.get(reach.key if reach else WHOLE)
            case UsabilityMode.NONE:
                return None
            case given:
                return given

    @cached_property
    def _derived_usability(self) -> Mapping[str, Usability | None]:
        """Return by key of a reach the conditions for usable capacity, derived from pods.

        The minimum sizes come from the pods of the reach. The ratios of CPU to memory come from
        all pods that can use some of its nodes. None means that no pod allows to derive any. See
        docs/glossary.md for usable capacity.
        """
        shapes: dict[str, Shapes] = {WHOLE: Counter()}
        single_node_shapes: dict[int, Shapes] = {}
        for members, reach in self._groups_by_reach:
            size = members[0].requests.cpu_millis, members[0].requests.memory_bytes
            shapes[WHOLE][size] += len(members)
            if reach is not None:
                shapes.setdefault(reach.key, Counter())[size] += len(members)
            elif len(nodes := self.reaches.members(members[0].node_constraints)) == 1:
                single_node_shapes.setdefault(nodes[0], Counter())[size] += len(members)
        own = {key: derive_usability(counter) for key, counter in shapes.items()}
        areas = [(frozenset(reach.nodes), own.get(reach.key)) for reach in self.reaches.all]
        areas += [
            (frozenset((node,)), derive_usability(counter))
            for node, counter in single_node_shapes.items()
        ]
        pooled = PooledRatios(
            [(nodes, usability) for nodes, usability in areas if usability is not None]
        )
        for reach in self.reaches.all:
            if usability := own.get(reach.key):
                own[reach.key] = pooled.ratios(usability, frozenset(reach.nodes))
        return own

    @cached_property
    def _groups_by_reach(self) -> list[tuple[Sequence[Pod], Reach | None]]:
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

        return requested_rooms(
            self._requesting_buffers,
            offered,
            self.total_allocatable,
            self.config.budgets.reserve.max_buffers,
        )

    def headroom(self, pods: int) -> list[Pod]:
        """Return headroom: placeholder pods that room must be left for, *pods* for each reach.

        They request as much as the largest pod of the reach, by CPU, then memory, then other
        resources, but no devices. They have its node constraints, but neither volumes nor
        inter-pod constraints.
        """
        by_reach: dict[str, list[Pod]] = {}
        for members, reach in self._groups_by_reach if pods else ():
            if reach is not None:
                by_reach.setdefault(reach.key, []).append(members[0])
        headroom = []
        for reach in self.reaches.all:
            if distinct := by_reach.get(reach.key):
                most = max(_size(pod.requests) for pod in distinct)
                largest = [pod for pod in distinct if _size(pod.requests) == most]
                node_constraints = min(
                    (without_volumes(pod.node_constraints) for pod in largest), key=repr
                )
                placeholder = Pod(
                    namespace="",
                    name="headroom",
                    requests=replace(largest[0].requests, extended=()),
                    node_constraints=node_constraints,
                )
                headroom += [placeholder] * pods
        return headroom

    def demand(self) -> Mapping[str, Amount]:
        """Return by key of a reach the CPU and memory that movable pods request.

        These are the requests on the nodes of the reach, without pods that end with their node,
        plus the Pending pods that have this reach. The key WHOLE is the cluster.
        """
        demand = {WHOLE: NOTHING, **{reach.key: NOTHING for reach in self.reaches.all}}
        for number in self.reaches.reached:
            load = self._loads[number]
            amount = load.used.minus(load.resident)
            for key in (WHOLE, *(self.reaches.all[n].key for n in self.reaches.by_node[number])):
                demand[key] = demand[key].plus(amount)
        for members, reach in self._groups_by_reach:
            requests = members[0].requests
            group = requests, members[0].node_constraints
            if pending := self.pod_index.pending_counts.get(group):
                amount = Amount(pending * requests.cpu_millis, pending * requests.memory_bytes)
                for key in (WHOLE, reach.key) if reach else (WHOLE,):
                    demand[key] = demand[key].plus(amount)
        return demand


def _size(requests: Resources) -> tuple[object, ...]:
    return (
        requests.cpu_millis,
        requests.memory_bytes,
        requests.ephemeral_bytes,
        requests.pods,
        requests.extended,
    )


def _first_key(members: Sequence[Pod]) -> tuple[str, str]:
    return members[0].namespace, members[0].name


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


def _strictest(thresholds: Collection[Thresholds]) -> Share:
    return Share(min(each.cpu for each in thresholds), min(each.memory for each in thresholds))


def _device_requests(requests: Resources, allocatable: Resources) -> Mapping[str, int]:
    """Return the requested units by device name, at most the units that the node offers."""
    existing = allocatable.devices
    return {name: min(units, existing.get(name, 0)) for name, units in requests.devices.items()}
