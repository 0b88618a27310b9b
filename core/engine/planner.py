"""Make a joint plan, and keep track of the cluster as it is after the removals decided so far.

The steps are those of thesis 4.4, 4.5 and 4.7. The pods that one removal displaces are placed
before the next node is checked.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby, starmap
from typing import Final, NamedTuple

from core.eligibility.surge import count_not_replaceable
from core.engine.buffers import BUFFERED, buffer_of
from core.engine.leader_state import RateLimits
from core.engine.limits import RemovalLimits
from core.engine.placement_hints import Known, UnneededNodes, lost_placements, placements
from core.engine.plan import BufferRoom, Placement, Removal, UnremovableNode
from core.engine.planner_parts import NO_COUNTS, headroom_pods, new_packer, new_policy
from core.engine.refusal_cache import RefusalCache
from core.engine.snapshot import ClusterSnapshot
from core.model.buffers import BUFFER
from core.model.humanize import amounts, duration
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.placement.packer import Attempt
from core.placement.reach_utilization import Exceeded
from core.placement.second_pods import SecondPods
from core.placement.usable_capacity import Amount
from core.placement.utilization_ledger import (
    NO_DEVICES,
    NONE_RECEIVED,
    DevicesReceived,
    RemovalEffect,
)
from core.policies.policy import Order, PolicyMetric

REROUTES_MAX: Final = 3
"""Maximum number of times that the pods of one node are placed again to avoid full reaches."""

DELAY: Final = Reason(
    "unneeded-time",
    "The node is a candidate for removal, but not yet for longer than `unneededTime`.",
    "wait; or lower `unneededTime` in the configuration",
    "the node has been a candidate for longer than `unneededTime` without interruption",
)
NO_ROOM: Final = Reason(
    "no-room",
    "A pod of the node fits on none of the remaining nodes.",
    "see which rules exclude which nodes: ebb explain pod {namespace}/{name}",
    "another node admits the pod and has room for it beside all other pods that must move",
)
PLACE_TAKEN: Final = Reason(
    "place-taken",
    "Earlier, Ebb found room on another node for a pod of this node. Now nodes that are removed "
    "before this one need that room for their pods.",
    "wait: after those nodes are marked, Ebb searches for room again, and `unneededTime` starts "
    "again",
    "the room that Ebb finds for the node's pods remains free until `unneededTime` has passed",
)
HEADROOM: Final = Reason(
    "headroom",
    "Without the node there would be too little headroom: room for pods as large as the largest "
    "pod.",
    "lower `headroom` in the configuration, or lower the requests of the largest pods",
    "the remaining nodes have room for `headroom` pods of that size",
)
TIME_BOX: Final = Reason(
    "time-box",
    "The reconciliation ended before the node was checked, because it ran out of time or was "
    "interrupted by an urgent event. Other reasons were not checked.",
    "none needed: the next reconciliation checks the node; if the metric "
    "`ebb_reconcile_timeouts_total` keeps growing, give the controller a faster CPU",
    "a reconciliation checks the node in time",
)
LIMIT: Final = Reason(
    "limit",
    "The plan already removes as many nodes as `ebb plan --max-removals` allows.",
    "use a higher `--max-removals`, or omit it",
    "the plan removes fewer nodes than `--max-removals` before it evaluates this node",
)


LIMIT_REACHED: Final = Blocker(
    LIMIT, "the plan already removes as many nodes as `--max-removals` allows"
)
"""Reason for nodes that nothing else blocks."""


class _Route(NamedTuple):
    """Places for the pods of a node that is to be removed, and the reasons against them."""

    attempt: Attempt
    effect: RemovalEffect
    """Changes of the sums; empty if a pod has no place."""
    exceeded: tuple[Exceeded, ...]
    lost: Known
    """Remembered placements of pods that are placed elsewhere now; empty for nodes that are not
    listed."""
    with_headroom: Attempt | None = None
    """Failed attempt beside the headroom, if the headroom was removed for the node."""

    @property
    def is_refused(self) -> bool:
        return bool(self.attempt.unassigned or self.exceeded or self.lost)


Delays = Mapping[str, int]
"""End of the unneeded time by candidate, unix seconds."""
InTime = Callable[[], bool]
"""Reports whether the reconciliation has time left."""


def unlimited_time() -> bool:
    """Return True always: the reconciliation has no time limit."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Restrictions of a plan beside those in the configuration; by default there are none."""

    due: frozenset[str] | None = None
    """Unmarked nodes whose unneeded time has passed; None means all."""
    limits: RateLimits | None = None
    """Rate limits of this reconciliation. None if only lasting limits apply, such as minimum
    sizes, which shows what can be removed in the long run."""
    removals_max: int | None = None
    """Maximum number of removals, including marked nodes; None means no limit."""
    in_time: InTime = unlimited_time
    """Returns False when no further unmarked node may be tried."""
    candidates: Delays | UnneededNodes | None = None
    """By candidate the end of its unneeded time, or the object that finds candidates during the
    plan; None if no unneeded time applies."""


