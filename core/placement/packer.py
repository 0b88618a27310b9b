"""Place pods by first-fit decreasing (thesis 4.7.1).

The order is part of the specification, so that results are reproducible:

- pods: largest first by dominant share of the cluster's capacity (CPU, memory, extended
  resources), then by all requests, then by node constraints, then by namespace and name;
- nodes: fullest first by dominant share of their own capacity at the start, then by name.

Resources are vectors (core.placement.vectors): one integer for all of them. While pods are placed,
free space only shrinks (core.placement.free_space). So all pods of an equivalence group share one
search for nodes with room (core.placement.node_search), which checks no full node again.
"""

from bisect import insort
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from core.model.cluster import Cluster
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.bits import bits_of
from core.placement.equivalence_groups import (
    AdmittingNodes,
    EquivalenceGroup,
    group_by_identity,
    packing_order,
)
from core.placement.filters import FILTERS
from core.placement.free_space import FreeSpace
from core.placement.inter_pod import PodTopology
from core.placement.node_order import NodeOrder
from core.placement.node_search import NodeSearch, Searches
from core.placement.reaches import Groups
from core.placement.second_pods import KINDS_MAX, SecondPods
from core.placement.tallies import Group
from core.placement.usable_capacity import NOTHING, Amount
from core.placement.vectors import Vectors

NOT_ADMITTED: Final = (
    f"no other node admits it (filters: {', '.join(filter_.name for filter_ in FILTERS)})"
)
"""Message for pods that the filters exclude from all other nodes."""
SWEEPS_MAX: Final = 16
"""Maximum number of rounds in which pods that inter-pod rules refused are tried again."""
NOT_REFUSED: Final[tuple[int, set[str]]] = (-1, set())
"""Entry of `_PlacementState.refusals` for pods that were not refused yet."""
NOT_LOOKED_UP: Final = {"not looked up"}
"""Set in place of the names of the refusing rules, when only their existence matters."""


@dataclass(slots=True)
class Attempt:
    """A possible placement of pods; nothing changes until `Packer.commit` carries it out."""

    assignments: list[tuple[int, int]]
    """Pairs of pod id and node id. Preferred placements come first, and pods that had to wait for
    other pods come last; all others are in packing order."""
    unassigned: list[int]
    """Ids of the pods without a feasible node."""
    free_after: dict[int, int]
    """Free vector after the placement, for every node that would receive pods."""
    refused_by: dict[int, set[str]] = field(default_factory=dict)
    """Inter-pod rules that refused nodes with room, by id of the unassigned pod."""


@dataclass(slots=True)
class _PlacementState:
    space: FreeSpace
    excluded: frozenset[int]
    """Nodes that accept no pods."""
    permanent: bool
    """True if the pods are placed permanently, so that their room is taken at once."""
    with_rules: bool
    """True if inter-pod rules concern at least one of the pods."""
    result: Attempt = field(default_factory=lambda: Attempt([], [], {}))
    excluded_bits: int = 0
    """The excluded nodes as bits, if there are pods with rules."""
    refusals: dict[tuple[EquivalenceGroup, Group], tuple[int, set[str]]] = field(
        default_factory=dict
    )
    """Number of assignments when inter-pod rules last refused a pod, and the names of these rules.

    By the equivalence group and the inter-pod group of the pod."""

    def remaining(self, node: int, request: int) -> int:
        """Return the free vector of the node after the pods of the attempt and one more.

        *request*: vector of the additional pod. If the node has no room for it, the top bit of a
        resource in the result is not set.
        """
        return (self.result.free_after.get(node) or self.space.free[node]) - request

    def fits(self, node: int, request: int) -> bool:
        """Report whether the node has room next to the pods placed by the attempt."""
        guard = self.space.guard
        return self.remaining(node, request) & guard == guard

    def assign(self, pod: int, node: int, request: int) -> None:
        """Place the pod on the node, which has room for its request."""
        remaining = self.result.free_after[node] = self.remaining(node, request)
        self.result.assignments.append((pod, node))
        if self.permanent:
            self.space.take({node: remaining})


