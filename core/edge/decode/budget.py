"""PodDisruptionBudgets: from the wire to core.model.cluster. Faults name the field."""

from typing import Final

import msgspec

from core.edge.decode import templates
from core.edge.decode.fields import checked
from core.edge.decode.objects import NULL, Meta, Struct
from core.model.cluster import DisruptionBudget


class BudgetStatus(Struct):
    """A PodDisruptionBudget's status."""

    disruptions_allowed: int = 0


class BudgetSpec(Struct):
    """A PodDisruptionBudget's spec."""

    selector: msgspec.Raw = NULL


class BudgetObject(Struct):
    """A PodDisruptionBudget."""

    metadata: Meta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


BUDGET_DECODER: Final = msgspec.json.Decoder(BudgetObject)


def budget(obj: BudgetObject) -> DisruptionBudget:
    """Make a DisruptionBudget. Raises: InvalidInputError with the field."""
    namespace = obj.metadata.namespace or "default"
    return DisruptionBudget(
        namespace=namespace,
        name=checked(obj.metadata.name, "metadata.name"),
        disruptions_allowed=obj.status.disruptions_allowed if obj.status else 0,
        selector=templates.budget_selector(
            bytes(obj.spec.selector if obj.spec else NULL), namespace
        ),
    )
