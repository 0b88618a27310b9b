"""Settings for the prices of nodes."""

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
    """Price for an hour of a node with the labels in `nodeSelector`, in any currency. Nodes
    without an entry cost 0."""
