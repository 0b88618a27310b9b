"""Count nodes and pods, and sum requests and allocatable resources, in the cluster and each pool.

Unlike the totals of reaches, these totals depend neither on the policy nor on pod constraints.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from core.model.node import Node
from core.model.resources import Resources


@dataclass(slots=True)
class PoolTotals:
    """Totals of the Ready and schedulable nodes of the cluster or of a pool."""

    nodes: int = 0
    pods: int = 0
    cpu_millis: int = 0
    """Requested CPU."""
    memory_bytes: int = 0
    """Requested memory."""
    allocatable_cpu_millis: int = 0
    allocatable_memory_bytes: int = 0

    def add(self, node: Node, requests: Resources) -> None:
        """Add a node, and the requests of its pods."""
        self.nodes += 1
        self.pods += requests.pods
        self.cpu_millis += requests.cpu_millis
        self.memory_bytes += requests.memory_bytes
        self.allocatable_cpu_millis += node.allocatable.cpu_millis
        self.allocatable_memory_bytes += node.allocatable.memory_bytes


def pool_totals(
    nodes: Iterable[Node],
    requests: Mapping[str, Resources],
    pools: Iterable[str],
    pool_of: Callable[[Node], str | None],
) -> tuple[PoolTotals, dict[str, PoolTotals]]:
    """Return the totals of the cluster, and the totals of each pool by its name.

    *nodes*: Ready and schedulable nodes. *requests*: sum of pod requests by node name. *pools*:
    names of all pools. *pool_of* returns the name of a node's pool; a node without a pool counts
    for the cluster only.
    """
    cluster, by_pool = PoolTotals(), {name: PoolTotals() for name in pools}
    for node in nodes:
        used = requests[node.name]
        cluster.add(node, used)
        name = pool_of(node) if by_pool else None
        if name is not None:
            by_pool[name].add(node, used)
    return cluster, by_pool
