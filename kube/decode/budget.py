"""Decode PodDisruptionBudgets into core.model.cluster; errors name the field."""

from typing import Annotated, Final

import msgspec

from core.model.cluster import DisruptionBudget
from core.model.constraints import PodSelector
from core.model.errors import InvalidInputError
from kube.decode.field_decoding import (
    NULL,
    ApiName,
    BoundedField,
    check_memory,
    checked_name,
    shared_name,
)
from kube.decode.objects import LabelSelector, Meta, Struct
from kube.decode.selectors import pods_of

ALWAYS_ALLOW: Final = "AlwaysAllow"
"""The unhealthyPodEvictionPolicy that always allows evicting pods that are not Ready."""


SELECTOR: Final = BoundedField[LabelSelector](LabelSelector, bytes_max=48 * 1024)
"""Limit on a selector; a selector with 500 values of the maximum length has 33 kB."""
KEPT_BYTES_MAX: Final = 62_000
"""Maximum memory of a decoded selector."""
SMALL_BYTES: Final = 2 * 1024
"""Size of a selector in JSON up to which it always takes less memory than KEPT_BYTES_MAX."""


class BudgetStatus(Struct):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class BudgetSpec(Struct):
    selector: Annotated[msgspec.Raw, SELECTOR] = NULL
    unhealthy_pod_eviction_policy: ApiName | None = None


class BudgetMeta(Meta):
    generation: int = 0


class BudgetObject(Struct):
    metadata: BudgetMeta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


def budget(obj: BudgetObject) -> DisruptionBudget:
    """Convert a PodDisruptionBudget to a DisruptionBudget.

    If its selector is too large, the result protects all pods of the namespace. Raises:
    InvalidInputError with the invalid field.
    """
    namespace = shared_name(obj.metadata.namespace or "default", "metadata.namespace")
    spec, status = obj.spec or BudgetSpec(), obj.status or BudgetStatus()
    selector, too_much = _selector(spec.selector, namespace)
    return DisruptionBudget(
        namespace=namespace,
        name=checked_name(obj.metadata.name, "metadata.name"),
        disruptions_allowed=status.disruptions_allowed,
        selector=selector,
        too_much=too_much,
        healthy=status.current_healthy,
        healthy_min=status.desired_healthy,
        expected=status.expected_pods,
        outdated=status.observed_generation < obj.metadata.generation,
        unhealthy_free=spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW,
    )


def _selector(raw: msgspec.Raw, namespace: str) -> tuple[PodSelector, str]:
    """Decode the selector of a PodDisruptionBudget; return it, and an empty text.

    If it is too large, return a selector for all pods of the namespace, and a message with the
    exceeded limit.
    """
    too_much = SELECTOR.why_too_large(raw)
    if not too_much:
        selector = pods_of(SELECTOR.decode(raw, "spec.selector"), (namespace,))
        try:
            if len(raw) > SMALL_BYTES:
                check_memory(selector, KEPT_BYTES_MAX)
        except InvalidInputError as fault:
            too_much = fault.problem
        else:
            return selector, ""
    return PodSelector((namespace,), ()), f"its selector is too large: {too_much}"
