"""Hourly cost of nodes: configured prices, or an equivalent number of cores."""

from collections.abc import Callable, Iterable
from fractions import Fraction

from core.config.settings import Config
from core.model.cost import cost
from core.model.errors import ConfigError
from core.model.node import Node

Price = Callable[[Node], Fraction]
"""Returns the hourly cost of a node."""


def in_cores(node: Node) -> Fraction:
    """Return the cost of a node in cores: its CPU, plus memory and GPUs converted to cores."""
    return cost(node.allocatable) / 1000


def price_of(config: Config | None) -> Price:
    """Return a function that computes the hourly cost of a node.

    It uses the prices of the configuration. Without a configuration or without prices, it is
    `in_cores`.
    """
    if config is None or not config.prices:
        return in_cores
    return lambda node: config.price_of(node.labels)


def check_prices(config: Config, source: str, templates: Iterable[Node]) -> None:
    """Reject prices that are 0 for all simulated nodes. Raises: ConfigError.

    *source*: name of the configuration, for the error. *templates*: one Node of each node group.
    """
    if config.prices and not any(config.price_of(template.labels) for template in templates):
        problem = (
            "every simulated node costs 0; add an entry that matches nodes of the load, or remove "
            "`prices`, and the simulation counts cores instead of money"
        )
        raise ConfigError(source, (f"prices: {problem}",))
