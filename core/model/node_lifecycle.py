"""Recognize starting and leaving nodes by their taints: the one table of other tools' taint keys.

Controllers and people write these taints. NodeRestriction lets a kubelet set taints when it
registers its node, but not change them later. A false taint affects that node only. An agent or a
controller removes its startup taint when the node can run pods. Since any kubelet can set a
startup taint, Ebb ignores startup taints on a node older than START_SECONDS_MAX.

Sources: Cluster Autoscaler utils/taints, Karpenter apis/v1, apis/v1beta1 and pkg/scheduling
taints.go, k8s.io/api core/v1 well_known_taints.go, k8s.io/cloud-provider/api, Cluster API's node
bootstrapping, Gardener's dependency watchdog, Istio's untaint controller, the documentation of
Cilium and of the CSI drivers of AWS and Azure, aws-node-termination-handler pkg/node,
GoogleCloudPlatform/k8s-node-termination-handler, AKS node auto-drain, atlassian/escalator
docs/scale-process.md, docs.cast.ai (Evictor), node-compactor of pytorch/ci-infra,
medik8s/node-maintenance-operator, kubevirt.io node maintenance; for rolling updates Cluster API
(NodeOutdatedRevisionTaint), machine-controller-manager (PreferNoScheduleKey,
NodePreservedTaintKey), kOps (rollingUpdateTaintKey), OpenShift's machine-config-operator
(NodeUpdateInProgressTaint), zalando-incubator/cluster-lifecycle-manager, and the examples of
kured.
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
"""Startup taints; `says_starting` knows others by their prefix or suffix."""
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
ROLLOUT_TAINTS: Final = frozenset(
    {
        "node.cluster.x-k8s.io/outdated-revision",
        "deployment.machine.sapcloud.io/prefer-no-schedule",
        "node.machine.sapcloud.io/preserved",
        "kops.k8s.io/scheduled-for-update",
        "UpdateInProgress",  # OpenShift
        "decommission-pending",
        "kured.dev/kured-node-reboot",
        "weave.works/kured-node-reboot",
    }
)
"""Taints of nodes that a rolling update will replace or restart, perhaps much later.

They describe a state, as the PreferNoSchedule taints of autoscalers do, and dedicate the node to
nobody. The node runs and takes pods until its turn comes."""
LeavingNodes = Mapping[int, tuple[Node, Node]]
"""Nodes as decoded and as converted, by the `id` of the decoded node."""
_TRANSIENT_TAINTS: Final = (
    LEAVING_TAINTS
    | ROLLOUT_TAINTS
    | {
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/unschedulable",
        "DeletionCandidateOfClusterAutoscaler",
    }
)
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
    """Return the nodes with `leaving_taints` set, and the value to pass as *before* next time.

    `leaving_taints` of a node are the keys of its taints that are in *keys*.

    *keys*: the setting `leavingTaints`. *before*: the second value of the previous call, so that
    unchanged nodes remain the same objects; empty in the first call.
    """
    if not keys:
        return nodes, {}
    wanted = frozenset(keys)
    # Return the same objects as before: callers compare nodes by identity from one reconciliation
    # to the next.
    converted = {
        id(node): before.get(id(node)) or (node, replace(node, leaving_taints=own))
        for node in nodes
        if (own := tuple(taint.key for taint in node.taints if taint.key in wanted))
    }
    return [converted[id(node)][1] if id(node) in converted else node for node in nodes], converted


def says_starting(key: str) -> bool:
    """Return whether taints with this key mean that the node is starting."""
    return key in STARTING_TAINTS or key.startswith(STARTING_PREFIXES) or key.endswith(AGENT)


def is_young(node: Node, now: Now) -> bool:
    """Return whether the node is young enough to be starting, by its creation time alone.

    It is if it was created less than START_SECONDS_MAX ago. False if the time is unknown.
    """
    made = node.created_seconds
    return made is not None and now.before(made + START_SECONDS_MAX)


def started(node: Node) -> Node:
    """Return the node as it will be after its start: without startup taints.

    The same object if it has no startup taint.
    """
    taints = tuple(taint for taint in node.taints if not says_starting(taint.key))
    return node if len(taints) == len(node.taints) else replace(node, taints=taints)


def is_transient_taint(node: Node, taint: Taint) -> bool:
    """Return whether this taint of the node describes a temporary state, not its purpose.

    Temporary states are, for example: starting, leaving, cordoned, not ready, or a full disk.
    """
    key = taint.key
    return key in _TRANSIENT_TAINTS or says_starting(key) or key in node.leaving_taints


def others_taint(node: Node) -> str | None:
    """Return the key of the first taint that dedicates the node to some pods; None if none does.

    Taints that describe a temporary state, such as starting, do not count. *node* must not carry
    Ebb's own taint.
    """
    return next((taint.key for taint in node.taints if not is_transient_taint(node, taint)), None)


def why_unready(node: Node) -> str | None:
    """Return a message why the node accepts no pods for now, or None if it accepts pods.

    Leaving and cordoned nodes are not considered here: they have reasons of their own.
    """
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
    """Return a message why the node counts as leaving, or None if it does not.

    A node is leaving if it is being deleted, or if a taint announces its removal.
    """
    if node.deleting:
        return "the Node object is being deleted (it has a deletionTimestamp)"
    keys = (taint.key for taint in node.taints)
    key = next((key for key in keys if key in LEAVING_TAINTS or key in node.leaving_taints), None)
    return f"taint {key} announces that the node will be removed" if key else None


def is_terminating(node: Node) -> bool:
    """Return whether the node is being deleted, or a taint announces its removal.

    The capacity of a leaving node does not count.
    """
    return why_leaving(node) is not None
