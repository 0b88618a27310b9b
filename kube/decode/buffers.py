"""Decode CapacityBuffers and PodTemplates into core.model.buffers; errors name the field.

Tenants write CapacityBuffers, and the controller of an autoscaler writes their status. If either
contains a fault, Ebb ignores only this buffer, and reports the fault.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final

import msgspec

from core.marks.wellknown import BUFFER_OURS_LABEL
from core.model.buffers import Buffer, PodTemplate
from kube.decode import pod
from kube.decode.field_decoding import NULL, ApiName, checked_name, shared_name
from kube.decode.objects import (
    CONDITIONS,
    TEXTS,
    Condition,
    Meta,
    Name,
    PodMeta,
    PodObject,
    PodSpec,
    Struct,
    keyed,
)

ACTIVE: Final = "buffer.x-k8s.io/active-capacity"
"""Provisioning strategy that keeps room on running nodes; other strategies add nodes later."""
READY: Final = "ReadyForProvisioning"
"""Condition that is True if an autoscaler has accepted the buffer."""
REASON_CHARS_MAX: Final = 80
REPLICAS_MAX: Final = 2**31 - 1
"""Maximum of a 32-bit number, as in the API."""


class Reference(Struct):
    kind: ApiName = ""
    name: ApiName = ""


class BufferSpec(Struct):
    replicas: int | None = None
    provisioning_strategy: ApiName | None = None
    scalable_ref: Reference | None = None


class BufferStatus(Struct):
    pod_template_ref: Reference | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    conditions: Annotated[msgspec.Raw, CONDITIONS] = NULL
    provisioning_strategy: ApiName | None = None


class BufferLabels(Struct):
    """The labels of a CapacityBuffer that Ebb reads."""

    ours: str | None = keyed(BUFFER_OURS_LABEL)


class BufferMeta(Meta):
    labels: BufferLabels | None = None


class BufferObject(Struct):
    metadata: BufferMeta
    spec: BufferSpec | None = None
    status: BufferStatus | None = None


class TemplateMeta(Struct):
    labels: Annotated[msgspec.Raw, TEXTS] = NULL


class PodTemplateSpec(Struct):
    metadata: TemplateMeta | None = None
    spec: PodSpec | None = None


class TemplateObject(Struct):
    metadata: Name
    template: PodTemplateSpec | None = None


def buffer(obj: BufferObject) -> Buffer:
    """Convert a CapacityBuffer; `fault` says why Ebb keeps no room for it, or is empty.

    Raises: InvalidInputError with the invalid field.
    """
    meta, spec, status = obj.metadata, obj.spec or BufferSpec(), obj.status or BufferStatus()
    template, scalable = status.pod_template_ref, spec.scalable_ref
    ours = meta.labels is not None and meta.labels.ours is not None
    return Buffer(
        namespace=shared_name(meta.namespace or "default", "metadata.namespace"),
        name=checked_name(meta.name, "metadata.name"),
        replicas=_replicas(status.replicas),
        ready=_replicas(status.ready_replicas),
        template=checked_name(template.name, "status.podTemplateRef.name") if template else "",
        scalable=None if template or ours or not scalable else _scalable(scalable),
        fault=_why_no_room(obj),
        published=_replicas(spec.replicas) if ours else None,
    )


def _replicas(replicas: int | None) -> int:
    return min(max(replicas or 0, 0), REPLICAS_MAX)


def _scalable(reference: Reference) -> tuple[str, str]:
    return (
        checked_name(reference.kind, "spec.scalableRef.kind"),
        checked_name(reference.name, "spec.scalableRef.name"),
    )


def _why_no_room(obj: BufferObject) -> str:
    """Return why Ebb must not keep room for a CapacityBuffer's pods; empty if it may."""
    spec, status = obj.spec or BufferSpec(), obj.status or BufferStatus()
    if obj.metadata.deletion_timestamp is not None:
        return "the buffer is being deleted"
    strategy = status.provisioning_strategy or spec.provisioning_strategy or ACTIVE
    if strategy != ACTIVE:
        return f"provisioning strategy {_shown(strategy)} keeps no room on existing nodes"
    return _not_ready(CONDITIONS.decode(status.conditions, "status.conditions") or ())


def _not_ready(conditions: Iterable[Condition]) -> str:
    ready = next((condition for condition in conditions if condition.type == READY), None)
    if ready is None:
        return "no autoscaler has accepted the buffer"
    if ready.status != "True":
        return f"the autoscaler rejects the buffer: {_shown(ready.reason or 'no reason given')}"
    return ""


def _shown(text: str) -> str:
    cut = text[:REASON_CHARS_MAX]
    return cut if cut.isascii() and cut.isprintable() else ascii(cut)


def template(obj: TemplateObject) -> PodTemplate:
    """Convert a PodTemplate; its pod is bound to no node.

    Raises: InvalidInputError with the invalid field.
    """
    meta, pod_template = obj.metadata, obj.template or PodTemplateSpec()
    labels = pod_template.metadata.labels if pod_template.metadata else TemplateMeta().labels
    pod_meta = PodMeta(name=meta.name, namespace=meta.namespace, labels=labels)
    as_pod = pod.pod(PodObject(metadata=pod_meta, spec=pod_template.spec or PodSpec()))
    if as_pod is None:
        raise AssertionError("a pod without a status has not finished")
    return PodTemplate(
        namespace=as_pod.namespace, name=as_pod.name, pod=replace(as_pod, node=None)
    )
