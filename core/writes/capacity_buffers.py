"""Plan CapacityBuffers for expected pods, so that the autoscaler adds nodes early; without I/O.

Pods with the same requests and constraints share a buffer and a PodTemplate. Both have a name that
is a hash of the requests and constraints: a different pod has a different name, so a template
never changes. A label marks the objects as Ebb's, so that the next leader finds them.
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
    """A CapacityBuffer that should exist: its number of pods, and their spec."""

    replicas: int
    spec: Json
    """Pod spec of its PodTemplate."""


class ExistingBuffer(NamedTuple):
    """A CapacityBuffer that exists: its number of pods, and its resourceVersion."""

    replicas: int
    version: str
    """The buffer's resourceVersion."""


@dataclass(frozen=True, slots=True)
class Found:
    """Ebb's CapacityBuffers and PodTemplates in the cluster, by name.

    A buffer without a template has no effect.
    """

    buffers: Mapping[str, ExistingBuffer] = field(default_factory=dict)
    templates: Mapping[str, BufferShape | None] = field(default_factory=dict)
    """Pods of each template; None if the template cannot be read."""
    absent: bool = False
    """The API has no buffers or templates, or Ebb may not read them."""

    @property
    def published(self) -> Mapping[BufferShape, int]:
        """Return the number of pods that the buffers ask for, by requests and node constraints.

        Buffers without a readable template are left out.
        """
        pods: dict[BufferShape, int] = {}
        for name, buffer in self.buffers.items():
            shape = self.templates.get(name)
            if shape and buffer.replicas > 0:
                pods[shape] = max(buffer.replicas, pods.get(shape, 0))
        return pods

    @property
    def empty(self) -> bool:
        """Return whether the cluster has neither CapacityBuffers nor PodTemplates of Ebb."""
        return not (self.buffers or self.templates)


class Operation(StrEnum):
    """A kind of write to a CapacityBuffer or its PodTemplate."""

    ADD_TEMPLATE = "add template"
    ADD_BUFFER = "add buffer"
    RESIZE = "resize buffer"
    DROP_BUFFER = "drop buffer"
    DROP_TEMPLATE = "drop template"


class BufferChange(NamedTuple):
    """A write to a CapacityBuffer or its PodTemplate, which have the same name."""

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
    """Return the CapacityBuffers that should exist for the *expected* pods, by name.

    *expected*: numbers of pods. *whole*: capacity of the cluster. *share*: the part of this
    capacity that the buffers may ask for. Without this limit, users who create and delete many
    pods could make the autoscaler buy nodes for all of them at once.

    *inherited*: pods in the buffers of the previous leader, kept while this leader has no reason
    to ask for fewer. The same limits apply to them. Inherited pods that this leader does not
    expect count as one reach (a set of nodes that some pods can use).
    """
    counts: Counter[BufferShape] = Counter()
    reaches: dict[BufferShape, str] = {}
    for pod_shape, count in expected.items():
        shape = pod_shape.requests, _as_read(pod_shape.node_constraints)
        counts[shape] += count
        reaches[shape] = min(pod_shape.reach, reaches.get(shape, pod_shape.reach))
    for shape, count in inherited.items():
        counts[shape] = max(counts[shape], count)
        reaches.setdefault(shape, INHERITED)
    costs = {shape: max(share_of_room(shape[0], whole), 1) for shape in counts}
    ranked = sorted(counts, key=lambda shape: (-costs[shape] * counts[shape], repr(shape)))
    published = round_robin(ranked, reaches.__getitem__)[:PUBLISHED_MAX]
    demands = [
        _ShapeDemand(reaches[shape], costs[shape], min(counts[shape], REPLICAS_MAX))
        for shape in published
    ]
    buffers: dict[str, Wanted] = {}
    for shape, pods in zip(published, _shared(demands, int(share * SHARE_SCALE)), strict=True):
        if pods:
            digest = sha256(repr(shape).encode()).hexdigest()[:NAME_DIGITS]
            buffers[f"{PREFIX}{digest}"] = Wanted(pods, pod_spec(*shape))
    return buffers


def _as_read(node_constraints: NodeConstraints) -> NodeConstraints:
    """Return the constraints that Ebb would decode from a PodTemplate made of *node_constraints*.

    Only then do the constraints of expected pods equal those of existing buffers.
    """
    selector = tuple(sorted(dict(node_constraints.labels).items()))
    plain = NodeConstraints(selector, node_constraints.affinity, node_constraints.tolerations)
    return with_extended(plain, node_constraints.extended)


