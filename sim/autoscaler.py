"""Cluster Autoscaler, as a real one was seen to behave, with its default timers; virtual time.

Removes nodes in one of three ways, adds nodes for pods that no node admits. Nodes are ended and
added by the world; what is written on nodes goes through the same door as Ebb's writes.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol

from core.capacity.usable import Amount
from core.fit.rules import refusal
from core.marks.keys import GUARD_ANNOTATION
from core.model.leaving import going
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from sim.cluster import DAEMON_REQUESTS, Place, State

SCAN_MS: Final = 10_000
UNNEEDED_MS: Final = 600_000
DELAY_AFTER_ADD_MS: Final = 600_000
RECHECK_MS: Final = 300_000
"""A node that failed the drain simulation is not looked at again for this long."""
DELETE_DELAY_MS: Final = 5_000
UTILIZATION: Final = Fraction(1, 2)
REACTION_MS: Final = (2_000, 10_000)
STARTUP_MS: Final = (60_000, 120_000)
DELETED_AT_ONCE_MAX: Final = 10
NODES_MAX: Final = 5_000
TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"


class ScaleDown(StrEnum):
    """What it removes."""

    NEVER = "never"
    EMPTY = "empty nodes only"
    UTILIZATION = "nodes under 50 %, by eviction"


class World(Protocol):
    """What the autoscaler may do."""

    state: State

    def now_ms(self) -> int:
        """Return the virtual time."""

    def write(self, node: Node) -> None:
        """Update a Node, through admission."""

    def evict(self, pod: Pod) -> None:
        """Evict a pod: it waits for another node and begins again."""

    def end_node(self, name: str) -> None:
        """Delete a Node."""

    def template(self, shape: Resources) -> Node:
        """Return what every new Node of a shape looks like."""

    def new_node(self, shape: Resources) -> str:
        """Create a Node that is not ready yet; return its name."""

    def ready_node(self, name: str) -> None:
        """Let a Node become ready."""

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Do something later."""


@dataclass(slots=True)
class _Timers:
    """When each node became unneeded, and which are not looked at again until when."""

    unneeded: dict[str, int]
    recheck: dict[str, int]


