"""Decode HorizontalPodAutoscalers and ResourceQuotas into core.moves.objects.

Source: k8s.io/api autoscaling/v2 and core/v1. Errors name the field.
"""

from sys import intern
from typing import Annotated, Final

import msgspec

from core.moves.objects import HPA_WINDOW_SECONDS, HorizontalAutoscaler, ResourceQuota
from kube.decode.deployments import DEPLOYMENT, number
from kube.decode.fields import (
    NULL,
    ApiName,
    Bounded,
    checked,
    few_bytes,
    read_quantity,
    shared,
)
from kube.decode.objects import Amounts, Name, Struct

QUOTA_BYTES_MAX: Final = 32 * 1024
"""Maximum size of each map of amounts in a ResourceQuota, in JSON."""
KEPT_BYTES_MAX: Final = 60_000
"""Maximum memory that a ResourceQuota takes; one that would take more is unreadable."""
SMALL_BYTES: Final = 4 * 1024
"""Size in JSON of amounts that surely take less."""
APPS: Final = "apps/"
CPU_NAMES: Final = frozenset({"cpu", "requests.cpu", "limits.cpu"})
QUOTA_AMOUNTS: Final = Bounded[Amounts](Amounts, bytes_max=QUOTA_BYTES_MAX)


class ScaleTarget(Struct):
    api_version: ApiName | None = None
    kind: ApiName = ""
    name: ApiName = ""


class ScaleDownRules(Struct):
    stabilization_window_seconds: int | None = None


class Behavior(Struct):
    scale_down: ScaleDownRules | None = None


class AutoscalerSpec(Struct):
    scale_target_ref: ScaleTarget | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    behavior: Behavior | None = None


class AutoscalerObject(Struct):
    metadata: Name
    spec: AutoscalerSpec | None = None


class QuotaSpec(Struct):
    hard: Annotated[msgspec.Raw, QUOTA_AMOUNTS] = NULL


class QuotaStatus(Struct):
    hard: Annotated[msgspec.Raw, QUOTA_AMOUNTS] = NULL
    used: Annotated[msgspec.Raw, QUOTA_AMOUNTS] = NULL


class QuotaObject(Struct):
    metadata: Name
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


def horizontal_autoscaler(obj: AutoscalerObject) -> HorizontalAutoscaler | None:
    """Create a HorizontalAutoscaler; None if it scales no Deployment.

    Raises: InvalidInputError with the field.
    """
    spec = obj.spec or AutoscalerSpec()
    target = spec.scale_target_ref or ScaleTarget()
    if target.kind != DEPLOYMENT or not (target.api_version or APPS).startswith(APPS):
        return None
    rules = (spec.behavior.scale_down if spec.behavior else None) or ScaleDownRules()
    return HorizontalAutoscaler(
        namespace=shared(obj.metadata.namespace or "default", "metadata.namespace"),
        name=checked(obj.metadata.name, "metadata.name"),
        target=checked(target.name, "spec.scaleTargetRef.name"),
        replicas_min=number(spec.min_replicas, 1),
        replicas_max=number(spec.max_replicas, 0),
        window_seconds=number(rules.stabilization_window_seconds, HPA_WINDOW_SECONDS),
    )


def resource_quota(obj: QuotaObject) -> ResourceQuota:
    """Create a ResourceQuota. Raises: InvalidInputError with the field."""
    spec, status = obj.spec or QuotaSpec(), obj.status or QuotaStatus()
    made = ResourceQuota(
        namespace=shared(obj.metadata.namespace or "default", "metadata.namespace"),
        name=checked(obj.metadata.name, "metadata.name"),
        # The API server checks new pods against the status. It has no limits until the
        # controller has counted for the first time.
        hard=_amounts(status.hard, "status.hard") or _amounts(spec.hard, "spec.hard"),
        used=_amounts(status.used, "status.used"),
    )
    if len(spec.hard) + len(status.hard) + len(status.used) > SMALL_BYTES:
        few_bytes(made, KEPT_BYTES_MAX)
    return made


def _amounts(raw: msgspec.Raw, field: str) -> dict[str, int]:
    """Return amounts by resource; those of requests.cpu and limits.cpu are in millicores too."""
    found = QUOTA_AMOUNTS.read(raw, field) or {}
    return {
        intern(name): read_quantity(
            "cpu" if name in CPU_NAMES else name, written, f"{field}.{name}"
        )
        for name, written in found.items()
    }
