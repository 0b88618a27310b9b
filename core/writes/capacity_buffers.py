"""What is told any autoscaler of the pods that are to be expected: CapacityBuffers of Ebb's; pure.

A buffer and its PodTemplate for each kind of pod, both of a name that follows from what such a pod
asks for: where that is another one, so is the name, and a template is never changed. What has been
told stands in the cluster, by its label, for whoever leads next.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from hashlib import sha256
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from core.engine.arrivals import Counts
from core.engine.unschedulable import round_robin
from core.model.constraints import NodeConstraints, Requirement, SelectorTerm, Toleration
from core.model.resources import Resources
from core.packing.node_order import SHARE_SCALE, share_of_room

PUBLISHED_MAX: Final = 16
"""Buffers at once; of every reach that which asks for most before any reach's second."""
REPLICAS_MAX: Final = 1000
"""Of one buffer."""
MATERIAL: Final = 10
"""A number of pods is written anew when it differs by more than one part in so many."""
PREFIX: Final = "ebb-reserve-"
NAME_DIGITS: Final = 12
INHERITED: Final = ""
"""Stands for the reach of inherited pods whose like this leader does not expect."""
IMAGE: Final = "pause"
"""Of a container that never runs; the API server may ask for some image."""
Json = Mapping[str, Any]
Alike = tuple[Resources, NodeConstraints]
"""What pods of one buffer ask for, as it is read off its template."""


class Wanted(NamedTuple):
    """A buffer that is to be there."""

    replicas: int
    spec: Json
    """Of its PodTemplate's pods."""


class Standing(NamedTuple):
    """A buffer that is there."""

    replicas: int
    version: str
    """Its resourceVersion."""


@dataclass(frozen=True, slots=True)
class Found:
    """What of Ebb's is there, by name; without a buffer's template nobody reads the buffer."""

    buffers: Mapping[str, Standing] = field(default_factory=dict)
    templates: Mapping[str, Alike | None] = field(default_factory=dict)
    """None: what its pods ask for cannot be read."""
    absent: bool = False
    """There is no such kind as a buffer or a template, or it may not be read."""

    @property
    def told(self) -> Mapping[Alike, int]:
        """Return how many pods autoscalers are asked for, by what these ask for."""
        found: dict[Alike, int] = {}
        for name, one in self.buffers.items():
            alike = self.templates.get(name)
            if alike and one.replicas > 0:
                found[alike] = max(one.replicas, found.get(alike, 0))
        return found

    @property
    def empty(self) -> bool:
        """Say whether there is nothing."""
        return not (self.buffers or self.templates)


class Act(StrEnum):
    """What is done, in this order."""

    ADD_TEMPLATE = "add template"
    ADD_BUFFER = "add buffer"
    RESIZE = "resize buffer"
    DROP_BUFFER = "drop buffer"
    DROP_TEMPLATE = "drop template"


class Change(NamedTuple):
    """One write."""

    act: Act
    name: str
    replicas: int = 0
    spec: Json = MappingProxyType({})
    version: str = ""
    """What the decision rests on; of what is added: none."""


def wanted(
    expected: Counts,
    whole: Resources,
    share: Fraction,
    inherited: Mapping[Alike, int] = MappingProxyType({}),
) -> dict[str, Wanted]:
    """Return the buffers for the *expected* pods, as far as they ask for that *share* of *whole*.

    Whoever makes many pods come and go would else have nodes bought for all of them at once.
    *inherited*: what the leader before has told, as long as this one knows of no reason to ask for
    less; within the same bounds, in which all that is inherited alone counts for one reach.
    """
    alike: Counter[Alike] = Counter()
    reaches: dict[Alike, str] = {}
    for kind, many in expected.items():
        one = kind.requests, _as_read(kind.placing)
        alike[one] += many
        reaches[one] = min(kind.reach, reaches.get(one, kind.reach))
    for one, many in inherited.items():
        alike[one] = max(alike[one], many)
        reaches.setdefault(one, INHERITED)
    costs = {one: max(share_of_room(one[0], whole), 1) for one in alike}
    ranked = sorted(alike, key=lambda one: (-costs[one] * alike[one], repr(one)))
    told = round_robin(ranked, reaches.__getitem__)[:PUBLISHED_MAX]
    asked = [_Asked(reaches[one], costs[one], min(alike[one], REPLICAS_MAX)) for one in told]
    found: dict[str, Wanted] = {}
    for one, many in zip(told, _shared(asked, int(share * SHARE_SCALE)), strict=True):
        if many:
            digest = sha256(repr(one).encode()).hexdigest()[:NAME_DIGITS]
            found[f"{PREFIX}{digest}"] = Wanted(many, pod_spec(*one))
    return found


