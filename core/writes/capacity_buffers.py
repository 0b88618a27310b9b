"""Plan CapacityBuffers for expected pods, so that the autoscaler adds nodes early; pure.

Each shape of pod has a buffer and a PodTemplate. Their name is a hash of the pod's requests and
constraints: a different pod has a different name, so a template never changes. A label marks the
objects as Ebb's, so that the next leader finds them.
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
from core.model.constraints import (
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
    with_extended,
)
from core.model.resources import Resources
from core.placement.node_order import SHARE_SCALE, share_of_room

PUBLISHED_MAX: Final = 16
"""Maximum number of buffers. The largest demand of each reach comes before the second largest of
any reach."""
REPLICAS_MAX: Final = 1000
"""Maximum number of replicas of a buffer."""
MATERIAL: Final = 10
"""A buffer is resized only if its replicas change by more than a tenth."""
PREFIX: Final = "ebb-reserve-"
NAME_DIGITS: Final = 12
INHERITED: Final = ""
"""Reach of inherited pods that this leader does not expect."""
IMAGE: Final = "pause"
"""Image of a container that never runs; the API server may require an image."""
Json = Mapping[str, Any]
BufferShape = tuple[Resources, NodeConstraints]
"""Requests and node constraints of a buffer's pods, as read from its template."""


class Wanted(NamedTuple):
    """A buffer that should exist."""

    replicas: int
    spec: Json
    """Pod spec of its PodTemplate."""


class ExistingBuffer(NamedTuple):
    """A buffer that exists."""

    replicas: int
    version: str
    """The buffer's resourceVersion."""


@dataclass(frozen=True, slots=True)
class Found:
    """Ebb's buffers and templates by name; a buffer without a template has no effect."""

    buffers: Mapping[str, ExistingBuffer] = field(default_factory=dict)
    templates: Mapping[str, BufferShape | None] = field(default_factory=dict)
    """Pods of each template; None if the template cannot be read."""
    absent: bool = False
    """The API has no buffers or templates, or Ebb may not read them."""

    @property
    def published(self) -> Mapping[BufferShape, int]:
        """Return the number of pods in all buffers, by their requests and constraints."""
        found: dict[BufferShape, int] = {}
        for name, one in self.buffers.items():
            shape = self.templates.get(name)
            if shape and one.replicas > 0:
                found[shape] = max(one.replicas, found.get(shape, 0))
        return found

    @property
    def empty(self) -> bool:
        """Return whether there are no objects of Ebb."""
        return not (self.buffers or self.templates)


class Operation(StrEnum):
    """A kind of write; writes are applied in this order."""

    ADD_TEMPLATE = "add template"
    ADD_BUFFER = "add buffer"
    RESIZE = "resize buffer"
    DROP_BUFFER = "drop buffer"
    DROP_TEMPLATE = "drop template"


class BufferChange(NamedTuple):
    """One write to the API server."""

    operation: Operation
    name: str
    replicas: int = 0
    spec: Json = MappingProxyType({})
    version: str = ""
    """The resourceVersion that the decision is based on; empty for new objects."""


def wanted(
    expected: Counts,
    whole: Resources,
    share: Fraction,
    inherited: Mapping[BufferShape, int] = MappingProxyType({}),
) -> dict[str, Wanted]:
    """Return the buffers for the *expected* pods, limited to a *share* of the cluster's capacity.

    Without this limit, users who create and delete many pods could make the autoscaler buy nodes
    for all of them at once. *whole*: capacity of the cluster. *inherited*: pods announced by the
    previous leader, kept while this leader has no reason to announce fewer. The same limits apply
    to them; inherited pods that this leader does not expect count as one reach.
    """
    shape: Counter[BufferShape] = Counter()
    reaches: dict[BufferShape, str] = {}
    for kind, many in expected.items():
        one = kind.requests, _as_read(kind.node_constraints)
        shape[one] += many
        reaches[one] = min(kind.reach, reaches.get(one, kind.reach))
    for one, many in inherited.items():
        shape[one] = max(shape[one], many)
        reaches.setdefault(one, INHERITED)
    costs = {one: max(share_of_room(one[0], whole), 1) for one in shape}
    ranked = sorted(shape, key=lambda one: (-costs[one] * shape[one], repr(one)))
    announced = round_robin(ranked, reaches.__getitem__)[:PUBLISHED_MAX]
    asked = [_Asked(reaches[one], costs[one], min(shape[one], REPLICAS_MAX)) for one in announced]
    found: dict[str, Wanted] = {}
    for one, many in zip(announced, _shared(asked, int(share * SHARE_SCALE)), strict=True):
        if many:
            digest = sha256(repr(one).encode()).hexdigest()[:NAME_DIGITS]
            found[f"{PREFIX}{digest}"] = Wanted(many, pod_spec(*one))
    return found


