"""Recognize virtual nodes: Nodes of virtual kubelets and serverless node pools.

A kubelet can write the labels of its own Node; the providerID cannot change once it is set. Ebb
trusts both if they say "virtual". A false claim excludes only that node and its own capacity from
every plan.

Sources: virtual-kubelet (AKS virtual nodes, ACK with ECI, CCE, Admiralty), EKS on Fargate, Liqo,
TKE super nodes, OKE virtual nodes.
"""

from collections.abc import Iterable, Mapping
from typing import Final

VIRTUAL_LABELS: Final = (
    ("type", "virtual-kubelet"),
    ("eks.amazonaws.com/compute-type", "fargate"),
    ("liqo.io/type", "virtual-node"),
    ("node.kubernetes.io/instance-type", "eklet"),
)
VIRTUAL_ROLE_LABEL: Final = "node-role.kubernetes.io/virtual-node"
"""Label of OKE's virtual nodes; its presence counts, whatever its value."""
VIRTUAL_TAINT: Final = "virtual-kubelet.io/provider"
"""Taint of virtual kubelets, whatever its value."""
COMPUTE_TAINT: Final = ("eks.amazonaws.com/compute-type", "fargate")
"""Taint of EKS on Fargate. Hybrid nodes are machines and register with the value `hybrid`."""
VIRTUAL_PROVIDERS: Final = ("liqo://", "ocid1.virtualnode")
"""Prefixes of the providerIDs of virtual nodes."""
FARGATE: Final = "/fargate-"
"""Prefix of the last part of an `aws://` providerID on Fargate."""


def is_virtual(
    labels: Mapping[str, str], taints: Iterable[tuple[str, str]], provider_id: str
) -> bool:
    """Return whether a Node with these labels, taints and providerID is virtual.

    *taints*: pairs of key and value.
    """
    return (
        any(labels.get(key) == value for key, value in VIRTUAL_LABELS)
        or VIRTUAL_ROLE_LABEL in labels
        or any(taint[0] == VIRTUAL_TAINT or taint == COMPUTE_TAINT for taint in taints)
        or provider_id.startswith(VIRTUAL_PROVIDERS)
        or (provider_id.startswith("aws://") and FARGATE in provider_id)
    )
