"""Decode Deployments and their ReplicaSets into core.moves.listed; errors name the field.

Source: k8s.io/api apps/v1, and managedFields of k8s.io/apimachinery meta/v1.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from core.marks.wellknown import KEEP_ANNOTATION
from core.model.errors import InvalidInputError
from core.moves.listed import ListedDeployment, ListedReplicaSet
from core.moves.objects import MANAGER, ROLLING_UPDATE, ObservedDeployment, resolved_surge
from kube.decode.fields import NULL, ApiName, Bounded, checked, shared
from kube.decode.objects import Meta, Present, Struct, keyed

REVISION_ANNOTATION: Final = "deployment.kubernetes.io/revision"
REPLICAS_MAX: Final = 2**31 - 1
"""Maximum of a 32-bit number, as in the API."""
MANAGED_BYTES_MAX: Final = 256 * 1024
"""Maximum size of managedFields, in JSON; with more, the manager of the replicas is unknown."""
CONDITIONS_BYTES_MAX: Final = 64 * 1024
MESSAGE_CHARACTERS_MAX: Final = 200
DEFAULT_SURGE: Final = "25%"
DEPLOYMENT: Final = "Deployment"


class SpecFields(Struct):
    """The fields of a spec that a manager owns, as far as Ebb needs to know."""

    replicas: Present | None = msgspec.field(default=None, name="f:replicas")


class Fields(Struct):
    spec: SpecFields | None = msgspec.field(default=None, name="f:spec")


class ManagedFields(Struct):
    """The fields that a manager has set, and when."""

    manager: ApiName = ""
    time: ApiName = ""
    fields: Fields | None = msgspec.field(default=None, name="fieldsV1")


MANAGED: Final = Bounded[list[ManagedFields]](list[ManagedFields], bytes_max=MANAGED_BYTES_MAX)


class DeploymentAnnotations(Struct):
    """The annotations of a Deployment or its pod template that Ebb reads."""

    keep: str | None = keyed(KEEP_ANNOTATION)
    revision: ApiName | None = keyed(REVISION_ANNOTATION)


class DeploymentMeta(Meta):
    generation: int = 0
    annotations: DeploymentAnnotations | None = None
    managed_fields: Annotated[msgspec.Raw, MANAGED] = NULL


class RollingUpdate(Struct):
    max_surge: int | ApiName | None = None


class DeploymentStrategy(Struct):
    type: ApiName = ROLLING_UPDATE
    rolling_update: RollingUpdate | None = None


class DeploymentTemplateMeta(Struct):
    annotations: DeploymentAnnotations | None = None


class DeploymentTemplate(Struct):
    metadata: DeploymentTemplateMeta | None = None


class DeploymentSpec(Struct):
    replicas: int | None = None
    strategy: DeploymentStrategy | None = None
    paused: bool | None = None
    min_ready_seconds: int | None = None
    progress_deadline_seconds: int | None = None
    template: DeploymentTemplate | None = None


class FailureCondition(Struct):
    type: str = ""
    status: str = ""
    message: str | None = None


CONDITIONS: Final = Bounded[list[FailureCondition]](
    list[FailureCondition], bytes_max=CONDITIONS_BYTES_MAX
)


class DeploymentStatus(Struct):
    observed_generation: int | None = None
    replicas: int | None = None
    updated_replicas: int | None = None
    available_replicas: int | None = None
    conditions: Annotated[msgspec.Raw, CONDITIONS] = NULL


class DeploymentObject(Struct):
    metadata: DeploymentMeta
    spec: DeploymentSpec | None = None
    status: DeploymentStatus | None = None


class ControllerOwner(Struct):
    """An owner reference, with its UID."""

    kind: ApiName = ""
    name: ApiName = ""
    uid: ApiName = ""
    controller: bool | None = None


CONTROLLER_OWNERS: Final = Bounded[list[ControllerOwner]](list[ControllerOwner], items_max=1024)


class ReplicaSetMeta(Meta):
    annotations: DeploymentAnnotations | None = None
    owner_references: Annotated[msgspec.Raw, CONTROLLER_OWNERS] = NULL


class ReplicaSetSpec(Struct):
    replicas: int | None = None


class ReplicaSetStatus(Struct):
    replicas: int | None = None


class ReplicaSetObject(Struct):
    metadata: ReplicaSetMeta
    spec: ReplicaSetSpec | None = None
    status: ReplicaSetStatus | None = None


def deployment(obj: DeploymentObject) -> ListedDeployment | None:
    """Create a Deployment; None if it is being deleted. Raises: InvalidInputError."""
    meta = obj.metadata
    if meta.deletion_timestamp is not None:
        return None
    spec, status = obj.spec or DeploymentSpec(), obj.status or DeploymentStatus()
    template = spec.template.metadata if spec.template else None
    strategy = spec.strategy or DeploymentStrategy()
    replicas = number(spec.replicas, 1)
    observed = ObservedDeployment(
        namespace=shared(meta.namespace or "default", "metadata.namespace"),
        name=checked(meta.name, "metadata.name"),
        uid=meta.uid,
        version=meta.resource_version,
        replicas=replicas,
        replicas_manager=_manager(meta.managed_fields),
        strategy=strategy.type,
        max_surge=_surge(strategy, replicas),
        paused=bool(spec.paused),
        keep=any(
            one.annotations is not None and one.annotations.keep == "true"
            for one in (meta, template)
            if one is not None
        ),
        generation=meta.generation,
        observed_generation=number(status.observed_generation, 0),
        pods=number(status.replicas, 0),
        updated=number(status.updated_replicas, 0),
        available=number(status.available_replicas, 0),
        min_ready_seconds=number(spec.min_ready_seconds, 0),
        progress_deadline_seconds=number(spec.progress_deadline_seconds, 600),
        replica_set="",
        replica_failure=_failure(CONDITIONS.read(status.conditions, "status.conditions") or ()),
    )
    return ListedDeployment(observed=observed, revision=_revision(meta.annotations))


def replica_set(obj: ReplicaSetObject) -> ListedReplicaSet | None:
    """Create a ReplicaSet; None if no Deployment controls it, or if it has no pods.

    A Deployment keeps ten old ReplicaSets without pods by default. Raises: InvalidInputError.
    """
    meta = obj.metadata
    spec, status = obj.spec or ReplicaSetSpec(), obj.status or ReplicaSetStatus()
    if spec.replicas == 0 and not status.replicas:
        return None
    owners = CONTROLLER_OWNERS.read(meta.owner_references, "metadata.ownerReferences") or ()
    owner = next((one for one in owners if one.controller), None)
    if owner is None or owner.kind != DEPLOYMENT:
        return None
    return ListedReplicaSet(
        namespace=shared(meta.namespace or "default", "metadata.namespace"),
        name=checked(meta.name, "metadata.name"),
        deployment=checked(owner.name, "metadata.ownerReferences.name"),
        deployment_uid=owner.uid,
        revision=_revision(meta.annotations),
    )


def number(found: int | None, default: int) -> int:
    """Return a number of the API within its bounds."""
    return default if found is None else min(max(found, 0), REPLICAS_MAX)


def _surge(strategy: DeploymentStrategy, replicas: int) -> int:
    found = strategy.rolling_update.max_surge if strategy.rolling_update else None
    surge = resolved_surge(DEFAULT_SURGE if found is None else found, replicas)
    return min(surge, REPLICAS_MAX)


def _revision(annotations: DeploymentAnnotations | None) -> str:
    return (annotations.revision if annotations else None) or ""


def _manager(raw: msgspec.Raw) -> str:
    """Return the last field manager of `replicas`; of several, one that is not Ebb."""
    try:
        entries = MANAGED.read(raw, "metadata.managedFields") or ()
    except InvalidInputError:
        return ""
    owning = [
        (one.manager != MANAGER, one.time, one.manager)
        for one in entries
        if one.fields and one.fields.spec and one.fields.spec.replicas is not None
    ]
    return max(owning)[2] if owning else ""


def _failure(conditions: Iterable[FailureCondition]) -> str:
    """Return why pods could not be created; empty if they could."""
    for one in conditions:
        if one.type == "ReplicaFailure" and one.status == "True":
            return (one.message or "pods cannot be created")[:MESSAGE_CHARACTERS_MAX]
    return ""
