"""Record a run for a time lapse: cost, Pending pods, and each node's state and requested share."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from core.engine.zones import ZONE_LABEL
from core.marks.mark import Mark, mark_of
from core.model.node import Node
from core.model.quantity import format_bytes, format_millis
from sim.cluster import GPU, ClusterState, Place
from sim.simulated_load import TYPE_LABEL

STEP_MS: Final = 60_000
"""Time between two frames at first; it doubles whenever a recording is full."""
FRAMES_MAX: Final = 1000
"""Number of frames above which a recording is full."""
CHANGES_MAX: Final = 100_000
"""Number of changes of nodes above which a recording is full; they are about 1 MB of JSON."""
FILLS: Final = 10
"""Steps in which the fill of a node is recorded."""
GONE: Final = 0
"""Value of a node that does not exist."""
STARTING, NO_SCHEDULE, PREFER_NO_SCHEDULE, NOT_MARKED = range(1, 5)
"""States of a node that exists; its value is (FILLS + 1) * state + fill."""


class Frame(NamedTuple):
    """Totals of a run from its start to the time of a frame."""

    cost_ms: Fraction
    """Hourly prices of the nodes, times milliseconds of existence."""
    pending: int
    """Number of pods that are Pending at this time."""
    pending_ms: int
    """Pending time of all pods."""
    evicted: int


@dataclass(slots=True)
class NodeRecord:
    """Values of one node over time; a value stands for the node's state and requested share."""

    group: str
    """Zone and instance type of the node; without a type, its size."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """(index of a frame, value of the node from this frame on)."""


@dataclass(slots=True)
class Recording:
    """The frames of one run, and its nodes by name; frame N is at N times `step_ms`."""

    step_ms: int = STEP_MS
    frames: list[Frame] = field(default_factory=list)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)


class Recorder:
    """Records frames at equal intervals; drops every other frame when the recording is full."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._values: dict[str, int] = {}
        self._changes = 0

    @property
    def next_ms(self) -> int:
        """Return the virtual time of the next frame in milliseconds."""
        return len(self.recording.frames) * self.recording.step_ms

    def add(self, frame: Frame, state: ClusterState) -> None:
        """Record the next frame, and changes of the nodes in *state* since the last frame."""
        index = len(self.recording.frames)
        self.recording.frames.append(frame)
        for name in [name for name in self._values if name not in state.places]:
            del self._values[name]
            self._change(name, index, GONE)
        for name, place in state.places.items():
            value = _value(place)
            if self._values.get(name) != value:
                if name not in self.recording.nodes:
                    self.recording.nodes[name] = NodeRecord(_group(place.node))
                self._values[name] = value
                self._change(name, index, value)
        if len(self.recording.frames) > FRAMES_MAX or self._changes > CHANGES_MAX:
            self._thin_out()

    def _change(self, name: str, index: int, value: int) -> None:
        self.recording.nodes[name].changes.append((index, value))
        self._changes += 1

    def _thin_out(self) -> None:
        """Drop every other frame, and the nodes that exist in none of the remaining frames."""
        recording = self.recording
        recording.step_ms *= 2
        recording.frames = recording.frames[::2]
        for name, record in list(recording.nodes.items()):
            record.changes = _thinned(record.changes)
            # A node may also have appeared after the last frame that is left.
            if not record.changes or record.changes[0][0] >= len(recording.frames):
                del recording.nodes[name]
                self._values.pop(name, None)
        self._changes = sum(len(record.changes) for record in recording.nodes.values())


def _thinned(changes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the changes of a node after every other frame has been dropped.

    A change is (index of the frame, value of the node from this frame on).
    """
    last = {(index + 1) // 2: value for index, value in changes}
    kept: list[tuple[int, int]] = []
    for index, value in last.items():
        if value != (kept[-1][1] if kept else GONE):
            kept.append((index, value))
    return kept


def _value(place: Place) -> int:
    return (FILLS + 1) * _state(place.node) + _fill(place)


def _state(node: Node) -> int:
    if not node.ready:
        return STARTING
    mark = mark_of(node.labels)
    if mark is None:
        return NOT_MARKED
    return NO_SCHEDULE if mark is Mark.NO_SCHEDULE else PREFER_NO_SCHEDULE


def _fill(place: Place) -> int:
    """Return how full a node is, from 0 to FILLS: the largest requested share of any resource.

    It is rounded up, and 0 only if the node has no pods.
    """
    if not place.pods:
        return 0
    whole, free = place.node.allocatable, dict(place.free.extended)
    pairs = (
        (whole.cpu_millis, place.free.cpu_millis),
        (whole.memory_bytes, place.free.memory_bytes),
        *((amount, free.get(name, 0)) for name, amount in whole.extended),
    )
    fills = (-(-FILLS * (total - rest) // total) for total, rest in pairs if total)
    return min(FILLS, max((1, *fills)))


def _group(node: Node) -> str:
    zone = node.labels.get(ZONE_LABEL)
    size = node.labels.get(TYPE_LABEL) or _size(node)
    return f"{size}, zone {zone}" if zone else size


def _size(node: Node) -> str:
    whole = node.allocatable
    gpu_millis = dict(whole.extended).get(GPU, 0)
    gpus = f", {gpu_millis / 1000:g} GPU" if gpu_millis else ""
    return f"{format_millis(whole.cpu_millis)} CPU, {format_bytes(whole.memory_bytes)}{gpus}"
