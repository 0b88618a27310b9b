"""Recognize leaving nodes and transient taints: the one table of the taint keys of other tools.

Controllers and people write these taints. NodeRestriction lets a kubelet set taints when it
registers its node, but not change them later. A false taint affects that node only.

Sources: Cluster Autoscaler utils/taints, Karpenter apis/v1 and v1beta1 taints.go, k8s.io/api
core/v1 well_known_taints.go, k8s.io/cloud-provider/api, aws-node-termination-handler pkg/node,
GoogleCloudPlatform/k8s-node-termination-handler, AKS node auto-drain, atlassian/escalator
docs/scale-process.md, docs.cast.ai (Evictor), node-compactor of pytorch/ci-infra,
medik8s/node-maintenance-operator, kubevirt.io node maintenance.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.model.node import Effect, Node, Taint
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
DELETING_TAINTS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",  # before Karpenter 1.0
        "atlassian.com/escalator",
        "autoscaling.cast.ai/draining",
    }
)
"""Taints of nodes that an autoscaler is deleting; it may still remove the taint and stop."""
LEAVING_TAINTS: Final = DELETING_TAINTS | {
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
    "remediator.aks.microsoft.com/unschedulable",  # its name before
    "node-compactor.osdc.io/consolidating",
    "medik8s.io/drain",
    "kubevirt.io/drain",
}
"""Taints of leaving nodes: an autoscaler deletes them, their machine stops or has stopped, or
another tool drains them."""
LeavingNodes = Mapping[int, tuple[Node, Node]]
"""Nodes as decoded and as converted, by the `id` of the decoded node."""
_TRANSIENT_TAINTS: Final = LEAVING_TAINTS | {
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "DeletionCandidateOfClusterAutoscaler",
}
_REPORTED_ELSEWHERE: Final = LEAVING_TAINTS | {
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure",
}
"""Taints for which `why_unready` gives no reason.

Leaving and cordoned nodes have reasons of their own. The admission controller lets every pod with
a memory request tolerate memory pressure."""


def name_leaving_taints(
    keys: Collection[str], nodes: Sequence[Node], before: LeavingNodes
) -> tuple[Sequence[Node], LeavingNodes]:
    """Set `leaving_taints` on the nodes that have a taint with one of the configured *keys*.

    *before*: the second value of the previous call.
    """
    if not keys:
        return nodes, {}
    wanted = frozenset(keys)
    # Return the same objects as before: callers compare nodes by identity from one reconciliation
    # to the next.
    found = {
        id(node): before.get(id(node)) or (node, replace(node, leaving_taints=own))
        for node in nodes
        if (own := tuple(taint.key for taint in node.taints if taint.key in wanted))
    }
    return [found[id(node)][1] if id(node) in found else node for node in nodes], found


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


def is_transient_taint(node: Node, taint: Taint) -> bool:
    """Return whether this taint of the node describes a temporary state, not its purpose."""
    key = taint.key
    return key in _TRANSIENT_TAINTS or says_starting(key) or key in node.leaving_taints


def others_taint(node: Node) -> str | None:
    """Return the key of the first taint that dedicates the node to some pods, or None.

    *node* must not carry Ebb's own taint.
    """
    return next((taint.key for taint in node.taints if not is_transient_taint(node, taint)), None)


def why_unready(node: Node) -> str | None:
    """Return why a node accepts no pods for now, or None; ignores leaving and cordoned nodes."""
    if node.suspended:
        return "the machine of the node is suspended (condition Suspended)"
    if not node.ready:
        return "the node is not Ready"
    keys = (
        taint.key
        for taint in node.taints
        if taint.effect in (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)
        and is_transient_taint(node, taint)
        and not (taint.key in _REPORTED_ELSEWHERE or taint.key in node.leaving_taints)
    )
    key = next(keys, None)
    return f"taint {key} temporarily keeps pods off the node" if key else None


def being_deleted(node: Node) -> bool:
    """Return whether the Node object is being deleted, or an autoscaler is about to delete it."""
    return node.deleting or any(taint.key in DELETING_TAINTS for taint in node.taints)


def why_leaving(node: Node) -> str | None:
    """Return how the node shows that it is leaving, or None if it is not."""
    if node.deleting:
        return "the Node object is being deleted (it has a deletionTimestamp)"
    keys = (taint.key for taint in node.taints)
    key = next((key for key in keys if key in LEAVING_TAINTS or key in node.leaving_taints), None)
    return f"taint {key} announces that the node will be removed" if key else None


def is_terminating(node: Node) -> bool:
    """Return whether the node is leaving; its capacity does not count then."""
    return why_leaving(node) is not None
