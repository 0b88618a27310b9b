"""Decode Nodes into core.model.node; errors name the field only."""

from sys import intern
from typing import Final

import msgspec

from core.edge.decode import pod_limits
from core.edge.decode.fields import read_amounts, shared, unix_seconds
from core.edge.decode.objects import Amounts, Condition, Meta, Struct
from core.model.constraints import ASKED_FEATURES
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint
from core.model.requests import resources
from core.model.resources import ATTACHABLE
from core.model.virtual import is_virtual

PROVIDER_CHARS_MAX: Final = 32
"""Length to which the name of the provider is cut."""


class TaintObject(Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct):
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    taints: list[TaintObject] | None = None
    unschedulable: bool | None = None


class NodeStatus(Struct):
    allocatable: Amounts | None = None
    capacity: Amounts | None = None
    conditions: list[Condition] | None = None
    declared_features: list[str] | None = None


class NodeObject(Struct):
    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


def node(obj: NodeObject) -> Node:
    """Create a Node; it is unreadable if its kubelet has reported no resources.

    Raises: InvalidInputError with the field.
    """
    status, spec, meta = obj.status, obj.spec, obj.metadata
    conditions = (status.conditions if status else None) or []
    declared = (status.declared_features if status else None) or ()
    unreadable = ""
    try:
        amounts = _allocatable(obj)
    except InvalidInputError as fault:
        amounts, unreadable = {}, str(fault)
    labels, taints = meta.labels or {}, tuple(map(_taint, (spec and spec.taints) or ()))
    provider_id = (spec and spec.provider_id) or ""
    return Node(
        name=shared(meta.name, "metadata.name"),
        uid=meta.uid,
        version=meta.resource_version,
        labels=labels,
        annotations=meta.annotations or {},
        taints=taints,
        unschedulable=bool(spec and spec.unschedulable),
        allocatable=resources(amounts, pods=amounts.get("pods", 0)),
        features=tuple(sorted(ASKED_FEATURES.intersection(declared))),
        ready=not conditions or any(c.type == "Ready" and c.status == "True" for c in conditions),
        suspended=any(c.type == "Suspended" and c.status == "True" for c in conditions),
        unreadable=unreadable,
        created_seconds=unix_seconds(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        provider=_provider(provider_id),
        virtual=is_virtual(labels, [(one.key, one.value) for one in taints], provider_id),
    )


def _provider(provider_id: str) -> str:
    name, separator, _ = provider_id[: 2 * PROVIDER_CHARS_MAX].partition("://")
    return intern(name[:PROVIDER_CHARS_MAX]) if separator else ""


def _taint(found: TaintObject) -> Taint:
    return Taint(found.key, found.value or "", found.effect, found.time_added or "")


def _allocatable(obj: NodeObject) -> dict[str, int]:
    """Return the allocatable resources; without them the capacity, which is the API's default."""
    status, field = obj.status, "status.allocatable"
    found = status.allocatable if status else None
    if not found and status:
        found, field = status.capacity, "status.capacity"
    if not found:
        problem = 'missing, and status.capacity too; allowed: resources, such as cpu: "4"'
        raise InvalidInputError("status.allocatable", problem)
    counted = {name: one for name, one in found.items() if not name.startswith(ATTACHABLE)}
    pod_limits.few("resources", len(counted), pod_limits.NODE_RESOURCES_MAX, field)
    return read_amounts(counted, field)
