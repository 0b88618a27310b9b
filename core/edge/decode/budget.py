"""Decode PodDisruptionBudgets into core.model.cluster; errors name the field."""

from typing import Final

from core.edge.decode.fields import checked
from core.edge.decode.objects import LabelSelector, Meta, Struct
from core.edge.decode.selectors import pods_of
from core.model.cluster import DisruptionBudget

ALWAYS_ALLOW: Final = "AlwaysAllow"
"""The policy that always allows to evict pods that are not Ready."""


class BudgetStatus(Struct):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class BudgetSpec(Struct):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetMeta(Meta):
    generation: int = 0


class BudgetObject(Struct):
    metadata: BudgetMeta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


def budget(obj: BudgetObject) -> DisruptionBudget:
    """Create a DisruptionBudget. Raises: InvalidInputError with the field."""
    namespace = obj.metadata.namespace or "default"
    spec, status = obj.spec or BudgetSpec(), obj.status or BudgetStatus()
    return DisruptionBudget(
        namespace=namespace,
        name=checked(obj.metadata.name, "metadata.name"),
        disruptions_allowed=status.disruptions_allowed,
        selector=pods_of(spec.selector, (namespace,)),
        healthy=status.current_healthy,
        healthy_min=status.desired_healthy,
        expected=status.expected_pods,
        outdated=status.observed_generation < obj.metadata.generation,
        unhealthy_free=spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW,
    )
