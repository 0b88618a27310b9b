"""Decode Nodes into core.model.node; errors name the field only."""

import re
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from sys import intern
from typing import Annotated, Final

import msgspec

from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    OLD_PROTECTION_ANNOTATION,
    OUR_PREFIXES,
    PROTECTION_ANNOTATION,
    REMOVAL_DISABLED,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from core.model.constraints import ASKED_FEATURES
from core.model.errors import InvalidInputError
from core.model.node import (
    CONDITION_MESSAGE_CHARS,
    Node,
    NodeCondition,
    Taint,
    is_virtual,
)
from core.model.requests import resources
from core.model.resources import ATTACHABLE
from kube.decode import pod_limits
from kube.decode.field_decoding import (
    NULL,
    ApiName,
    BoundedField,
    check_memory,
    read_amounts,
    shared_name,
    unix_seconds,
)
from kube.decode.objects import (
    Amounts,
    Meta,
    Struct,
    keyed,
    ready_as_sent,
    set_keys,
)

PROVIDER_CHARS_MAX: Final = 32
"""Length to which the name of the provider is cut."""
LABELS: Final = BoundedField[dict[str, str]](dict[str, str], bytes_max=128 * 1024)
"""Limit on labels. Node Feature Discovery sets some hundreds of labels of up to 100 bytes."""
AMOUNTS: Final = BoundedField[Amounts](Amounts, bytes_max=128 * 1024)
FEATURES: Final = BoundedField[list[str]](list[str], bytes_max=64 * 1024)
KEPT_BYTES_MAX: Final = 250_000
"""Maximum memory that a Node takes; a Node that would take more is unreadable."""
SMALL_BYTES: Final = 12 * 1024
SMALL_ITEMS: Final = 64
"""A Node always takes less memory than KEPT_BYTES_MAX if the JSON of its labels and resources has
at most SMALL_BYTES, and if it has at most SMALL_ITEMS taints and conditions."""
ANNOTATION_CHARS_MAX: Final = 4097
"""Maximum length of an annotation that is kept with the node; the rest is cut.

It is longer than the longest valid value (core.marks.mark), so that a value that is cut stays
invalid."""


CONDITIONS_MAX: Final = 64
"""Maximum number of conditions that are kept with the node, besides those of each kubelet."""
CONDITION_TYPE_CHARS: Final = 316
"""Length to which the types of conditions are cut: that of a qualified name."""
TIME_CHARS: Final = 64
"""Length to which the times of conditions are cut; a longer one is invalid in any case."""
TIMES_CACHED_MAX: Final = 16_384
"""Maximum number of cached times of conditions."""
_KUBELETS: Final = frozenset(
    (b"Ready", b"MemoryPressure", b"DiskPressure", b"PIDPressure", b"NetworkUnavailable")
)
"""Types of the conditions that each node has; none announces a removal."""
_READ: Final = frozenset(name.decode() for name in _KUBELETS) | {"Suspended"}
_TYPE: Final = re.compile(rb'"type":"([^"\\]*)"')
"""The type of a condition as API servers write it; inside a JSON string its quotes would be
escaped."""


class ConditionObject(Struct):
    type: str = ""
    status: str = ""
    message: str | None = None
    last_transition_time: str | None = None


CONDITIONS: Final = BoundedField[list[ConditionObject]](list[ConditionObject], items_max=4096)
"""Limit on conditions. Their messages contain braces too, because they quote taints."""


class TaintObject(Struct):
    key: ApiName = ""
    value: ApiName | None = None
    effect: ApiName = ""
    time_added: ApiName | None = None


TAINTS: Final = BoundedField[list[TaintObject]](
    list[TaintObject], bytes_max=64 * 1024, items_max=1024
)


class NodeSpec(Struct):
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    taints: Annotated[msgspec.Raw, TAINTS] = NULL
    unschedulable: bool | None = None


