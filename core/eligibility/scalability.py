"""Decide whether an autoscaler removes a node: scalable, not scalable, or unknown.

Of these verdicts only *not scalable* keeps Ebb from marking a node. Whether a node group is at its
minimum depends on the other nodes of the group. So core.engine.limits decides that, while a plan
is made.

Sources: the labels and node group names of EKS, GKE and AKS; ParseMigUrl of Cluster Autoscaler's
gce provider; Emptiness.ShouldDisrupt of Karpenter.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeGroup, NodePool
from core.model.reason import Reason

NOT_SCALABLE: Final = Reason(
    "not-scalable",
    "No autoscaler would remove the node: its node pool is fixed or for system pods, or its node "
    "group is at its minimum.",
    "none needed; to let Ebb empty the node, change what the message names, such as the minimum "
    "of its node group",
    "the node group has more nodes than its minimum, or what the message names has changed",
)

SYSTEM_LABEL: Final = ("kubernetes.azure.com/mode", "system")
"""Label of AKS nodes in a system pool, which AKS needs for its own pods."""
EMBEDDED_PROVIDER: Final = "k3s"
"""Provider of nodes that k3s itself manages; nothing creates or removes their machines."""
ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_EKS_ID: Final = r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]*[0-9][0-9a-f]*)"
GROUP_LABELS: Final[Mapping[str, str]] = {
    "eks.amazonaws.com/nodegroup": rf"eks-VALUE-{_EKS_ID}",
    "cloud.google.com/gke-nodepool": r"gke-.+-VALUE-[0-9a-f]+-grp",
    "kubernetes.azure.com/agentpool": r"aks-VALUE-[0-9]+-vmss|aksVALUE",
}
"""Labels that name the managed node group of a node, and the name of that group in the cloud.

The label's value replaces VALUE. It must be the whole name of the pool, so that `web` is not taken
for the pool of `eks-web-large-1234`. Scale sets of Windows pools have short names, as `akswin`."""
_LABELS_READ: Final = (SYSTEM_LABEL[0], KARPENTER_LABEL, *GROUP_LABELS, *ZONE_LABELS)
"""Labels on which the verdict on a node depends."""


class Scalability(StrEnum):
    """Whether an autoscaler removes a node that is empty and unneeded."""

    SCALABLE = "scalable"
    NOT_SCALABLE = "not-scalable"
    UNKNOWN = "unknown"


class NodeScalability(NamedTuple):
    """Whether an autoscaler removes a node when it is empty, with a text that says why."""

    state: Scalability
    evidence: str
    group: NodeGroup | None = None
    """Node group of the node, if Cluster Autoscaler reports it."""


@dataclass(frozen=True, slots=True)
class Autoscalers:
    """The autoscalers of a cluster that publish which nodes they manage, with that information."""

    status: AutoscalerStatus | None = None
    """Status of Cluster Autoscaler; None if there is none."""
    node_pools: Mapping[str, NodePool] = field(default_factory=dict)
    """NodePools of Karpenter by name."""

    @staticmethod
    def of(cluster: Cluster, status_key: str) -> "Autoscalers":
        """Return the autoscalers that the objects of a cluster show.

        *status_key*: namespace/name of the ConfigMap with the status of Cluster Autoscaler.
        """
        statuses = (status for status in cluster.autoscaler_statuses if status.key == status_key)
        pools = {pool.name: pool for pool in cluster.node_pools}
        return Autoscalers(next(statuses, None), pools)

    @property
    def found(self) -> bool:
        """Return whether any autoscaler publishes which nodes it manages."""
        return self.status is not None or bool(self.node_pools)

    def verdicts(self, nodes: Iterable[Node]) -> Mapping[str, NodeScalability]:
        """Return for each node whether an autoscaler removes it when it is empty, by node name."""
        known: dict[tuple[str | None, ...], NodeScalability] = {}
        verdicts = {}
        for node in nodes:
            traits = (node.provider, *map(node.labels.get, _LABELS_READ))
            if traits not in known:
                known[traits] = self.verdict(node)
            verdicts[node.name] = known[traits]
        return verdicts

    def verdict(self, node: Node) -> NodeScalability:
        """Return whether an autoscaler removes the node when it is empty, and why."""
        return _of_platform(node) or self._of_karpenter(node) or self._of_group(node)

    def _of_karpenter(self, node: Node) -> NodeScalability | None:
        name = node.labels.get(KARPENTER_LABEL)
        if name is None:
            return None
        pool = self.node_pools.get(name)
        if pool is None:
            return _unknown(f"its NodePool {name} is not known")
        if pool.fixed:
            return _not(f"its NodePool {name} {pool.fixed}")
        return NodeScalability(Scalability.SCALABLE, f"Karpenter manages it (NodePool {name})")

    def _of_group(self, node: Node) -> NodeScalability:
        label = next((key for key in GROUP_LABELS if key in node.labels), None)
        if label is None:
            return _unknown("no label names its node group")
        if self.status is not None:
            return _in_group(node, label, self.status)
        named = f"{label}={node.labels[label]}"
        if self.node_pools:
            return _not(
                f"its node group ({named}) is fixed: Karpenter manages other nodes, and there is "
                "no Cluster Autoscaler"
            )
        return _unknown(f"no autoscaler was found for its node group ({named})")


def _of_platform(node: Node) -> NodeScalability | None:
    key, value = SYSTEM_LABEL
    if node.labels.get(key) == value:
        return _not(f"label {key}={value} says that it is in a system pool")
    if node.provider == EMBEDDED_PROVIDER:
        return _not(f"no autoscaler manages machines with a providerID {EMBEDDED_PROVIDER}://")
    return None


def _not(evidence: str) -> NodeScalability:
    return NodeScalability(Scalability.NOT_SCALABLE, evidence)


def _unknown(evidence: str) -> NodeScalability:
    return NodeScalability(Scalability.UNKNOWN, evidence)


def _in_group(node: Node, label: str, status: AutoscalerStatus) -> NodeScalability:
    if status.fault:
        return _unknown(f"ConfigMap {status.key}: {status.fault}")
    candidates = _groups_of(node, label, status.groups)
    named = f"{label}={node.labels[label]}"
    if len(candidates) != 1:
        many = f"{len(candidates)} node groups" if candidates else "no node group"
        return _unknown(f"{many} in ConfigMap {status.key} may be the node's ({named})")
    (group,) = candidates
    return NodeScalability(
        Scalability.SCALABLE,
        f"Cluster Autoscaler manages its node group {group.name} (minimum {group.min_size})",
        group,
    )


def _groups_of(node: Node, label: str, groups: Iterable[NodeGroup]) -> list[NodeGroup]:
    """Return the node groups that may be the node's, by their names and zones.

    *label*: the label of the node that names its managed node group, a key of GROUP_LABELS.
    """
    value = node.labels[label]
    form = re.compile(GROUP_LABELS[label].replace("VALUE", re.escape(value)))
    zones = {node.labels[key] for key in ZONE_LABELS if key in node.labels}
    return [
        group
        for group in groups
        if (not group.zone or group.zone in zones)
        and (group.name == value or form.fullmatch(group.name))
    ]
