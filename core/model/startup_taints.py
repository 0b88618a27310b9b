"""Nodes that start: the keys by which others say that no pod may come yet; the one table of them.

An agent or a controller takes its taint away when the node can run pods. A kubelet may set any of
them when it registers its node: one that lies is on its way for no longer than START_SECONDS_MAX.
Sources: k8s.io/api core/v1 well_known_taints.go, k8s.io/cloud-provider/api, Cluster Autoscaler
utils/taints, Karpenter apis/v1 and pkg/scheduling taints.go, Cluster API's node bootstrapping,
Gardener's dependency watchdog, Istio's untaint controller, the documentation of Cilium and of the
CSI drivers of AWS and Azure.
"""

from dataclasses import replace
from typing import Final

from core.model.node import Node
from core.model.now import Now

STARTING_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "karpenter.sh/unregistered",
        "node.cluster.x-k8s.io/uninitialized",
        "node.gardener.cloud/critical-components-not-ready",
        "cni.istio.io/not-ready",
    }
)
AGENT: Final = "/agent-not-ready"
"""How the keys end that wait for an agent: Cilium's, and those of the CSI drivers."""
STARTING_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",  # its name before
    "readiness.k8s.io/",
)
START_SECONDS_MAX: Final = 900
"""What takes longer, waits for something else: autoscalers give a machine up after so long."""


def says_starting(key: str) -> bool:
    """Say whether a taint of this key stands on nodes that start."""
    return key in STARTING_TAINTS or key.startswith(STARTING_PREFIXES) or key.endswith(AGENT)


def is_young(node: Node, now: Now) -> bool:
    """Return whether the node may still be starting, by its creation time alone."""
    made = node.created_seconds
    return made is not None and now.before(made + START_SECONDS_MAX)


def started(node: Node) -> Node:
    """Return the node as it is when it has started; the same one if no taint says that it does."""
    taints = tuple(taint for taint in node.taints if not says_starting(taint.key))
    return node if len(taints) == len(node.taints) else replace(node, taints=taints)
