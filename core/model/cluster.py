"""Define a snapshot of the cluster: nodes, pods, disruption budgets; each list sorted by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.model.buffers import Buffer
from core.model.constraints import NO_POD, Disk, NodeConstraints, PodSelector
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodePool
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.sorted_objects import BY_NAME, BY_NAMESPACE_AND_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget, with the counts from its status, which the API server enforces."""

    namespace: str
    name: str
    disruptions_allowed: int
    selector: PodSelector = NO_POD
    """The pods that the budget protects."""
    healthy: int = 0
    """Number of its pods that are Ready."""
    healthy_min: int = 0
    """Number of its pods that must be Ready."""
    expected: int = 0
    """Number of pods that the controllers of its pods want."""
    outdated: bool = False
    """The status describes an earlier spec; the API server evicts no pod of the budget then."""
    too_much: str = ""
    """Why the selector is not evaluated; empty if it is.

    Such a budget protects every pod of its namespace."""
    unhealthy_free: bool = False
    """Pods that are not Ready may be evicted regardless of the status (AlwaysAllow)."""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """A DaemonSet, with the constraints that decide which nodes get its pods."""

    namespace: str
    name: str
    node_constraints: NodeConstraints
    """Node constraints of its pods, with the tolerations that the DaemonSet controller adds."""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class SurgeFacts(NamedTuple):
    """The ReplicaSets and pods that surge moves may affect, and those that they affect now.

    A surge move detaches a pod on a marked node from its ReplicaSet, which creates a new pod, and
    gives it back to be deleted when the new pod is available. ReplicaSets are pairs of namespace
    and name.
    """

    allowed: frozenset[tuple[str, str]] = frozenset()
    """Current ReplicaSets of the Deployments whose own strategy allows surge moves."""
    moving: frozenset[tuple[str, str]] = frozenset()
    """ReplicaSets of the Deployments that have a move now, or had one in the last
    reconciliation."""
    replaced: frozenset[str] = frozenset()
    """Pods, as namespace/name, that moves replace and whose new pod exists."""


NO_SURGE: Final = SurgeFacts()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes, unfinished pods and other objects of a cluster at one moment.

    The objects of each kind are sorted by name; `Cluster.of` sorts them.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[DisruptionBudget, ...] = ()
    attach_limits: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict, hash=False)
    """Maximum number of volumes by node and CSI driver; None means unlimited.

    A node on which the driver is not installed takes none of its volumes."""
    attachments: Mapping[str, frozenset[Disk]] = field(default_factory=dict, hash=False)
    """Volumes with a VolumeAttachment by node, without volumes of drivers that have no limit."""
    buffers: tuple[Buffer, ...] = ()
    """CapacityBuffers; those that Ebb has written have `published` set."""
    node_pools: tuple[NodePool, ...] = ()
    """NodePools of Karpenter, by name."""
    node_claims: tuple[NodeClaim, ...] = ()
    """NodeClaims of Karpenter, by name."""
    autoscaler_statuses: tuple[AutoscalerStatus, ...] = ()
    """ConfigMaps, of which one may be the status of Cluster Autoscaler, by namespace and name."""
    daemon_sets: tuple[DaemonSet, ...] = ()
    """DaemonSets, by namespace and name; empty if RBAC does not allow reading them."""
    surge: SurgeFacts = NO_SURGE
    """Only a running controller with `surge.mode: enabled` knows them."""

    @staticmethod
    def of(
        nodes: Iterable[Node], pods: Iterable[Pod], budgets: Iterable[DisruptionBudget] = ()
    ) -> "Cluster":
        """Return a Cluster of these objects, sorted by namespace and name.

        No two objects of a kind may have the same namespace and name.
        """
        return Cluster(
            tuple(sorted(nodes, key=BY_NAME)),
            tuple(sorted(pods, key=BY_NAMESPACE_AND_NAME)),
            tuple(sorted(budgets, key=BY_NAMESPACE_AND_NAME)),
        )

    def used(self) -> dict[str, Resources]:
        """Return the sum of the pod requests on each node, by node name.

        A node without pods has amounts of 0.
        """
        on_node: dict[str, list[Resources]] = {node.name: [] for node in self.nodes}
        for pod in self.pods:
            if pod.node in on_node:
                on_node[pod.node].append(pod.requests)
        return {name: Resources.total(amounts) for name, amounts in on_node.items()}