class _ShapeDemand(NamedTuple):
    reach: str
    cost: int
    """Share of the cluster's capacity that one pod takes, in 1 / SHARE_SCALE."""
    pods: int
    """Number of expected pods."""


def _shared(demands: Sequence[_ShapeDemand], left: int) -> list[int]:
    """Return the number of pods of each demand that fit into the capacity *left* together.

    The result has the order of *demands*. One pod after another gets its share: the next pod is of
    the reach with the smallest share so far, and there of the demand with the smallest share.
    *left*: in 1 / SHARE_SCALE of the cluster's capacity.
    """
    pods = [0] * len(demands)
    queues: dict[str, list[tuple[int, int]]] = {}
    for number, demand in enumerate(demands):
        queues.setdefault(demand.reach, []).append((0, number))
    turns = [(0, reach) for reach in sorted(queues)]
    while turns:
        spent, reach = heappop(turns)
        so_far, number = heappop(queues[reach])
        demand = demands[number]
        if demand.cost <= left:
            left -= demand.cost
            spent += demand.cost
            pods[number] += 1
            if pods[number] < demand.pods:
                heappush(queues[reach], (so_far + demand.cost, number))
        if queues[reach]:
            heappush(turns, (spent, reach))
    return pods


def changes(buffers: Mapping[str, Wanted], existing: Found) -> Iterator[BufferChange]:
    """Yield the writes that replace the *existing* objects by the *buffers*, reductions first.

    *buffers*: the wanted buffers, by name. A buffer whose number of pods differs little from the
    wanted number is not resized.
    """
    # If additions came first, the autoscaler could add nodes for both the old and the new pods.
    for name in sorted(existing.buffers.keys() - buffers.keys()):
        yield BufferChange(Operation.DROP_BUFFER, name, version=existing.buffers[name].version)
    for name in sorted(existing.templates.keys() - buffers.keys()):
        yield BufferChange(Operation.DROP_TEMPLATE, name)
    resized = [
        BufferChange(Operation.RESIZE, name, buffer.replicas, version=before.version)
        for name, buffer in buffers.items()
        if (before := existing.buffers.get(name)) is not None
        and _is_material(before.replicas, buffer.replicas)
    ]
    yield from sorted(
        resized,
        key=lambda change: (
            change.replicas > existing.buffers[change.name].replicas,
            change.name,
        ),
    )
    for name, buffer in sorted(buffers.items()):
        if name not in existing.templates:
            yield BufferChange(Operation.ADD_TEMPLATE, name, spec=buffer.spec)
        if name not in existing.buffers:
            yield BufferChange(Operation.ADD_BUFFER, name, buffer.replicas)


def _is_material(was: int, now: int) -> bool:
    return abs(now - was) * MATERIAL > was


def pod_spec(requests: Resources, node_constraints: NodeConstraints) -> Json:
    """Return the spec of a placeholder pod with these requests and node constraints, as JSON.

    Constraints on declared node features are left out.
    """
    container = {"name": "room", "image": IMAGE, "resources": _amounts(requests)}
    spec: dict[str, Any] = {"containers": [container]}
    if node_constraints.labels:
        spec["nodeSelector"] = dict(node_constraints.labels)
    if node_constraints.affinity is not None:
        terms = {"nodeSelectorTerms": [_term(term) for term in node_constraints.affinity]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    if node_constraints.tolerations:
        spec["tolerations"] = [_toleration(each) for each in node_constraints.tolerations]
    return spec


def _amounts(requests: Resources) -> Json:
    amounts = (
        ("cpu", requests.cpu_millis, "m"),
        ("memory", requests.memory_bytes, ""),
        ("ephemeral-storage", requests.ephemeral_bytes, ""),
    )
    shared = {name: f"{amount}{unit}" for name, amount, unit in amounts if amount}
    whole = {name: str(units) for name, units in requests.extended}
    if whole:
        # The API server rejects extended resources without equal limits, and huge pages without a
        # CPU or memory request. Source: validateContainerResourceRequirements of
        # pkg/apis/core/validation.
        return {"requests": {"cpu": "0m", **shared, **whole}, "limits": whole}
    return {"requests": shared}


def _term(term: SelectorTerm) -> Json:
    parts = ("matchExpressions", term.labels), ("matchFields", term.fields)
    return {name: [_requirement(each) for each in listed] for name, listed in parts if listed}


def _requirement(requirement: Requirement) -> Json:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def _toleration(toleration: Toleration) -> Json:
    parts = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {name: text for name, text in parts.items() if text}
