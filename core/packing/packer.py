"""First-fit decreasing (thesis 4.7.1): where pods would go.

The order is part of the specification, so that every answer repeats:

- pods: largest first by dominant share of the cluster's capacity (CPU, memory, extended
  resources), then by the whole request, then by template, then by namespace/name;
- nodes: fullest first by dominant share of their own capacity at the start, then by name.

Amounts are vectors (core.packing.vectors): one integer for all resources. Two facts make it fast.
While pods are placed, free space only falls: a node that refused a pod refuses every pod like it,
so a scan never turns back. And pods of one kind (equal requests, equal template) share one list of
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

NOT_ADMITTED: Final = f"no other node admits it (asked: {', '.join(one.name for one in FILTERS)})"
SWEEPS_MAX: Final = 16
"""So often pods are asked that others refuse, as long as some of them find places."""
Answers = dict[tuple[int, int], tuple[int, set[str]]]
"""By kind and group of pods that found no place: how many pods had one then, and who refused."""
NOT_LOOKED_UP: Final = {"not looked up"}
"""Stands for the rules that refuse a pod, where nobody asks for them."""
NO_ANSWER: Final[tuple[int, set[str]]] = (-1, set())
Admitting = Callable[[NodeConstraints], list[int]]
"""Returns the ids of the nodes that admit a template, in first-fit order."""


def _admitting(ground: NodeOrder, placings: Mapping[NodeConstraints, int]) -> Admitting:
    """Return what names the nodes that the filters admit a template to."""
    return NodeClasses(ground.nodes, placings).allowing


@dataclass(slots=True)
class Attempt:
    """Where a set of pods would go: nothing has happened yet."""

    placements: list[tuple[int, int]]
    """(pod id, node id) in packing order, but for those whom other pods had to come before."""
    unplaced: list[int]
    """Pod ids that found no node."""
    left: dict[int, int]
    """Free vector of every node that would receive pods, afterwards."""
    refused: dict[int, set[str]] = field(default_factory=dict)
    """By pod id of the unplaced: the rules about other pods that refused nodes with room."""


@dataclass(slots=True)
class _Trial:
    """An attempt in which other pods matter."""

    result: Attempt
    away: int
    """The nodes that take nobody."""
    for_good: bool
    answers: Answers = field(default_factory=dict)
    full: dict[int, int] = field(default_factory=dict)
    """By kind: nodes that have no room beside what is on trial."""


class Packer:
    """The free space of a cluster, and first-fit decreasing on it.

    Nodes and pods are known by whole numbers: node ids count in first-fit order, pod ids in
    packing order. `nodes` and `pods` give the objects back, `on` the pod ids on each node.
    Only pods that may move, or that are pending, have ids; the rest is part of what is used.
    """

    def __init__(
        self,
        cluster: Cluster,
        ground: NodeOrder,
        *,
        movable: Groups,
        spare: Sequence[Pod] = (),
        admitting: Admitting | None = None,
        whole: Resources | None = None,
    ) -> None:
        """Index *cluster*, which stands on *ground*.

        *movable*: pods that may be placed, those in one group alike by requests and template and
        in the order of their names (`alike`).
        *spare* are pods that do not exist, for whom room is kept: they are packed as the others.
        *admitting* names the nodes that admit a template, None: as the rules of fit say; *whole*
        is what shares of pods are of, None: what all nodes offer.
        """
        space = FreeSpace.of(cluster, ground, spare)
        order = PackingOrder.of(
            [*movable, *group_by_identity(spare)],
            space,
            (lambda _: admitting) if admitting else partial(_admitting, ground),
            whole or Resources.total(node.allocatable for node in ground.nodes),
        )
        self.nodes, self.node_ids = ground.nodes, ground.ids
        self._vectors, self.guard, self.free = space
        self._blocks = FreeSpaceIndex(self.free, self.guard)
        self.pods, self._kind_of, self._kinds = order
        self.on, self.homeless = pods_by_node(self.pods, ground)
        own = set(map(id, spare))
        self.spare = frozenset(n for n in self.homeless if id(self.pods[n]) in own)
        self.spare_at: dict[int, int] = {}
        """By pod id of those that do not exist: the node where there is room for it."""
        self._rooms: dict[int, list[tuple[int, int]]] = {}
        """By kind: see `spared`; true until more is placed."""
        self._promised: set[int] = set()
        self._topology = PodTopology(cluster, self.nodes, self.pods)
        self._open_kinds()

    def _open_kinds(self) -> None:
        """Write the allowed nodes of each kind as bits; those of one template share their list."""
        if not self._topology.involves(range(len(self.pods))):
            return
        known: dict[int, int] = {}
        for kind in self._kinds:
            allowed = id(kind.allowed)
            if allowed not in known:
                known[allowed] = bits_of(len(self.nodes), kind.allowed)
            kind.open = known[allowed]

    def attempt(
        self,
        pods: Iterable[int],
        leaving: int = -1,
        barred: frozenset[int] = frozenset(),
        kept: Sequence[tuple[int, int]] = (),
    ) -> Attempt:
        """Place *pods* (ascending ids) on nodes other than *leaving* and *barred*; see Attempt.

        Places that are *kept* (pod id, node id) come first, in their order, as far as they hold.
        A pod without a place does not end the attempt, so that all of them are known.
        """
        away = barred if leaving < 0 else barred | {leaving}
        pods = list(pods)
        if self._topology.involves(pods):
            return self._attempt_among(pods, away, kept)
        result = Attempt([], [], {})
        if kept:
            pods = self._keep(result, pods, kept, away)
        self._place(result, pods, away)
        return result

    def settle(self, pods: Iterable[int]) -> tuple[Attempt, list[tuple[int, Amount]]]:
        """Place *pods* as an attempt would, for good; return that, and what is `received`.

        What is placed counts at once, so that none of thousands of sizes asks a node in vain that
        those before have filled.
        """
        pods, before = list(pods), list(self.free)
        if self._topology.involves(pods):
            result = self._attempt_among(pods, frozenset(), for_good=True)
            result.refused = {}
        else:
            result = Attempt([], [], {})
            self._place(result, pods, (), for_good=True)
        received = self._received(result, before)
        self.commit(result)
        return result, received

    def _place(
        self,
        result: Attempt,
        pods: Iterable[int],
        away: Collection[int],
        *,
        for_good: bool = False,
    ) -> None:
        """Place pods to which no other pods matter; *for_good*: they are free space no longer."""
        guard, free, kind_of, left = self.guard, self.free, self._kind_of, result.left
        known: EquivalenceGroup | None = None
        place = request = 0
        fits: list[int] = []
        for pod in pods:
            kind = kind_of[pod]
            if kind is not known:
                known, request, fits = kind, kind.request, kind.fits
                place = self._head(kind)
            while place < len(fits) or (kind.scanned < len(kind.allowed) and self._scan(kind)):
                node = fits[place]
                if node not in away:
                    remaining = (left.get(node) or free[node]) - request
                    if remaining & guard == guard:
                        left[node] = remaining
                        if for_good:
                            free[node] = remaining
                        result.placements.append((pod, node))
                        break
                place += 1
            else:
                result.unplaced.append(pod)

    def _keep(
        self,
        result: Attempt,
        pods: Iterable[int],
        kept: Sequence[tuple[int, int]],
        away: frozenset[int],
    ) -> list[int]:
        """Place pods where they are to go, if that still can be; return the others."""
        guard, left, topology = self.guard, result.left, self._topology
        for pod, node in kept:
            kind, group = self._kind_of[pod], topology.group(pod)
            remaining = (left.get(node) or self.free[node]) - kind.request
            if (
                node in away
                or remaining & guard != guard
                or not _admits(kind, node)
                or (group is not None and group.refuses(node))
            ):
                continue
            left[node] = remaining
            result.placements.append((pod, node))
            topology.put(pod, node)
        placed = {pod for pod, _ in result.placements}
        return [pod for pod in pods if pod not in placed]

    def _attempt_among(
        self,
        pods: list[int],
        away: frozenset[int],
        kept: Sequence[tuple[int, int]] = (),
        *,
        for_good: bool = False,
    ) -> Attempt:
        """Do the same where other pods matter to some of the pods: on trial in the Topology.

        Whom such rules refuse is asked again once others have their places, as a scheduler does: a
        pod that must be near a smaller one comes before it. *for_good*: what refused a pod is not
        looked up; nobody is asked why what waits has found no place.
        """
        result, topology = Attempt([], [], {}), self._topology
        topology.lift(pods)
        asked = self._keep(result, pods, kept, away)
        trial = _Trial(result, bits_of(len(self.nodes), away), for_good)
        for _ in range(SWEEPS_MAX):
            result.unplaced = [pod for pod in result.unplaced if pod not in result.refused]
            result.refused, before = {}, len(result.placements)
            self._sweep(trial, asked)
            if not result.refused or len(result.placements) == before:
                break
            asked = [*result.refused]
        result.unplaced.sort()
        topology.undo()
        return result

    def _sweep(self, trial: _Trial, pods: Iterable[int]) -> None:
        """Place the pods, each once.

        As long as nobody is placed, pods alike get the answer that one of them got.
        """
        topology, result, answers = self._topology, trial.result, trial.answers
        for pod in pods:
            kind, group = self._kind_of[pod], topology.group(pod)
            alike, count = (id(kind), id(group)), len(result.placements)
            at, refused = answers.get(alike, NO_ANSWER)
            node = self._find(trial, kind, group) if at != count else None
            if node is None:
                if at != count:
                    refused = self._refusals(trial, kind, group) if group is not None else set()
                    answers[alike] = count, refused
                result.unplaced.append(pod)
                if refused:
                    result.refused[pod] = refused
                continue
            left = (result.left.get(node) or self.free[node]) - kind.request
            result.left[node] = left
            if trial.for_good:
                self.free[node] = left
            result.placements.append((pod, node))
            topology.put(pod, node)

    def _find(self, trial: _Trial, kind: EquivalenceGroup, group: Group | None) -> int | None:
        """Return the first node that takes a pod of the group; None: there is none."""
        nodes = self._left_for(trial, kind)
        if group is not None and group.rules:
            nodes = group.admitted(nodes)
        node = (nodes & -nodes).bit_length() - 1
        if node < 0:
            return None
        left = (trial.result.left.get(node) or self.free[node]) - kind.request
        if left & self.guard == self.guard and (group is None or group.takes(node)):
            return node  # it mostly is the first one
        for node in self._roomy(trial, kind, nodes):
            if group is None or group.takes(node):
                return node
        return None

    def _refusals(self, trial: _Trial, kind: EquivalenceGroup, group: Group) -> set[str]:
        """Return the rules that refuse nodes with room; none where asking again is no use.

        What is placed for good is never taken back, so what a rule refuses for those that are
        there, it refuses whoever else comes.
        """
        if trial.for_good:
            return set() if group.monotone else NOT_LOOKED_UP
        nodes, found = self._left_for(trial, kind), set[str]()
        for rule in group.rules:
            refused = rule.refusing(nodes)
            if next(self._roomy(trial, kind, refused), None) is not None:
                found.add(rule.name)
            nodes ^= refused
        return found

    def _left_for(self, trial: _Trial, kind: EquivalenceGroup) -> int:
        """Return the nodes that may have room for the kind, and are not away."""
        full = trial.full.get(id(kind), 0) if trial.full else 0
        return kind.open & ~(trial.away | full)

    def _roomy(self, trial: _Trial, kind: EquivalenceGroup, nodes: int) -> Iterator[int]:
        """Yield those of the *nodes* that have room for a pod of the kind, ascending.

        Free space only falls: who has no room now is not asked again.
        """
        while nodes:
            block = ((nodes & -nodes).bit_length() - 1) // BLOCK_NODES
            start = block * BLOCK_NODES
            some = nodes >> start & BLOCK_BITS
            nodes ^= some << start
            if self._blocks.may_hold(block, kind.request):
                yield from self._roomy_of(trial, kind, block, some)
            else:
                kind.open &= ~(BLOCK_BITS << start)

    def _roomy_of(
        self, trial: _Trial, kind: EquivalenceGroup, block: int, some: int
    ) -> Iterator[int]:
        """Yield those that have room of *some* of one block: bits from its first node on."""
        guard, free, left, request = self.guard, self.free, trial.result.left, kind.request
        start, full = block * BLOCK_NODES, 0
        while some:
            lowest = some & -some
            some ^= lowest
            node = start + lowest.bit_length() - 1
            if (free[node] - request) & guard != guard:
                full |= lowest
            elif node in left and (left[node] - request) & guard != guard:
                trial.full[id(kind)] = trial.full.get(id(kind), 0) | lowest << start
            else:
                kind.open &= ~(full << start)
                yield node
        kind.open &= ~(full << start)
        if full:
            self._blocks.note(block, full.bit_count(), free)

    def _head(self, kind: EquivalenceGroup) -> int:
        """Step over entries that have filled up for good since they were scanned."""
        guard, free, fits, request = self.guard, self.free, kind.fits, kind.request
        head = kind.head
        while head < len(fits) and (free[fits[head]] - request) & guard != guard:
            head += 1
        kind.head = head
        return head

    def _scan(self, kind: EquivalenceGroup) -> bool:
        """Find the next nodes with room for the kind; False: there are none."""
        guard, free, request, blocks = self.guard, self.free, kind.request, self._blocks
        allowed, found = kind.allowed, kind.fits
        known = len(found)
        while len(found) == known and kind.scanned < len(allowed):
            start, block = kind.scanned, allowed[kind.scanned] // BLOCK_NODES
            kind.scanned = bisect_left(allowed, (block + 1) * BLOCK_NODES, start)
            if blocks.may_hold(block, request):
                asked = allowed[start : kind.scanned]
                found += [node for node in asked if (free[node] - request) & guard == guard]
                if len(found) == known:
                    blocks.note(block, len(asked), free)
        return len(found) > known

    def commit(self, attempt: Attempt, leaving: int = -1) -> None:
        """Carry the attempt out; *leaving* takes no pods from now on and has none."""
        self._rooms.clear()
        for node, vector in attempt.left.items():
            self.free[node] = vector
        for pod, node in attempt.placements:
            insort(self.on[node], pod)
            if pod in self.spare:
                self.spare_at[pod] = node
        self._topology.move(attempt.placements)
        if leaving >= 0:
            self.free[leaving] = self.guard
            self.on[leaving] = []

    def lift(self, spare: Iterable[int]) -> Attempt:
        """Take pods that do not exist off their nodes; return what puts them back by a commit.

        There is more free space then than before: all nodes are asked anew.
        """
        back = Attempt([], [], {})
        for pod in spare:
            node = self.spare_at.pop(pod)
            back.placements.append((pod, node))
            back.left.setdefault(node, self.free[node])
            self.free[node] += self._kind_of[pod].request
            self.on[node].remove(pod)
            self._blocks.more(node, self.free[node])
        self._topology.leave(back.placements)
        for kind in self._kinds:
            kind.scanned, kind.fits, kind.head = 0, [], 0
        self._open_kinds()
        self._rooms.clear()
        return back

    def draft(self) -> "Packer":
        """Return the same pods and nodes with free space of its own, where room is promised."""
        draft = copy(self)
        draft.free, draft._blocks = list(self.free), self._blocks.draft()  # noqa: SLF001
        own = {
            id(one): EquivalenceGroup(one.request, one.admitting, one.allowed, open=one.open)
            for one in self._kinds
        }
        draft._kinds = [*own.values()]  # noqa: SLF001 of this class
        draft._kind_of = [own[id(kind)] for kind in self._kind_of]  # noqa: SLF001
        draft._promised = set()  # noqa: SLF001
        draft._rooms = {}  # noqa: SLF001
        return draft

    def promise(self, attempt: Attempt, of: "Packer") -> None:
        """Count what was placed by an attempt *of* this one, or of what this is a draft of.

        What is promised first on a node is not counted; where there is too little, none is left.
        """
        for node, left in attempt.left.items():
            if node in self._promised:
                free = self.free[node] - (of.free[node] - left)
                self.free[node] = free if free & self.guard == self.guard else self.guard
            self._promised.add(node)

    def received(self, attempt: Attempt) -> list[tuple[int, Amount]]:
        """Return (node id, CPU and memory) where there would be more; headroom is no load."""
        return self._received(attempt, self.free)

    def _received(self, attempt: Attempt, free: Sequence[int]) -> list[tuple[int, Amount]]:
        left = dict(attempt.left) if self.spare else attempt.left
        for pod, node in attempt.placements if self.spare else ():
            if pod in self.spare:
                left[node] += self._kind_of[pod].request
        of = self._vectors.amount
        more = ((node, of(free[node] - vector)) for node, vector in left.items())
        return [(node, amount) for node, amount in more if amount != NOTHING]

    def spared(self, pod: int, leaving: int) -> int | None:
        """Return a pod that does not exist, without which this one would have found room."""
        kind, group = self._kind_of[pod], self._topology.group(pod)
        found = self._rooms.get(id(kind))
        if found is None:
            found = self._rooms[id(kind)] = list(self._spared(kind))
        places = ((at, spare) for at, spare in found if at != leaving)
        return next((one for at, one in places if group is None or not group.refuses(at)), None)

    def _spared(self, kind: EquivalenceGroup) -> Iterator[tuple[int, int]]:
        """Yield the nodes that had room but for a pod that does not exist, and that pod."""
        guard = self.guard
        for spare, at in self.spare_at.items():
            more = self.free[at] + self._kind_of[spare].request
            if (more - kind.request) & guard == guard and _admits(kind, at):
                yield at, spare

    def hopeless(self, attempt: Attempt, leaving: int) -> bool:
        """Say whether a pod will never find a place, whatever goes: free space only falls."""
        if not attempt.unplaced or self._topology.group(attempt.unplaced[0]) is not None:
            return False
        free, guard, kind = self.free, self.guard, self._kind_of[attempt.unplaced[0]]
        ahead = kind.fits[self._head(kind) :]
        return kind.scanned >= len(kind.allowed) and not any(
            at != leaving and (free[at] - kind.request) & guard == guard for at in ahead
        )

    def repeats(self, leaving: int) -> bool:
        """Say whether the node's pods find the same places again and again, as nodes go.

        So it is until pods move on the node, or on those where some of its pods find places, if
        no rule asks about more than a node: what counts over a zone, other nodes change too.
        """
        found = map(self._topology.group, self.on[leaving])
        return all(group is None or group.by_node for group in found)

    def why_not(self, pod: int, leaving: int, attempt: Attempt) -> str:
        """Say in words what kept the pod from every node but *leaving* in the attempt."""
        if self._kind_of[pod].admitting in ([], [leaving]):
            return NOT_ADMITTED
        if refused := attempt.refused.get(pod):
            rules = ", ".join(sorted(refused))
            return f"every other node that admits it and has room is refused by: {rules}"
        return "no other node that stays admits it and has room"


def _admits(kind: EquivalenceGroup, node: int) -> bool:
    at = bisect_left(kind.admitting, node)
    return kind.admitting[at : at + 1] == [node]