def _as_read(node_constraints: NodeConstraints) -> NodeConstraints:
    """Return the node constraints as they would be read from a template of such pods."""
    selector = tuple(sorted(dict(node_constraints.labels).items()))
    found = NodeConstraints(selector, node_constraints.affinity, node_constraints.tolerations)
    return with_extended(found, node_constraints.extended)


class _Asked(NamedTuple):
    """The number of pods of one shape, and the share of capacity that each takes."""

    reach: str
    cost: int
    pods: int


def _shared(asked: Sequence[_Asked], left: int) -> list[int]:
    """Return the number of pods of each shape that fit in the share that is *left*.

    The next pod is always of the reach with the smallest share so far, and there of the shape with
    the smallest share.
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


def changes(asked: Mapping[str, Wanted], found: Found) -> Iterator[BufferChange]:
    """Yield the writes that turn the *found* objects into the *asked* ones, reductions first."""
    # If additions came first, the autoscaler could add nodes for both the old and the new pods.
    for name in sorted(found.buffers.keys() - asked.keys()):
        yield BufferChange(Operation.DROP_BUFFER, name, version=found.buffers[name].version)
    for name in sorted(found.templates.keys() - asked.keys()):
        yield BufferChange(Operation.DROP_TEMPLATE, name)
    resized = [
        BufferChange(Operation.RESIZE, name, one.replicas, version=existing.version)
        for name, one in asked.items()
        if (existing := found.buffers.get(name)) is not None
        and _is_material(existing.replicas, one.replicas)
    ]
    yield from sorted(
        resized, key=lambda one: (one.replicas > found.buffers[one.name].replicas, one.name)
    )
    for name, one in sorted(asked.items()):
        if name not in found.templates:
            yield BufferChange(Operation.ADD_TEMPLATE, name, spec=one.spec)
        if name not in found.buffers:
            yield BufferChange(Operation.ADD_BUFFER, name, one.replicas)


def _is_material(was: int, now: int) -> bool:
    return abs(now - was) * MATERIAL > was


def pod_spec(requests: Resources, node_constraints: NodeConstraints) -> Json:
    """Return the spec of a pod with these requests and node constraints, without node features."""
    container = {"name": "room", "image": IMAGE, "resources": _amounts(requests)}
    spec: dict[str, Any] = {"containers": [container]}
    if node_constraints.labels:
        spec["nodeSelector"] = dict(node_constraints.labels)
    if node_constraints.affinity is not None:
        terms = {"nodeSelectorTerms": [_term(one) for one in node_constraints.affinity]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    if node_constraints.tolerations:
        spec["tolerations"] = [_toleration(one) for one in node_constraints.tolerations]
    return spec


def _amounts(requests: Resources) -> Json:
    """Return the requests and limits of a container.

    Extended resources must have equal limits, and huge pages need a CPU or memory request:
    otherwise the API server rejects the template. Source: validateContainerResourceRequirements of
    pkg/apis/core/validation.
    """
    amounts = (
        ("cpu", requests.cpu_millis, "m"),
        ("memory", requests.memory_bytes, ""),
        ("ephemeral-storage", requests.ephemeral_bytes, ""),
    )
    shared = {name: f"{amount}{unit}" for name, amount, unit in amounts if amount}
    whole = {name: str(units) for name, units in requests.extended}
    if whole:
        # The API server requires equal limits, and a CPU or memory request beside huge pages.
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
