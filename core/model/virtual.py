"""Nodes that are no machines: what virtual kubelets and serverless node pools write on them.

Labels may be written by the node's own kubelet, and a providerID cannot change once it is set.
Either is believed when it says "virtual": a node that claims so without being it keeps itself and
its own capacity out of every plan, and no other node.
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
"""Of OKE; its presence counts, whatever its value."""
VIRTUAL_TAINT: Final = "virtual-kubelet.io/provider"
"""Whatever its value."""
COMPUTE_TAINT: Final = ("eks.amazonaws.com/compute-type", "fargate")
"""Other values are of machines: hybrid nodes register with `hybrid`."""
VIRTUAL_PROVIDERS: Final = ("liqo://", "ocid1.virtualnode")
"""How a providerID begins."""
FARGATE: Final = "/fargate-"
"""What the last part of a providerID of `aws://` begins with on Fargate."""


def is_virtual(
    labels: Mapping[str, str], taints: Iterable[tuple[str, str]], provider_id: str
) -> bool:
    """Say whether what stands on a node makes it one that stands for no machine.

    *taints*: of each its key and value.
    """
    return (
        any(labels.get(key) == value for key, value in VIRTUAL_LABELS)
        or VIRTUAL_ROLE_LABEL in labels
        or any(one[0] == VIRTUAL_TAINT or one == COMPUTE_TAINT for one in taints)
        or provider_id.startswith(VIRTUAL_PROVIDERS)
        or (provider_id.startswith("aws://") and FARGATE in provider_id)
    )