class NodeStatus(Struct):
    allocatable: Annotated[msgspec.Raw, AMOUNTS] = NULL
    capacity: Annotated[msgspec.Raw, AMOUNTS] = NULL
    conditions: Annotated[msgspec.Raw, CONDITIONS] = NULL
    declared_features: Annotated[msgspec.Raw, FEATURES] = NULL


class NodeAnnotations(Struct):
    """The annotations of a Node that Ebb reads."""

    details: str | None = keyed(DETAILS_ANNOTATION)
    backoff: str | None = keyed(BACKOFF_ANNOTATION)
    reserve: str | None = keyed(RESERVE_ANNOTATION)
    keep: str | None = keyed(KEEP_ANNOTATION)
    scale_down_disabled: str | None = keyed(SCALE_DOWN_DISABLED_ANNOTATION)
    protection: str | None = keyed(PROTECTION_ANNOTATION)
    old_protection: str | None = keyed(OLD_PROTECTION_ANNOTATION)
    do_not_disrupt: str | None = keyed(DO_NOT_DISRUPT_ANNOTATION)
    removal_disabled: str | None = keyed(REMOVAL_DISABLED)
    owner_name: str | None = keyed("cluster.x-k8s.io/owner-name")
    openshift_machine: str | None = keyed("machine.openshift.io/machine")
    oci_pool: str | None = keyed("oci.oraclecloud.com/node-pool-id")
    kwok_group: str | None = keyed("cluster-autoscaler.kwok.nodegroup/name")


class NodeMeta(Meta):
    labels: Annotated[msgspec.Raw, LABELS] = NULL
    annotations: NodeAnnotations | None = None


class NodeObject(Struct):
    metadata: NodeMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


ANNOTATIONS: Final = BoundedField[dict[str, str]](dict[str, str], bytes_max=2 * 256 * 1024)
"""Limit on annotations; the API server allows 256 KiB, and JSON escapes some characters."""


class AnyKeysMeta(Meta):
    labels: Annotated[msgspec.Raw, LABELS] = NULL
    annotations: Annotated[msgspec.Raw, ANNOTATIONS] = NULL


class AnyKeysObject(Struct):
    """A Node with all its annotations, to find each that any version of Ebb may have written."""

    metadata: AnyKeysMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


NO_SPEC: Final = NodeSpec()
NO_STATUS: Final = NodeStatus()