UNRESTRICTED: Final = PlanOptions()


class Planner:
    """A plan in progress: the decided removals, and the nodes that are still to be tried."""

    def __init__(self, snapshot: ClusterSnapshot, options: PlanOptions = UNRESTRICTED) -> None:
        """Start a plan without any removal, in which Pending pods already have their places."""
        self.snapshot, self._options = snapshot, options
        candidates = options.candidates
        self._unneeded = candidates if isinstance(candidates, UnneededNodes) else None
        self._delays: Delays | None = None if isinstance(candidates, UnneededNodes) else candidates
        placeholders = headroom_pods(snapshot, snapshot.config.budgets.headroom)
        placeholders += (room.pod for room in snapshot.buffer_rooms for _ in range(room.kept))
        self.packer = packer = new_packer(snapshot, placeholders)
        self._headroom = frozenset(
            pod for pod in packer.placeholders if buffer_of(packer.pods[pod]) is None
        )
        # Headroom keeps no empty node, and the autoscaler may remove one at any time.
        idle = frozenset(packer.node_ids[name] for name in snapshot.idle_nodes)
        packer.keep_off(self._headroom, idle)
        limits = options.limits
        self.ledger = snapshot.utilization.new_ledger(limits.peak_excess if limits else None)
        self._limits = RemovalLimits(snapshot, limits)
        self._second_pods: SecondPods | None = None
        if snapshot.config.surges:
            marked = [packer.node_ids[name] for name in snapshot.marks]
            self._second_pods = packer.second_pods(marked)
        self._policy = new_policy(
            snapshot,
            self.ledger,
            lambda node: len(packer.on[node]),
            None if self._delays is None else self._delays.keys(),
            self._pods_not_replaceable(),
        )
        self.out_of_time = False
        self.marked = snapshot.marks.keys() - snapshot.leaving_nodes
        self._unneeded_time_seconds = snapshot.config.unneeded_time_seconds
        self._ordered = len(self.ledger.changed)
        """Length of `ledger.changed` when the nodes were last sorted."""
        self._ranks = [self.rank(node) for node in range(len(packer.nodes))]
        self._levels = self._candidates()
        self._removed_count = 0
        self._refusal_cache = RefusalCache(packer)
        self._refused: dict[int, tuple[int, _Route]] = {}
        """Failed route by node, and the number of removals before it; valid until the next
        removal."""
        self.pending = self._place_pending()
        """Places of the pods that needed one before any removal."""

    def _pods_not_replaceable(self) -> Mapping[str, int]:
        """Return by node the number of pods that no surge move can replace.

        Nodes without such pods are absent. The result is empty if surge moves are disabled.
        """
        if self._second_pods is None:
            return NO_COUNTS
        snapshot = self.snapshot
        return count_not_replaceable(
            snapshot.cluster.pods,
            snapshot.cluster.surge.allowed,
            snapshot.now,
            crowded=frozenset(self.packer.pods[pod].key for pod in self._second_pods.crowded),
            keep_local_storage=snapshot.config.surge.keep_local_storage,
        )

    def _candidates(self) -> list[list[int]]:
        """Return the ids of the nodes that may be tried, grouped in levels.

        The levels are tried one after the other. Each level is sorted by rank. Leaving nodes are
        in no level.
        """
        levels: dict[Order, list[int]] = {}
        nodes = self.packer.nodes
        for number, node in enumerate(nodes):
            if node.name not in self.snapshot.leaving_nodes:
                levels.setdefault(self._level(number), []).append(number)
        return [sorted(levels[level], key=self._ranks.__getitem__) for level in sorted(levels)]

    def _level(self, node_id: int) -> Order:
        """Return the sort key of the level in which the node is tried; marked nodes come first.

        With a policy that has thresholds, marked nodes that no pod can use come after the other
        marked ones.
        """
        if self._name(node_id) in self.marked:
            return False, self._policy.thresholds and not self.ledger.is_reached(node_id)
        return True, *self._policy.level(node_id)

    def rank(self, node_id: int) -> Order:
        """Return the sort key of the node within its level.

        Marked nodes are sorted by the time of their mark, others by the policy.
        """
        node = self.packer.nodes[node_id]
        if node.name in self.marked:
            mark = self.snapshot.marks[node.name]
            return mark.since, mark.order, node.name
        return self._policy.rank(node_id)

    def _place_pending(self) -> tuple[Placement, ...]:
        """Place the pods that need a place before any removal; return where real pods go.

        Pods that the scheduler could not place come first: a NoSchedule mark may be all that
        blocks them, while other pods may have a choice. Other Pending pods and the pods of leaving
        nodes follow, then the pods of CapacityBuffers. Headroom (free room for pods as large as
        the largest) comes last, and is not kept if there is no room for it now. The result lists
        neither headroom nor pods of CapacityBuffers.
        """
        packer = self.packer
        unschedulable = [n for n in packer.pending if packer.pods[n].unschedulable]
        displaced = (packer.on[packer.node_ids[name]] for name in self.snapshot.leaving_nodes)
        others = packer.placeholders.union(unschedulable)
        pending = sorted(chain(*displaced, (n for n in packer.pending if n not in others)))
        first, second = self._place(unschedulable), self._place(pending)
        self._place(sorted(packer.placeholders - self._headroom))
        self._place(sorted(self._headroom))
        return (*self.placements(first), *self.placements(second))

    def buffers(self) -> tuple[BufferRoom, ...]:
        """Return how much room each CapacityBuffer has that Ebb did not create."""
        pods = self.packer.pods
        placed = Counter(buffer_of(pods[pod]) for pod in self.packer.placeholder_nodes)
        kept = {room.buffer.key: room.kept for room in self.snapshot.buffer_rooms}
        return tuple(
            BufferRoom(
                buffer.key,
                buffer.replicas,
                kept.get(buffer.key, 0),
                placed[buffer.key],
                buffer.fault,
            )
            for buffer in self.snapshot.cluster.buffers
            if buffer.published is None
        )

    def _place(self, pods: list[int]) -> Attempt:
        packer = self.packer
        attempt, received = packer.place(pods)
        self.ledger.add_load(received, self._devices_added(attempt))
        for number, _ in attempt.assignments:
            pod = packer.pods[number]
            if pod.node is not None:
                node = packer.node_ids[pod.node]
                devices = pod.requests.devices if self.ledger.devices else NO_DEVICES
                self.ledger.remove_load(node, Amount.of(pod.requests), devices)
        return attempt

    def _devices_added(self, attempt: Attempt) -> DevicesReceived:
        return self.packer.devices_added(attempt) if self.ledger.devices else NONE_RECEIVED

    def remove_all(self) -> tuple[Removal, ...]:
        """Remove nodes until no other node may be removed, and return the removals in order.

        After each removal the search starts again at the first level, because pods that move can
        free usable capacity. Within a level it continues at the same position and wraps around, so
        that each node is tried once for each state.
        """
        removals: list[Removal] = []
        if self._unneeded is not None:
            marked = sum(self._name(nodes[0]) in self.marked for nodes in self._levels)
            self._sweep(removals, marked)
            nodes = sorted(range(len(self.packer.nodes)), key=self._name)
            self._unneeded.list_nodes(
                self.packer, filter(self._is_unneeded, nodes), self._has_time
            )
            self._delays = self._unneeded.due_times(
                lambda at: self._policy.due_at(at, self._unneeded_time_seconds)
            )
        self._sweep(removals, len(self._levels))
        return tuple(removals)

    def _sweep(self, removals: list[Removal], levels: int) -> None:
        """Append the removals that are possible in the first *levels* levels to *removals*.

        Levels are groups of nodes that are tried one after the other.
        """
        places = self._reorder()
        level = 0
        while level < levels and len(removals) != self._options.removals_max:
            waiting = self._levels[level]
            for place in chain(range(places[level], len(waiting)), range(places[level])):
                route = self._try_remove(waiting[place])
                if route is not None:
                    removals.append(self._remove(waiting[place], route, len(removals) + 1))
                    del waiting[place]
                    places = [0] * level + [place] + places[level + 1 :]
                    if self._policy.reorders:
                        places = self._reorder()
                    level = 0
                    break
            else:
                level += 1

    def _is_unneeded(self, node: int) -> bool:
        """Report whether the node is unneeded if only its pods find places on other nodes.

        False for marked, leaving and virtual nodes, for nodes with a pod that must stay, and for
        nodes that are no candidates of the policy.
        """
        name, unneeded = self._name(node), self._unneeded
        if (
            name in self.marked
            or name in self.snapshot.leaving_nodes
            or self.packer.nodes[node].virtual
        ):
            return False
        was = unneeded is not None and unneeded.was_listed(name)
        # A reason of the Node itself, such as an annotation, does not restart the unneeded time.
        pods_stay = any(blocker.pod for blocker in self.snapshot.blockers[name])
        return not pods_stay and self._policy.is_candidate(node, was=was)

    def _reorder(self) -> list[int]:
        """Sort the nodes of each level by rank if ranks change; return start positions, all 0."""
        if self._policy.reorders:
            for node in self.ledger.changed[self._ordered :]:
                self._ranks[node] = self.rank(node)
            self._ordered = len(self.ledger.changed)
            for waiting in self._levels:
                waiting.sort(key=self._ranks.__getitem__)
        return [0] * len(self._levels)

    def describe(self, name: str) -> str:
        """Return the policy's text about the node *name*; empty if the policy has none."""
        return self._policy.describe(self.packer.node_ids[name])

    def policy_metrics(self) -> tuple[PolicyMetric, ...]:
        """Return the values of the policy's metrics for the current state of the plan."""
        return tuple(self._policy.metrics())

    def _try_remove(self, node: int) -> _Route | None:
        """Return placements for the node's pods, or None if the node cannot be removed.

        Nothing is removed yet. The checks are in the order of the thesis (4.4, 4.5), cheapest
        first: sums, time, packing, usable capacity.
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
        """Return places for the node's pods; `is_refused` tells whether something is against it.

        A marked node that would be refused is tried again without headroom (free room for large
        pods).
        """
        route = self._route_beside_headroom(node)
        if not route.is_refused or self._name(node) not in self.marked:
            return route
        # Headroom keeps nodes from being marked but removes no mark. A terminating pod may make
        # room for headroom that did not exist when the node was marked. When a new pod fills that
        # room again, the mark must remain.
        if headroom := self._headroom_placed():
            back = self.packer.remove_placeholders(headroom)
            route = self._route_beside_headroom(node)._replace(with_headroom=route.attempt)
            self.packer.commit(back)
        return route

    def _headroom_placed(self) -> list[int]:
        return sorted(self._headroom & self.packer.placeholder_nodes.keys())

    def _route_beside_headroom(self, node: int) -> _Route:
        # A marked node is first tried like an unmarked one, so that its pods get the placements
        # that they got when it was marked.
        route = self._route_avoiding_full_reaches(node, marked=False)
        if self._name(node) in self.marked and route.is_refused:
            return self._route_avoiding_full_reaches(node, marked=True)
        return route

    def _route_avoiding_full_reaches(self, node: int, *, marked: bool) -> _Route:
        """Return placements for the node's pods, outside full reaches if that avoids a refusal.

        A reach is a set of nodes that some pods can use. First-fit prefers the fullest nodes, so
        pods with a choice would crowd into a full reach. If only reaches exceed a threshold that
        the node is not in, their nodes are excluded for these pods. *marked*: apply the thresholds
        for marked nodes.
        """
        excluded: frozenset[int] = frozenset()
        first = route = self._route_once(node, excluded, marked=marked)
        for _ in range(REROUTES_MAX):
            others = [
                over.sums.reach for over in route.exceeded if over.sums.reach and not over.own
            ]
            if not others or len(others) < len(route.exceeded):
                break
            excluded = excluded.union(*(reach.nodes for reach in others))
            route = self._route_once(node, excluded, marked=marked)
        return first if route.is_refused else route

    def _route_once(self, node: int, excluded: frozenset[int], *, marked: bool) -> _Route:
        packer, unneeded = self.packer, self._unneeded
        known = unneeded.known_placements(packer, node) if unneeded is not None else ()
        attempt = packer.try_place(packer.on[node], node, excluded, known)
        listed = unneeded is not None and self._name(node) in unneeded.since
        lost = lost_placements(known, attempt) if listed else ()
        if attempt.unassigned:
            return _Route(attempt, RemovalEffect(node, (), {}), (), lost)
        effect = self.ledger.removal_effect(
            node, packer.load_added(attempt), self._devices_added(attempt)
        )
        return _Route(attempt, effect, self._policy.exceeded(effect, marked=marked), lost)

    def _has_time(self, name: str) -> bool:
        """Report whether there is time left to try the node; always True for a marked node.

        A marked node that was not tried would be unmarked.
        """
        if name in self.marked:
            return True
        self.out_of_time = self.out_of_time or not self._options.in_time()
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

    def crowded(self, removed: Collection[str]) -> frozenset[str]:
        """Return the pods on removed nodes for which a second pod has no place on nodes that stay.

        Pods are namespace/name. *removed*: names of all nodes that the plan removes. Empty if
        surge moves are disabled.
        """
        found = self._second_pods.crowded_without(removed) if self._second_pods else ()
        return frozenset(found)

    def unremovable(self, removed: Collection[str]) -> tuple[UnremovableNode, ...]:
        """Return every node not in *removed*, with the reasons that apply after all removals.

        The nodes are sorted by name.
        """
        pods_max = max(map(len, self.packer.on), default=0)
        within = self._unneeded is None and self._policy.surely_within(pods_max)
        staying = (
            number for number, node in enumerate(self.packer.nodes) if node.name not in removed
        )
        unremovable = (
            UnremovableNode(self._name(node), tuple(self._explain(node, surely_within=within)))
            for node in staying
        )
        return tuple(sorted(unremovable, key=lambda kept: kept.node))

    def _explain(self, node: int, *, surely_within: bool) -> list[Blocker]:
        """Return every reason against the node's removal, not only the first.

        *surely_within*: True if, whichever unmarked node is removed next, no threshold is exceeded
        and no remembered placement is lost. Then a check can be left out.
        """
        name = self._name(node)
        blockers = list(self.snapshot.blockers[name])
        if name in self.snapshot.leaving_nodes:
            return blockers
        if not self._is_due(name):
            message = (
                f"`unneededTime` ({duration(self._unneeded_time_seconds)}) has not passed yet"
            )
            until = (self._delays or {}).get(name)
            blockers.append(Blocker(DELAY, message, until=until))
        blockers += self._limits.blockers(self.packer.nodes[node])
        marked = name in self.marked
        nominated = self._policy.nominates(node, marked=marked)
        if not nominated:
            blockers += self._policy.explain(node, marked=marked)
        if not self._has_time(name):
            return [
                *blockers,
                Blocker(TIME_BOX, "the reconciliation ended before the node was checked"),
            ]
        if not nominated:
            # A threshold that is exceeded for the capacity is exceeded for the usable capacity too
            # (thesis, invariant 1), so only the places of the pods remain to be checked.
            pods = self.packer.on[node]
            if self.packer.surely_fit(pods):
                return blockers
            return [*blockers, *self._no_rooms(node, self.packer.try_place(pods, node))]
        removed_count, route = self._refused.get(node, (-1, None))
        if route is None or removed_count != self._removed_count:
            # Most nodes of a large cluster are blocked only by a limit or by `unneededTime`. For
            # them this is much faster than `_find_route`, which would find a route.
            if surely_within and not marked and self.packer.surely_fit(self.packer.on[node]):
                return blockers or [LIMIT_REACHED]
            route = self._find_route(node)
        blockers += self._no_rooms(node, route.attempt)
        blockers += starmap(self._place_taken, route.lost)
        blockers += (self._policy.explain_exceeded(over, marked=marked) for over in route.exceeded)
        return blockers or [LIMIT_REACHED]

    def _no_rooms(self, node: int, attempt: Attempt) -> Iterator[Blocker]:
        """Yield a reason for each pod without a place in the attempt to place the pods of *node*.

        All pods of a CapacityBuffer share one reason.
        """
        packer, buffers = self.packer, Counter[str]()
        for group, members in groupby(attempt.unassigned, packer.group_without_rules):
            why: tuple[Reason, str] | None = None
            for number in members:
                pod = packer.pods[number]
                if number in packer.placeholders:
                    if (buffer := buffer_of(pod)) is not None:
                        buffers[buffer] += 1
                    elif not self._is_waived(number, node):
                        yield _no_headroom(pod)
                    continue
                # Equivalent pods have the same reason, unless inter-pod rules concern them.
                if why is None or group is None:
                    why = self.why_no_room(number, node, attempt)
                reason, message = why
                yield Blocker(reason, planned_here(pod, self._name(node)) + message, pod.key)
        for buffer, many in sorted(buffers.items()):
            pods = "1 pod" if many == 1 else f"{many} pods"
            yield Blocker(BUFFERED, f"no room would be left for {pods} of {BUFFER} {buffer}")

    def why_no_room(self, pod: int, node: int, attempt: Attempt) -> tuple[Reason, str]:
        """Return why the *attempt* to place the pods of *node* found no place for a pod."""
        reserved_for = self.packer.displaced_by_placeholder(pod, node)
        if reserved_for is None or self._is_waived(reserved_for, node):
            return NO_ROOM, self.packer.explain(pod, node, attempt)
        message, placeholder = (
            "the only room for it is reserved for",
            self.packer.pods[reserved_for],
        )
        if (buffer := buffer_of(placeholder)) is not None:
            return BUFFERED, f"{message} {BUFFER} {buffer}"
        size = amounts(placeholder.requests)
        return HEADROOM, f"{message} pods as large as the largest ({size})"

    def _is_waived(self, placeholder: int, node: int) -> bool:
        """Report whether the placeholder pod is headroom and the node is marked.

        Headroom (free room for large pods) blocks the removal of unmarked nodes only.
        """
        return placeholder in self._headroom and self._name(node) in self.marked

    def _place_taken(self, pod: int, place: int) -> Blocker:
        message = f"its place on node {self._name(place)} is taken by another pod"
        return Blocker(PLACE_TAKEN, message, self.packer.pods[pod].key)

    def _is_due(self, name: str) -> bool:
        due = self._options.due
        if name in self.marked or (due is not None and name in due):
            return True
        now = self.snapshot.now
        if self._delays is None or now is None:
            return due is None
        return name in self._delays and now.reached(self._delays[name])

    def _name(self, node: int) -> str:
        return self.packer.nodes[node].name

    def placements(self, attempt: Attempt) -> tuple[Placement, ...]:
        """Return the pods that the attempt places, each with its node, without placeholders."""
        return placements(self.packer, attempt)


def planned_here(pod: Pod, node: str) -> str:
    """Return where a pod is that the plan has placed on *node*, as the begin of a message.

    It is empty for a pod that runs on the node.
    """
    if pod.node == node:
        return ""
    return f"planned here from {pod.node}: " if pod.node else "planned here, now Pending: "


def _no_headroom(pod: Pod) -> Blocker:
    message = "there would be no headroom for one more pod as large as the largest"
    return Blocker(HEADROOM, f"{message} ({amounts(pod.requests)})")
