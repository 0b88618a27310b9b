"""Simulate Cluster Autoscaler with its default timers, as observed on a real one.

For the pods that fit on no node, it adds nodes of one node group at a time. It removes nodes as
its mode (ScaleDown) allows. The simulator creates and deletes the Nodes. Like the writes of Ebb,
the autoscaler's writes of Nodes go through Ebb's webhook.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from itertools import chain
from typing import Final, Protocol

from core.eligibility.drainability import CUSTOM_CONTROLLER, surely_short_lived
from core.marks.mark import protection_key
from core.model.cost import gpus
from core.model.node import Effect, Node, Taint
from core.model.node_lifecycle import is_terminating
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.filters import first_failing_filter
from core.placement.usable_capacity import Amount
from core.policies.ported.node_utilization import Settings, keeps
from sim.cluster import ClusterState, Place
from sim.expander import least_waste, option

SCAN_MS: Final = 10_000
UNNEEDED_MS: Final = 600_000
DELAY_AFTER_ADD_MS: Final = 600_000
RECHECK_MS: Final = 300_000
"""Time until a node whose pods would not fit on other nodes is evaluated again."""
DELETE_DELAY_MS: Final = 5_000
UTILIZATION: Final = Fraction(1, 2)
YOUNG_MS: Final = 2_000
"""A pod counts as Pending only after this time."""
REACTION_MS: Final = (2_000, 10_000)
STARTUP_MS: Final = (60_000, 120_000)
DELETED_AT_ONCE_MAX: Final = 10
NODES_MAX: Final = 5_000
CANDIDATE_TAINTS_A_SCAN_MAX: Final = 10
KEEPING: Final = Settings().keeping() | {CUSTOM_CONTROLLER}
"""Properties of pods that block scale-down, by the defaults of `--skip-nodes-with-*`."""
CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
"""PreferNoSchedule taint of the autoscaler on unneeded nodes; kube-scheduler avoids them."""
TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"


@dataclass(frozen=True, slots=True)
class Timers:
    """Timers of Cluster Autoscaler and of a typical cloud, in milliseconds.

    `scan_ms` is the time between two scans of all nodes. `unneeded_ms` is how long a node must be
    unneeded before its removal. After a scale-up, no node is removed for `delay_after_add_ms`. A
    node whose pods fit nowhere else is not evaluated again for `recheck_ms`. The last two fields
    are (least, most) of random times: `reaction_ms` from an unschedulable pod to a scale-up,
    `startup_ms` from the scale-up to the readiness of the node.
    """

    scan_ms: int = SCAN_MS
    unneeded_ms: int = UNNEEDED_MS
    delay_after_add_ms: int = DELAY_AFTER_ADD_MS
    recheck_ms: int = RECHECK_MS
    reaction_ms: tuple[int, int] = REACTION_MS
    startup_ms: tuple[int, int] = STARTUP_MS


TIMERS: Final = Timers()


class ScaleDown(StrEnum):
    """Nodes that the autoscaler removes: none, empty, or also underutilized ones by eviction."""

    NEVER = "never"
    EMPTY = "empty nodes only"
    UTILIZATION = "empty and underutilized nodes, by eviction"


class AutoscalerOperations(Protocol):
    """Operations of the simulator that the simulated autoscaler uses."""

    state: ClusterState

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds."""

    def write(self, node: Node) -> None:
        """Store a changed Node, as Ebb's webhook admits it."""

    def evict(self, pod: Pod) -> None:
        """Evict a pod: a Job's pod becomes Pending again, a Deployment replaces its pod."""

    def end_node(self, name: str) -> None:
        """Delete an empty Node with its DaemonSet pod."""

    def template(self, shape: Resources) -> Node:
        """Return the template of the Nodes in a node group.

        *shape*: allocatable resources of each Node in the group.
        """

    def new_node(self, shape: Resources) -> str:
        """Create a Node that is not Ready yet; return its name.

        *shape*: allocatable resources, which identify the node group.
        """

    def ready_node(self, name: str) -> None:
        """Make a Node Ready, and schedule the Pending pods."""

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Call *act* after a delay of virtual time."""


@dataclass(slots=True)
class _Since:
    """Memory of earlier scans by node name; times are in ms of virtual time.

    `unneeded` has since when a node is unneeded. `recheck` has until when a node is not evaluated
    again, because its pods did not fit on other nodes.
    """

    unneeded: dict[str, int] = field(default_factory=dict)
    recheck: dict[str, int] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    """Target node of each pod on an unneeded node, by the pod's key; tried first the next time."""


