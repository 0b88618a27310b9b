"""Place pods by first-fit decreasing (thesis 4.7.1).

The order is part of the specification, so that results are reproducible:

- pods: largest first by dominant share of the cluster's capacity (CPU, memory, extended
  resources), then by all requests, then by node constraints, then by namespace and name;
- nodes: fullest first by dominant share of their own capacity at the start, then by name.

Resources are vectors (core.packing.vectors): one integer for all of them. Two facts make packing
fast. While pods are placed, free space only shrinks: a node without room for a pod will have none
for an equal pod, so a scan never checks it again. And all pods of an equivalence group share one
list of feasible nodes, which is extended on demand.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from core.capacity.reaches import Groups
from core.capacity.usable import NOTHING, Amount
from core.fit.bits import bits_of
from core.fit.filters import FILTERS
from core.fit.inter_pod import PodTopology
from core.fit.node_classes import NodeClasses
from core.fit.tallies import Group
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.packing.equivalence_groups import EquivalenceGroup, group_by_identity
from core.packing.free_space_index import BLOCK_BITS, BLOCK_NODES, FreeSpaceIndex
from core.packing.node_order import NodeOrder
from core.packing.parts import FreeSpace, PackingOrder, pods_by_node

NOT_ADMITTED: Final = (
    f"no other node admits it (filters: {', '.join(one.name for one in FILTERS)})"
)
"""Message for pods that the filters exclude from all other nodes."""
SWEEPS_MAX: Final = 16
"""Maximum number of rounds in which pods that inter-pod rules refused are tried again."""
RefusalAnswers = dict[tuple[int, int], tuple[int, set[str]]]
"""Refusals by equivalence group and inter-pod group: the number of assignments at that time, and
the rules that refused."""
NOT_LOOKED_UP: Final = {"not looked up"}
"""Value in place of the refusing rules when their names are not needed."""
NO_ANSWER: Final[tuple[int, set[str]]] = (-1, set())
"""Value for a group that was not refused yet."""
AdmittingNodes = Callable[[NodeConstraints], list[int]]
"""Returns the ids of the nodes that admit pods with given constraints, in first-fit order."""


def _admitting(node_order: NodeOrder, placings: Mapping[NodeConstraints, int]) -> AdmittingNodes:
    """Return a function that evaluates the filters for all nodes and given constraints."""
    return NodeClasses(node_order.nodes, placings).allowing


@dataclass(slots=True)
class Attempt:
    """A possible placement of pods; nothing is changed until it is committed."""

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
class _Search:
    """An attempt to place pods that inter-pod rules concern."""

    result: Attempt
    excluded: int
    """Nodes that accept no pods, as bits."""
    for_good: bool
    """True if the pods are placed permanently."""
    answers: RefusalAnswers = field(default_factory=dict)
    """Latest refusals."""
    full: dict[int, int] = field(default_factory=dict)
    """Nodes without room next to the pods placed by this attempt, as bits, by equivalence
    group."""


class Packer:
    """Free space of a cluster, with first-fit decreasing.

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
    ) -> None:
        """Index the pods of *cluster* on the nodes of *node_order*.

        *movable*: pods that may be placed, in groups with equal requests and node constraints,
        each sorted by name. *placeholders*: pods that do not exist but for which room is kept.
        *admitting*: returns the nodes that admit given constraints; by default the filters of
        core.fit decide.
        *total_capacity*: base of the dominant shares of pods; by default the allocatable resources
        of all nodes.
        """
        groups = [*movable, *group_by_identity(placeholders)]
        space = FreeSpace.of(groups, node_order)
        order = PackingOrder.of(
            groups,
            space,
            (lambda _: admitting) if admitting else partial(_admitting, node_order),
            total_capacity or Resources.total(node.allocatable for node in node_order.nodes),
        )
        self.nodes, self.node_ids = node_order.nodes, node_order.ids
        self._vectors, self.guard, self.free = space
        self._free_space_index = FreeSpaceIndex(self.free, self.guard)
        self.pods, self._group_of, self._groups = order
        self.on, self.pending = pods_by_node(self.pods, node_order)
        own = set(map(id, placeholders))
        self.placeholders = frozenset(n for n in self.pending if id(self.pods[n]) in own)
        self.placeholder_nodes: dict[int, int] = {}
        """Node by id of the placeholder that has room there."""
        self._displaced: dict[int, list[tuple[int, int]]] = {}
        """Results of `_displacing_placeholders` by equivalence group, until more pods are
        placed."""
        self._version = 0
        """Number of changes of the free space."""
        self._reserved: set[int] = set()
        self._topology = PodTopology(cluster, self.nodes, self.pods)
        self._set_open_nodes()

    def _set_open_nodes(self) -> None:
        """Set the candidates of each group as bits, if inter-pod rules concern some pod."""
        if not self._topology.involves(range(len(self.pods))):
            return
        known: dict[int, int] = {}

        for group in self._groups:
            # Groups with the same node constraints share the list of candidates.
            allowed = id(group.candidates)
            if allowed not in known:
                known[allowed] = bits_of(len(self.nodes), group.candidates)
            group.open_nodes = known[allowed]

    def try_place(
        self,
        pods: Iterable[int],
        leaving: int = -1,
        excluded: frozenset[int] = frozenset(),
        preferred: Sequence[tuple[int, int]] = (),
    ) -> Attempt:
        """Try to place *pods* (ascending ids) on nodes other than *leaving* and *excluded*.

        Valid *preferred* placements (pod id, node id) are taken first, in their order. A pod
        without a feasible node does not end the attempt, so that all such pods are known.
        """
        excluded = excluded if leaving < 0 else excluded | {leaving}
        pods = list(pods)
        if self._topology.involves(pods):
            return self._place_with_rules(pods, excluded, preferred)
        result = Attempt([], [], {})
        if preferred:
            pods = self._place_preferred(result, pods, preferred, excluded)
        self._place_plain(result, pods, excluded)
        return result

    def surely_fit(self, pods: Collection[int]) -> bool:
        """Report whether `try_place` places all *pods* of a node; False also means unknown.

        At most one node receives each pod that is placed before another one, and the pods leave
        one node. So a pod has a place if more nodes than there are pods have room for it.
        """
        if self._topology.involves(pods):
            return False
        most = len(pods) + 1
        groups = set(map(self._group_of.__getitem__, pods))
        return all(self._count_feasible(group, most) >= most for group in groups)

    def _count_feasible(self, group: EquivalenceGroup, most: int) -> int:
        """Return the number of nodes with room for a pod of the group, or any number >= *most*."""
        if group.counted_at == self._version and (
            group.feasible_count >= most or group.feasible_count < group.counted_to
        ):
            return group.feasible_count
        guard, free, fits, request = self.guard, self.free, group.feasible, group.request
        count, place = 0, self._advance_head(group)
        while count < most and (place < len(fits) or self._scan(group) > place):
            count += (free[fits[place]] - request) & guard == guard
            place += 1
        group.feasible_count, group.counted_to, group.counted_at = count, most, self._version
        return count

    def place(self, pods: Iterable[int]) -> tuple[Attempt, list[tuple[int, Amount]]]:
        """Place *pods* permanently; return the attempt, and the load added to nodes.

        Each placement takes effect at once, so that pods of thousands of sizes do not check nodes
        that earlier pods have filled.
        """
        pods, before = list(pods), list(self.free)
        if self._topology.involves(pods):
            result = self._place_with_rules(pods, frozenset(), for_good=True)
            result.refused_by = {}
        else:
            result = Attempt([], [], {})
            self._place_plain(result, pods, (), for_good=True)
        received = self._load_added(result, before)
        self.commit(result)
        return result, received

    def _place_plain(
        self,
        result: Attempt,
        pods: Iterable[int],
        excluded: Collection[int],
        *,
        for_good: bool = False,
    ) -> None:
        """Place pods that no inter-pod rule concerns.

        *for_good*: update the free space at once.
        """
        guard, free, group_of, free_after = (
            self.guard,
            self.free,
            self._group_of,
            result.free_after,
        )
        known: EquivalenceGroup | None = None
        place = request = count = 0
        fits: list[int] = []
        for pod in pods:
            group = group_of[pod]
            if group is not known:
                known, request, fits = group, group.request, group.feasible
                place, count = group.first_feasible, len(fits)
                if place < count and (free[fits[place]] - request) & guard != guard:
                    place = self._advance_head(group)
            while place < count or (
                group.scanned < len(group.candidates) and (count := self._scan(group)) > place
            ):
                node = fits[place]
                if node not in excluded:
                    remaining = (free_after.get(node) or free[node]) - request
                    if remaining & guard == guard:
                        free_after[node] = remaining
                        if for_good:
                            free[node] = remaining
                        result.assignments.append((pod, node))
                        break
                place += 1
            else:
                result.unassigned.append(pod)

    def _place_preferred(
        self,
        result: Attempt,
        pods: Iterable[int],
        preferred: Sequence[tuple[int, int]],
        excluded: frozenset[int],
    ) -> list[int]:
        """Place pods on their preferred nodes where these are feasible; return the other pods."""
        guard, free_after, topology = self.guard, result.free_after, self._topology
        for pod, node in preferred:
            group, inter_pod = self._group_of[pod], topology.group(pod)
            remaining = (free_after.get(node) or self.free[node]) - group.request
            if (
                node in excluded
                or remaining & guard != guard
                or not _admits(group, node)
                or (inter_pod is not None and inter_pod.refuses(node))
            ):
                continue
            free_after[node] = remaining
            result.assignments.append((pod, node))
            topology.try_with(pod, node)
        placed = {pod for pod, _ in result.assignments}
        return [pod for pod in pods if pod not in placed]

    def _place_with_rules(
        self,
        pods: list[int],
        excluded: frozenset[int],
        preferred: Sequence[tuple[int, int]] = (),
        *,
        for_good: bool = False,
    ) -> Attempt:
        """Place pods if inter-pod rules concern some of them."""
        result, topology = Attempt([], [], {}), self._topology
        topology.try_without(pods)
        remaining_pods = self._place_preferred(result, pods, preferred, excluded)
        search = _Search(result, bits_of(len(self.nodes), excluded), for_good)
        # A refused pod is tried again after others have been placed, as a scheduler does. Its
        # affinity may be to a smaller pod, which comes later in packing order.
        for _ in range(SWEEPS_MAX):
            result.unassigned = [pod for pod in result.unassigned if pod not in result.refused_by]
            result.refused_by, before = {}, len(result.assignments)
            self._place_each(search, remaining_pods)
            if not result.refused_by or len(result.assignments) == before:
                break
            remaining_pods = [*result.refused_by]
        result.unassigned.sort()
        topology.undo()
        return result

    def _place_each(self, search: _Search, pods: Iterable[int]) -> None:
        """Try to place each pod once.

        Equivalent pods reuse the last refusal until a placement changes the state.
        """
        topology, result, answers = self._topology, search.result, search.answers
        for pod in pods:
            group, inter_pod = self._group_of[pod], topology.group(pod)
            alike, count = (id(group), id(inter_pod)), len(result.assignments)
            at, refused = answers.get(alike, NO_ANSWER)
            node = self._first_feasible(search, group, inter_pod) if at != count else None
            if node is None:
                if at != count:
                    refused = (
                        self._refusing_rules(search, group, inter_pod)
                        if inter_pod is not None
                        else set()
                    )
                    answers[alike] = count, refused
                result.unassigned.append(pod)
                if refused:
                    result.refused_by[pod] = refused
                continue
            free_after = (result.free_after.get(node) or self.free[node]) - group.request
            result.free_after[node] = free_after

            if search.for_good:
                self.free[node] = free_after
            result.assignments.append((pod, node))
            topology.try_with(pod, node)

    def _first_feasible(
        self, search: _Search, group: EquivalenceGroup, inter_pod: Group | None
    ) -> int | None:
        """Return the first node that is feasible for a pod of the group, or None."""
        nodes = self._nodes_to_try(search, group)
        if inter_pod is not None and inter_pod.rules:
            nodes = inter_pod.admitted(nodes)
        node = (nodes & -nodes).bit_length() - 1
        if node < 0:
            return None
        free_after = (search.result.free_after.get(node) or self.free[node]) - group.request
        if free_after & self.guard == self.guard and (inter_pod is None or inter_pod.takes(node)):
            return node  # in most cases the first node is feasible
        for node in self._nodes_with_room(search, group, nodes):
            if inter_pod is None or inter_pod.takes(node):
                return node
        return None

    def _refusing_rules(
        self, search: _Search, group: EquivalenceGroup, inter_pod: Group
    ) -> set[str]:
        """Return the rules that reject nodes with room; empty if no later attempt can succeed."""
        # Committed pods never leave, so a monotone rule cannot start to admit later.
        if search.for_good:
            return set() if inter_pod.monotone else NOT_LOOKED_UP
        nodes, found = self._nodes_to_try(search, group), set[str]()
        for rule in inter_pod.rules:
            refused = rule.refusing(nodes)
            if next(self._nodes_with_room(search, group, refused), None) is not None:
                found.add(rule.name)
            nodes ^= refused
        return found

    def _nodes_to_try(self, search: _Search, group: EquivalenceGroup) -> int:
        """Return the nodes that may have room for the group and are not excluded."""
        full = search.full.get(id(group), 0) if search.full else 0
        return group.open_nodes & ~(search.excluded | full)

    def _nodes_with_room(
        self, search: _Search, group: EquivalenceGroup, nodes: int
    ) -> Iterator[int]:
        """Yield the nodes of *nodes* with room for a pod of the group, ascending."""
        while nodes:
            block = ((nodes & -nodes).bit_length() - 1) // BLOCK_NODES
            start = block * BLOCK_NODES
            some = nodes >> start & BLOCK_BITS
            nodes ^= some << start
            # Free space only shrinks, so a full block is not checked again.
            if self._free_space_index.may_fit(block, group.request):
                yield from self._nodes_with_room_in(search, group, block, some)
            else:
                group.open_nodes &= ~(BLOCK_BITS << start)

    def _nodes_with_room_in(
        self, search: _Search, group: EquivalenceGroup, block: int, some: int
    ) -> Iterator[int]:
        """Yield the nodes of a block with room; *some*: bits from the block's first node."""
        guard, free, free_after, request = (
            self.guard,
            self.free,
            search.result.free_after,
            group.request,
        )
        start, full = block * BLOCK_NODES, 0
        while some:
            lowest = some & -some
            some ^= lowest
            node = start + lowest.bit_length() - 1
            if (free[node] - request) & guard != guard:
                full |= lowest
            elif node in free_after and (free_after[node] - request) & guard != guard:
                search.full[id(group)] = search.full.get(id(group), 0) | lowest << start
            else:
                group.open_nodes &= ~(full << start)
                yield node
        group.open_nodes &= ~(full << start)
        if full:
            self._free_space_index.count_misses(block, full.bit_count(), free)

    def _advance_head(self, group: EquivalenceGroup) -> int:
        """Skip nodes that have become full since they were scanned, and return the position."""
        guard, free, fits, request = self.guard, self.free, group.feasible, group.request
        head = group.first_feasible
        while head < len(fits) and (free[fits[head]] - request) & guard != guard:
            head += 1
        group.first_feasible = head
        return head

    def _scan(self, group: EquivalenceGroup) -> int:
        """Find the next nodes with room for the group; return the number of nodes found so far."""
        guard, free, request, blocks = self.guard, self.free, group.request, self._free_space_index
        allowed, found = group.candidates, group.feasible
        known = len(found)
        while len(found) == known and group.scanned < len(allowed):
            start, block = group.scanned, allowed[group.scanned] // BLOCK_NODES
            group.scanned = bisect_left(allowed, (block + 1) * BLOCK_NODES, start)
            if blocks.may_fit(block, request):
                remaining_pods = allowed[start : group.scanned]
                found += [
                    node for node in remaining_pods if (free[node] - request) & guard == guard
                ]
                if len(found) == known:
                    blocks.count_misses(block, len(remaining_pods), free)
        return len(found)

    def commit(self, attempt: Attempt, leaving: int = -1) -> None:
        """Carry out the attempt; the *leaving* node becomes empty and accepts no more pods."""
        self._version += 1
        self._displaced.clear()
        for node, vector in attempt.free_after.items():
            self.free[node] = vector
        for pod, node in attempt.assignments:
            insort(self.on[node], pod)
            if pod in self.placeholders:
                self.placeholder_nodes[pod] = node
        self._topology.commit(attempt.assignments)
        if leaving >= 0:
            self.free[leaving] = self.guard
            self.on[leaving] = []

    def remove_placeholders(self, placeholders: Iterable[int]) -> Attempt:
        """Remove placeholders from their nodes; return an attempt that puts them back."""
        self._version += 1
        back = Attempt([], [], {})
        for pod in placeholders:
            node = self.placeholder_nodes.pop(pod)
            back.assignments.append((pod, node))
            back.free_after.setdefault(node, self.free[node])
            self.free[node] += self._group_of[pod].request
            self.on[node].remove(pod)
            self._free_space_index.raise_to(node, self.free[node])
        # There is more free space than before, so all nodes are scanned again.
        self._topology.remove(back.assignments)
        for group in self._groups:
            group.scanned, group.feasible, group.first_feasible = 0, [], 0
        self._set_open_nodes()
        self._displaced.clear()
        return back

    def fork(self) -> "Packer":
        """Return a copy with its own free space, for reservations."""
        fork = copy(self)
        fork.free, fork._free_space_index = list(self.free), self._free_space_index.fork()  # noqa: SLF001
        own = {
            id(one): EquivalenceGroup(
                one.request, one.admitting_nodes, one.candidates, open_nodes=one.open_nodes
            )
            for one in self._groups
        }
        fork._groups = [*own.values()]  # noqa: SLF001 of this class
        fork._group_of = [own[id(group)] for group in self._group_of]  # noqa: SLF001
        fork._reserved = set()  # noqa: SLF001
        fork._displaced = {}  # noqa: SLF001
        return fork

    def reserve(self, attempt: Attempt, of: "Packer") -> None:
        """Reserve the room of an attempt *of* this packer, or of the one that it was forked from.

        The first attempt that uses a node takes no room there, so two attempts may rely on the
        same room. Each further attempt takes its room, or all that is left.
        """
        for node, free_after in attempt.free_after.items():
            if node in self._reserved:
                self._version += 1
                free = self.free[node] - (of.free[node] - free_after)
                self.free[node] = free if free & self.guard == self.guard else self.guard
            self._reserved.add(node)

    def load_added(self, attempt: Attempt) -> list[tuple[int, Amount]]:
        """Return the added load by node id; placeholders add none."""
        return self._load_added(attempt, self.free)

    def _load_added(self, attempt: Attempt, free: Sequence[int]) -> list[tuple[int, Amount]]:
        free_after = dict(attempt.free_after) if self.placeholders else attempt.free_after
        for pod, node in attempt.assignments if self.placeholders else ():
            if pod in self.placeholders:
                free_after[node] += self._group_of[pod].request
        of = self._vectors.amount
        more = ((node, of(free[node] - vector)) for node, vector in free_after.items())
        return [(node, amount) for node, amount in more if amount != NOTHING]

    def devices_added(self, attempt: Attempt) -> dict[int, dict[str, int]]:
        """Return the added requests of devices by node id; placeholders add none."""
        found: dict[int, dict[str, int]] = {}
        for pod, node in attempt.assignments:
            requests = self.pods[pod].requests
            if requests.extended and pod not in self.placeholders:
                more = found.setdefault(node, {})
                for name, units in requests.devices.items():
                    more[name] = more.get(name, 0) + units
        return found

    def displaced_by_placeholder(self, pod: int, leaving: int) -> int | None:
        """Return a placeholder without which the pod would have found room, or None."""
        group, inter_pod = self._group_of[pod], self._topology.group(pod)
        found = self._displaced.get(id(group))
        if found is None:
            found = self._displaced[id(group)] = list(self._displacing_placeholders(group))
        places = ((at, placeholders) for at, placeholders in found if at != leaving)
        return next(
            (one for at, one in places if inter_pod is None or not inter_pod.refuses(at)), None
        )

    def _displacing_placeholders(self, group: EquivalenceGroup) -> Iterator[tuple[int, int]]:
        """Yield (node, placeholder) if the node would have room without the placeholder."""
        guard = self.guard
        for placeholders, at in self.placeholder_nodes.items():
            more = self.free[at] + self._group_of[placeholders].request
            if (more - group.request) & guard == guard and _admits(group, at):
                yield at, placeholders

    def never_fits(self, attempt: Attempt, leaving: int) -> bool:
        """Report whether a pod of the attempt will never have room; free space only shrinks."""
        if not attempt.unassigned or self._topology.group(attempt.unassigned[0]) is not None:
            return False
        free, guard, group = self.free, self.guard, self._group_of[attempt.unassigned[0]]
        ahead = group.feasible[self._advance_head(group) :]
        return group.scanned >= len(group.candidates) and not any(
            at != leaving and (free[at] - group.request) & guard == guard for at in ahead
        )

    def is_repeatable(self, leaving: int) -> bool:
        """Report whether the node's pods find the same places until pods move on nodes involved.

        The nodes involved are the node itself and those that would receive its pods. Rules that
        count the pods of several nodes, such as a zone, depend on other nodes too.
        """
        found = map(self._topology.group, self.on[leaving])
        return all(inter_pod is None or inter_pod.by_node for inter_pod in found)

    def group_without_rules(self, pod: int) -> EquivalenceGroup | None:
        """Return the pod's equivalence group, or None if inter-pod rules concern the pod."""
        return self._group_of[pod] if self._topology.group(pod) is None else None

    def explain(self, pod: int, leaving: int, attempt: Attempt) -> str:
        """Return a message that says why no node other than *leaving* is feasible for the pod."""
        if self._group_of[pod].admitting_nodes in ([], [leaving]):
            return NOT_ADMITTED
        if refused := attempt.refused_by.get(pod):
            rules = ", ".join(sorted(refused))
            return f"on all other nodes that admit it and have room, it violates: {rules}"
        return "no other remaining node admits it and has room"


def _admits(group: EquivalenceGroup, node: int) -> bool:
    at = bisect_left(group.admitting_nodes, node)
    return group.admitting_nodes[at : at + 1] == [node]
