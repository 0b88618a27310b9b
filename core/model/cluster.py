"""What the engine looks at: nodes, pods, budgets; every sequence sorted by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.buffers import Buffer
from core.model.constraints import NO_POD, PodSelector
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget, as far as it is read; what its status says, others have counted."""

    namespace: str
    name: str
    disruptions_allowed: int
    selector: PodSelector = NO_POD
    """The pods that it protects."""
    healthy: int = 0
    """Pods of it that are Ready, and how many of them there must be."""
    healthy_min: int = 0
    expected: int = 0
    """Pods of it that their controllers want."""
    outdated: bool = False
    """Its status is about an earlier spec: the API server evicts none of its pods until then."""
    unhealthy_free: bool = False
    """Its pods that are not Ready may be evicted, whatever its status says (AlwaysAllow)."""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """All nodes and all unfinished pods at one moment; make it with Cluster.of."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[DisruptionBudget, ...] = ()
    attach_limits: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict, hash=False)
    """By node and CSI driver: how many volumes it takes, None: any number. A node without the
    driver takes none of its volumes."""
    buffers: tuple[Buffer, ...] = ()
    """CapacityBuffers of others."""

    @staticmethod
    def of(
        nodes: Iterable[Node], pods: Iterable[Pod], budgets: Iterable[DisruptionBudget] = ()
    ) -> "Cluster":
        """Sort by name; whoever gives them has each name once."""
        return Cluster(
            tuple(sorted(nodes, key=lambda node: node.name)),
            tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
            tuple(sorted(budgets, key=lambda one: (one.namespace, one.name))),
        )

    def used(self) -> dict[str, Resources]:
        """Sum up the requests on every node, all resources."""
        on_node: dict[str, list[Resources]] = {node.name: [] for node in self.nodes}
        for pod in self.pods:
            if pod.node in on_node:
                on_node[pod.node].append(pod.requests)
        return {name: Resources.total(amounts) for name, amounts in on_node.items()}