class Autoscaler:
    """One autoscaler over all nodes; shapes are its node groups."""

    def __init__(
        self, world: World, how: ScaleDown, shapes: Iterable[Resources], seed: int
    ) -> None:
        self._world, self._how = world, how
        self._shapes = sorted(
            set(shapes), key=lambda s: (s.cpu_millis, s.memory_bytes, s.extended)
        )
        self._chance = random.Random(seed)
        self._timers = _Timers({}, {})
        self._last_add_ms = -DELAY_AFTER_ADD_MS
        self._coming: dict[str, Resources] = {}
        self.scale_ups = 0

    # Adding

    def unschedulable(self, pod: Pod) -> None:
        """Hear of a pod that no node admits; act some seconds later, if it still waits."""
        delay = self._chance.randint(*REACTION_MS)
        self._world.after(delay, lambda: self._scale_up(pod.key))

    def _scale_up(self, key: str) -> None:
        """Add the smallest node that the pod fits; look again as long as the pod waits."""
        state = self._world.state
        if key not in state.pending:
            return
        shape = self._shape_for(state.pods[key])
        if shape is None:
            return  # no node group has such nodes
        self._world.after(SCAN_MS, lambda: self._scale_up(key))
        if len(state.places) >= NODES_MAX or self._has_room_coming(key):
            return
        name = self._world.new_node(shape)
        self._coming[name] = state.places[name].free
        self.scale_ups += 1
        self._last_add_ms = self._now()
        self._world.after(self._chance.randint(*STARTUP_MS), lambda: self._arrive(name))

    def _shape_for(self, pod: Pod) -> Resources | None:
        """Return the smallest shape that an empty node must have to take the pod."""
        for shape in self._shapes:
            room = pod.requests.fits_in(shape - DAEMON_REQUESTS)
            if room and refusal(self._world.template(shape), pod.placing) is None:
                return shape
        return None

    def _has_room_coming(self, key: str) -> bool:
        """Say whether nodes on their way will take the pod, after those that wait longer."""
        room = dict(self._coming)
        for waiting in self._world.state.pending:
            requests = self._world.state.pods[waiting].requests
            name = next((n for n, free in room.items() if requests.fits_in(free)), None)
            if waiting == key:
                return name is not None
            if name is not None:
                room[name] -= requests
        return False

    def _arrive(self, name: str) -> None:
        del self._coming[name]
        self._world.ready_node(name)

    # Removing

    def scan(self) -> None:
        """Look at all nodes; called every SCAN_MS."""
        now_ms = self._now()
        if self._how is ScaleDown.NEVER:
            return
        unneeded = [place for place in self._places() if self._is_unneeded(place)]
        names = {place.node.name for place in unneeded}
        timers = self._timers
        timers.unneeded = {n: timers.unneeded.get(n, now_ms) for n in sorted(names)}
        if now_ms - self._last_add_ms < DELAY_AFTER_ADD_MS:
            return
        due = [p for p in unneeded if now_ms - timers.unneeded[p.node.name] >= UNNEEDED_MS]
        empty = [place for place in due if not place.pods]
        for place in empty[:DELETED_AT_ONCE_MAX]:
            self._delete(place)
        busy = [place for place in due if place.pods]
        if not empty and busy and not self._draining():
            self._drain(busy, now_ms)

    def _is_unneeded(self, place: Place) -> bool:
        node = place.node
        if node.annotations.get(GUARD_ANNOTATION) == "true" or going(node) or not node.ready:
            return False
        if self._timers.recheck.get(node.name, 0) > self._now():
            return False  # even if it has emptied since
        if not place.pods:
            return True
        if self._how is ScaleDown.EMPTY:
            return False
        requests = Amount(
            node.allocatable.cpu_millis - place.free.cpu_millis,
            node.allocatable.memory_bytes - place.free.memory_bytes,
        )
        return considered(node, requests, UTILIZATION)

    def _drain(self, due: Sequence[Place], now_ms: int) -> None:
        """Drain the first node whose pods fit elsewhere; one at a time."""
        for place in due:
            if self._all_fit_elsewhere(place):
                for pod in list(place.pods.values()):
                    self._world.evict(pod)
                self._delete(place)
                return
            self._timers.recheck[place.node.name] = now_ms + RECHECK_MS

    def _all_fit_elsewhere(self, leaving: Place) -> bool:
        others = [
            [place.free]
            for place in self._places()
            if place is not leaving and place.node.ready and not going(place.node)
        ]
        for pod in leaving.pods.values():
            target = next((free for free in others if pod.requests.fits_in(free[0])), None)
            if target is None:
                return False
            target[0] -= pod.requests
        return True

    def _delete(self, place: Place) -> None:
        """Taint, wait, look once more, delete."""
        node = place.node
        taint = Taint(TO_BE_DELETED, str(self._now() // 1000), Effect.NO_SCHEDULE)
        self._world.write(replace(node, taints=(*node.taints, taint)))
        self._world.after(DELETE_DELAY_MS, lambda: self._finish(node.name))

    def _finish(self, name: str) -> None:
        place = self._world.state.places[name]
        if not place.pods:
            self._world.end_node(name)
            return
        taints = tuple(taint for taint in place.node.taints if taint.key != TO_BE_DELETED)
        self._world.write(replace(place.node, taints=taints))

    def _draining(self) -> bool:
        return any(going(place.node) for place in self._places())

    def _places(self) -> list[Place]:
        return list(self._world.state.places.values())

    def _now(self) -> int:
        return self._world.now_ms()


def considered(node: Node, requests: Amount, threshold: Fraction) -> bool:
    """Say whether the larger of the node's two utilizations is at most *threshold*.

    Cluster Autoscaler considers a node from 1.35 on when `utilization <= threshold` and looks at
    requests over allocatable. A node without a resource counts as unused in it.
    Source: its simulator/utilization and scaledown/eligibility.
    """
    return all(
        used * threshold.denominator <= threshold.numerator * whole
        for used, whole in zip(requests, Amount.of(node.allocatable), strict=True)
        if whole > 0
    )
