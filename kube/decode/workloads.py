"""Decode DaemonSets, Deployments, ReplicaSets and HorizontalPodAutoscalers.

Errors name the field. Sources: k8s.io/api apps/v1 and autoscaling/v2; NodeShouldRunDaemonPod and
AddOrUpdateDaemonPodTolerations of the DaemonSet controller.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final

import msgspec

from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster import DaemonSet
from core.model.constraints import Toleration
from core.moves.listed import ListedDeployment, ListedReplicaSet
from core.moves.objects import (
    ROLLING_UPDATE,
    HorizontalAutoscaler,
    ObservedDeployment,
    resolved_surge,
)
from kube.decode import templates
from kube.decode.buffers import PodTemplateSpec
from kube.decode.field_decoding import (
    NULL,
    ApiName,
    BoundedField,
    check_memory,
    checked_name,
    shared_name,
)
from kube.decode.objects import Meta, Name, PodSpec, Struct, keyed
from kube.decode.pod import with_rare_constraints
from kube.decode.selectors import ordered

REVISION_ANNOTATION: Final = "deployment.kubernetes.io/revision"
REPLICAS_MAX: Final = 2**31 - 1
"""Maximum of a 32-bit number, as in the API."""
CONDITIONS_BYTES_MAX: Final = 64 * 1024
MESSAGE_CHARACTERS_MAX: Final = 200
DEFAULT_SURGE: Final = "25%"
DEPLOYMENT: Final = "Deployment"
APPS: Final = "apps/"
DAEMON_SET_MEMORY_MAX: Final = 62_000
"""Maximum memory that a DaemonSet takes; a DaemonSet that would take more is unreadable."""
SMALL_BYTES: Final = 4 * 1024
"""Size in JSON up to which the constraints of a DaemonSet take less memory than
DAEMON_SET_MEMORY_MAX."""


def _tolerates(condition: str, effect: str) -> Toleration:
    return Toleration(f"node.kubernetes.io/{condition}", "Exists", effect=effect)


ADDED: Final = (
    _tolerates("not-ready", "NoExecute"),
    _tolerates("unreachable", "NoExecute"),
    _tolerates("disk-pressure", "NoSchedule"),
    _tolerates("memory-pressure", "NoSchedule"),
    _tolerates("pid-pressure", "NoSchedule"),
    _tolerates("unschedulable", "NoSchedule"),
)
"""Tolerations that the DaemonSet controller adds to each pod."""
ADDED_ON_HOST: Final = _tolerates("network-unavailable", "NoSchedule")
"""Toleration that the DaemonSet controller adds to each pod with hostNetwork."""


class DaemonSetSpec(Struct):
    template: PodTemplateSpec | None = None


class DaemonSetObject(Struct):
    metadata: Meta
    spec: DaemonSetSpec | None = None


class DeploymentAnnotations(Struct):
    """The annotations of a Deployment or its pod template that Ebb reads."""

    keep: str | None = keyed(KEEP_ANNOTATION)
    revision: ApiName | None = keyed(REVISION_ANNOTATION)


class DeploymentMeta(Meta):
    generation: int = 0
    annotations: DeploymentAnnotations | None = None


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


CONDITIONS: Final = BoundedField[list[FailureCondition]](
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
    """An owner reference, with the UID of the owner."""

    kind: ApiName = ""
    name: ApiName = ""
    uid: ApiName = ""
    controller: bool | None = None


CONTROLLER_OWNERS: Final = BoundedField[list[ControllerOwner]](
    list[ControllerOwner], items_max=1024
)


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


class ScaleTarget(Struct):
    api_version: ApiName | None = None
    kind: ApiName = ""
    name: ApiName = ""


class AutoscalerSpec(Struct):
    scale_target_ref: ScaleTarget | None = None


class AutoscalerObject(Struct):
    metadata: Name
    spec: AutoscalerSpec | None = None


def daemon_set(obj: DaemonSetObject) -> DaemonSet | None:
    """Convert a DaemonSet, with the node constraints of its pods; None if it is being deleted.

    If the constraints of its pods exceed a limit, Ebb reads only the tolerations that the
    DaemonSet controller adds. Raises: InvalidInputError with the invalid field.
    """
    meta = obj.metadata
    if meta.deletion_timestamp is not None:
        return None
    pod_template = obj.spec.template if obj.spec else None
    spec = (pod_template.spec if pod_template else None) or PodSpec()
    blocks = spec.node_selector, spec.affinity, spec.tolerations
    template = templates.template(*map(bytes, blocks))
    # The containers are not decoded: that a container can restart all others is not known here.
    node_constraints = with_rare_constraints(template.node_constraints, spec)
    added = (*ADDED, ADDED_ON_HOST) if spec.host_network else ADDED
    tolerations = ordered((*node_constraints.tolerations, *added))
    result = DaemonSet(
        namespace=shared_name(meta.namespace or "default", "metadata.namespace"),
        name=checked_name(meta.name, "metadata.name"),
        node_constraints=replace(node_constraints, tolerations=tolerations),
    )
    if sum(map(len, blocks)) > SMALL_BYTES:
        check_memory(result, DAEMON_SET_MEMORY_MAX)
    return result


def deployment(obj: DeploymentObject) -> ListedDeployment | None:
    """Convert a Deployment; None if it is being deleted.

    The name of its current ReplicaSet is left empty, as a Deployment does not contain it. Raises:
    InvalidInputError with the invalid field.
    """
    meta = obj.metadata
    if meta.deletion_timestamp is not None:
        return None
    spec, status = obj.spec or DeploymentSpec(), obj.status or DeploymentStatus()
    template = spec.template.metadata if spec.template else None
    strategy = spec.strategy or DeploymentStrategy()
    replicas = number(spec.replicas, 1)
    observed = ObservedDeployment(
        namespace=shared_name(meta.namespace or "default", "metadata.namespace"),
        name=checked_name(meta.name, "metadata.name"),
        uid=meta.uid,
        replicas=replicas,
        strategy=strategy.type,
        max_surge=_surge(strategy, replicas),
        paused=bool(spec.paused),
        keep=any(
            metadata.annotations is not None and metadata.annotations.keep == "true"
            for metadata in (meta, template)
            if metadata is not None
        ),
        generation=meta.generation,
        observed_generation=number(status.observed_generation, 0),
        pods=number(status.replicas, 0),
        updated=number(status.updated_replicas, 0),
        available=number(status.available_replicas, 0),
        min_ready_seconds=number(spec.min_ready_seconds, 0),
        progress_deadline_seconds=number(spec.progress_deadline_seconds, 600),
        replica_set="",
        replica_failure=_failure(CONDITIONS.decode(status.conditions, "status.conditions") or ()),
    )
    return ListedDeployment(observed=observed, revision=_revision(meta.annotations))


def replica_set(obj: ReplicaSetObject) -> ListedReplicaSet | None:
    """Convert a ReplicaSet; None if no Deployment controls it, or if it has no pods.

    A Deployment keeps ten old ReplicaSets without pods by default. Raises: InvalidInputError with
    the invalid field.
    """
    meta = obj.metadata
    spec, status = obj.spec or ReplicaSetSpec(), obj.status or ReplicaSetStatus()
    if spec.replicas == 0 and not status.replicas:
        return None
    owners = CONTROLLER_OWNERS.decode(meta.owner_references, "metadata.ownerReferences") or ()
    owner = next((reference for reference in owners if reference.controller), None)
    if owner is None or owner.kind != DEPLOYMENT:
        return None
    return ListedReplicaSet(
        namespace=shared_name(meta.namespace or "default", "metadata.namespace"),
        name=checked_name(meta.name, "metadata.name"),
        deployment=checked_name(owner.name, "metadata.ownerReferences.name"),
        deployment_uid=owner.uid,
        revision=_revision(meta.annotations),
    )


def number(value: int | None, default: int) -> int:
    """Return *value*, limited to the range from 0 to REPLICAS_MAX; *default* if it is missing."""
    return default if value is None else min(max(value, 0), REPLICAS_MAX)


def _surge(strategy: DeploymentStrategy, replicas: int) -> int:
    max_surge = strategy.rolling_update.max_surge if strategy.rolling_update else None
    surge = resolved_surge(DEFAULT_SURGE if max_surge is None else max_surge, replicas)
    return min(surge, REPLICAS_MAX)


def _revision(annotations: DeploymentAnnotations | None) -> str:
    return (annotations.revision if annotations else None) or ""


def _failure(conditions: Iterable[FailureCondition]) -> str:
    """Return why the Deployment could not create pods; empty if there was no failure."""
    for condition in conditions:
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return (condition.message or "pods cannot be created")[:MESSAGE_CHARACTERS_MAX]
    return ""


def horizontal_autoscaler(obj: AutoscalerObject) -> HorizontalAutoscaler | None:
    """Convert a HorizontalPodAutoscaler; None if it does not scale a Deployment.

    Raises: InvalidInputError with the invalid field.
    """
    spec = obj.spec or AutoscalerSpec()
    target = spec.scale_target_ref or ScaleTarget()
    if target.kind != DEPLOYMENT or not (target.api_version or APPS).startswith(APPS):
        return None
    return HorizontalAutoscaler(
        namespace=shared_name(obj.metadata.namespace or "default", "metadata.namespace"),
        name=checked_name(obj.metadata.name, "metadata.name"),
        target=checked_name(target.name, "spec.scaleTargetRef.name"),
    )