class Packer:
    """Places the pods of a cluster on its nodes by first-fit decreasing.

    Node ids are positions in first-fit order, and pod ids are positions in packing order. `nodes`
    and `pods` contain the objects, `on` the pod ids on each node. Only movable and pending pods
    have ids; the requests of all others are part of the used space.
    """

    def __init__(
        self,
        cluster: Cluster,
        node_order: NodeOrder,
        *,
        movable: Groups,
        placeholders: Sequence[Pod] = (),
        admitting: AdmittingNodes | None = None,
        total_capacity: Resources | None = None,
        constrained: Iterable[Pod] | None = None,
    ) -> None:
        """Start with the pods of *cluster* on the nodes of *node_order*.

        *movable*: pods that may be placed, in groups with equal requests and node constraints,
        each sorted by name. *placeholders*: pods that do not exist but for which room is kept.
        *admitting*: returns the ids of the nodes that admit given node constraints; by default the
        filters of core.placement.filters decide. *total_capacity*: base of the dominant shares of
        pods; by default the allocatable resources of all nodes. *constrained*: all pods of the
        cluster with constraints on other pods; None: they are searched for.
        """
        groups = [*movable, *group_by_identity(placeholders)]
        vectors = Vectors((members[0].requests for members in groups), node_order.nodes)
        self.space = FreeSpace.of(vectors, node_order)
        self.pods, self._group_of = packing_order(
            groups,
            vectors=vectors,
            space=self.space,
            node_order=node_order,
            total_capacity=total_capacity
            or Resources.total(node.allocatable for node in node_order.nodes),
            admitting=admitting,
        )
        self.nodes, self.node_ids = node_order.nodes, node_order.ids
        self.on: list[list[int]] = [[] for _ in self.nodes]
        self.pending: list[int] = []
        for number, pod in enumerate(self.pods):
            if pod.node is None:
                self.pending.append(number)
            else:
                self.on[self.node_ids[pod.node]].append(number)
        placeholder_objects = set(map(id, placeholders))
        self.placeholders = frozenset(
            number for number in self.pending if id(self.pods[number]) in placeholder_objects
        )
        self.placeholder_nodes: dict[int, int] = {}
        """Id of the node on which each placeholder has room, by id of the placeholder."""
        self._last_searches = Searches(self.space)
        self._displaced: dict[EquivalenceGroup, list[tuple[int, int]]] = {}
        """Results of `_displacing_placeholders`, valid while `space.changes` is
        `_displaced_at`."""
        self._displaced_at = self.space.changes
        self._roomy: set[EquivalenceGroup] = set()
        """Groups for which more than `_pods_max` nodes have room, so that `surely_fit` is True for
        the pods of any node; valid while `space.changes` is `_roomy_at`."""
        self._roomy_at = -1
        self._pods_max = 0
        """Largest number of pods on a node."""
        self._reserved: set[int] = set()
        self._topology = PodTopology(cluster, self.nodes, self.pods, constrained)

    def keep_off(self, pods: Iterable[int], nodes: Container[int]) -> None:
        """Never place *pods* on *nodes*; both are ids. Call it before anything is placed."""
        others: dict[EquivalenceGroup, EquivalenceGroup] = {}
        for pod in pods:
            group = self._group_of[pod]
            if group not in others:
                others[group] = EquivalenceGroup(group.request, group.nodes.without(nodes))
            self._group_of[pod] = others[group]

    @property
    def _searches(self) -> Searches:
        self._last_searches = self._last_searches.valid_in(self.space)
        return self._last_searches

    def try_place(
        self,
        pods: Iterable[int],
        leaving: int = -1,
        excluded: frozenset[int] = frozenset(),
        preferred: Sequence[tuple[int, int]] = (),
    ) -> Attempt:
        """Return an attempt to place *pods* on nodes other than *leaving* and *excluded*.

        Nothing changes. *pods*: ascending ids. *leaving*: id of the current node of the pods, or
        -1. *preferred*: pairs of pod id and node id that are used first, where they are feasible.
        A pod without a feasible node does not end the attempt, so that `Attempt.unassigned` lists
        all such pods.
        """
        excluded = excluded if leaving < 0 else excluded | {leaving}
        return self._place([*pods], excluded, preferred)

    def surely_fit(self, pods: Collection[int]) -> bool:
        """Report whether `try_place` surely places all *pods*, the pods of one node.

        False also means unknown. The node itself receives no pod, and each of the other pods can
        fill at most one node. So a pod has a place if the number of nodes with room for it is
        larger than the number of *pods*.
        """
        if self._topology.involves(pods):
            return False
        if self._roomy_at != self.space.changes:
            self._roomy, self._roomy_at = set(), self.space.changes
            self._pods_max = max(map(len, self.on), default=0)
        searches = self._searches
        for group in set(map(self._group_of.__getitem__, pods)) - self._roomy:
            if searches[group].has_room_on(self._pods_max + 1):
                self._roomy.add(group)
            elif not searches[group].has_room_on(len(pods) + 1):
                return False
        return True

    def place(self, pods: Iterable[int]) -> tuple[Attempt, list[tuple[int, Amount]]]:
        """Place *pods* permanently; return the attempt, and the added load by node.

        The load is pairs of node id and requests, without those of placeholders. Each placement
        takes its room at once. Otherwise pods of thousands of sizes would check nodes that earlier
        pods have filled.
        """
        before = [*self.space.free]
        result = self._place([*pods], permanent=True)
        result.refused_by = {}
        received = self._load_added(result, before)
        self.commit(result)
        return result, received

    def _place(
        self,
        pods: list[int],
        excluded: frozenset[int] = frozenset(),
        preferred: Sequence[tuple[int, int]] = (),
        *,
        permanent: bool = False,
    ) -> Attempt:
        """Return an attempt that places each pod on its first feasible node.

        *preferred*: pairs of pod id and node id that are used first. *permanent*: take the room of
        each pod from the free space at once; the attempt must be committed.
        """
        topology = self._topology
        state = _PlacementState(self.space, excluded, permanent, topology.involves(pods))
        if state.with_rules:
            state.excluded_bits = bits_of(len(self.nodes), excluded)
            topology.try_without(pods)
        if preferred:
            pods = self._place_preferred(state, pods, preferred)
        self._place_each(state, pods)
        if state.with_rules:
            self._retry_refused(state)
            topology.undo()
        return state.result

    def _place_preferred(
        self, state: _PlacementState, pods: Iterable[int], preferred: Iterable[tuple[int, int]]
    ) -> list[int]:
        """Place pods on their preferred nodes where feasible; return the ids of the others."""
        for pod, node in preferred:
            group, inter_pod = self._group_of[pod], self._topology.group(pod)
            if (
                node not in state.excluded
                and state.fits(node, group.request)
                and group.nodes.admits(node)
                and (inter_pod is None or not inter_pod.refuses(node))
            ):
                state.assign(pod, node, group.request)
                self._topology.try_with(pod, node)
        placed = {pod for pod, _ in state.result.assignments}
        return [pod for pod in pods if pod not in placed]

    def _place_each(self, state: _PlacementState, pods: Iterable[int]) -> None:
        topology, excluded, result = self._topology, state.excluded, state.result
        free, guard, free_after = self.space.free, self.space.guard, result.free_after
        searches, group_of = self._searches, self._group_of
        search: NodeSearch | None = None
        feasible: list[int] = []
        request = position = count = 0
        for pod in pods:
            group = group_of[pod]
            # Equivalent pods come one after the other, so most pods continue the same search.
            if search is None or search.group is not group:
                search, request = searches[group], group.request
                feasible, position = search.feasible, search.first
                count = len(feasible)
                if position < count and (free[feasible[position]] - request) & guard != guard:
                    position = search.skip_full()
            if state.with_rules and (inter_pod := topology.group(pod)) is not None:
                self._place_with_rules(state, pod, group, inter_pod)
                continue
            while position < count or (search.unscanned and (count := search.extend()) > position):
                node = feasible[position]
                if node not in excluded:
                    remaining = (free_after.get(node) or free[node]) - request
                    if remaining & guard == guard:
                        # The same as `state.assign`, but without a call for every pod.
                        free_after[node] = remaining
                        result.assignments.append((pod, node))
                        if state.permanent:
                            self.space.take({node: remaining})
                        break
                position += 1
            else:
                result.unassigned.append(pod)

    def _place_with_rules(
        self, state: _PlacementState, pod: int, group: EquivalenceGroup, inter_pod: Group
    ) -> None:
        result, equivalent, search = state.result, (group, inter_pod), self._searches[group]
        # Equivalent pods reuse the last refusal until a placement changes the state.
        at, refused = state.refusals.get(equivalent, NOT_REFUSED)
        if at != len(result.assignments):
            nodes = inter_pod.admitted(search.open_nodes() & ~state.excluded_bits)
            for node in search.with_room(nodes):
                if state.fits(node, group.request) and inter_pod.takes(node):
                    state.assign(pod, node, group.request)
                    self._topology.try_with(pod, node)
                    return
            refused = self._refusing_rules(state, group, inter_pod)
            state.refusals[equivalent] = len(result.assignments), refused
        result.unassigned.append(pod)
        if refused:
            result.refused_by[pod] = refused

    def _refusing_rules(
        self, state: _PlacementState, group: EquivalenceGroup, inter_pod: Group
    ) -> set[str]:
        """Return the names of the inter-pod rules that refuse nodes with room for the pod.

        The set is empty if trying the pod again later cannot succeed. For permanent placements,
        only whether the set is empty matters: it contains no names of rules.
        """
        # Committed pods never leave, so a monotone rule cannot start to admit later.
        if state.permanent:
            return set() if inter_pod.monotone else NOT_LOOKED_UP
        search, names = self._searches[group], set[str]()
        nodes = search.open_nodes() & ~state.excluded_bits
        for rule in inter_pod.rules:
            refused = rule.refusing(nodes)
            if any(state.fits(node, group.request) for node in search.with_room(refused)):
                names.add(rule.name)
            nodes ^= refused
        return names

    def _retry_refused(self, state: _PlacementState) -> None:
        # A scheduler also tries them again after others have been placed: their affinity may be to
        # a smaller pod, which comes later in packing order.
        result, count = state.result, 0
        for _ in range(SWEEPS_MAX - 1):
            refused = result.refused_by
            if not refused or len(result.assignments) == count:
                break
            result.unassigned = [pod for pod in result.unassigned if pod not in refused]
            result.refused_by, count = {}, len(result.assignments)
            self._place_each(state, refused)
        result.unassigned.sort()

    def commit(self, attempt: Attempt, leaving: int = -1) -> None:
        """Carry out the attempt: take its room, and move its pods.

        *leaving*: id of a node that becomes empty and accepts no more pods, or -1.
        """
        self.space.take(attempt.free_after)
        for pod, node in attempt.assignments:
            insort(self.on[node], pod)
            if pod in self.placeholders:
                self.placeholder_nodes[pod] = node
        self._topology.commit(attempt.assignments)
        if leaving >= 0:
            self.space.close(leaving)
            self.on[leaving] = []

    def remove_placeholders(self, placeholders: Iterable[int]) -> Attempt:
        """Remove placeholders (imaginary pods for which room is kept) from their nodes.

        Return an attempt that puts them back when it is committed.
        """
        back = Attempt([], [], {})
        for pod in placeholders:
            node = self.placeholder_nodes.pop(pod)
            back.assignments.append((pod, node))
            back.free_after.setdefault(node, self.space.free[node])
            self.space.give_back(node, self._group_of[pod].request)
            self.on[node].remove(pod)
        self._topology.remove(back.assignments)
        return back

    def fork(self) -> "Packer":
        """Return a copy with a free space of its own; `reserve` on it changes only the copy."""
        fork = copy(self)
        fork.space = self.space.fork()
        fork._reserved = set()  # noqa: SLF001 of this class
        return fork

    def reserve(self, attempt: Attempt, of: "Packer") -> None:
        """Take the room that the attempt needs out of the free space.

        *of*: the packer that made the attempt: this packer, or the packer that it was forked from.
        The first attempt that uses a node takes no room there, so two attempts may rely on the
        same room. Each further attempt takes its room, or all that is left.
        """
        guard = self.space.guard
        for node, free_after in attempt.free_after.items():
            if node in self._reserved:
                free = self.space.free[node] - (of.space.free[node] - free_after)
                self.space.take({node: free if free & guard == guard else guard})
            self._reserved.add(node)

    def load_added(self, attempt: Attempt) -> list[tuple[int, Amount]]:
        """Return pairs of node id and the CPU and memory requests that the attempt adds to it.

        Placeholders (imaginary pods for which room is kept) add none.
        """
        return self._load_added(attempt, self.space.free)

    def _load_added(self, attempt: Attempt, free: Sequence[int]) -> list[tuple[int, Amount]]:
        free_after = dict(attempt.free_after) if self.placeholders else attempt.free_after
        for pod, node in attempt.assignments if self.placeholders else ():
            if pod in self.placeholders:
                free_after[node] += self._group_of[pod].request
        of = Vectors.amount
        more = ((node, of(free[node] - vector)) for node, vector in free_after.items())
        return [(node, amount) for node, amount in more if amount != NOTHING]

    def devices_added(self, attempt: Attempt) -> dict[int, dict[str, int]]:
        """Return the units of devices that the attempt adds, by node id and resource name.

        Devices are extended resources such as nvidia.com/gpu. Placeholders add none.
        """
        added: dict[int, dict[str, int]] = {}
        for pod, node in attempt.assignments:
            requests = self.pods[pod].requests
            if requests.extended and pod not in self.placeholders:
                more = added.setdefault(node, {})
                for name, units in requests.devices.items():
                    more[name] = more.get(name, 0) + units
        return added

    def displaced_by_placeholder(self, pod: int, leaving: int) -> int | None:
        """Return the id of a placeholder in whose place the pod would fit, or None.

        A placeholder is an imaginary pod for which room is kept. Placeholders on the node
        *leaving* are ignored.
        """
        if not self.placeholder_nodes:
            return None
        group, inter_pod = self._group_of[pod], self._topology.group(pod)
        if self._displaced_at != self.space.changes:
            self._displaced, self._displaced_at = {}, self.space.changes
        displacing = self._displaced.get(group)
        if displacing is None:
            displacing = self._displaced[group] = list(self._displacing_placeholders(group))
        others = ((node, placeholder) for node, placeholder in displacing if node != leaving)
        return next(
            (
                placeholder
                for node, placeholder in others
                if inter_pod is None or not inter_pod.refuses(node)
            ),
            None,
        )

    def _displacing_placeholders(self, group: EquivalenceGroup) -> Iterator[tuple[int, int]]:
        """Yield pairs of node id and placeholder id.

        Without the placeholder, the node would have room for a pod of the group.
        """
        for placeholder, node in self.placeholder_nodes.items():
            missing = group.request - self._group_of[placeholder].request
            if self.space.fits(node, missing) and group.nodes.admits(node):
                yield node, placeholder

    def never_fits(self, attempt: Attempt, leaving: int) -> bool:
        """Report whether the first unassigned pod of the attempt surely never finds room.

        *leaving*: id of the node that the pod must leave. False also means unknown.
        """
        # Free space only shrinks, apart from the room of placeholders.
        if not attempt.unassigned or self._topology.group(attempt.unassigned[0]) is not None:
            return False
        group = self._group_of[attempt.unassigned[0]]
        return not self._searches[group].may_fit_beside(leaving)

    def is_repeatable(self, leaving: int) -> bool:
        """Report whether the pods of *leaving* get the same places until an involved node changes.

        The involved nodes are the node *leaving* and those that would receive its pods. False if
        an inter-pod rule counts the pods of several nodes, such as a zone: then other nodes matter
        too.
        """
        inter_pod_groups = map(self._topology.group, self.on[leaving])
        return all(inter_pod is None or inter_pod.by_node for inter_pod in inter_pod_groups)

    def second_pods(self, leaving: Collection[int], kinds_max: int = KINDS_MAX) -> SecondPods:
        """Return the pods for which a second pod like them may have no place now.

        Call it before any pod is placed. *leaving*: ids of the marked nodes. *kinds_max*: number
        of kinds of pods to look at.
        """
        return SecondPods(
            self.pods,
            self._group_of,
            self._topology,
            space=self.space.fork(),
            node_ids=self.node_ids,
            leaving=leaving,
            kinds_max=kinds_max,
        )

    def group_without_rules(self, pod: int) -> EquivalenceGroup | None:
        """Return the pod's equivalence group, or None if inter-pod rules concern the pod."""
        return self._group_of[pod] if self._topology.group(pod) is None else None

    def explain(self, pod: int, leaving: int, attempt: Attempt) -> str:
        """Return a message that says why no node other than *leaving* is feasible for the pod.

        *attempt*: the attempt that did not place the pod.
        """
        if self._group_of[pod].nodes.admitting in ([], [leaving]):
            return NOT_ADMITTED
        if refused := attempt.refused_by.get(pod):
            rules = ", ".join(sorted(refused))
            return f"on all other nodes that admit it and have room, it violates: {rules}"
        return "no other remaining node admits it and has room"
