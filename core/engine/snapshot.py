"""One look at a cluster: who may move, who may go, what is used, before anything is decided."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Final

from core.capacity.reaches import Reach, Reaches
from core.capacity.sums import ReachUtilization
from core.capacity.usable import NOTHING, Amount, PooledRatios, Share, Usability, derive_usability
from core.capacity.utilization import NodeLoad, UtilizationLedger
from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine.buffers import Offered, RequestedRoom, requested_rooms, requesting_buffers
from core.engine.peak import RecentTemplates
from core.engine.pod_index import Alike, PodIndex
from core.engine.unschedulable import never_schedulable
from core.guards.drainability import count_long_lived_pods
from core.guards.emptiness import occupants
from core.guards.node_eligibility import node_blockers
from core.guards.unplaceable import ASKS_TOO_MUCH, pod_blockers
from core.marks.mark import ExistingMark, Mark, existing_marks
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, without_volumes
from core.model.node import Node
from core.model.node_lifecycle import is_terminating, why_unready
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.model.startup_taints import is_young, started
from core.packing.node_order import NodeOrder
from core.packing.packer import Packer
from core.policies.all import POLICIES
from core.policies.policy import Policy, PolicyInput

NO_LABELS: Final[Mapping[str, str]] = {}
"""No pool selects them: what holds for them holds for the cluster."""
Shapes = Counter[tuple[int, int]]
"""How many pods ask for so many millicores and bytes."""
NO_TEMPLATES: Final = RecentTemplates()
WHOLE: Final = ""
"""Stands for the whole where things are kept by a reach's key."""
BEYOND: Final = "asks for nodes of its own, beyond as many sets as are told apart"
"""Message for pods beyond the REACHES_MAX limit."""

UNREACHED: Final = Reason(
    "unreached",
    "Only pods that Ebb cannot evaluate could use the node, so no threshold would protect them.",
    "see those pods' own reasons: ebb explain pod; or mark nothing here",
    "a pod that Ebb can evaluate could use the node, or none that it cannot",
)


