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
from core.engine.placement_hints import Known, UnneededNodes, lost, placements
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
    "The place that was found for a pod of the node is taken by pods of nodes that go first.",
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
    trial: RemovalEffect
    over: tuple[Exceeded, ...]
    taken: Known
    """Pods and the places that they were to have and others have now; if the node is listed."""
    beside: Attempt | None = None
    """What was refused beside the headroom, where that gives way."""

    @property
    def refused(self) -> bool:
        return bool(self.attempt.unplaced or self.over or self.taken)


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
    account: UtilizationLedger
    """Sums of requests and usable capacity."""
    policy: Policy
    """The rule that nominates nodes; it reads the account."""
    brakes: RemovalLimits
    """Limits on how many nodes may be removed, and how fast."""

    @staticmethod
    def of(
        survey: ClusterSnapshot, pace: RateLimits | None, candidates: Collection[str] | None
    ) -> "PlannerParts":
        """Make the parts for a survey; *candidates*: see Work."""
        spare = survey.headroom(survey.config.budgets.headroom)
        spare += (room.pod for room in survey.buffer_rooms for _ in range(room.kept))
        packer = survey.packer(spare)
        account = survey.new_ledger(pace.peak_excess if pace else None)
        policy = survey.policy(account, lambda node: len(packer.on[node]), candidates)
        return PlannerParts(packer, account, policy, RemovalLimits(survey, pace))


