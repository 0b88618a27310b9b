"""What nodes cost an hour: as configured, or in cores that would cost as much."""

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from core.config.settings import Config
from core.engine.reserve import DEVICE_MILLIS, GIB, GIB_MILLIS
from core.model.node import Node
from sim.cluster import GPU

Price = Callable[[Node], Fraction]
"""Returns what a node costs an hour."""
CORES_PER_GPU: Final = Fraction(DEVICE_MILLIS, 1000)
CORES_PER_GIB: Final = Fraction(GIB_MILLIS, 1000)


def in_cores(node: Node) -> Fraction:
    """Return the node's cores, with its GPUs and its memory as so many more of them."""
    whole = node.allocatable
    gpus = Fraction(dict(whole.extended).get(GPU, 0), 1000)
    memory = CORES_PER_GIB * whole.memory_bytes / GIB
    return Fraction(whole.cpu_millis, 1000) + CORES_PER_GPU * gpus + memory


def price_of(config: Config | None) -> Price:
    """Return the prices that are configured; without any, `in_cores`."""
    if config is None or not config.prices:
        return in_cores
    return lambda node: config.price_of(node.labels)