def node(obj: NodeObject) -> Node:
    """Convert a Node; if its resources are missing or invalid, `unreadable` says why.

    Raises: InvalidInputError if another field is invalid.
    """
    status, spec, meta = obj.status or NO_STATUS, obj.spec or NO_SPEC, obj.metadata
    unreadable = ""
    try:
        amounts = _allocatable(status)
    except InvalidInputError as fault:
        amounts, unreadable = {}, str(fault)
    labels = LABELS.decode(meta.labels, "metadata.labels") or {}
    taints: tuple[Taint, ...] = ()
    if spec.taints is not NULL:
        taints = tuple(map(_taint, TAINTS.decode(spec.taints, "spec.taints") or ()))
    provider_id = spec.provider_id or ""
    ready, suspended, conditions = _ready_and_others(status.conditions)
    result = Node(
        name=shared_name(meta.name, "metadata.name"),
        uid=meta.uid,
        version=meta.resource_version,
        labels=labels,
        annotations=annotations_of(meta.annotations) if meta.annotations else {},
        taints=taints,
        unschedulable=bool(spec.unschedulable),
        allocatable=resources(amounts, pods=amounts.get("pods", 0)),
        features=_features(status.declared_features),
        ready=ready,
        suspended=suspended,
        conditions=conditions,
        unreadable=unreadable,
        created_seconds=unix_seconds(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        provider=_provider(provider_id),
        virtual=is_virtual(labels, [(taint.key, taint.value) for taint in taints], provider_id),
    )
    sizes = len(meta.labels) + len(status.allocatable)
    if sizes > SMALL_BYTES or len(taints) + len(conditions) > SMALL_ITEMS:
        check_memory(result, KEPT_BYTES_MAX)
    return result


def node_with_all_keys(obj: AnyKeysObject) -> Node:
    """Convert a Node as `node` does, and add each annotation whose key has a prefix of Ebb.

    Raises: InvalidInputError with the invalid field.
    """
    meta = obj.metadata
    written = ANNOTATIONS.decode(meta.annotations, "metadata.annotations") or {}
    known = msgspec.convert(written, NodeAnnotations)
    result = node(
        NodeObject(
            NodeMeta(
                name=meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
                creation_timestamp=meta.creation_timestamp,
                deletion_timestamp=meta.deletion_timestamp,
                labels=meta.labels,
                annotations=known,
            ),
            obj.spec,
            obj.status,
        )
    )
    ours = {key: value for key, value in written.items() if key.startswith(OUR_PREFIXES)}
    return replace(result, annotations={**ours, **result.annotations})


def _features(raw: msgspec.Raw) -> tuple[str, ...]:
    if raw is NULL:
        return ()
    declared = FEATURES.decode(raw, "status.declaredFeatures") or ()
    return tuple(sorted(ASKED_FEATURES.intersection(declared)))


def _ready_and_others(raw: msgspec.Raw) -> tuple[bool, bool, tuple[NodeCondition, ...]]:
    """Return whether the conditions Ready and Suspended of a Node are True, and other conditions.

    A Node without conditions counts as Ready.
    """
    if raw is NULL:
        return True, False, ()
    written = bytes(raw)
    if (sent := ready_as_sent(written)) is not None and _KUBELETS.issuperset(
        _TYPE.findall(written)
    ):
        return sent[0], False, ()
    conditions = CONDITIONS.decode(raw, "status.conditions") or ()
    true = {condition.type for condition in conditions if condition.status == "True"}
    others = (condition for condition in conditions if condition.type not in _READ)
    kept = tuple(map(_condition, islice(others, CONDITIONS_MAX)))
    return not conditions or "Ready" in true, "Suspended" in true, kept


def _condition(condition: ConditionObject) -> NodeCondition:
    # Most nodes have equal conditions, apart from the time.
    return NodeCondition(
        intern(condition.type[:CONDITION_TYPE_CHARS]),
        intern(condition.status[:CONDITION_TYPE_CHARS]),
        intern((condition.message or "")[:CONDITION_MESSAGE_CHARS]),
        _since((condition.last_transition_time or "")[:TIME_CHARS]),
    )


@lru_cache(maxsize=TIMES_CACHED_MAX)
def _since(time: str) -> int | None:
    # Kubelets send their conditions every few minutes, and most have not changed since.
    return unix_seconds(time)


def annotations_of(annotations: Struct) -> dict[str, str]:
    """Return the annotations that are set, by key; values above ANNOTATION_CHARS_MAX are cut."""
    return {key: value[:ANNOTATION_CHARS_MAX] for key, value in set_keys(annotations).items()}


def _provider(provider_id: str) -> str:
    name, separator, _ = provider_id[: 2 * PROVIDER_CHARS_MAX].partition("://")
    return intern(name[:PROVIDER_CHARS_MAX]) if separator else ""


def _taint(taint: TaintObject) -> Taint:
    return Taint(taint.key, taint.value or "", taint.effect, taint.time_added or "")


def _allocatable(status: NodeStatus) -> dict[str, int]:
    """Return the allocatable resources: CPU in millicores, others in whole units.

    Without allocatable resources, return the capacity, which is the API's default. Raises:
    InvalidInputError if both are missing, or one is invalid.
    """
    field = "status.allocatable"
    amounts = AMOUNTS.decode(status.allocatable, field)
    if not amounts:
        field = "status.capacity"
        amounts = AMOUNTS.decode(status.capacity, field)
    if not amounts:
        problem = 'missing, and status.capacity too; allowed: resources, such as cpu: "4"'
        raise InvalidInputError("status.allocatable", problem)
    counted = {name: amount for name, amount in amounts.items() if not name.startswith(ATTACHABLE)}
    pod_limits.check_count("resources", len(counted), pod_limits.NODE_RESOURCES_MAX, field)
    return read_amounts(counted, field)