class Planner:
    """A plan in the making: what has been decided so far, and what is left to try."""

    def __init__(
        self,
        survey: ClusterSnapshot,
        *,
        due: frozenset[str] | None = None,
        pace: RateLimits | None = None,
        in_time: InTime = unlimited_time,
        listed: Delays | UnneededNodes | None = None,
    ) -> None:
        """Begin with nothing decided; for the arguments see core.engine.reconcile.make_plan."""
        self.survey = survey
        self._listing = listed if isinstance(listed, UnneededNodes) else None
        self._delays: Delays | None = None if isinstance(listed, UnneededNodes) else listed
        candidates = None if self._delays is None else self._delays.keys()
        self.packer, self.account, self._policy, self._brakes = PlannerParts.of(
            survey, pace, candidates
        )
        self._due, self._in_time = due, in_time
        self.out_of_time = False
        packer = self.packer
        self._headroom = frozenset(n for n in packer.spare if buffer_of(packer.pods[n]) is None)
        self.marked = survey.marks.keys() - survey.leaving_nodes
        self._delay_seconds = survey.config.delay_seconds
        self._ordered = len(self.account.changed)
        """How much had changed in the account when nodes were put in order."""
        self._ranks = [self.rank(node) for node in range(len(packer.nodes))]
        self._levels = self._candidates()
        self._gone = 0
        self._refusals = RefusalCache(packer)
        self._refused: dict[int, tuple[int, _Route]] = {}
        """How many had gone when a node was refused, and for what: true until one more goes."""

    def _candidates(self) -> list[list[int]]:
        """Return the ids of all nodes that might go, in the order in which they are tried."""
        levels: dict[Order, list[int]] = {}
        nodes = self.packer.nodes
        for number, node in enumerate(nodes):
            if node.name not in self.survey.leaving_nodes:
                levels.setdefault(self._level(number), []).append(number)
        return [sorted(levels[level], key=self._ranks.__getitem__) for level in sorted(levels)]

    def _level(self, node_id: int) -> Order:
        """Return marked nodes before others.

        By thresholds, that hold on what pods reach, those that pods reach before the rest.
        """
        if self._name(node_id) in self.marked:
            return False, self._policy.thresholds and not self.account.reached(node_id)
        return True, *self._policy.level(node_id)

    def rank(self, node_id: int) -> Order:
        """Return what nodes of one level are tried in the order of."""
        node = self.packer.nodes[node_id]
        if node.name in self.marked:
            mark = self.survey.marks[node.name]
            return mark.since, mark.order, node.name
        return self._policy.rank(node_id)

    def settle(self) -> tuple[Placement, ...]:
        """Place the pods that wait for a node, and those whose node is leaving.

        Those that every node has refused come first: a hard mark may be all that keeps them
        waiting, and the others may have a choice. The headroom comes last: where there is no
        room for it now, none is kept.
        """
        packer = self.packer
        refused = [n for n in packer.homeless if packer.pods[n].unschedulable]
        gone = (packer.on[packer.node_ids[name]] for name in self.survey.leaving_nodes)
        aside = packer.spare.union(refused)
        waiting = sorted(chain(*gone, (n for n in packer.homeless if n not in aside)))
        first, second = self._settle(refused), self._settle(waiting)
        self._settle(sorted(packer.spare - self._headroom))
        self._settle(sorted(self._headroom))
        return (*self.placements(first), *self.placements(second))

    def buffers(self) -> tuple[BufferRoom, ...]:
        """Return for which buffers there is room; what waits and what leaves has been placed."""
        pods = self.packer.pods
        placed = Counter(buffer_of(pods[pod]) for pod in self.packer.spare_at)
        kept = {room.buffer.key: room.kept for room in self.survey.buffer_rooms}
        return tuple(
            BufferRoom(one.key, one.replicas, kept.get(one.key, 0), placed[one.key], one.fault)
            for one in self.survey.cluster.buffers
            if one.published is None
        )

    def _settle(self, pods: list[int]) -> Attempt:
        packer = self.packer
        attempt, received = packer.settle(pods)
        self.account.receive(received)
        for pod, _ in attempt.placements:
            found = packer.pods[pod]
            if found.node is not None:
                self.account.leave(packer.node_ids[found.node], Amount.of(found.requests))
        return attempt

    def remove_all(self, removals_max: int | None) -> tuple[Removal, ...]:
        """Remove nodes until none of the rest can go, or the limit is reached.

        After each removal the dearest node that can go now is next: those of dearer levels that
        could not go before are tried again (what others move can free usable capacity). Within a
        level the sweep goes on where it is, and begins anew at its end: each node is judged once
        on each state.
        """
        removals: list[Removal] = []
        if self._listing is not None:
            marked = sum(self._name(nodes[0]) in self.marked for nodes in self._levels)
            self._sweep(removals, marked, removals_max)
            self._list(self._listing)
        self._sweep(removals, len(self._levels), removals_max)
        return tuple(removals)

    def _sweep(self, removals: list[Removal], levels: int, removals_max: int | None) -> None:
        """Add what can go of the first so many levels."""
        places = self._order_anew()
        level = 0
        while level < levels and len(removals) != removals_max:
            waiting = self._levels[level]
            for place in chain(range(places[level], len(waiting)), range(places[level])):
                found = self._try(waiting[place])
                if found is not None:
                    removals.append(self._remove(waiting[place], found, len(removals) + 1))
                    del waiting[place]
                    places = [0] * level + [place] + places[level + 1 :]
                    if self._policy.live_order:
                        places = self._order_anew()
                    level = 0
                    break
            else:
                level += 1

    def _list(self, listing: UnneededNodes) -> None:
        """List the nodes that are not needed, now that the marked ones have gone that can."""
        listing.find(
            self.packer,
            filter(self._is_unneeded, sorted(range(len(self.packer.nodes)), key=self._name)),
            self._has_time,
        )
        self._delays = listing.delays(lambda at: self._policy.due_at(at, self._delay_seconds))

    def _is_unneeded(self, node: int) -> bool:
        """Say whether only places are in question; what a node says of itself stops no time."""
        name, listing = self._name(node), self._listing
        if (
            name in self.marked
            or name in self.survey.leaving_nodes
            or self.packer.nodes[node].virtual
        ):
            return False
        was = listing is not None and listing.was(name)
        pods_stay = any(blocker.pod for blocker in self.survey.blockers[name])
        return not pods_stay and self._policy.listed(node, was=was)

    def _order_anew(self) -> list[int]:
        """Put each level in order on the state as it is; return where to begin in each."""
        if self._policy.live_order:
            for node in self.account.changed[self._ordered :]:
                self._ranks[node] = self.rank(node)
            self._ordered = len(self.account.changed)
            for waiting in self._levels:
                waiting.sort(key=self._ranks.__getitem__)
        return [0] * len(self._levels)

    def about(self, name: str) -> str:
        """Return what the policy says of the node for people."""
        return self._policy.about(self.packer.node_ids[name])

    def figures(self) -> tuple[PolicyMetric, ...]:
        """Return what the policy tells of the state as it is."""
        return tuple(self._policy.figures())

    def _try(self, node: int) -> _Route | None:
        """Return where the node's pods would go, or None if it can not go; cheapest checks first.

        The order is that of the thesis (4.4, 4.5): sums, delay, packing, usable capacity.
        """
        name = self._name(node)
        if self._refusals.holds(node):
            return None
        if self.survey.blockers[name] or not self._is_due(name) or not self._has_time(name):
            return None
        if not self._policy.nominated(node, marked=name in self.marked):
            return None
        if self._brakes.refusals(self.packer.nodes[node]):
            return None
        route = self._route(node)
        if route.refused:
            self._refused[node] = self._gone, route
            marked = name in self.marked
            self._refusals.note(node, route.attempt, route.over, route.beside, marked=marked)
            return None
        return route

    def _route(self, node: int) -> _Route:
        """Find the node's pods places that no reach minds; if there are none, what minds first.

        The headroom is kept from new marks and ends none: any pod that ends may leave a hole for
        it that was not there when the node was marked, and another that comes fills it again.
        """
        route = self._as_it_is(node)
        if not route.refused or self._name(node) not in self.marked:
            return route
        if headroom := self._headroom_placed():
            back = self.packer.lift(headroom)
            route = self._as_it_is(node)._replace(beside=route.attempt)
            self.packer.commit(back)
        return route

    def _headroom_placed(self) -> list[int]:
        return sorted(self._headroom & self.packer.spare_at.keys())

    def _as_it_is(self, node: int) -> _Route:
        """Find places beside the headroom, if it is there.

        A marked node is asked as one without a mark first, so that its pods would go where they
        would have gone when it was marked: a plan that is carried out is planned again.
        """
        route = self._passing(node, marked=False)
        if self._name(node) in self.marked and route.refused:
            return self._passing(node, marked=True)
        return route

    def _passing(self, node: int, *, marked: bool) -> _Route:
        """Pass by reaches that are full.

        First-fit takes the fullest nodes, so pods that have a choice crowd into a reach that is
        full already. Where only reaches of others mind, their nodes are barred to these pods.
        """
        barred: frozenset[int] = frozenset()
        first = route = self._routed(node, barred, marked=marked)
        for _ in range(REROUTES_MAX):
            others = [one.sums.reach for one in route.over if one.sums.reach and not one.own]
            if not others or len(others) < len(route.over):
                break
            barred = barred.union(*(reach.nodes for reach in others))
            route = self._routed(node, barred, marked=marked)
        return first if route.refused else route

    def _routed(self, node: int, barred: frozenset[int], *, marked: bool) -> _Route:
        packer, listing = self.packer, self._listing
        known = listing.known(packer, node) if listing is not None else ()
        attempt = packer.attempt(packer.on[node], node, barred, known)
        trial = self.account.trial(node, self.packer.received(attempt))
        over = () if attempt.unplaced else self._policy.exceeded(trial, marked=marked)
        listed = listing is not None and self._name(node) in listing.since
        taken = lost(known, attempt) if listed else ()
        return _Route(attempt, trial, over, taken)

    def _has_time(self, name: str) -> bool:
        """Say whether the node may be tried; marked ones always, or they would be released."""
        if name in self.marked:
            return True
        self.out_of_time = self.out_of_time or not self._in_time()
        return not self.out_of_time

    def _remove(self, node: int, route: _Route, order: int) -> Removal:
        attempt = route.attempt
        headroom = self._headroom_placed() if route.beside else []
        removal = Removal(self._name(node), order, self.placements(attempt))
        self.account.remove(route.trial)
        if headroom:
            self.packer.lift(headroom)
        self.packer.commit(attempt, node)
        if headroom:
            self._settle(headroom)
            self._refusals = RefusalCache(self.packer)
        else:
            self._refusals.move(node, attempt)
        self._brakes.take(self.packer.nodes[node])
        self._gone += 1
        if self._listing is not None:
            self._listing.note(removal.node, removal.placements)
        return removal

    def kept(self, gone: Collection[str]) -> tuple[UnremovableNode, ...]:
        """Explain every node that stays, on the state after all removals."""
        staying = (
            number for number, node in enumerate(self.packer.nodes) if node.name not in gone
        )
        found = (UnremovableNode(self._name(node), tuple(self._explain(node))) for node in staying)
        return tuple(sorted(found, key=lambda kept: kept.node))

    def _explain(self, node: int) -> list[Blocker]:
        """Return every reason against the node's going, not only the first."""
        name = self._name(node)
        blockers = list(self.survey.blockers[name])
        if name in self.survey.leaving_nodes:
            return blockers
        if not self._is_due(name):
            message = (
                f"it has not been a candidate for longer than {duration(self._delay_seconds)} yet"
            )
            until = (self._delays or {}).get(name)
            blockers.append(Blocker(DELAY, message, until=until))
        blockers += self._brakes.refusals(self.packer.nodes[node])
        marked = name in self.marked
        nominated = self._policy.nominated(node, marked=marked)
        if not nominated:
            blockers += self._policy.why_not(node, marked=marked)
        if not self._has_time(name):
            return [*blockers, Blocker(TIME_BOX, "the pass had no time left to try it")]
        if not nominated:
            # Over the sums is over the usable sums too (thesis, invariant 1): not said twice.
            attempt = self.packer.attempt(self.packer.on[node], node)
            return [*blockers, *self._no_rooms(node, attempt)]
        gone, route = self._refused.get(node, (-1, None))
        if route is None or gone != self._gone:
            route = self._route(node)
        blockers += self._no_rooms(node, route.attempt)
        blockers += starmap(self._place_taken, route.taken)
        blockers += (self._policy.why_exceeded(one, marked=marked) for one in route.over)
        return blockers or [Blocker(LIMIT, "as many nodes go already as may go in one plan")]

    def _no_rooms(self, node: int, attempt: Attempt) -> Iterator[Blocker]:
        """Yield why each pod has no place; the pods of one CapacityBuffer together."""
        buffers: Counter[str] = Counter()
        for pod in attempt.unplaced:
            if self._gives_way(pod, node):
                continue
            if (buffer := buffer_of(self.packer.pods[pod])) is not None:
                buffers[buffer] += 1
            else:
                yield self._no_room(pod, node, attempt)
        for buffer, many in sorted(buffers.items()):
            pods = "1 pod" if many == 1 else f"{many} pods"
            yield Blocker(BUFFERED, f"no room would be left for {pods} of {BUFFER} {buffer}")

    def _no_room(self, pod: int, node: int, attempt: Attempt) -> Blocker:
        if pod in self.packer.spare:
            size = amounts(self.packer.pods[pod].requests)
            told = "no room would be left for one more pod as large as the largest"
            return Blocker(HEADROOM, f"{told} ({size})")
        key, told = self.packer.pods[pod].key, "the room that would be left for it is kept for"
        kept = self.packer.spared(pod, node)
        if kept is not None and not self._gives_way(kept, node):
            if (buffer := buffer_of(self.packer.pods[kept])) is not None:
                return Blocker(BUFFERED, f"{told} {BUFFER} {buffer}", key)
            size = amounts(self.packer.pods[kept].requests)
            return Blocker(HEADROOM, f"{told} pods as large as the largest ({size})", key)
        return Blocker(NO_ROOM, self.packer.why_not(pod, node, attempt), key)

    def _gives_way(self, spare: int, node: int) -> bool:
        """Say whether it is of the headroom and the node is marked: it speaks against no mark."""
        return spare in self._headroom and self._name(node) in self.marked

    def _place_taken(self, pod: int, place: int) -> Blocker:
        message = f"its place on node {self._name(place)} is taken"
        return Blocker(PLACE_TAKEN, message, self.packer.pods[pod].key)

    def _is_due(self, name: str) -> bool:
        """Return whether the node's delay has passed; a marked node has none."""
        if name in self.marked or (self._due is not None and name in self._due):
            return True
        now = self.survey.now
        if self._delays is None or now is None:
            return self._due is None
        return name in self._delays and now.reached(self._delays[name])

    def _name(self, node: int) -> str:
        return self.packer.nodes[node].name

    def placements(self, attempt: Attempt) -> tuple[Placement, ...]:
        """Write an attempt with names instead of ids, without the pods that do not exist."""
        return placements(self.packer, attempt)
