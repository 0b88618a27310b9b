"""Reserve empty nodes for expected pods: do not allow their scale-down yet.

Ebb expects as many pods as were created in a usual time span, for each reach (a set of nodes that
some pods can use). Placeholder pods stand for them in the packing: first on the nodes that
stay, fullest first, including nodes with a PreferNoSchedule mark; then on empty nodes, unmarked
ones first, then the cheapest. The empty nodes that receive expected pods are reserved. Expected
pods that still have no room may fit on nodes that are starting, so that no autoscaler adds nodes
twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from core.config.settings import Mode
from core.engine.arrivals import Counts, PodShape
from core.engine.buffers import buffer_of
from core.engine.leader_state import LeaderState, watched_until
from core.engine.plan import ReserveCause, ReservedNode
from core.engine.protection import protects_empty
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark, is_scale_down_allowed, protection_of
from core.model.buffers import BUFFER
from core.model.cost import cost
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.model.quantity import format_bytes, format_millis
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.placement.node_order import dominant_share
from core.placement.packer import Packer

PODS_MAX: Final = 10_000
"""Maximum number of placeholders. Every reach gets an equal share; unused shares go to the
others."""
SIZES_SHOWN: Final = 3
"""Maximum number of pod sizes in a message."""
SHORT: Final = Fraction(1, 4)
"""A reach is short of room if more than this share of its expected requests has no room."""
EXPECTED: Final = "Reserve"
"""Owner kind of placeholder pods; the owner name is the key of their reach."""

RESERVE: Final = Reason(
    "reserve",
    "The node is empty, but Ebb does not allow its scale-down yet. Ebb reserves room for as many "
    "pods as are usually created in a time span, and the other nodes have too little.",
    "wait; or lower `reserve.percentile` or shorten `reserve.window` in the configuration",
    "the other nodes have room for the expected pods",
)


class Reserved(NamedTuple):
    """The empty nodes reserved for expected pods, and the reaches in which room is still short.

    A reach is a set of nodes that some pods can use.
    """

    nodes: tuple[ReservedNode, ...] = ()
    """Reserved nodes, by name."""
    short_reaches: frozenset[str] = frozenset()
    """Keys of the reaches in which too many of the expected pods have no room on lasting nodes."""
    expected: Counts = MappingProxyType({})
    """Number of expected pods by shape; empty if `reserve.window` is never."""


def reserve_nodes(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> Reserved:
    """Return the empty nodes to reserve for expected pods, and the reaches with too little room.

    A reach is a set of nodes that some pods can use. *state*: the leader's state, already updated
    from the snapshot. A leader whose arrivals cover less than one window does not know which pods
    to expect, so it also keeps every empty node that is protected already.
    """
    settings = snapshot.config.budgets.reserve
    if settings.window_seconds is None:
        return ReservePlanner(snapshot, None).reserve() if snapshot.buffer_rooms else Reserved()
    expected = state.expected_pods(snapshot.total_allocatable, now, settings.percentile)
    publishes = state.may_publish and snapshot.config.mode is Mode.ENFORCE
    planner = ReservePlanner(snapshot, expected, publishes=publishes)
    until = watched_until(state, settings.window_seconds)
    if until is not None and now.before(until):
        return planner.keep_protected(until)._replace(expected=expected)
    return planner.reserve()._replace(expected=expected)


class ReservePlanner:
    """Finds room for expected pods, and so the empty nodes that must be reserved for them."""

    def __init__(
        self, snapshot: ClusterSnapshot, expected: Counts | None, *, publishes: bool = False
    ) -> None:
        """Prepare placeholder pods to reserve room for.

        *expected*: number of expected pods by shape; None if `reserve.window` is never. Pods of
        CapacityBuffers get placeholders too. *publishes*: whether Ebb publishes CapacityBuffers
        for the expected pods; only then are short reaches determined.
        """
        self._snapshot, self._publishes = snapshot, publishes
        self.placeholders = [(room.pod, room.kept) for room in snapshot.buffer_rooms if room.kept]
        """Pods to reserve room for, each with the number of such pods."""
        if expected is not None:
            self.placeholders += _bounded(expected)

    def reserve(self) -> Reserved:
        """Return the empty nodes that expected or pending pods need, and the short reaches.

        In a short reach (a set of nodes that some pods can use), too many expected pods have no
        place, or only a place on a node that the autoscaler may remove.
        """
        if not ((self.empty_nodes or self._publishes) and (self.placeholders or self._pending)):
            return Reserved()
        packer, empty_nodes = self._packer(self.empty_nodes), frozenset(self.empty_nodes)
        placeholders = packer.placeholders
        pending = [
            pod for pod in (*packer.pending, *self._displaced(packer)) if pod not in placeholders
        ]
        expected_on: dict[str, Counter[Resources | str]] = {}
        pending_on: Counter[str] = Counter()
        without_room: list[Pod] = []
        for pods in (sorted(pending), sorted(placeholders)):
            attempt, _ = packer.place(pods)
            for pod, number in attempt.assignments:
                name = packer.nodes[number].name
                if name in empty_nodes and pod in placeholders:
                    expected_on.setdefault(name, Counter())[_shape(packer.pods[pod])] += 1
                elif name in empty_nodes:
                    pending_on[name] += 1
                if not self._remains(packer.nodes[number]):
                    without_room.append(packer.pods[pod])
            without_room += (packer.pods[pod] for pod in attempt.unassigned)
        reserved = tuple(
            _reserved_node(name, expected_on.get(name, Counter()), pending_on[name])
            for name in sorted({*expected_on, *pending_on})
        )
        return Reserved(reserved, self._short_reaches(without_room))

    def _short_reaches(self, without_room: Iterable[Pod]) -> frozenset[str]:
        if not self._publishes:
            return frozenset()
        missing = Counter(pod.name for pod in without_room if pod.owner_kind == EXPECTED)
        requested, lacking = Counter[str](), Counter[str]()
        for pod, many in self.placeholders:
            if pod.owner_kind == EXPECTED:
                share = max(dominant_share(pod.requests, self._snapshot.total_allocatable), 1)
                requested[pod.owner_name] += share * many
                lacking[pod.owner_name] += share * missing[pod.name]
        return frozenset(reach for reach in requested if lacking[reach] > SHORT * requested[reach])

    def _remains(self, node: Node) -> bool:
        """Report whether the node remains even if no CapacityBuffer created by Ebb asks for it."""
        snapshot, name = self._snapshot, node.name
        # An autoscaler removes an unprotected empty node as soon as no CapacityBuffer requests it.
        # Its room would be missing again, so the autoscaler would add and remove it endlessly.
        kept = snapshot.blockers[name] and name not in snapshot.starting_nodes
        stays = kept or name in snapshot.non_empty_nodes or name in snapshot.marks
        return bool(stays) or protects_empty(snapshot, node)

    def keep_protected(self, until: int) -> Reserved:
        """Return what `reserve` returns, and until *until* the other protected empty nodes.

        *until*: unix second at which the leader will have watched arrivals for a whole window.
        """
        message = f"a new leader observes pod arrivals until {timestamp(until)}"
        why = Blocker(RESERVE, message, until=until)
        nodes, ids = self._snapshot.node_order.nodes, self._snapshot.node_order.ids
        protected = (name for name in self.empty_nodes if protection_of(nodes[ids[name]]))
        kept = {name: ReservedNode(name, ReserveCause.NEW_LEADER, why) for name in protected}
        needed = self.reserve()
        kept |= {node.node: node for node in needed.nodes}
        return needed._replace(nodes=tuple(kept[name] for name in sorted(kept)))

    @cached_property
    def empty_nodes(self) -> Sequence[str]:
        """Return the names of empty nodes that the autoscaler could remove, in the order of use.

        Expected pods use the first nodes first. Unmarked nodes come first, because a plan keeps
        them. Among the marked nodes, those whose scale-down is allowed come last, so that it stays
        allowed. Nodes that Ebb does not protect come after all others, because the autoscaler may
        remove them at any time. Within each group the cheapest comes first. A NoSchedule mark does
        not exclude a node; it becomes PreferNoSchedule if the node is reserved. Nodes that cannot
        be removed are not listed; their room counts like that of non-empty nodes.
        """
        snapshot = self._snapshot
        nodes = [
            node
            for node in snapshot.node_order.nodes
            if node.name in snapshot.idle_nodes and node.name not in snapshot.unschedulable_nodes
        ]
        nodes.sort(key=self._order)
        return [node.name for node in nodes]

    def _order(self, node: Node) -> tuple[object, ...]:
        marked = node.name in self._snapshot.marks
        price = self._snapshot.config.price_of(node.labels)
        return (
            not self._remains(node),
            marked,
            is_scale_down_allowed(node),
            price,
            cost(node.allocatable),
            node.name,
        )

    @cached_property
    def _no_schedule_nodes(self) -> frozenset[str]:
        marks = self._snapshot.marks
        return frozenset(name for name, mark in marks.items() if mark.mark is Mark.NO_SCHEDULE)

    def _packer(self, empties: Sequence[str]) -> Packer:
        """Return a packer that fills the *empties* after all other nodes, except starting nodes.

        Starting nodes come last so that they do not replace an empty node that exists. Non-empty
        nodes with a NoSchedule mark have no room, because expected pods alone do not change their
        mark.
        """
        snapshot = self._snapshot
        cluster = snapshot.cluster
        pending = self._pending
        placeholders = [pod for pod, many in self.placeholders for _ in range(many)]
        # Placeholders have no inter-pod constraints. Without pending pods no other pod matters.
        others = cluster.pods if pending else ()
        starting = snapshot.starting_nodes
        last = [*empties, *sorted(starting.keys() - set(empties))]
        unschedulable = snapshot.unschedulable_nodes - starting.keys() | (
            self._no_schedule_nodes - set(empties)
        )
        node_order = snapshot.node_order.with_last(last, unschedulable, starting)
        return Packer(
            replace(cluster, pods=others),
            node_order,
            movable=[[pod] for pod in pending],
            placeholders=placeholders,
            total_capacity=snapshot.reachable_allocatable,
        )

    @cached_property
    def _pending(self) -> Sequence[Pod]:
        """Return the Pending pods and the pods of leaving nodes, which all need a place now.

        They are placed before expected pods.
        """
        leaving = self._snapshot.leaving_nodes
        return [
            pod
            for members in self._snapshot.movable
            for pod in members
            if pod.node is None or pod.node in leaving
        ]

    def _displaced(self, packer: Packer) -> Iterable[int]:
        return (
            n for name in self._snapshot.leaving_nodes for n in packer.on[packer.node_ids[name]]
        )


def _bounded(expected: Counts) -> list[tuple[Pod, int]]:
    """Return a placeholder pod for each shape, with the number of pods to reserve room for.

    Limits by reach bound the number; shapes that get no room are left out.
    """
    left = _limits_by_reach(expected)
    placeholders: list[tuple[Pod, int]] = []
    for number, shape in enumerate(sorted(expected, key=_largest)):
        many = min(expected[shape], left[shape.reach])
        left[shape.reach] -= many
        pod = Pod(
            namespace="",
            name=f"reserve-{number}",
            requests=shape.requests,
            node_constraints=shape.node_constraints,
            owner_kind=EXPECTED,
            owner_name=shape.reach,
        )
        placeholders += [(pod, many)] if many else []
    return placeholders


def _limits_by_reach(expected: Counts) -> dict[str, int]:
    """Return by reach for how many pods to reserve room; all together at most PODS_MAX."""
    requested = Counter[str]()
    for shape, many in expected.items():
        requested[shape.reach] += many
    left, limits = PODS_MAX, dict[str, int]()
    for reach in sorted(requested, key=lambda reach: (requested[reach], reach)):
        # The part of a share that one reach does not use goes to the next ones.
        limits[reach] = min(requested[reach], left // (len(requested) - len(limits)))
        left -= limits[reach]
    return limits


def _largest(shape: PodShape) -> tuple[object, ...]:
    requests = shape.requests
    return (
        shape.reach,
        -requests.cpu_millis,
        -requests.memory_bytes,
        repr(requests),
        repr(shape.node_constraints),
    )


def _shape(pod: Pod) -> Resources | str:
    """Return how messages describe the pod: by its CapacityBuffer, or else by its requests."""
    buffer = buffer_of(pod)
    return pod.requests if buffer is None else f"{BUFFER} {buffer}"


def _reserved_node(name: str, expected: Counter[Resources | str], waiting: int) -> ReservedNode:
    """Return the node with a reason that names the pods that need it, most frequent first.

    *expected*: number of expected pods by description. *waiting*: number of pending pods.
    """
    parts = [f"{waiting} pending"] if waiting else []
    ranked = sorted(expected.items(), key=lambda entry: (-entry[1], repr(entry[0])))
    parts += [f"{many} of {_size(shape)}" for shape, many in ranked[:SIZES_SHOWN]]
    if rest := sum(many for _, many in ranked[SIZES_SHOWN:]):
        parts.append("1 other" if rest == 1 else f"{rest} others")
    count = waiting + expected.total()
    pods = "1 pod" if count == 1 else f"{count} pods"
    causes = [ReserveCause.PENDING] if waiting else []
    causes += (
        ReserveCause.BUFFER if isinstance(shape, str) else ReserveCause.EXPECTED
        for shape in expected
    )
    cause = next(cause for cause in ReserveCause if cause in causes)
    why = Blocker(RESERVE, f"the node is reserved for {pods}: {', '.join(parts)}")
    return ReservedNode(name, cause, why)


def _size(requests: Resources | str) -> str:
    if isinstance(requests, str):
        return requests
    devices = (f"{amount} {name}" for name, amount in requests.extended)
    amounts = (format_millis(requests.cpu_millis), format_bytes(requests.memory_bytes), *devices)
    return " + ".join(amounts)