class Autoscaler:
    """Simulated Cluster Autoscaler for all nodes.

    Nodes with an equal shape (allocatable resources) form a node group. *utilization*: highest
    utilization of a node whose pods it evicts, `--scale-down-utilization-threshold`.
    """

    def __init__(
        self,
        simulator: AutoscalerOperations,
        scale_down: ScaleDown,
        shapes: Iterable[Resources],
        seed: int,
        timers: Timers = TIMERS,
        utilization: Fraction = UTILIZATION,
    ) -> None:
        self._simulator, self._scale_down = simulator, scale_down
        self._utilization = utilization
        self._shapes = sorted(
            set(shapes), key=lambda s: (s.cpu_millis, s.memory_bytes, s.extended)
        )
        self._chance = random.Random(seed)
        self._since, self._timers = _Since(), timers
        self._last_add_ms = -timers.delay_after_add_ms
        self._starting: dict[str, Resources] = {}
        self._next_evaluation_ms: int | None = None
        self.scan_ms = timers.scan_ms
        self.scale_ups = 0
        """Number of nodes added."""

    # Adding

    def unschedulable(self) -> None:
        """React to an unschedulable pod: evaluate all Pending pods some seconds later.

        The evaluation adds nodes if the pods need new nodes.
        """
        self._evaluate_in(self._chance.randint(*self._timers.reaction_ms))

    def _evaluate_in(self, delay_ms: int) -> None:
        """Add nodes for Pending pods after a delay, unless an evaluation is due earlier."""
        at_ms = self._now() + delay_ms
        if self._next_evaluation_ms is not None and self._next_evaluation_ms <= at_ms:
            return
        self._next_evaluation_ms = at_ms
        self._simulator.after(delay_ms, lambda: self._evaluate(at_ms))

    def _evaluate(self, at_ms: int) -> None:
        """Add nodes of one node group for the Pending pods that need new nodes.

        While a node group could run any of the Pending pods, another evaluation follows. *at_ms*
        is the planned time of this evaluation; if an earlier one has replaced it, nothing happens.
        """
        if self._next_evaluation_ms != at_ms:
            return  # replaced by an earlier evaluation
        self._next_evaluation_ms = None
        waiting = [self._simulator.state.pods[key] for key in self._simulator.state.pending]
        if any(self._can_help(pod) for pod in waiting):
            self._evaluate_in(self._timers.scan_ms)
        self._scale_up(self._needing_new_nodes(waiting))

    def _can_help(self, pod: Pod) -> bool:
        """Return whether an empty node of any node group could run the pod."""
        return any(option(template, [pod], 1) for template in self._templates())

    def _templates(self) -> Iterator[Node]:
        return (self._simulator.template(shape) for shape in self._shapes)

    def _needing_new_nodes(self, waiting: Iterable[Pod]) -> list[Pod]:
        """Return the Pending pods for which nodes must be added.

        A pod counts if it has been Pending for YOUNG_MS and fits on no node that is starting.
        Ready nodes are not checked: kube-scheduler would have used them already.
        """
        since = self._simulator.state.pending
        old = [pod for pod in waiting if self._now() - since[pod.key] >= YOUNG_MS]
        placeable = {pod.key for pod in self._placeable(old, dict(self._starting))}
        return [pod for pod in old if pod.key not in placeable]

    def _scale_up(self, waiting: Sequence[Pod]) -> None:
        """Add nodes for Pending pods, of the group with the least waste; none if no group fits."""
        nodes_max = NODES_MAX - len(self._simulator.state.places)
        if nodes_max <= 0 or not waiting:
            return
        options = [option(template, waiting, nodes_max) for template in self._templates()]
        best = least_waste([choice for choice in options if choice is not None])
        if not best:
            return
        chosen = best[0] if len(best) == 1 else self._chance.choice(best)
        self._last_add_ms = self._now()
        for _ in range(chosen.nodes):
            self._add(chosen.shape)

    def _add(self, shape: Resources) -> None:
        name = self._simulator.new_node(shape)
        self._starting[name] = self._simulator.state.places[name].free
        self.scale_ups += 1
        self._simulator.after(
            self._chance.randint(*self._timers.startup_ms), lambda: self._arrive(name)
        )

    def _arrive(self, name: str) -> None:
        del self._starting[name]
        self._simulator.ready_node(name)

    # Removing

    def scan(self) -> None:
        """Evaluate all nodes: remove unneeded nodes that are due, or set taints on unneeded nodes.

        The simulator calls this every `scan_ms`. Before, nodes are added for CapacityBuffers.
        """
        now_ms, needed = self._now(), self._room_for_buffers()
        if self._scale_down is ScaleDown.NEVER:
            return
        unneeded = self._unneeded(needed)
        since, timers = self._since, self._timers
        names = (place.node.name for place in unneeded)
        since.unneeded = {name: since.unneeded.get(name, now_ms) for name in names}
        if now_ms - self._last_add_ms < timers.delay_after_add_ms:
            return
        due = [p for p in unneeded if now_ms - since.unneeded[p.node.name] >= timers.unneeded_ms]
        empty = [place for place in due if not place.pods][:DELETED_AT_ONCE_MAX]
        drained = [] if self._is_deleting() else [place for place in due if place.pods][:1]
        for place in (*empty, *drained):
            self._delete(place)
            for pod in list(place.pods.values()):
                self._simulator.evict(pod)
        if not empty and not drained:
            self._taint_unneeded(since.unneeded)

    def _unneeded(self, needed: Collection[str]) -> list[Place]:
        """Return the nodes that can all be removed, because their pods fit on the remaining nodes.

        *needed*: names of nodes that CapacityBuffers need, so that they remain. Empty nodes are
        tried first, then nodes that were unneeded in the last scan. A node whose pods did not fit
        is not evaluated again for `recheck_ms`.
        """
        before = self._since.unneeded
        removable: list[Place] = []
        hints: dict[str, str] = {}
        candidates = [
            place
            for place in self._places()
            if place.node.name not in needed and self._is_eligible(place)
        ]
        candidates.sort(key=lambda place: (bool(place.pods), place.node.name not in before))
        free = {place.node.name: place.free for place in self._ready_places()}
        guests: dict[str, list[Pod]] = defaultdict(list)
        for place in candidates:
            name = place.node.name
            room = free.pop(name)
            targets = self._move_all((*place.pods.values(), *guests[name]), free)
            if targets is None:
                free[name] = room
                self._since.recheck[name] = self._now() + self._timers.recheck_ms
                continue
            removable.append(place)
            for pod, to in targets:
                guests[to].append(pod)
                hints[pod.key] = to
        self._since.hints = hints
        return removable

    def _move_all(
        self, pods: Sequence[Pod], free: dict[str, Resources]
    ) -> list[tuple[Pod, str]] | None:
        """Reserve capacity for all pods; return (pod, name of its node) for each pod.

        Return None, and reserve nothing, if a pod fits on no node. *free*: free capacity by node
        name, from which the requests are subtracted. A pod gets the same node as in the last scan,
        if possible.
        """
        hints = self._since.hints
        targets: list[tuple[Pod, str]] = []
        for pod in pods:
            to = self._take_room(pod, free, hints.get(pod.key, ""))
            if to is None:
                for other, name in targets:
                    free[name] += other.requests
                return None
            targets.append((pod, to))
        return targets

    def _room_for_buffers(self) -> Collection[str]:
        """Add nodes for pods of CapacityBuffers that do not fit on the existing nodes.

        Return the names of the nodes, Ready or starting, whose free capacity the CapacityBuffers
        need. Pending pods get free capacity first. Buffer pods use the fullest nodes first, empty
        nodes last.
        """
        state = self._simulator.state
        if not state.buffers:
            return ()
        ready = self._ready_places()
        ready.sort(key=lambda place: (not place.pods, place.free.cpu_millis, place.node.name))
        free = {place.node.name: place.free for place in ready} | self._starting
        self._placeable((state.pods[key] for key in state.pending), free)
        before = dict(free)
        buffer_pods = sorted(state.buffers, key=_largest_first)
        placed = {pod.key for pod in self._placeable(buffer_pods, free)}
        self._scale_up([pod for pod in buffer_pods if pod.key not in placed])
        return {name for name, room in free.items() if room != before[name]}

    def _taint_unneeded(self, unneeded: Collection[str]) -> None:
        """Set the taint CANDIDATE on nodes named in *unneeded*; remove it from all other nodes.

        The taint has the effect PreferNoSchedule. One scan changes at most
        CANDIDATE_TAINTS_A_SCAN_MAX nodes.
        """
        wrong = [
            place.node
            for place in self._places()
            if (place.node.name in unneeded) is not _is_candidate(place.node)
            and not is_terminating(place.node)
        ]
        for node in wrong[:CANDIDATE_TAINTS_A_SCAN_MAX]:
            taints = _without(node, CANDIDATE)
            if node.name in unneeded:
                since = str(self._now() // 1000)
                taints = (*taints, Taint(CANDIDATE, since, Effect.PREFER_NO_SCHEDULE))
            self._simulator.write(replace(node, taints=taints))

    def _is_eligible(self, place: Place) -> bool:
        node = place.node
        if (
            node.annotations.get(protection_key(node)) == "true"
            or is_terminating(node)
            or not node.ready
        ):
            return False
        if self._since.recheck.get(node.name, 0) > self._now():
            return False  # even if the node has become empty since
        if not place.pods:
            return True
        if self._scale_down is ScaleDown.EMPTY:
            return False
        if not is_underutilized(node, node.allocatable - place.free, self._utilization):
            return False
        return not any(
            keeps(pod, KEEPING) for pod in place.pods.values() if not surely_short_lived(pod)
        )

    def _placeable(self, pods: Iterable[Pod], free: dict[str, Resources]) -> list[Pod]:
        """Place pods on nodes by first-fit; return the pods that fit.

        *free*: free capacity by node name, from which the requests of the placed pods are
        subtracted.
        """
        return [pod for pod in pods if self._take_room(pod, free) is not None]

    def _take_room(self, pod: Pod, free: dict[str, Resources], hint: str = "") -> str | None:
        """Reserve capacity for a pod; return the name of the node, or None if no node is feasible.

        The node named *hint* is tried first, then all nodes in order. *free*: free capacity by
        node name, from which the requests are subtracted.
        """
        places = self._simulator.state.places
        hinted = () if hint not in free else (hint,)
        for name in chain(hinted, free):
            node = places[name].node
            if pod.requests.fits_in(free[name]) and not first_failing_filter(
                node, pod.node_constraints
            ):
                free[name] -= pod.requests
                return name
        return None

    def _delete(self, place: Place) -> None:
        """Set the taint TO_BE_DELETED on a node, and delete the node DELETE_DELAY_MS later.

        If the node has pods by then, it remains, and the taint is removed.
        """
        node = place.node
        taint = Taint(TO_BE_DELETED, str(self._now() // 1000), Effect.NO_SCHEDULE)
        self._simulator.write(replace(node, taints=(*node.taints, taint)))
        self._simulator.after(DELETE_DELAY_MS, lambda: self._finish(node.name))

    def _finish(self, name: str) -> None:
        place = self._simulator.state.places[name]
        if not place.pods:
            self._simulator.end_node(name)
            return
        self._simulator.write(replace(place.node, taints=_without(place.node, TO_BE_DELETED)))

    def _ready_places(self) -> list[Place]:
        return [
            place
            for place in self._places()
            if place.node.ready and not is_terminating(place.node)
        ]

    def _is_deleting(self) -> bool:
        return any(is_terminating(place.node) for place in self._places())

    def _places(self) -> list[Place]:
        return list(self._simulator.state.places.values())

    def _now(self) -> int:
        return self._simulator.now_ms()


def _largest_first(pod: Pod) -> tuple[int, int, str]:
    return -pod.requests.cpu_millis, -pod.requests.memory_bytes, pod.key


def _without(node: Node, key: str) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.taints if taint.key != key)


def _is_candidate(node: Node) -> bool:
    return any(taint.key == CANDIDATE for taint in node.taints)


def is_underutilized(node: Node, requests: Resources, threshold: Fraction) -> bool:
    """Return whether a node's utilization by Cluster Autoscaler's rule is at most *threshold*.

    *requests*: total requests of the pods on the node. *threshold*: from 0 to 1. Utilization is
    requests over allocatable: of GPUs on nodes with GPUs, else the larger one of CPU and memory. A
    missing resource counts as unused. Since 1.35 the condition is `utilization <= threshold`; the
    thresholds for GPUs and for other nodes both default to 50 %. Source: its simulator/utilization
    and scaledown/eligibility.
    """
    pairs: list[tuple[int | Fraction, int | Fraction]]
    pairs = list(zip(Amount.of(requests), Amount.of(node.allocatable), strict=True))
    if gpu_count := gpus(node.allocatable):
        pairs = [(gpus(requests), gpu_count)]
    return all(
        used * threshold.denominator <= threshold.numerator * whole
        for used, whole in pairs
        if whole > 0
    )
