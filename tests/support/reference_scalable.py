"""Reference implementation of the rule for nodes that no autoscaler removes.

It follows docs/how-it-works.md, and shares only values with the product.
"""

from typing import TYPE_CHECKING

from core.model.cluster import Cluster
from core.model.node import Node

if TYPE_CHECKING:
    from core.config.settings import Config
    from core.model.node_groups import AutoscalerStatus, NodeGroup

EKS, GKE = "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool"
AKS = "kubernetes.azure.com/agentpool"
KARPENTER = "karpenter.sh/nodepool"
ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def status_of(cluster: Cluster, config: "Config") -> "AutoscalerStatus | None":
    """Return the status that Cluster Autoscaler publishes."""
    where = config.cluster_autoscaler
    for one in cluster.autoscaler_statuses:
        if (one.namespace, one.name) == (where.status_namespace, where.status_name):
            return one
    return None


def is_fixed(node: Node, cluster: Cluster, config: "Config") -> bool:
    """Return whether no autoscaler removes the node, however large its group is."""
    labels = node.labels
    if labels.get("kubernetes.azure.com/mode") == "system" or node.provider == "k3s":
        return True
    if KARPENTER in labels:
        return any(p.fixed for p in cluster.node_pools if p.name == labels[KARPENTER])
    managed = any(label in labels for label in (EKS, GKE, AKS))
    return managed and bool(cluster.node_pools) and status_of(cluster, config) is None


def group_of(node: Node, cluster: Cluster, config: "Config") -> "NodeGroup | None":
    """Return the node's group, or None if it is unknown."""
    status = status_of(cluster, config)
    if status is None or KARPENTER in node.labels or is_fixed(node, cluster, config):
        return None
    label = next((one for one in (EKS, GKE, AKS) if one in node.labels), "")
    if not label:
        return None
    here = {node.labels[key] for key in ZONES if key in node.labels}
    found = [
        one
        for one in status.groups
        if named(one.name, label, node.labels[label]) and (one.zone == "" or one.zone in here)
    ]
    return found[0] if len(found) == 1 else None


def named(group: str, label: str, pool: str) -> bool:
    """Return whether a cloud gives this name to the group of the pool."""
    if group == pool:
        return True
    parts = group.split("-")
    if label == GKE:
        middle = "-".join(parts[1:-2])
        ends = parts[0] == "gke" and parts[-1] == "grp" and is_hex(parts[-2])
        return ends and middle.endswith(f"-{pool}") and middle != f"-{pool}"
    if label == AKS:
        inner = group.removeprefix("aks-").removesuffix("-vmss")
        number = inner.removeprefix(f"{pool}-")
        linux = group == f"aks-{pool}-{number}-vmss" and number.isdecimal()
        return linux or group == f"aks{pool}"
    number = group.removeprefix(f"eks-{pool}-")
    if group != f"eks-{pool}-{number}":
        return False
    blocks = number.split("-")
    uuid = [len(block) for block in blocks] == [8, 4, 4, 4, 12] and all(map(is_hex, blocks))
    return uuid or (is_hex(number) and any(one.isdecimal() for one in number))


def is_hex(text: str) -> bool:
    """Return whether the text has only hexadecimal digits."""
    return bool(text) and set(text) <= set("0123456789abcdef")