def _as_read(placing: NodeConstraints) -> NodeConstraints:
    """Return what a template of such pods is read as."""
    selector = tuple(sorted(dict(placing.labels).items()))
    return NodeConstraints(selector, placing.affinity, placing.tolerations)


class _Asked(NamedTuple):
    """How many pods of one kind are asked for, and what each takes of the share."""

    reach: str
    cost: int
    pods: int


def _shared(asked: Sequence[_Asked], left: int) -> list[int]:
    """Return how many of each are told, as long as some of the share is *left*.

    The next pod is of the reach that has least so far, and of its kind that has least.
    """
    found = [0] * len(asked)
    queues: dict[str, list[tuple[int, int]]] = {}
    for number, one in enumerate(asked):
        queues.setdefault(one.reach, []).append((0, number))
    turns = [(0, reach) for reach in sorted(queues)]
    while turns:
        spent, reach = heappop(turns)
        so_far, number = heappop(queues[reach])
        one = asked[number]
        if one.cost <= left:
            left -= one.cost
            spent += one.cost
            found[number] += 1
            if found[number] < one.pods:
                heappush(queues[reach], (so_far + one.cost, number))
        if queues[reach]:
            heappush(turns, (spent, reach))
    return found


def changes(asked: Mapping[str, Wanted], found: Found) -> Iterator[Change]:
    """Yield the writes that bring what is *found* to what is *asked*.

    Those that ask for less come first: else old and new would be asked for together between two
    writes, and an autoscaler may buy nodes for both.
    """
    for name in sorted(found.buffers.keys() - asked.keys()):
        yield Change(Act.DROP_BUFFER, name, version=found.buffers[name].version)
    for name in sorted(found.templates.keys() - asked.keys()):
        yield Change(Act.DROP_TEMPLATE, name)
    resized = [
        Change(Act.RESIZE, name, one.replicas, version=standing.version)
        for name, one in asked.items()
        if (standing := found.buffers.get(name)) is not None
        and _is_material(standing.replicas, one.replicas)
    ]
    yield from sorted(
        resized, key=lambda one: (one.replicas > found.buffers[one.name].replicas, one.name)
    )
    for name, one in sorted(asked.items()):
        if name not in found.templates:
            yield Change(Act.ADD_TEMPLATE, name, spec=one.spec)
        if name not in found.buffers:
            yield Change(Act.ADD_BUFFER, name, one.replicas)


def _is_material(was: int, now: int) -> bool:
    return abs(now - was) * MATERIAL > was


def pod_spec(requests: Resources, placing: NodeConstraints) -> Json:
    """Return the spec of a pod that asks for so much, and of its node the same (no features)."""
    container = {"name": "room", "image": IMAGE, "resources": _amounts(requests)}
    spec: dict[str, Any] = {"containers": [container]}
    if placing.labels:
        spec["nodeSelector"] = dict(placing.labels)
    if placing.affinity is not None:
        terms = {"nodeSelectorTerms": [_term(one) for one in placing.affinity]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    if placing.tolerations:
        spec["tolerations"] = [_toleration(one) for one in placing.tolerations]
    return spec


def _amounts(requests: Resources) -> Json:
    """Return requests and limits.

    What cannot be shared out beyond what there is must be limited to as much, and huge pages go
    with CPU or memory: an API server refuses the template else. Source:
    validateContainerResourceRequirements of pkg/apis/core/validation.
    """
    amounts = (
        ("cpu", requests.cpu_millis, "m"),
        ("memory", requests.memory_bytes, ""),
        ("ephemeral-storage", requests.ephemeral_bytes, ""),
    )
    shared = {name: f"{amount}{unit}" for name, amount, unit in amounts if amount}
    whole = {name: str(units) for name, units in requests.extended}
    if whole:
        return {"requests": {"cpu": "0m", **shared, **whole}, "limits": whole}
    return {"requests": shared}


def _term(term: SelectorTerm) -> Json:
    parts = ("matchExpressions", term.labels), ("matchFields", term.fields)
    return {name: [_requirement(one) for one in asked] for name, asked in parts if asked}


def _requirement(asked: Requirement) -> Json:
    values = {"values": list(asked.values)} if asked.values else {}
    return {"key": asked.key, "operator": asked.operator, **values}


def _toleration(one: Toleration) -> Json:
    parts = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: text for name, text in parts.items() if text}
