"""Recognize nodes that are starting: the one table of startup taints.

An agent or a controller removes its startup taint when the node can run pods. A kubelet may set
any of these taints when it registers its node. Ebb therefore ignores a startup taint on a node
older than START_SECONDS_MAX.

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
"""Suffix of the taints that wait for a node agent: Cilium's, and those of CSI drivers."""
STARTING_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",  # its name before
    "readiness.k8s.io/",
)
START_SECONDS_MAX: Final = 900
"""Age in seconds up to which a node counts as starting; autoscalers give up on a machine then."""


def says_starting(key: str) -> bool:
    """Return whether taints with this key mean that the node is starting."""
    return key in STARTING_TAINTS or key.startswith(STARTING_PREFIXES) or key.endswith(AGENT)


def is_young(node: Node, now: Now) -> bool:
    """Return whether the node is young enough to be starting, by its creation time alone."""
    made = node.created_seconds
    return made is not None and now.before(made + START_SECONDS_MAX)


def started(node: Node) -> Node:
    """Return the node without its startup taints; the same object if it has none."""
    taints = tuple(taint for taint in node.taints if not says_starting(taint.key))
    return node if len(taints) == len(node.taints) else replace(node, taints=taints)
