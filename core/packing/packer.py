"""First-fit decreasing (thesis 4.7.1): where pods would go.

The order is part of the specification, so that every answer repeats:

- pods: largest first by dominant share of the cluster's capacity (CPU, memory, extended
  resources), then by the total_capacity request, then by template, then by namespace/name;
- nodes: fullest first by dominant share of their own capacity at the start, then by name.

Amounts are vectors (core.packing.vectors): one integer for all resources. Two facts make it fast.
While pods are placed, free space only falls: a node that refused a pod refuses every pod like it,
so a scan never turns back. And pods of one group (equal requests, equal template) share one list of
the nodes that fit them, in first-fit order, found on demand.
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
    f"no other node admits it (remaining_pods: {', '.join(one.name for one in FILTERS)})"
)
SWEEPS_MAX: Final = 16
"""So often pods are remaining_pods that others refuse, as long as some of them find places."""
RefusalAnswers = dict[tuple[int, int], tuple[int, set[str]]]
"""By group and inter_pod of pods that found no place: how many pods had one then, and who refused."""
NOT_LOOKED_UP: Final = {"not looked up"}
"""Stands for the rules that refuse a pod, where nobody asks for them."""
NO_ANSWER: Final[tuple[int, set[str]]] = (-1, set())
AdmittingNodes = Callable[[NodeConstraints], list[int]]
"""Returns the ids of the nodes that admit a template, in first-fit order."""


def _admitting(node_order: NodeOrder, placings: Mapping[NodeConstraints, int]) -> AdmittingNodes:
    """Return what names the nodes that the filters admit a template to."""
    return NodeClasses(node_order.nodes, placings).allowing


@dataclass(slots=True)
class Attempt:
    """Where a set of pods would go: nothing has happened yet."""

    assignments: list[tuple[int, int]]
    """(pod id, node id) in packing order, but for those whom other pods had to come before."""
    unassigned: list[int]
    """Pod ids that found no node."""
    free_after: dict[int, int]
    """Free vector of every node that would receive pods, afterwards."""
    refused_by: dict[int, set[str]] = field(default_factory=dict)
    """By pod id of the unplaced: the rules about other pods that refused nodes with room."""


@dataclass(slots=True)
class _Search:
    """An attempt in which other pods matter."""

    result: Attempt
    excluded: int
    """The nodes that take nobody."""
    for_good: bool
    answers: RefusalAnswers = field(default_factory=dict)
    full: dict[int, int] = field(default_factory=dict)
    """By group: nodes that have no room beside what is on search."""


class Packer:
    """The free space of a cluster, and first-fit decreasing on it.

    Nodes and pods are known by total_capacity numbers: node ids count in first-fit order, pod ids in
    packing order. `nodes` and `pods` give the objects back, `on` the pod ids on each node.
    Only pods that may move, or that are pending, have ids; the rest is part of what is used.
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
        """Index *cluster*, which stands on *node_order*.

        *movable*: pods that may be placed, those in one inter_pod alike by requests and template and
        in the order of their names (`alike`).
        *placeholders* are pods that do not exist, for whom room is preferred: they are packed as the others.
        *admitting* names the nodes that admit a template, None: as the rules of fit say; *total_capacity*
        is what shares of pods are of, None: what all nodes offer.
        """
        space = FreeSpace.of(cluster, node_order, placeholders)
        order = PackingOrder.of(
            [*movable, *group_by_identity(placeholders)],
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
        """By pod id of those that do not exist: the node where there is room for it."""
        self._displaced: dict[int, list[tuple[int, int]]] = {}
        """By group: see `spared`; true until more is placed."""
        self._reserved: set[int] = set()
        self._topology = PodTopology(cluster, self.nodes, self.pods)
        self._set_open_nodes()

    def _set_open_nodes(self) -> None:
        """Write the allowed nodes of each group as bits; those of one template share their list."""
        if not self._topology.involves(range(len(self.pods))):
            return
        known: dict[int, int] = {}
        for group in self._groups:
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
        """Place *pods* (ascending ids) on nodes other than *leaving* and *excluded*; see Attempt.

        Places that are *preferred* (pod id, node id) come first, in their order, as far as they hold.
        A pod without a place does not end the attempt, so that all of them are known.
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

    def place(self, pods: Iterable[int]) -> tuple[Attempt, list[tuple[int, Amount]]]:
        """Place *pods* as an attempt would, for good; return that, and what is `received`.

        What is placed counts at once, so that none of thousands of sizes asks a node in vain that
        those before have filled.
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
        """Place pods to which no other pods matter; *for_good*: they are free space no longer."""
        guard, free, group_of, free_after = (
            self.guard,
            self.free,
            self._group_of,
            result.free_after,
        )
        known: EquivalenceGroup | None = None
        place = request = 0
        fits: list[int] = []
        for pod in pods:
            group = group_of[pod]
            if group is not known:
                known, request, fits = group, group.request, group.feasible
                place = self._advance_head(group)
            while place < len(fits) or (
                group.scanned < len(group.candidates) and self._scan(group)
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
        """Place pods where they are to go, if that still can be; return the others."""
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
        """Do the same where other pods matter to some of the pods: on search in the Topology.

        Whom such rules refuse is remaining_pods again once others have their places, as a scheduler does: a
        pod that must be near a smaller one comes before it. *for_good*: what refused a pod is not
        looked up; nobody is remaining_pods why what waits has found no place.
        """
        result, topology = Attempt([], [], {}), self._topology
        topology.try_without(pods)
        remaining_pods = self._place_preferred(result, pods, preferred, excluded)
        search = _Search(result, bits_of(len(self.nodes), excluded), for_good)
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
        """Place the pods, each once.

        As long as nobody is placed, pods alike get the answer that one of them got.
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
        """Return the first node that takes a pod of the inter_pod; None: there is none."""
        nodes = self._nodes_to_try(search, group)
        if inter_pod is not None and inter_pod.rules:
            nodes = inter_pod.admitted(nodes)
        node = (nodes & -nodes).bit_length() - 1
        if node < 0:
            return None
        free_after = (search.result.free_after.get(node) or self.free[node]) - group.request
        if free_after & self.guard == self.guard and (inter_pod is None or inter_pod.takes(node)):
            return node  # it mostly is the first one
        for node in self._nodes_with_room(search, group, nodes):
            if inter_pod is None or inter_pod.takes(node):
                return node
        return None

    def _refusing_rules(
        self, search: _Search, group: EquivalenceGroup, inter_pod: Group
    ) -> set[str]:
        """Return the rules that refuse nodes with room; none where asking again is no use.

        What is placed for good is never taken back, so what a rule refuses for those that are
        there, it refuses whoever else comes.
        """
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
        """Return the nodes that may have room for the group, and are not excluded."""
        full = search.full.get(id(group), 0) if search.full else 0
        return group.open_nodes & ~(search.excluded | full)

    def _nodes_with_room(
        self, search: _Search, group: EquivalenceGroup, nodes: int
    ) -> Iterator[int]:
        """Yield those of the *nodes* that have room for a pod of the group, ascending.

        Free space only falls: who has no room now is not remaining_pods again.
        """
        while nodes:
            block = ((nodes & -nodes).bit_length() - 1) // BLOCK_NODES
            start = block * BLOCK_NODES
            some = nodes >> start & BLOCK_BITS
            nodes ^= some << start
            if self._free_space_index.may_fit(block, group.request):
                yield from self._nodes_with_room_in(search, group, block, some)
            else:
                group.open_nodes &= ~(BLOCK_BITS << start)

    def _nodes_with_room_in(
        self, search: _Search, group: EquivalenceGroup, block: int, some: int
    ) -> Iterator[int]:
        """Yield those that have room of *some* of one block: bits from its first node on."""
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
        """Step over entries that have filled up for good since they were scanned."""
        guard, free, fits, request = self.guard, self.free, group.feasible, group.request
        head = group.first_feasible
        while head < len(fits) and (free[fits[head]] - request) & guard != guard:
            head += 1
        group.first_feasible = head
        return head

    def _scan(self, group: EquivalenceGroup) -> bool:
        """Find the next nodes with room for the group; False: there are none."""
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
        return len(found) > known

    def commit(self, attempt: Attempt, leaving: int = -1) -> None:
        """Carry the attempt out; *leaving* takes no pods from now on and has none."""
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
        """Take pods that do not exist off their nodes; return what puts them back by a commit.

        There is more free space then than before: all nodes are remaining_pods anew.
        """
        back = Attempt([], [], {})
        for pod in placeholders:
            node = self.placeholder_nodes.pop(pod)
            back.assignments.append((pod, node))
            back.free_after.setdefault(node, self.free[node])
            self.free[node] += self._group_of[pod].request
            self.on[node].remove(pod)
            self._free_space_index.raise_to(node, self.free[node])
        self._topology.remove(back.assignments)
        for group in self._groups:
            group.scanned, group.feasible, group.first_feasible = 0, [], 0
        self._set_open_nodes()
        self._displaced.clear()
        return back

    def fork(self) -> "Packer":
        """Return the same pods and nodes with free space of its own, where room is promised."""
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
        """Count what was placed by an attempt *of* this one, or of what this is a fork of.

        What is promised first on a node is not counted; where there is too little, none is free_after.
        """
        for node, free_after in attempt.free_after.items():
            if node in self._reserved:
                free = self.free[node] - (of.free[node] - free_after)
                self.free[node] = free if free & self.guard == self.guard else self.guard
            self._reserved.add(node)

    def load_added(self, attempt: Attempt) -> list[tuple[int, Amount]]:
        """Return (node id, CPU and memory) where there would be more; headroom is no load."""
        return self._load_added(attempt, self.free)

    def _load_added(self, attempt: Attempt, free: Sequence[int]) -> list[tuple[int, Amount]]:
        free_after = dict(attempt.free_after) if self.placeholders else attempt.free_after
        for pod, node in attempt.assignments if self.placeholders else ():
            if pod in self.placeholders:
                free_after[node] += self._group_of[pod].request
        of = self._vectors.amount
        more = ((node, of(free[node] - vector)) for node, vector in free_after.items())
        return [(node, amount) for node, amount in more if amount != NOTHING]

    def displaced_by_placeholder(self, pod: int, leaving: int) -> int | None:
        """Return a pod that does not exist, without which this one would have found room."""
        group, inter_pod = self._group_of[pod], self._topology.group(pod)
        found = self._displaced.get(id(group))
        if found is None:
            found = self._displaced[id(group)] = list(self._displacing_placeholders(group))
        places = ((at, placeholders) for at, placeholders in found if at != leaving)
        return next(
            (one for at, one in places if inter_pod is None or not inter_pod.refuses(at)), None
        )

    def _displacing_placeholders(self, group: EquivalenceGroup) -> Iterator[tuple[int, int]]:
        """Yield the nodes that had room but for a pod that does not exist, and that pod."""
        guard = self.guard
        for placeholders, at in self.placeholder_nodes.items():
            more = self.free[at] + self._group_of[placeholders].request
            if (more - group.request) & guard == guard and _admits(group, at):
                yield at, placeholders

    def never_fits(self, attempt: Attempt, leaving: int) -> bool:
        """Say whether a pod will never find a place, whatever goes: free space only falls."""
        if not attempt.unassigned or self._topology.group(attempt.unassigned[0]) is not None:
            return False
        free, guard, group = self.free, self.guard, self._group_of[attempt.unassigned[0]]
        ahead = group.feasible[self._advance_head(group) :]
        return group.scanned >= len(group.candidates) and not any(
            at != leaving and (free[at] - group.request) & guard == guard for at in ahead
        )

    def is_repeatable(self, leaving: int) -> bool:
        """Say whether the node's pods find the same places again and again, as nodes go.

        So it is until pods move on the node, or on those where some of its pods find places, if
        no rule asks about more than a node: what counts over a zone, other nodes change too.
        """
        found = map(self._topology.group, self.on[leaving])
        return all(inter_pod is None or inter_pod.by_node for inter_pod in found)

    def explain(self, pod: int, leaving: int, attempt: Attempt) -> str:
        """Say in words what preferred the pod from every node but *leaving* in the attempt."""
        if self._group_of[pod].admitting_nodes in ([], [leaving]):
            return NOT_ADMITTED
        if refused := attempt.refused_by.get(pod):
            rules = ", ".join(sorted(refused))
            return f"every other node that admits it and has room is refused by: {rules}"
        return "no other node that stays admits it and has room"


def _admits(group: EquivalenceGroup, node: int) -> bool:
    at = bisect_left(group.admitting_nodes, node)
    return group.admitting_nodes[at : at + 1] == [node]
