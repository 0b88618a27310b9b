"""Recognize starting and leaving nodes: the one table of other tools' taints and conditions.

Controllers and people write these taints. NodeRestriction lets a kubelet set taints when it
registers its node, but not change them later. A false taint affects that node only. An agent or a
controller removes its startup taint when the node can run pods. Since any kubelet can set a
startup taint, Ebb ignores startup taints on a node older than START_SECONDS_MAX.

Kubelets write the conditions of their node, and so may other agents on it. A false condition
affects that node only: its capacity does not count, and its pods are placed first. Whoever leaves
a condition behind would do so for ever, so a condition counts for LEAVING_SECONDS_MAX at most.

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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from core.model.node import Effect, Node, NodeCondition, Taint
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


class LeavingCondition(NamedTuple):
    """A condition that announces the removal of a node."""

    type: str
    status: str = "True"
    message: str = ""
    """Beginning of its message; empty: any message."""
    cordoned: bool = False
    """Only on a cordoned node: who writes it may leave it behind on nodes that stay."""


LEAVING_CONDITIONS: Final = (
    # Termination handlers of Cluster API, OpenShift and machine-controller-manager.
    LeavingCondition("Terminating"),
    # Azure, for which AKS drains the node. It does not for Freeze and Reboot.
    LeavingCondition("VMEventScheduled", message="Preempt"),
    LeavingCondition("VMEventScheduled", message="Redeploy"),
    LeavingCondition("VMEventScheduled", message="Terminate"),
    # Node lifecycle conditions of Kubernetes, without those of a maintenance. A drain that has
    # failed leaves them True.
    LeavingCondition("DrainInProgress", cordoned=True),
    LeavingCondition("Drained", cordoned=True),
)
"""Conditions of leaving nodes; the setting `leavingConditions` names more.

Sources: NodeTerminationCondition of machine-controller-manager, openshift/enhancements (spot
instances), kubernetes-sigs/cluster-api#3528, the documentation of AKS node auto-drain, the
proposal of lifecycle conditions for nodes (kubernetes/enhancements)."""
LEAVING_SECONDS_MAX: Final = 3600
"""Time after its last transition for which a condition announces a removal."""
LeavingNodes = Mapping[int, tuple[Node, Node]]
"""Nodes as decoded and as converted, by the `id` of the decoded node."""


class LeavingRules(NamedTuple):
    """What says that a node is leaving, besides LEAVING_TAINTS."""

    taints: Collection[str] = ()
    """Keys of taints: the setting `leavingTaints`."""
    conditions: Sequence[LeavingCondition] = LEAVING_CONDITIONS
    claims: Mapping[str, str] = {}
    """Why a node is leaving because of its NodeClaim, by node name."""
    now_seconds: int | None = None
    """Unix time; None if no time counts as passed."""


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


def name_leaving(
    rules: LeavingRules, nodes: Sequence[Node], before: LeavingNodes
) -> tuple[Sequence[Node], LeavingNodes]:
    """Return the nodes with `leaving_taints` and `leaving` set, and the next value of *before*.

    *before*: the second value of the previous call, so that unchanged nodes remain the same
    objects; empty in the first call.
    """
    taints, types = frozenset(rules.taints), frozenset(one.type for one in rules.conditions)
    # Return the same objects as before: callers compare nodes by identity from one reconciliation
    # to the next.
    converted: dict[int, tuple[Node, Node]] = {}
    for node in nodes:
        keys: tuple[str, ...] = ()
        if taints and node.taints:
            keys = tuple(taint.key for taint in node.taints if taint.key in taints)
        leaving, until = rules.claims.get(node.name, ""), None
        if not leaving and node.conditions and any(one.type in types for one in node.conditions):
            leaving, until = _leaving_by_condition(node, rules)
        if keys or leaving:
            known = before.get(id(node))
            if (
                known is None
                or known[0] is not node
                or _leaving_of(known[1]) != (keys, leaving, until)
            ):
                known = (
                    node,
                    replace(
                        node, leaving_taints=keys, leaving=leaving, leaving_until_seconds=until
                    ),
                )
            converted[id(node)] = known
    if not converted:
        return nodes, {}
    return [converted[id(node)][1] if id(node) in converted else node for node in nodes], converted


def _leaving_of(node: Node) -> tuple[tuple[str, ...], str, int | None]:
    return node.leaving_taints, node.leaving, node.leaving_until_seconds


def _leaving_by_condition(node: Node, rules: LeavingRules) -> tuple[str, int | None]:
    """Return why a condition says that the node is leaving, and until when; or an empty text."""
    for rule in rules.conditions:
        for condition in node.conditions:
            if (
                condition.type == rule.type
                and condition.status == rule.status
                and condition.message.startswith(rule.message)
                and (node.unschedulable or not rule.cordoned)
                and _is_recent(condition, rules.now_seconds)
            ):
                detail = f" ({rule.message})" if rule.message else ""
                why = f"condition {rule.type}{detail} announces that the node will be removed"
                return why, (condition.since_seconds or 0) + LEAVING_SECONDS_MAX
    return "", None


def _is_recent(condition: NodeCondition, now_seconds: int | None) -> bool:
    # Without a time nobody can tell. With a time in the future the condition could count for ever.
    since = condition.since_seconds
    return now_seconds is None or (
        since is not None and abs(now_seconds - since) < LEAVING_SECONDS_MAX
    )


def leaving_ends(nodes: Iterable[Node]) -> int | None:
    """Return the first Unix second at which a condition of a leaving node ends to count, or None.

    *nodes*: nodes of a Cluster.
    """
    ends = (node.leaving_until_seconds for node in nodes)
    return min((end for end in ends if end is not None), default=None)


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

    A node is leaving if it is being deleted, or if a taint, a condition or its NodeClaim announces
    its removal.
    """
    if node.deleting:
        return "the Node object is being deleted (it has a deletionTimestamp)"
    keys = (taint.key for taint in node.taints)
    key = next((key for key in keys if key in LEAVING_TAINTS or key in node.leaving_taints), None)
    return f"taint {key} announces that the node will be removed" if key else node.leaving or None


def is_terminating(node: Node) -> bool:
    """Return whether the node is leaving (`why_leaving`).

    The capacity of a leaving node does not count.
    """
    return why_leaving(node) is not None
