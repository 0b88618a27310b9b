"""What nodes cost an hour: as configured, or in cores that would cost as much."""

from collections.abc import Callable, Iterable
from fractions import Fraction

from core.config.settings import Config
from core.model.cost import cost
from core.model.errors import ConfigError
from core.model.node import Node

Price = Callable[[Node], Fraction]
"""Returns what a node costs an hour."""


def in_cores(node: Node) -> Fraction:
    """Return the node's cores, with its GPUs and its memory as so many more of them."""
    return cost(node.allocatable) / 1000


def price_of(config: Config | None) -> Price:
    """Return the prices that are configured; without any, `in_cores`."""
    if config is None or not config.prices:
        return in_cores
    return lambda node: config.price_of(node.labels)


def check_prices(config: Config, source: str, templates: Iterable[Node]) -> None:
    """Refuse prices by which all nodes that are played would cost nothing. Raises: ConfigError."""
    if config.prices and not any(config.price_of(one.labels) for one in templates):
        told = (
            "by them every node that is played costs 0; allowed: an entry with a price for labels "
            "of theirs, or no `prices`: then cost is told in cores"
        )
        raise ConfigError(source, (f"prices: {told}",))
