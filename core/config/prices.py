"""Settings for the prices of nodes, and for the minimum savings of a removal."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final

from core.setting_types.value_types import Selector, number

PRICES_MAX: Final = 1000
HOURS_A_MONTH: Final = 730
"""Hours of an average month, as in the price lists of clouds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of the nodes that have all these labels."""

    node_selector: Selector
    """Labels of the nodes. A node has the price of the first entry whose labels it has."""
    price: Annotated[Fraction, number(positive=False)]
    """Price of such a node for an hour, in any currency. Nodes without an entry cost 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinSavings:
    """Minimum savings of the removal of a node; both limits apply."""

    per_hour: Annotated[Fraction, number(positive=False)] = Fraction(0)
    """Minimum price of a node for an hour. A cheaper node is not marked."""
    per_month: Annotated[Fraction, number(positive=False)] = Fraction(0)
    """Minimum price of a node for a month of 730 hours. A cheaper node is not marked."""

    @property
    def hourly(self) -> Fraction:
        """Return the minimum price of a node for an hour that satisfies both limits."""
        return max(self.per_hour, self.per_month / HOURS_A_MONTH)
