"""One plan in the making: the state after the removals that have been decided.

The steps are those of thesis 4.4, 4.5 and 4.7, extended to a joint plan: what one removal moves is
committed before the next is judged.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, starmap
from typing import Final, NamedTuple

from core.capacity.sums import Exceeded
from core.capacity.usable import Amount
from core.capacity.utilization import RemovalEffect, UtilizationLedger
from core.engine.buffers import BUFFERED, buffer_of
from core.engine.leader_state import RateLimits
from core.engine.limits import RemovalLimits
from core.engine.placement_hints import Known, UnneededNodes, lost_placements, placements
from core.engine.plan import BufferRoom, Placement, Removal, UnremovableNode
from core.engine.refusal_cache import RefusalCache
from core.engine.snapshot import ClusterSnapshot
from core.model.buffers import BUFFER
from core.model.humanize import amounts, duration
from core.model.reason import Blocker, Reason
from core.packing.packer import Attempt, Packer
from core.policies.policy import Order, Policy, PolicyMetric

REROUTES_MAX: Final = 3
"""How often the pods of one node are packed anew, at most, to pass by reaches that are full."""

DELAY: Final = Reason(
    "delay",
    "The node is a candidate, but has not been one for longer than the configured delay.",
    "wait; or set `delay` lower in the configuration",
    "it has been a candidate without a break for longer than `delay`",
)
NO_ROOM: Final = Reason(
    "no-room",
    "A pod of the node finds no place on the nodes that stay.",
    "ebb explain pod {namespace}/{name} (says which rule refuses which nodes)",
    "another node admits the pod and has room for it, beside all other pods that must move",
)
PLACE_TAKEN: Final = Reason(
    "place-taken",
    "The place that was found for a pod of the node is lost by pods of nodes that go first.",
    "wait: once those have been marked, another place is looked for, and the delay starts anew",
    "its pods have places that hold until the delay has passed",
)
HEADROOM: Final = Reason(
    "headroom",
    "Without the node there would be no room for pods as large as the largest, for which "
    "room must be left.",
    "set `headroom` lower in the configuration, or lower what the largest pods ask for",
    "that many pods of that size find a place on the nodes that stay",
)
TIME_BOX: Final = Reason(
    "time-box",
    "The pass had no time left for the node, because the cluster asks much of it or because "
    "something came up that could not wait; what else speaks against it was not looked for.",
    "nothing to do: the next pass judges it; if that goes on, "
    "ebb_engine_pass_timeouts_total grows, and the engine needs a faster processor",
    "a pass reaches the node in time",
)
LIMIT: Final = Reason(
    "limit",
    "As many other nodes go in this plan as may go at a time.",
    "wait for those to go; or allow more (`ebb plan --max-removals`)",
    "fewer nodes are chosen before it than may go",
)


class _Route(NamedTuple):
    """Where the pods of a node would go, and what speaks against it."""

    attempt: Attempt
    effect: RemovalEffect
    exceeded: tuple[Exceeded, ...]
    lost: Known
    """Pods and the places that they were to have and others have now; if the node is listed."""
    with_headroom: Attempt | None = None
    """What was refused beside the headroom, where that gives way."""

    @property
    def is_refused(self) -> bool:
        return bool(self.attempt.unassigned or self.exceeded or self.lost)


Delays = Mapping[str, int]
"""By candidate: the unix second at which its delay ends."""
InTime = Callable[[], bool]
"""Says whether there is time left for more."""


def unlimited_time() -> bool:
    """Say that there is."""
    return True


class PlannerParts(NamedTuple):
    """What one plan is made of; all of them know nodes by the same ids."""

    packer: Packer
    """Free space, and where pods are placed."""
    ledger: UtilizationLedger
    """Sums of requests and usable capacity."""
    policy: Policy
    """The rule that nominates nodes; it reads the account."""
    limits: RemovalLimits
    """Limits on how many nodes may be removed, and how fast."""

    @staticmethod
    def of(
        snapshot: ClusterSnapshot, limits: RateLimits | None, candidates: Collection[str] | None
    ) -> "PlannerParts":
        """Make the parts for a snapshot; *candidates*: see Work."""
        placeholders = snapshot.headroom(snapshot.config.budgets.headroom)
        placeholders += (room.pod for room in snapshot.buffer_rooms for _ in range(room.kept))
        packer = snapshot.packer(placeholders)
        account = snapshot.new_ledger(limits.peak_excess if limits else None)
        policy = snapshot.policy(account, lambda node: len(packer.on[node]), candidates)
        return PlannerParts(packer, account, policy, RemovalLimits(snapshot, limits))


class Planner:
    """A plan in the making: what has been decided so far, and what is left to try."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        *,
        due: frozenset[str] | None = None,
        limits: RateLimits | None = None,
        in_time: InTime = unlimited_time,
        candidates: Delays | UnneededNodes | None = None,
    ) -> None:
        """Begin with nothing decided; for the arguments see core.engine.reconcile.make_plan."""
        self.snapshot = snapshot
        self._unneeded = candidates if isinstance(candidates, UnneededNodes) else None
        self._delays: Delays | None = None if isinstance(candidates, UnneededNodes) else candidates
        names = None if self._delays is None else self._delays.keys()
        self.packer, self.ledger, self._policy, self._limits = PlannerParts.of(
            snapshot, limits, names
        )
        self._due, self._in_time = due, in_time
        self.out_of_time = False
        packer = self.packer
        self._headroom = frozenset(
            n for n in packer.placeholders if buffer_of(packer.pods[n]) is None
        )
        self.marked = snapshot.marks.keys() - snapshot.leaving_nodes
        self._delay_seconds = snapshot.config.delay_seconds
        self._ordered = len(self.ledger.changed)
        """How much had changed in the account when nodes were put in order."""
        self._ranks = [self.rank(node) for node in range(len(packer.nodes))]
        self._levels = self._candidates()
        self._removed_count = 0
        self._refusal_cache = RefusalCache(packer)
        self._refused: dict[int, tuple[int, _Route]] = {}
        """How many had gone when a node was refused, and for what: true until one more goes."""

    def _candidates(self) -> list[list[int]]:
        """Return the ids of all nodes that might go, in the order in which they are tried."""
        levels: dict[Order, list[int]] = {}
        nodes = self.packer.nodes
        for number, node in enumerate(nodes):
            if node.name not in self.snapshot.leaving_nodes:
                levels.setdefault(self._level(number), []).append(number)
        return [sorted(levels[level], key=self._ranks.__getitem__) for level in sorted(levels)]

    def _level(self, node_id: int) -> Order:
        """Return marked nodes before others.

        By thresholds, that hold on what pods reach, those that pods reach before the rest.
        """
        if self._name(node_id) in self.marked:
            return False, self._policy.thresholds and not self.ledger.is_reached(node_id)
        return True, *self._policy.level(node_id)

    def rank(self, node_id: int) -> Order:
        """Return what nodes of one level are tried in the order of."""
        node = self.packer.nodes[node_id]
        if node.name in self.marked:
            mark = self.snapshot.marks[node.name]
            return mark.since, mark.order, node.name
        return self._policy.rank(node_id)

    def place_pending(self) -> tuple[Placement, ...]:
        """Place the pods that wait for a node, and those whose node is leaving.

        Those that every node has refused come first: a hard mark may be all that keeps them
        waiting, and the others may have a choice. The headroom comes last: where there is no
        room for it now, none is kept.
        """
        packer = self.packer
        unschedulable = [n for n in packer.pending if packer.pods[n].unschedulable]
        displaced = (packer.on[packer.node_ids[name]] for name in self.snapshot.leaving_nodes)
        aside = packer.placeholders.union(unschedulable)
        pending = sorted(chain(*displaced, (n for n in packer.pending if n not in aside)))
        first, second = self._place(unschedulable), self._place(pending)
        self._place(sorted(packer.placeholders - self._headroom))
        self._place(sorted(self._headroom))
        return (*self.placements(first), *self.placements(second))

    def buffers(self) -> tuple[BufferRoom, ...]:
        """Return for which buffers there is room; what waits and what leaves has been placed."""
        pods = self.packer.pods
        placed = Counter(buffer_of(pods[pod]) for pod in self.packer.placeholder_nodes)
        kept = {room.buffer.key: room.kept for room in self.snapshot.buffer_rooms}
        return tuple(
            BufferRoom(one.key, one.replicas, kept.get(one.key, 0), placed[one.key], one.fault)
            for one in self.snapshot.cluster.buffers
            if one.published is None
        )

    def _place(self, pods: list[int]) -> Attempt:
        packer = self.packer
        attempt, received = packer.place(pods)
        self.ledger.add_load(received)
        for pod, _ in attempt.assignments:
            found = packer.pods[pod]
            if found.node is not None:
                self.ledger.remove_load(packer.node_ids[found.node], Amount.of(found.requests))
        return attempt

    def remove_all(self, removals_max: int | None) -> tuple[Removal, ...]:
        """Remove nodes until none of the rest can go, or the limit is reached.

        After each removal the dearest node that can go now is next: those of dearer levels that
        could not go before are tried again (what others move can free usable capacity). Within a
        level the sweep goes on where it is, and begins anew at its end: each node is judged once
        on each state.
        """
        removals: list[Removal] = []
        if self._unneeded is not None:
            marked = sum(self._name(nodes[0]) in self.marked for nodes in self._levels)
            self._sweep(removals, marked, removals_max)
            self._list_unneeded(self._unneeded)
        self._sweep(removals, len(self._levels), removals_max)
        return tuple(removals)

    def _sweep(self, removals: list[Removal], levels: int, removals_max: int | None) -> None:
        """Add what can go of the first so many levels."""
        places = self._reorder()
        level = 0
        while level < levels and len(removals) != removals_max:
            waiting = self._levels[level]
            for place in chain(range(places[level], len(waiting)), range(places[level])):
                found = self._try_remove(waiting[place])
                if found is not None:
                    removals.append(self._remove(waiting[place], found, len(removals) + 1))
                    del waiting[place]
                    places = [0] * level + [place] + places[level + 1 :]
                    if self._policy.reorders:
                        places = self._reorder()
                    level = 0
                    break
            else:
                level += 1

    def _list_unneeded(self, unneeded: UnneededNodes) -> None:
        """List the nodes that are not needed, now that the marked ones have gone that can."""
        unneeded.list_nodes(
            self.packer,
            filter(self._is_unneeded, sorted(range(len(self.packer.nodes)), key=self._name)),
            self._has_time,
        )
        self._delays = unneeded.due_times(lambda at: self._policy.due_at(at, self._delay_seconds))

    def _is_unneeded(self, node: int) -> bool:
        """Say whether only places are in question; what a node says of itself stops no time."""
        name, unneeded = self._name(node), self._unneeded
        if (
            name in self.marked
            or name in self.snapshot.leaving_nodes
            or self.packer.nodes[node].virtual
        ):
            return False
        was = unneeded is not None and unneeded.was_listed(name)
        pods_stay = any(blocker.pod for blocker in self.snapshot.blockers[name])
        return not pods_stay and self._policy.is_candidate(node, was=was)

    def _reorder(self) -> list[int]:
        """Put each level in order on the state as it is; return where to begin in each."""
        if self._policy.reorders:
            for node in self.ledger.changed[self._ordered :]:
                self._ranks[node] = self.rank(node)
            self._ordered = len(self.ledger.changed)
            for waiting in self._levels:
                waiting.sort(key=self._ranks.__getitem__)
        return [0] * len(self._levels)

    def describe(self, name: str) -> str:
        """Return what the policy says of the node for people."""
        return self._policy.describe(self.packer.node_ids[name])

    def policy_metrics(self) -> tuple[PolicyMetric, ...]:
        """Return what the policy tells of the state as it is."""
        return tuple(self._policy.metrics())

    def _try_remove(self, node: int) -> _Route | None:
        """Return where the node's pods would go, or None if it can not go; cheapest checks first.

        The order is that of the thesis (4.4, 4.5): sums, delay, packing, usable capacity.
        """
        name = self._name(node)
        if self._refusal_cache.is_still_refused(node):
            return None
        if self.snapshot.blockers[name] or not self._is_due(name) or not self._has_time(name):
            return None
        if not self._policy.nominates(node, marked=name in self.marked):
            return None
        if self._limits.blockers(self.packer.nodes[node]):
            return None
        route = self._find_route(node)
        if route.is_refused:
            self._refused[node] = self._removed_count, route
            marked = name in self.marked
            self._refusal_cache.add(
                node, route.attempt, route.exceeded, route.with_headroom, marked=marked
            )
            return None
        return route

    def _find_route(self, node: int) -> _Route:
        """Find the node's pods places that no reach minds; if there are none, what minds first.

        The headroom is kept from new marks and ends none: any pod that ends may leave a hole for
        it that was not there when the node was marked, and another that comes fills it again.
        """
        route = self._route_beside_headroom(node)
        if not route.is_refused or self._name(node) not in self.marked:
            return route
        if headroom := self._headroom_placed():
            back = self.packer.remove_placeholders(headroom)
            route = self._route_beside_headroom(node)._replace(with_headroom=route.attempt)
            self.packer.commit(back)
        return route

    def _headroom_placed(self) -> list[int]:
        return sorted(self._headroom & self.packer.placeholder_nodes.keys())

    def _route_beside_headroom(self, node: int) -> _Route:
        """Find places beside the headroom, if it is there.

        A marked node is asked as one without a mark first, so that its pods would go where they
        would have gone when it was marked: a plan that is carried out is planned again.
        """
        route = self._route_avoiding_full_reaches(node, marked=False)
        if self._name(node) in self.marked and route.is_refused:
            return self._route_avoiding_full_reaches(node, marked=True)
        return route

    def _route_avoiding_full_reaches(self, node: int, *, marked: bool) -> _Route:
        """Pass by reaches that are full.

        First-fit takes the fullest nodes, so pods that have a choice crowd into a reach that is
        full already. Where only reaches of others mind, their nodes are excluded to these pods.
        """
        excluded: frozenset[int] = frozenset()
        first = route = self._route_once(node, excluded, marked=marked)
        for _ in range(REROUTES_MAX):
            others = [one.sums.reach for one in route.exceeded if one.sums.reach and not one.own]
            if not others or len(others) < len(route.exceeded):
                break
            excluded = excluded.union(*(reach.nodes for reach in others))
            route = self._route_once(node, excluded, marked=marked)
        return first if route.is_refused else route

    def _route_once(self, node: int, excluded: frozenset[int], *, marked: bool) -> _Route:
        packer, unneeded = self.packer, self._unneeded
        known = unneeded.known_placements(packer, node) if unneeded is not None else ()
        attempt = packer.try_place(packer.on[node], node, excluded, known)
        effect = self.ledger.removal_effect(node, self.packer.load_added(attempt))
        over = () if attempt.unassigned else self._policy.exceeded(effect, marked=marked)
        listed = unneeded is not None and self._name(node) in unneeded.since
        lost = lost_placements(known, attempt) if listed else ()
        return _Route(attempt, effect, over, lost)

    def _has_time(self, name: str) -> bool:
        """Say whether the node may be tried; marked ones always, or they would be released."""
        if name in self.marked:
            return True
        self.out_of_time = self.out_of_time or not self._in_time()
        return not self.out_of_time

    def _remove(self, node: int, route: _Route, order: int) -> Removal:
        attempt = route.attempt
        headroom = self._headroom_placed() if route.with_headroom else []
        removal = Removal(self._name(node), order, self.placements(attempt))
        self.ledger.remove(route.effect)
        if headroom:
            self.packer.remove_placeholders(headroom)
        self.packer.commit(attempt, node)
        if headroom:
            self._place(headroom)
            self._refusal_cache = RefusalCache(self.packer)
        else:
            self._refusal_cache.invalidate(node, attempt)
        self._limits.count_removal(self.packer.nodes[node])
        self._removed_count += 1
        if self._unneeded is not None:
            self._unneeded.remember(removal.node, removal.placements)
        return removal

    def unremovable(self, removed: Collection[str]) -> tuple[UnremovableNode, ...]:
        """Explain every node that stays, on the state after all removals."""
        staying = (
            number for number, node in enumerate(self.packer.nodes) if node.name not in removed
        )
        found = (UnremovableNode(self._name(node), tuple(self._explain(node))) for node in staying)
        return tuple(sorted(found, key=lambda kept: kept.node))

    def _explain(self, node: int) -> list[Blocker]:
        """Return every reason against the node's going, not only the first."""
        name = self._name(node)
        blockers = list(self.snapshot.blockers[name])
        if name in self.snapshot.leaving_nodes:
            return blockers
        if not self._is_due(name):
            message = (
                f"it has not been a candidate for longer than {duration(self._delay_seconds)} yet"
            )
            until = (self._delays or {}).get(name)
            blockers.append(Blocker(DELAY, message, until=until))
        blockers += self._limits.blockers(self.packer.nodes[node])
        marked = name in self.marked
        nominated = self._policy.nominates(node, marked=marked)
        if not nominated:
            blockers += self._policy.explain(node, marked=marked)
        if not self._has_time(name):
            return [*blockers, Blocker(TIME_BOX, "the pass had no time left to try it")]
        if not nominated:
            # Over the sums is over the usable sums too (thesis, invariant 1): not said twice.
            attempt = self.packer.try_place(self.packer.on[node], node)
            return [*blockers, *self._no_rooms(node, attempt)]
        removed_count, route = self._refused.get(node, (-1, None))
        if route is None or removed_count != self._removed_count:
            route = self._find_route(node)
        blockers += self._no_rooms(node, route.attempt)
        blockers += starmap(self._place_taken, route.lost)
        blockers += (self._policy.explain_exceeded(one, marked=marked) for one in route.exceeded)
        return blockers or [Blocker(LIMIT, "as many nodes go already as may go in one plan")]

    def _no_rooms(self, node: int, attempt: Attempt) -> Iterator[Blocker]:
        """Yield why each pod has no place; the pods of one CapacityBuffer together."""
        buffers: Counter[str] = Counter()
        for pod in attempt.unassigned:
            if self._is_waived(pod, node):
                continue
            if (buffer := buffer_of(self.packer.pods[pod])) is not None:
                buffers[buffer] += 1
            else:
                yield self._no_room(pod, node, attempt)
        for buffer, many in sorted(buffers.items()):
            pods = "1 pod" if many == 1 else f"{many} pods"
            yield Blocker(BUFFERED, f"no room would be left for {pods} of {BUFFER} {buffer}")

    def _no_room(self, pod: int, node: int, attempt: Attempt) -> Blocker:
        if pod in self.packer.placeholders:
            size = amounts(self.packer.pods[pod].requests)
            message = "no room would be left for one more pod as large as the largest"
            return Blocker(HEADROOM, f"{message} ({size})")
        key, message = self.packer.pods[pod].key, "the room that would be left for it is kept for"
        kept = self.packer.displaced_by_placeholder(pod, node)
        if kept is not None and not self._is_waived(kept, node):
            if (buffer := buffer_of(self.packer.pods[kept])) is not None:
                return Blocker(BUFFERED, f"{message} {BUFFER} {buffer}", key)
            size = amounts(self.packer.pods[kept].requests)
            return Blocker(HEADROOM, f"{message} pods as large as the largest ({size})", key)
        return Blocker(NO_ROOM, self.packer.explain(pod, node, attempt), key)

    def _is_waived(self, spare: int, node: int) -> bool:
        """Say whether it is of the headroom and the node is marked: it speaks against no mark."""
        return spare in self._headroom and self._name(node) in self.marked

    def _place_taken(self, pod: int, place: int) -> Blocker:
        message = f"its place on node {self._name(place)} is taken"
        return Blocker(PLACE_TAKEN, message, self.packer.pods[pod].key)

    def _is_due(self, name: str) -> bool:
        """Return whether the node's delay has passed; a marked node has none."""
        if name in self.marked or (self._due is not None and name in self._due):
            return True
        now = self.snapshot.now
        if self._delays is None or now is None:
            return self._due is None
        return name in self._delays and now.reached(self._delays[name])

    def _name(self, node: int) -> str:
        return self.packer.nodes[node].name

    def placements(self, attempt: Attempt) -> tuple[Placement, ...]:
        """Write an attempt with names instead of ids, without the pods that do not exist."""
        return placements(self.packer, attempt)
