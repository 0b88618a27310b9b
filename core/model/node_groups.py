"""Describe node groups, NodePools and NodeClaims, as autoscalers publish them.

Source: ClusterAutoscalerStatus in clusterstate/api of Cluster Autoscaler (from 1.30), and the
types of karpenter.sh/v1.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node group that Cluster Autoscaler manages, with its minimum size."""

    name: str
    """Last part of the group's id: the name of an Auto Scaling group, a scale set or a MIG."""
    min_size: int
    zone: str = ""
    """Zone in the group's id, as GKE has it; empty if the id names none."""
    nodes: int | None = None
    """Number of its nodes that have registered; None if the status does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerStatus:
    """The ConfigMap in which Cluster Autoscaler publishes its status and node groups."""

    namespace: str
    name: str
    groups: tuple[NodeGroup, ...] = ()
    """Node groups in the order of their ids."""
    fault: str = ""
    """Why the node groups are unknown; empty if they are known."""

    @property
    def key(self) -> str:
        """Return namespace/name of the ConfigMap."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A NodePool of Karpenter, and whether Karpenter removes its empty nodes."""

    name: str
    fixed: str = ""
    """Why Karpenter removes no empty nodes of the pool; an empty text if it removes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """A NodeClaim of Karpenter, which stands for one machine, with the Node of that machine."""

    name: str
    node: str = ""
    """Name of the Node; empty if the machine has not registered yet."""
    drifted_seconds: int | None = None
    """Unix second since which Karpenter reports the node as drifted; None if it does not."""
    leaving: str = ""
    """Why the machine is about to go; empty if it stays."""


def leaving_by_claim(claims: Iterable[NodeClaim]) -> dict[str, str]:
    """Return a message why a node is leaving because of its NodeClaim, by node name."""
    return {
        claim.node: f"its NodeClaim {claim.name} {claim.leaving}"
        for claim in claims
        if claim.node and claim.leaving
    }
