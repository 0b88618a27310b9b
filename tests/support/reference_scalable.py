"""Reference implementation of the rule for nodes that no autoscaler removes.

It follows docs/design/planning.md, and shares only values with the product.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from core.model.cluster import Cluster
from core.model.node import Node

if TYPE_CHECKING:
    from core.config.settings import Config
    from core.model.node_groups import AutoscalerStatus, NodeGroup

EKS, GKE = "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool"
AKS = "kubernetes.azure.com/agentpool"
EXACT = (
    "doks.digitalocean.com/node-pool-id",
    "lke.linode.com/pool-id",
    "k8s.scaleway.com/pool",
    "kubernetes.civo.com/civo-node-pool",
    "hcloud/node-group",
    "compute.coreweave.com/node-pool-uid",
    "nodepool",
)
"""Labels whose value is the name of the group."""
EXACT_ANNOTATIONS = (
    "oci.oraclecloud.com/node-pool-id",
    "cluster-autoscaler.kwok.nodegroup/name",
)
KARPENTER = "karpenter.sh/nodepool"
ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def status_of(cluster: Cluster, config: "Config") -> "AutoscalerStatus | None":
    """Return the status that Cluster Autoscaler publishes."""
    namespace, name = config.cluster_autoscaler.status.split("/")
    for one in cluster.autoscaler_statuses:
        if (one.namespace, one.name) == (namespace, name):
            return one
    return None


def is_fixed(node: Node, cluster: Cluster, config: "Config") -> bool:
    """Return whether no autoscaler removes the node, however large its group is."""
    labels = node.labels
    if labels.get("kubernetes.azure.com/mode") == "system" or node.provider in (
        "k3s",
        "rke2",
        "eks-hybrid",
        "hrobot",
    ):
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
    here = {node.labels[key] for key in ZONES if key in node.labels}
    near = [one for one in status.groups if one.zone == "" or one.zone in here]
    for names in possible(node):
        found = [one for one in near if names(one.name)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def possible(node: Node) -> "list[Callable[[str], bool]]":
    """Return for each label and annotation of the node a test for the name of its group."""
    labels, annotations = node.labels, node.annotations
    tests: list[Callable[[str], bool]] = [
        partial(named, label=label, pool=labels[label])
        for label in (EKS, GKE, AKS)
        if label in labels
    ]
    if owner := annotations.get("cluster.x-k8s.io/owner-name"):
        tests.append(lambda name: name == owner or name == "-".join(owner.split("-")[:-1]))
    if machine := annotations.get("machine.openshift.io/machine"):
        tests.append(lambda name: name == "-".join(machine.split("/")[-1].split("-")[:-1]))
    if kops := labels.get("kops.k8s.io/instancegroup"):
        tests.append(
            lambda name: name == kops or (name.startswith(f"{kops}.") and name != f"{kops}.")
        )
    if magnum := labels.get("magnum.openstack.org/nodegroup"):
        tests.append(
            lambda name: (
                name == magnum
                or (name.startswith(f"{magnum}-") and is_hex(name.removeprefix(f"{magnum}-")))
            )
        )
    for written, keys in (
        (labels, EXACT[:-1]),
        (annotations, EXACT_ANNOTATIONS),
        (labels, EXACT[-1:]),
    ):
        tests += (written[key].__eq__ for key in keys if key in written)
    return tests


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
