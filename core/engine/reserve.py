"""Which empty nodes are kept for pods that are to be expected, and for which; pure.

The pods that came in the busiest length of time of each reach are packed into the room of all
nodes that stay, fullest first, those with a soft mark among them; what finds no room there is
packed on empty nodes, those without a mark first, then the cheapest. These are not handed to the
autoscaler. What finds no room there either may have it on nodes that an autoscaler has made and
that start still: nobody need be told to make them once more.
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
from core.marks.mark import Mark, is_released_to_autoscaler
from core.model.buffers import BUFFER
from core.model.cost import cost
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.model.quantity import format_bytes, format_millis
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.packing.node_order import dominant_share
from core.packing.packer import Packer

PODS_MAX: Final = 10_000
"""Pods that room is kept for; every reach has an equal part, and what others leave of theirs."""
KINDS_SHOWN: Final = 3
SHORT: Final = Fraction(1, 4)
"""A reach is short of room when more than this of what its expected pods ask for finds none."""
EXPECTED: Final = "ReservePlanner"
"""Whose the expected pods are, of the reach as its name."""

RESERVE: Final = Reason(
    "reserve",
    "The node is empty, and not handed to the autoscaler: room is kept for as many pods as came "
    "in the busiest stretch of the last time, and the nodes that stay have too little.",
    "wait; or set `reserve.length` or `reserve.over` shorter in the configuration",
    "pods like those that came find room on the nodes that stay",
)


class Reserved(NamedTuple):
    """What follows from what is expected."""

    nodes: tuple[ReservedNode, ...] = ()
    """The empty nodes that are kept, by name."""
    short_reaches: frozenset[str] = frozenset()
    """The reaches of which too few of the expected pods would find room that stays, by key."""


def reserve_nodes(state: LeaderState, snapshot: ClusterSnapshot, now: Now) -> Reserved:
    """Return what is kept now; *state* has seen the cluster last.

    A leader that has not looked on for one length does not know what comes: it keeps all.
    """
    settings = snapshot.config.budgets.reserve
    if not settings.over_seconds:
        return ReservePlanner(snapshot, None).reserve() if snapshot.buffer_rooms else Reserved()
    found = ReservePlanner(snapshot, state.expected_pods(snapshot.total_allocatable, now))
    until = watched_until(state, settings.length_seconds)
    if until is not None and now.before(until):
        return found.keep_all(until)
    return found.reserve()


class ReservePlanner:
    """What is to be packed, and where there is room."""

    def __init__(self, snapshot: ClusterSnapshot, expected: Counts | None) -> None:
        """Prepare to keep room for these pods, and at least for the headroom; None: for neither.

        What buffers of others ask for comes on top.
        """
        self._survey = snapshot
        self.placeholders = [(room.pod, room.kept) for room in snapshot.buffer_rooms if room.kept]
        """For which pods room is kept, and for how many like each."""
        if expected is not None:
            self.placeholders += [*_bounded(expected), *self._headroom(expected)]

    def reserve(self) -> Reserved:
        """Return the empty nodes that are kept, and what finds no room on them either."""
        if not (
            (self.empty_nodes or self._survey.config.publishes)
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
        held = tuple(
            ReservedNode(one, _why(found.get(one, Counter()), waited[one])) for one in names
        )
        return Reserved(held, self._short_reaches(homeless))

    def _short_reaches(self, homeless: Iterable[Pod]) -> frozenset[str]:
        """Return the reaches of which too many of the expected pods have found no room."""
        if not self._survey.config.publishes:
            return frozenset()
        without = Counter(pod.name for pod in homeless if pod.owner_kind == EXPECTED)
        asked, lacking = Counter[str](), Counter[str]()
        for pod, many in self.placeholders:
            if pod.owner_kind == EXPECTED:
                share = max(dominant_share(pod.requests, self._survey.total_allocatable), 1)
                asked[pod.owner_name] += share * many
                lacking[pod.owner_name] += share * without[pod.name]
        return frozenset(reach for reach in asked if lacking[reach] > SHORT * asked[reach])

    def _remains(self, node: Node) -> bool:
        """Say whether the room on the node is there as long as Ebb asks nobody for it.

        An empty one that Ebb does not hold goes as soon as it is not asked for: it would be
        missing again, and be added anew, without end.
        """
        snapshot, name = self._survey, node.name
        kept = snapshot.blockers[name] and name not in snapshot.starting_nodes
        stays = kept or name in snapshot.non_empty_nodes or name in snapshot.marks
        return bool(stays) or protects_empty(snapshot, node)

    def keep_all(self, until: int) -> Reserved:
        """Return every empty node: a new leader has not watched arrivals for long enough.

        *until*: unix seconds at which it has.
        """
        message = f"a new leader watches which pods arrive until {timestamp(until)}"
        why = Blocker(RESERVE, message, until=until)
        held = tuple(ReservedNode(name, why) for name in sorted(self.empty_nodes))
        return Reserved(
            held, self.reserve().short_reaches if self._survey.config.publishes else frozenset()
        )

    @cached_property
    def empty_nodes(self) -> Sequence[str]:
        """Return the nodes that the autoscaler would take if it might, in the order of their use.

        Those without a mark first, since a plan keeps them; of the marked ones those last that are
        handed over, so that they stay so; behind all, those that nobody would hold, which are the
        autoscaler's at any moment; of each, the cheapest. Those with a hard mark among them: it
        becomes soft where they are kept. Not those that stay whatever comes, which are room like
        others.
        """
        snapshot = self._survey
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
        marked = node.name in self._survey.marks
        price = self._survey.config.price_of(node.labels)
        goes = not self._remains(node)
        return (
            goes,
            marked,
            is_released_to_autoscaler(node),
            price,
            cost(node.allocatable),
            node.name,
        )

    @cached_property
    def _no_schedule_nodes(self) -> frozenset[str]:
        marks = self._survey.marks
        return frozenset(name for name, one in marks.items() if one.mark is Mark.HARD)

    def _packer(self, empties: Sequence[str]) -> Packer:
        """Return a packer on which empty nodes come last, behind them those on their way.

        So a node that is not there yet keeps no place of an empty one that is. Nodes with a hard
        mark that hold pods are no room: it does not become soft for what is only expected. Pods
        that stay are only in its sums.
        """
        snapshot = self._survey
        cluster = snapshot.cluster
        waiting = self._pending
        placeholders = [pod for pod, many in self.placeholders for _ in range(many)]
        # Where nobody waits, nobody's neighbours matter: these pods ask nothing of others.
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
        """Return the pods that look for room now: they come before those that are expected."""
        gone = self._survey.leaving_nodes
        return [
            pod
            for members in self._survey.movable
            for pod in members
            if pod.node is None or pod.node in gone
        ]

    def _displaced(self, packer: Packer) -> Iterable[int]:
        return (n for name in self._survey.leaving_nodes for n in packer.on[packer.node_ids[name]])

    def _headroom(self, expected: Counts) -> list[tuple[Pod, int]]:
        """Return what the headroom asks beyond pods that are expected and at least as large."""
        snapshot = self._survey
        made: list[tuple[Pod, int]] = []
        for pod in snapshot.headroom(1):
            reach = snapshot.reaches.reach_of(pod.placing)
            as_large = sum(
                many
                for kind, many in expected.items()
                if reach and kind.reach == reach.key and pod.requests.fits_in(kind.requests)
            )
            if (lacking := snapshot.config.budgets.headroom - as_large) > 0:
                made.append((pod, lacking))
        return made


def _bounded(expected: Counts) -> list[tuple[Pod, int]]:
    """Return a pod for each kind, and how many of it; of too many, those that come first."""
    left = _parts(expected)
    found: list[tuple[Pod, int]] = []
    for number, kind in enumerate(sorted(expected, key=_largest)):
        many = min(expected[kind], left[kind.reach])
        left[kind.reach] -= many
        pod = Pod(
            namespace="",
            name=f"reserve-{number}",
            requests=kind.requests,
            placing=kind.placing,
            owner_kind=EXPECTED,
            owner_name=kind.reach,
        )
        found += [(pod, many)] if many else []
    return found


def _parts(expected: Counts) -> dict[str, int]:
    """Return for how many pods of each reach room is kept, those that ask for least first.

    What one leaves of its part the others have.
    """
    asked = Counter[str]()
    for kind, many in expected.items():
        asked[kind.reach] += many
    left, found = PODS_MAX, dict[str, int]()
    for reach in sorted(asked, key=lambda one: (asked[one], one)):
        found[reach] = min(asked[reach], left // (len(asked) - len(found)))
        left -= found[reach]
    return found


def _largest(kind: PodShape) -> tuple[object, ...]:
    asked = kind.requests
    return kind.reach, -asked.cpu_millis, -asked.memory_bytes, repr(asked), repr(kind.placing)


def _shape(pod: Pod) -> Resources | str:
    """Return what is told of the pod: of a buffer's, whose it is."""
    buffer = buffer_of(pod)
    return pod.requests if buffer is None else f"{BUFFER} {buffer}"


def _why(expected: Counter[Resources | str], waiting: int) -> Blocker:
    """Say for which pods a node is kept, those of most first."""
    told = ["1 that waits" if waiting == 1 else f"{waiting} that wait"] if waiting else []
    ranked = sorted(expected.items(), key=lambda entry: (-entry[1], repr(entry[0])))
    told += [f"{many} of {_size(asked)}" for asked, many in ranked[:KINDS_SHOWN]]
    if rest := sum(many for _, many in ranked[KINDS_SHOWN:]):
        told.append("1 other" if rest == 1 else f"{rest} others")
    count = waiting + expected.total()
    pods = "1 pod" if count == 1 else f"{count} pods"
    return Blocker(RESERVE, f"it is kept for {pods}: {', '.join(told)}")


def _size(asked: Resources | str) -> str:
    if isinstance(asked, str):
        return asked
    devices = (f"{amount} {name}" for name, amount in asked.extended)
    amounts = (format_millis(asked.cpu_millis), format_bytes(asked.memory_bytes), *devices)
    return " + ".join(amounts)
