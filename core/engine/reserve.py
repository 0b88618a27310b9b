"""Reserve empty nodes for expected pods: do not release them to the autoscaler yet.

Expected pods are as many as were created in the busiest time span of each reach. They are packed
like placeholders: first on the nodes that stay, fullest first, including nodes with a
PreferNoSchedule mark; then on empty nodes, unmarked ones first, then the cheapest. The empty nodes
that receive expected pods are reserved. What still has no room may fit on nodes that are starting,
so that no autoscaler is asked to add nodes twice.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Final, NamedTuple

from core.engine.arrivals import Counts, PodShape
from core.engine.buffers import buffer_of
from core.engine.leader_state import LeaderState, watched_until
from core.engine.plan import ReservedNode
from core.engine.protection import protects_empty
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark, is_scale_down_allowed
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
KINDS_SHOWN: Final = 3
"""Maximum number of pod sizes in a message."""
SHORT: Final = Fraction(1, 4)
"""A reach is short of room if more than this share of its expected requests has no room."""
EXPECTED: Final = "Reserve"
"""Owner kind of placeholder pods; the owner name is the key of their reach."""

RESERVE: Final = Reason(
    "reserve",
    "The node is empty but is not released to the autoscaler. Ebb reserves room for as many pods "
    "as were created in the busiest recent time span, and the other nodes have too little.",
    "wait; or shorten `reserve.window` or `reserve.lookback` in the configuration",
    "the other nodes have room for the expected pods",
)


class Reserved(NamedTuple):
    """Result of the reserve computation."""

    nodes: tuple[ReservedNode, ...] = ()
    """Reserved nodes, by name."""
    short_reaches: frozenset[str] = frozenset()
    """Keys of the reaches in which too many of the expected pods have no room on lasting nodes."""


def reserve_nodes(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> Reserved:
    """Return the nodes to reserve; *state* must have observed the snapshot.

    A leader that has watched for less than one window does not know what to expect, so it reserves
    every empty node.
    """
    settings = snapshot.config.budgets.reserve
    if not settings.lookback_seconds:
        return ReservePlanner(snapshot, None).reserve() if snapshot.buffer_rooms else Reserved()
    found = ReservePlanner(snapshot, state.expected_pods(snapshot.total_allocatable, now))
    until = watched_until(state, settings.window_seconds)
    if until is not None and now.before(until):
        return found.keep_all(until)
    return found.reserve()


class ReservePlanner:
    """The expected pods, and the nodes that have or may get room for them."""

    def __init__(self, snapshot: ClusterSnapshot, expected: Counts | None) -> None:
        """Prepare placeholders for the expected pods and the headroom, or for neither if None.

        Placeholders of CapacityBuffers are added in both cases.
        """
        self._snapshot = snapshot
        self.placeholders = [(room.pod, room.kept) for room in snapshot.buffer_rooms if room.kept]
        """Pods to reserve room for, each with the number of such pods."""
        if expected is not None:
            self.placeholders += [*_bounded(expected), *self._headroom(expected)]

    def reserve(self) -> Reserved:
        """Return the reserved nodes, and the reaches that are short of room even then."""
        if not (
            (self.empty_nodes or self._snapshot.config.publishes)
            and (self.placeholders or self._pending)
        ):
            return Reserved()
        packer, empties = self._packer(self.empty_nodes), frozenset(self.empty_nodes)
        apart = packer.placeholders
        waiting = [n for n in (*packer.pending, *self._displaced(packer)) if n not in apart]
        found: dict[str, Counter[Resources | str]] = {}
        waited: Counter[str] = Counter()
        homeless: list[Pod] = []
        for pods in (sorted(waiting), sorted(apart)):
            attempt, _ = packer.place(pods)
            for pod, number in attempt.assignments:
                name = packer.nodes[number].name
                if name in empties and pod in apart:
                    found.setdefault(name, Counter())[_shape(packer.pods[pod])] += 1
                elif name in empties:
                    waited[name] += 1
                if not self._remains(packer.nodes[number]):
                    homeless.append(packer.pods[pod])
            homeless += (packer.pods[pod] for pod in attempt.unassigned)
        names = sorted({*found, *waited})
        reserved = tuple(
            ReservedNode(one, _why(found.get(one, Counter()), waited[one])) for one in names
        )
        return Reserved(reserved, self._short_reaches(homeless))

    def _short_reaches(self, homeless: Iterable[Pod]) -> frozenset[str]:
        """Return the reaches in which too many of the expected pods have no room."""
        if not self._snapshot.config.publishes:
            return frozenset()
        without = Counter(pod.name for pod in homeless if pod.owner_kind == EXPECTED)
        asked, lacking = Counter[str](), Counter[str]()
        for pod, many in self.placeholders:
            if pod.owner_kind == EXPECTED:
                share = max(dominant_share(pod.requests, self._snapshot.total_allocatable), 1)
                asked[pod.owner_name] += share * many
                lacking[pod.owner_name] += share * without[pod.name]
        return frozenset(reach for reach in asked if lacking[reach] > SHORT * asked[reach])

    def _remains(self, node: Node) -> bool:
        """Report whether the node remains even without a CapacityBuffer that Ebb creates."""
        snapshot, name = self._snapshot, node.name
        # An autoscaler removes an unprotected empty node as soon as no CapacityBuffer requests it.
        # Its room would be missing again, so the autoscaler would add and remove it endlessly.
        kept = snapshot.blockers[name] and name not in snapshot.starting_nodes
        stays = kept or name in snapshot.non_empty_nodes or name in snapshot.marks
        return bool(stays) or protects_empty(snapshot, node)

    def keep_all(self, until: int) -> Reserved:
        """Reserve every empty node until *until* (unix seconds), when arrivals are known."""
        message = f"a new leader observes pod arrivals until {timestamp(until)}"
        why = Blocker(RESERVE, message, until=until)
        reserved = tuple(ReservedNode(name, why) for name in sorted(self.empty_nodes))
        return Reserved(
            reserved,
            self.reserve().short_reaches if self._snapshot.config.publishes else frozenset(),
        )

    @cached_property
    def empty_nodes(self) -> Sequence[str]:
        """Return the empty nodes that the autoscaler could remove, in the order of their use.

        Unmarked nodes come first, because a plan keeps them. Among the marked nodes, those
        released to the autoscaler come last, so that they stay released. Nodes that Ebb does not
        protect come after all others, because the autoscaler may remove them at any time. Within
        each group the cheapest comes first. A NoSchedule mark does not exclude a node; it becomes
        PreferNoSchedule if the node is reserved. Nodes that cannot be removed are not listed;
        their room counts like that of others.
        """
        snapshot = self._snapshot
        found = [
            node
            for node in snapshot.node_order.nodes
            if node.name not in snapshot.non_empty_nodes
            and node.name not in snapshot.unschedulable_nodes
            and not snapshot.blockers[node.name]
        ]
        found.sort(key=self._order)
        return [node.name for node in found]

    def _order(self, node: Node) -> tuple[object, ...]:
        marked = node.name in self._snapshot.marks
        price = self._snapshot.config.price_of(node.labels)
        goes = not self._remains(node)
        return (
            goes,
            marked,
            is_scale_down_allowed(node),
            price,
            cost(node.allocatable),
            node.name,
        )

    @cached_property
    def _no_schedule_nodes(self) -> frozenset[str]:
        marks = self._snapshot.marks
        return frozenset(name for name, one in marks.items() if one.mark is Mark.NO_SCHEDULE)

    def _packer(self, empties: Sequence[str]) -> Packer:
        """Return a packer in which empty nodes come last, followed only by starting nodes.

        Starting nodes come last so that they do not replace an empty node that exists. Non-empty
        nodes with a NoSchedule mark have no room, because expected pods alone do not change their
        mark.
        """
        snapshot = self._snapshot
        cluster = snapshot.cluster
        waiting = self._pending
        placeholders = [pod for pod, many in self.placeholders for _ in range(many)]
        # Placeholders have no inter-pod constraints. Without pending pods no other pod matters.
        others = cluster.pods if waiting else ()
        starting = snapshot.starting_nodes
        last = [*empties, *sorted(starting.keys() - set(empties))]
        closed = snapshot.unschedulable_nodes - starting.keys() | (
            self._no_schedule_nodes - set(empties)
        )
        node_order = snapshot.node_order.with_last(last, closed, starting)
        return Packer(
            replace(cluster, pods=others),
            node_order,
            movable=[[pod] for pod in waiting],
            placeholders=placeholders,
            total_capacity=snapshot.reachable_allocatable,
        )

    @cached_property
    def _pending(self) -> Sequence[Pod]:
        """Return the pods that need a place now; they are placed before expected pods."""
        gone = self._snapshot.leaving_nodes
        return [
            pod
            for members in self._snapshot.movable
            for pod in members
            if pod.node is None or pod.node in gone
        ]

    def _displaced(self, packer: Packer) -> Iterable[int]:
        return (
            n for name in self._snapshot.leaving_nodes for n in packer.on[packer.node_ids[name]]
        )

    def _headroom(self, expected: Counts) -> list[tuple[Pod, int]]:
        """Return the headroom pods, less the expected pods that are at least as large."""
        snapshot = self._snapshot
        made: list[tuple[Pod, int]] = []
        for pod in snapshot.headroom(1):
            reach = snapshot.reaches.reach_of(pod.node_constraints)
            as_large = sum(
                many
                for kind, many in expected.items()
                if reach and kind.reach == reach.key and pod.requests.fits_in(kind.requests)
            )
            if (lacking := snapshot.config.budgets.headroom - as_large) > 0:
                made.append((pod, lacking))
        return made


def _bounded(expected: Counts) -> list[tuple[Pod, int]]:
    """Return a placeholder for each shape, and how many of it the share of its reach allows."""
    left = _parts(expected)
    found: list[tuple[Pod, int]] = []
    for number, kind in enumerate(sorted(expected, key=_largest)):
        many = min(expected[kind], left[kind.reach])
        left[kind.reach] -= many
        pod = Pod(
            namespace="",
            name=f"reserve-{number}",
            requests=kind.requests,
            node_constraints=kind.node_constraints,
            owner_kind=EXPECTED,
            owner_name=kind.reach,
        )
        found += [(pod, many)] if many else []
    return found


def _parts(expected: Counts) -> dict[str, int]:
    """Return by reach for how many pods to reserve room; all together at most PODS_MAX."""
    asked = Counter[str]()
    for kind, many in expected.items():
        asked[kind.reach] += many
    left, found = PODS_MAX, dict[str, int]()
    for reach in sorted(asked, key=lambda one: (asked[one], one)):
        # The part of a share that one reach does not use goes to the next ones.
        found[reach] = min(asked[reach], left // (len(asked) - len(found)))
        left -= found[reach]
    return found


def _largest(kind: PodShape) -> tuple[object, ...]:
    asked = kind.requests
    return (
        kind.reach,
        -asked.cpu_millis,
        -asked.memory_bytes,
        repr(asked),
        repr(kind.node_constraints),
    )


def _shape(pod: Pod) -> Resources | str:
    """Return the text or the requests that describe the pod in messages."""
    buffer = buffer_of(pod)
    return pod.requests if buffer is None else f"{BUFFER} {buffer}"


def _why(expected: Counter[Resources | str], waiting: int) -> Blocker:
    """Return a blocker that names the pods for which a node is reserved, most frequent first."""
    parts = [f"{waiting} pending"] if waiting else []
    ranked = sorted(expected.items(), key=lambda entry: (-entry[1], repr(entry[0])))
    parts += [f"{many} of {_size(asked)}" for asked, many in ranked[:KINDS_SHOWN]]
    if rest := sum(many for _, many in ranked[KINDS_SHOWN:]):
        parts.append("1 other" if rest == 1 else f"{rest} others")
    count = waiting + expected.total()
    pods = "1 pod" if count == 1 else f"{count} pods"
    return Blocker(RESERVE, f"it is reserved for {pods}: {', '.join(parts)}")


def _size(asked: Resources | str) -> str:
    if isinstance(asked, str):
        return asked
    devices = (f"{amount} {name}" for name, amount in asked.extended)
    amounts = (format_millis(asked.cpu_millis), format_bytes(asked.memory_bytes), *devices)
    return " + ".join(amounts)