class ClusterSnapshot:
    """The facts about a cluster that the engine's steps share; read only.

    Each fact is worked out from the inputs and from other facts when it is first asked for. Ids of
    nodes are those of `ground`.
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
        """Take the inputs; *now*: None if no time is to have passed.

        *before*: the pods as they were at the last look, None: there was none. *recent*: templates
        that pods have had within the peak window. *write_blocked*: nodes of which those with a hard mark
        take no pods: it cannot be taken away.
        """
        self.cluster, self.config, self.now = cluster, config, now
        self.pod_index = before.updated(cluster) if before else PodIndex.of(cluster)
        self._recent_templates, self._write_blocked = recent_templates, write_blocked

    @cached_property
    def marks(self) -> Mapping[str, ExistingMark]:
        """Return the marks by name of the node; nobody else reads them in a pass."""
        return existing_marks(self.cluster.nodes, self.config.taint_key)

    @cached_property
    def leaving_nodes(self) -> frozenset[str]:
        """Return the nodes that are leaving."""
        return frozenset(node.name for node in self.cluster.nodes if is_terminating(node))

    @cached_property
    def unschedulable_nodes(self) -> frozenset[str]:
        """Return the nodes that take no pods, the leaving ones among them."""
        hard = (name for name in self._write_blocked if self._is_hard(name))
        return (
            frozenset(_closed(self.cluster, self._nodes_with_unreadable_pods))
            | self.leaving_nodes
            | frozenset(hard)
        )

    def _is_hard(self, name: str) -> bool:
        return name in self.marks and self.marks[name].mark is Mark.HARD

    @cached_property
    def _nodes_with_unreadable_pods(self) -> frozenset[str]:
        """Return the nodes with pods that could not be read."""
        return frozenset(pod.node or "" for pod in self.pod_index.unevaluable if pod.unreadable)

    @cached_property
    def node_order(self) -> NodeOrder:
        """Return the nodes in first-fit order."""
        return NodeOrder(
            self.cluster, self.config.taint_key, self.unschedulable_nodes, self.pod_index.requests
        )

    @cached_property
    def blockers(self) -> Mapping[str, Sequence[Blocker]]:
        """Return by node what the node itself and its pods say against its removal."""
        found = {node.name: node_blockers(node) for node in self.cluster.nodes}
        for pod in self._unevaluable_pods:
            if pod.node is not None:
                found[pod.node] += pod_blockers(pod)
        for pod in self._pods_beyond_reaches:
            if pod.node is not None:
                found[pod.node] += self.pod_blockers(pod)
        message = "only pods that Ebb cannot evaluate could use it"
        for number in self.reaches.unreached_nodes_for(
            pod.placing for pod in self._unsupported_pods
        ):
            blockers = found[self.node_order.nodes[number].name]
            if not blockers:
                blockers.append(Blocker(UNREACHED, message))
        return found

    @cached_property
    def _unevaluable_pods(self) -> Sequence[Pod]:
        """Return the pods that the engine cannot place and that do not leave with their node."""
        return [
            pod
            for pod in self.pod_index.unevaluable
            if not pod.stays_with_node and not self.pod_index.virtual.get(pod.node or "")
        ]

    @cached_property
    def _unsupported_pods(self) -> Sequence[Pod]:
        """Return those of them that need room like other pods."""
        return [pod for pod in self._unevaluable_pods if not pod.too_much and not pod.unreadable]

    @cached_property
    def unplaceable(self) -> AbstractSet[Alike]:
        """Return the groups of pods that no node can ever hold.

        No room is short, or to be kept, for them.
        """
        return self._unplaceable_evaluated.keys()

    @cached_property
    def unevaluated(self) -> frozenset[Alike]:
        """Return those among the hopeless that were not looked at, after too many others."""
        return frozenset(alike for alike, seen in self._unplaceable_evaluated.items() if not seen)

    @cached_property
    def _unplaceable_evaluated(self) -> Mapping[Alike, bool]:
        """Return the groups of which no pod is bound, nor could be, and whether that was seen."""
        groups = self.pod_index.groups.values()
        waiting = (pods[0] for pods in groups if all(pod.node is None for pod in pods))
        found = never_schedulable(self.cluster, waiting, self.config.taint_key)
        return {(pod.requests, pod.placing): seen for pod, seen in found}

    @cached_property
    def _placeable_groups(self) -> Sequence[Sequence[Pod]]:
        """Return the groups of pods that the engine can place, whatever reach they have."""
        groups = self.pod_index.groups.items()
        return sorted((own for alike, own in groups if alike not in self.unplaceable), key=_first)

    @cached_property
    def _groups_by_template(self) -> Mapping[NodeConstraints, Sequence[Sequence[Pod]]]:
        """Return these groups by template without its volumes."""
        found: dict[NodeConstraints, list[Sequence[Pod]]] = {}
        for members in self._placeable_groups:
            found.setdefault(without_volumes(members[0].placing), []).append(members)
        return found

    @cached_property
    def movable(self) -> Sequence[Sequence[Pod]]:
        """Return the groups of pods that the engine can place: on nodes that move, and pending."""
        beyond = self.reaches.untracked
        return [
            own for own in self._placeable_groups if without_volumes(own[0].placing) not in beyond
        ]

    @cached_property
    def _pods_beyond_reaches(self) -> Sequence[Pod]:
        """Return the pods whose reach is beyond those that are told apart."""
        beyond = self.reaches.untracked
        aside = (
            own
            for own in self._placeable_groups
            if beyond and without_volumes(own[0].placing) in beyond
        )
        return [pod for own in aside for pod in own]

    @cached_property
    def _requesting_buffers(self) -> Sequence[tuple[Buffer, Pod]]:
        """Return the CapacityBuffers that ask for room, each with one of its pods."""
        return requesting_buffers(self.cluster.buffers)

    @cached_property
    def reaches(self) -> Reaches:
        """Return the sets of nodes that pods can use."""
        asked, seconds = self._groups_by_template, self.config.budgets.peak_window_seconds
        lately = self._recent_templates.within(seconds, asked.keys(), self.now) if self.now else ()
        return Reaches(self.node_order.nodes, asked, self._templates_without_reach(), lately)

    def _templates_without_reach(self) -> Mapping[NodeConstraints, None]:
        """Return the templates of pods that make no reach, of which it is asked who admits them.

        They are those of buffers, those that cannot be judged, and those without hope.
        """
        found = [pod.placing for _, pod in self._requesting_buffers]
        found += (pod.placing for pod in self._unsupported_pods)
        found += (placing for _, placing in self.unplaceable)
        return dict.fromkeys(map(without_volumes, found))

    def pod_blockers(self, pod: Pod) -> list[Blocker]:
        """Return every reason why no place is looked for, for a pod that does not stay."""
        found = pod_blockers(pod)
        if not found and without_volumes(pod.placing) in self.reaches.untracked:
            found.append(Blocker(ASKS_TOO_MUCH, BEYOND, pod.key))
        return found

    @cached_property
    def long_lived_pods(self) -> Mapping[str, int]:
        """Count by node the pods that rarely leave by themselves; 0: no key."""
        return count_long_lived_pods(self.cluster.pods, self.now)

    @cached_property
    def non_empty_nodes(self) -> frozenset[str]:
        """Return the nodes that an autoscaler does not take for empty."""
        return frozenset(occupants(self.cluster, self.now))

    @cached_property
    def starting_nodes(self) -> Mapping[str, Node]:
        """Return by name the nodes that are on their way, as they are when they have started."""
        now = self.now
        if now is None:
            return {}
        return {
            node.name: started(node)
            for node in self.node_order.nodes
            if not (
                _stays_closed(node, self._nodes_with_unreadable_pods)
                or node.name in self.leaving_nodes
            )
            and not (node.ready and started(node) is node)
            and is_young(node, now)
        }

    def reaches_node(self, node: str) -> bool:
        """Say whether some movable pod reaches the node."""
        return self.node_order.ids[node] in self.reaches.reached

    def packer(self, placeholders: Sequence[Pod] = ()) -> Packer:
        """Return a packer for the movable pods, and for *placeholders* ones that do not exist."""
        return Packer(
            self.cluster,
            self.node_order,
            movable=self.movable,
            placeholders=placeholders,
            admitting=self.reaches.admitting,
            total_capacity=self.reachable_allocatable,
        )

    @cached_property
    def reachable_allocatable(self) -> Resources:
        """Return what the nodes offer that some movable pod reaches."""
        nodes = self.node_order.nodes
        return Resources.total(nodes[n].allocatable for n in sorted(self.reaches.reached))

    @cached_property
    def total_allocatable(self) -> Resources:
        """Return what all nodes offer but the virtual ones.

        Pods that are expected need not be there, so whether some pod reaches a node is no matter.
        """
        return Resources.total(one.allocatable for one in self.node_order.nodes if not one.virtual)

    def new_ledger(self, reserve: Mapping[str, Amount] | None = None) -> UtilizationLedger:
        """Open an account; *reserve*: by a reach's key, or WHOLE."""
        kept = reserve or {}
        sums = [self._sums(None, kept.get(WHOLE, NOTHING))]
        sums += [self._sums(reach, kept.get(reach.key, NOTHING)) for reach in self.reaches.all]
        nodes = self.node_order.nodes
        return UtilizationLedger(
            nodes,
            self.reaches,
            sums,
            loads=self._loads,
            is_open=[
                node.name not in self.unschedulable_nodes and not node.virtual for node in nodes
            ],
        )

    @property
    def policy_type(self) -> type[Policy]:
        """Return the configured policy."""
        return POLICIES[self.config.policy]

    def policy(
        self,
        account: UtilizationLedger,
        to_move: Callable[[int], int] = lambda _: 0,
        listed: Collection[str] | None = None,
    ) -> Policy:
        """Return the configured policy, to be asked along with *account*; see Look."""
        ids, nodes = self.node_order.ids, self.node_order.nodes
        look = PolicyInput(
            nodes=nodes,
            ledger=account,
            settings=self.config.policy_settings(),
            marked=frozenset(ids[name] for name in self.marks.keys() - self.leaving_nodes),
            candidates=None if listed is None else frozenset(ids[name] for name in listed),
            is_blocked=lambda node: bool(self.blockers[nodes[node].name]),
            pods_on=lambda node: self._pods_by_node.get(nodes[node].name, ()),
            price=self.config.price_of,
            long_lived_pods=self.long_lived_pods,
            count_to_move=to_move,
            share=self.node_order.share,
        )
        return self.policy_type(look)

    @cached_property
    def _pods_by_node(self) -> Mapping[str, Sequence[Pod]]:
        """Return by node the pods that are bound to it."""
        found: dict[str, list[Pod]] = {}
        for pod in self.cluster.pods:
            if pod.node is not None:
                found.setdefault(pod.node, []).append(pod)
        return found

    @cached_property
    def _loads(self) -> list[NodeLoad]:
        """Return what is asked for by node, of each resource no more than there is.

        Whoever may bind a pod by `spec.nodeName`, and each kubelet, can write more on a node: that
        is nobody's load elsewhere.
        """
        loads = []
        for node, used in zip(self.node_order.nodes, self.node_order.used, strict=True):
            whole, asked = Amount.of(node.allocatable), Amount.of(used)
            resident = Amount.of(self.pod_index.resident_requests.get(node.name, Resources()))
            most = asked.at_most(whole)
            loads.append(NodeLoad(most, resident.at_most(whole), asked.minus(most)))
        return loads

    def _sums(self, reach: Reach | None, reserve: Amount) -> ReachUtilization:
        numbers = reach.nodes if reach else ()
        enter, leave = (
            _strictest({id(own[n]): own[n] for n in numbers}.values(), whole)
            if own
            else _strictest((), whole)
            for own, whole in self._thresholds
        )
        return ReachUtilization(reach, self._usability(reach), enter, leave, reserve)

    @cached_property
    def _thresholds(self) -> tuple[tuple[list[Thresholds], Thresholds], ...]:
        """By node those for entering and for leaving, asked of each pool once, and the whole's."""
        config = self.config
        pools = config.budgets.pools
        some = any(pool.thresholds or pool.leave_thresholds for pool in pools)
        labels = [node.labels for node in self.node_order.nodes] if some else []
        of = [config.budgets.pool_of(one) for one in labels]
        found = []
        for limit in (config.thresholds_of, config.leave_of):
            known: dict[int, Thresholds] = {}
            row = []
            for pool, one in zip(of, labels, strict=True):
                if id(pool) not in known:
                    known[id(pool)] = limit(one)
                row.append(known[id(pool)])
            found.append((row, limit(NO_LABELS)))
        return tuple(found)

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
        """By the reach's key; its own pods say how small a scrap is of use.

        How much of one resource is, beside how little of the other, say all pods that can use
        some of its nodes.
        """
        shapes: dict[str, Shapes] = {WHOLE: Counter()}
        alone: dict[int, Shapes] = {}
        for members, reach in self._groups_by_reach:
            asked = members[0].requests.cpu_millis, members[0].requests.memory_bytes
            shapes[WHOLE][asked] += len(members)
            if reach is not None:
                shapes.setdefault(reach.key, Counter())[asked] += len(members)
            elif len(nodes := self.reaches.members(members[0].placing)) == 1:
                alone.setdefault(nodes[0], Counter())[asked] += len(members)
        own = {key: derive_usability(counter) for key, counter in shapes.items()}
        areas = [(frozenset(reach.nodes), own.get(reach.key)) for reach in self.reaches.all]
        areas += [(frozenset((n,)), derive_usability(counter)) for n, counter in alone.items()]
        widest = PooledRatios([(nodes, one) for nodes, one in areas if one is not None])
        for reach in self.reaches.all:
            if one := own.get(reach.key):
                own[reach.key] = widest.ratios(one, frozenset(reach.nodes))
        return own

    @cached_property
    def _groups_by_reach(self) -> list[tuple[Sequence[Pod], Reach | None]]:
        of = {id(members[0].placing): members[0].placing for members in self.movable}
        found = {number: self.reaches.reach_of(placing) for number, placing in of.items()}
        return [(members, found[id(members[0].placing)]) for members in self.movable]

    @cached_property
    def buffer_rooms(self) -> tuple[RequestedRoom, ...]:
        """Return for how many pods of which CapacityBuffers room is kept, where there is some."""
        nodes = self.node_order.nodes
        found: dict[NodeConstraints, Offered] = {}

        def offered(placing: NodeConstraints) -> Offered:
            if placing not in found:
                members = self.reaches.members(placing)
                amounts = (nodes[number].allocatable for number in members)
                found[placing] = members, Resources.total(amounts)
            return found[placing]

        return requested_rooms(
            self._requesting_buffers,
            offered,
            self.total_allocatable,
            self.config.budgets.reserve.buffers,
        )

    def headroom(self, pods: int) -> list[Pod]:
        """Return pods that do not exist, for whom room must be left: so many for each reach.

        They are as large as the largest of the reach, by CPU, then memory, then the rest, and ask
        the same of their node; of other pods and of volumes they ask nothing.
        """
        own: dict[str, list[Pod]] = {}
        for members, reach in self._groups_by_reach if pods else ():
            if reach is not None:
                own.setdefault(reach.key, []).append(members[0])
        made = []
        for reach in self.reaches.all:
            if likes := own.get(reach.key):
                most = max(_size(one.requests) for one in likes)
                largest = [one for one in likes if _size(one.requests) == most]
                placing = min((without_volumes(one.placing) for one in largest), key=repr)
                asked = largest[0].requests
                one = Pod(namespace="", name="headroom", requests=asked, placing=placing)
                made += [one] * pods
        return made

    def demand(self) -> Mapping[str, Amount]:
        """Sum up by reach, and for the WHOLE, what asks for room that would ask for it elsewhere.

        Pods on a reach's nodes, and the pending ones whose own reach it is.
        """
        found = {WHOLE: NOTHING, **{reach.key: NOTHING for reach in self.reaches.all}}
        for number in self.reaches.reached:
            load = self._loads[number]
            amount = load.used.minus(load.resident)
            for key in (WHOLE, *(self.reaches.all[n].key for n in self.reaches.by_node[number])):
                found[key] = found[key].plus(amount)
        for members, reach in self._groups_by_reach:
            if waiting := sum(pod.node is None for pod in members):
                asked = members[0].requests
                amount = Amount(waiting * asked.cpu_millis, waiting * asked.memory_bytes)
                for key in (WHOLE, reach.key) if reach else (WHOLE,):
                    found[key] = found[key].plus(amount)
        return found


def _size(asked: Resources) -> tuple[object, ...]:
    return (
        asked.cpu_millis, asked.memory_bytes, asked.ephemeral_bytes, asked.pods, asked.extended
    )  # fmt: skip


def _first(members: Sequence[Pod]) -> tuple[str, str]:
    return members[0].namespace, members[0].name


def _closed(cluster: Cluster, unread: Container[str]) -> Iterable[str]:
    """Name the nodes that take no pods.

    *unread*: those with pods that cannot be read, so that what they take is not known.
    """
    for node in cluster.nodes:
        if why_unready(node) or _stays_closed(node, unread):
            yield node.name


def _stays_closed(node: Node, unread: Container[str]) -> bool:
    """Say whether the node takes no pods even when it is ready."""
    odd = node.unreadable or node.virtual or node.name in unread
    return bool(odd or node.unschedulable)


def _strictest(found: Iterable[Thresholds], whole: Thresholds) -> Share:
    """Return the smallest of these limits; of none, those of the whole."""
    those = list(found) or [whole]
    return Share(min(one.cpu for one in those), min(one.memory for one in those))
