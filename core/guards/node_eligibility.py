"""Who may not go: an ordered tuple of rules, each with its reason; a rule says None or why not."""

from collections.abc import Callable
from itertools import chain
from typing import Final

from core.marks.mark import opt_out_annotation
from core.model.node import Node
from core.model.node_lifecycle import why_leaving, why_unready
from core.model.reason import Blocker, Reason

CONTROL_PLANE_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",  # RKE
    "node-role.kubernetes.io/etcd",  # K3s, RKE, RKE2
    "node-role.kubernetes.io/api-server",  # kOps
    "node.kubernetes.io/microk8s-controlplane",
)
"""The presence counts, whatever the value. Kubelets may not write those of node-role."""
CONTROL_PLANE_ROLES: Final = (
    ("kubernetes.io/role", "master"),  # kOps, before 1.24
    ("node.k0sproject.io/role", "control-plane"),
)


UNREADABLE: Final = Reason(
    "unreadable",
    "The Node could not be read, or its status has neither allocatable nor capacity, so "
    "nobody knows what it could hold: it stays and takes nothing.",
    "kubectl get node {node} -o yaml (the field is in the message); a kubelet that is "
    "restarted writes its status anew",
    "the field in the message is what the API says it must be",
)
VIRTUAL_NODE: Final = Reason(
    "virtual-node",
    "The node stands for no machine (a virtual kubelet, Fargate): there is nothing to save, "
    "so it never goes, takes no pods in a plan and is in no sum.",
    "nothing to do; if it is a machine, take away the label or taint that says otherwise",
    "neither its labels, nor its taints, nor its providerID say that it is virtual",
)
OPTED_OUT: Final = Reason(
    "opted-out",
    "An annotation keeps the node: Ebb's own, Karpenter's, or Cluster Autoscaler's "
    "scale-down-disabled written by somebody else than Ebb.",
    "kubectl annotate node {node} {key}-",
    "the annotation is gone",
)
CORDONED: Final = Reason(
    "cordoned",
    "The node is unschedulable: somebody is working on it, and Ebb keeps its hands off.",
    "kubectl uncordon {node}",
    "the node is schedulable again",
)
NOT_READY: Final = Reason(
    "not-ready",
    "The node's condition Ready is not True, or a taint that passes says that no pod may come "
    "yet, or now (it starts, its disk is full): it stays, and takes nothing.",
    "kubectl describe node {node} (see Conditions and Taints)",
    "the kubelet reports Ready, and no such taint is left",
)
CONTROL_PLANE: Final = Reason(
    "control-plane",
    "The node carries a control-plane label, and such nodes never go.",
    "nothing to do; if it is no control-plane node, remove the label: kubectl label "
    "node {node} {key}-",
    "the label is gone",
)
BEING_DELETED: Final = Reason(
    "being-deleted",
    "The node is leaving: its object is being deleted, or an autoscaler, a notice of the "
    "cloud or a person has tainted it. Ebb counts it as gone and places its pods first.",
    "nothing to do: somebody is at work; if it is stuck, whoever set the taint in the message "
    "says why in its own log",
    "the node is gone, or the taint has been taken back",
)


def _kept(node: Node) -> tuple[str, str] | None:
    key = opt_out_annotation(node)
    return (f"annotation {key}: {node.annotations[key]!r} keeps it", key) if key else None


def _control_plane(node: Node) -> tuple[str, str] | None:
    plain = (key for key in CONTROL_PLANE_LABELS if key in node.labels)
    roles = (f"{key}={role}" for key, role in CONTROL_PLANE_ROLES if node.labels.get(key) == role)
    label = next(chain(plain, roles), None)
    if label is None:
        return None
    return f"it belongs to the control plane (label {label})", label.partition("=")[0]


Found = str | tuple[str, str] | None
"""Why not, alone or with the key that its fix names."""
NODE_RULES: Final[tuple[tuple[Reason, Callable[[Node], Found]], ...]] = (
    (
        VIRTUAL_NODE,
        lambda node: "it is a virtual node: it stands for no machine" if node.virtual else None,
    ),
    (BEING_DELETED, why_leaving),
    (OPTED_OUT, _kept),
    (
        CORDONED,
        lambda node: "it is cordoned: somebody is working on it" if node.unschedulable else None,
    ),
    (NOT_READY, why_unready),
    (CONTROL_PLANE, _control_plane),
    (
        UNREADABLE,
        lambda node: f"it could not be read: {node.unreadable}" if node.unreadable else None,
    ),
)
REASONS: Final = tuple(dict.fromkeys((BEING_DELETED, *(reason for reason, _ in NODE_RULES))))
"""As they are told: what soon ends by itself comes first."""


def node_blockers(node: Node) -> list[Blocker]:
    """Return every reason that the node itself gives for staying."""
    verdicts = ((reason, rule(node)) for reason, rule in NODE_RULES)
    return [
        Blocker(reason, found)
        if isinstance(found, str)
        else Blocker(reason, found[0], None, found[1])
        for reason, found in verdicts
        if found is not None
    ]
