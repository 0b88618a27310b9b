"""Define the reasons against a node's removal that follow from the Node object alone."""

from collections.abc import Callable
from itertools import chain
from typing import Final

from core.eligibility.ordinary_node import OrdinaryNode
from core.marks.mark import opt_out_annotation
from core.marks.wellknown import REMOVAL_DISABLED
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
"""Control-plane labels that count with any value; kubelets may not set node-role labels."""
CONTROL_PLANE_TAINTS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",  # RKE
    "node-role.kubernetes.io/etcd",  # RKE, RKE2
)
"""Taints of control-plane nodes, which some installers set without the label."""
CONTROL_PLANE_ROLES: Final = (
    ("kubernetes.io/role", "master"),  # kOps, before 1.24
    ("node.k0sproject.io/role", "control-plane"),
)


UNREADABLE: Final = Reason(
    "unreadable",
    "The Node cannot be read, or its status has neither allocatable nor capacity. Ebb does not "
    "mark the node and places no pods on it.",
    "inspect the field in the message: kubectl get node {node} -o yaml; a restart of the kubelet "
    "rewrites the status",
    "the field in the message has a valid value",
)
VIRTUAL_NODE: Final = Reason(
    "virtual-node",
    "The node is virtual (virtual kubelet, Fargate): its removal would save no machine. Ebb does "
    "not mark it, places no pods on it, and does not count its capacity.",
    "none needed; if a machine backs the node, remove the label or taint that identifies a "
    "virtual node, such as type=virtual-kubelet or the taint virtual-kubelet.io/provider",
    "labels, taints and providerID do not identify the node as virtual any more",
)
OPTED_OUT: Final = Reason(
    "opted-out",
    "An annotation excludes the node from removal: Ebb's, Karpenter's or CAST AI's, or Cluster "
    "Autoscaler's scale-down-disabled if Ebb did not set it.",
    "remove the annotation: kubectl annotate node {node} {key}-",
    "the annotation is removed",
)
OPTED_OUT_LABEL: Final = Reason(
    "opted-out-label",
    "CAST AI's label excludes the node from removal.",
    "remove the label: kubectl label node {node} {key}-",
    "the label is removed",
)
CORDONED: Final = Reason(
    "cordoned",
    "The node is cordoned (spec.unschedulable). Ebb does not touch cordoned nodes.",
    "uncordon the node: kubectl uncordon {node}",
    "the node is uncordoned",
)
NOT_READY: Final = Reason(
    "not-ready",
    "The node is not Ready or its machine is suspended, or a transient taint keeps pods off it, "
    "for example while it starts or its disk is full. Ebb does not mark the node and places no "
    "pods on it.",
    "check Conditions and Taints: kubectl describe node {node}",
    "the node is Ready, its machine runs, and no transient taint keeps pods off it",
)
CONTROL_PLANE: Final = Reason(
    "control-plane",
    "The node has a control-plane label or taint. Ebb never marks control-plane nodes.",
    "none needed; if the node is not part of the control plane, remove the taint or the label: "
    "kubectl taint node {node} {key}-; kubectl label node {node} {key}-",
    "the label or the taint is removed",
)
BEING_DELETED: Final = Reason(
    "being-deleted",
    "Something else removes the node: the Node object or its NodeClaim is being deleted, or a "
    "taint or condition of another program announces its removal, such as a taint of an "
    "autoscaler or the condition of a spot interruption. Ebb does not count the capacity of the "
    "node, and finds places for the pods of the node first.",
    "none needed; if the node remains, read the log of the autoscaler, or of the program "
    "that set the taint or condition in the message",
    "the node is gone, the taint is removed, or the condition has changed or is an hour old",
)


def _opted_out(node: Node) -> tuple[str, str] | None:
    key = opt_out_annotation(node)
    return (f"the node has the annotation {key}: {node.annotations[key]!r}", key) if key else None


def _opted_out_by_label(node: Node) -> tuple[str, str] | None:
    if node.labels.get(REMOVAL_DISABLED) != "true":
        return None
    return f"the node has the label {REMOVAL_DISABLED}: 'true'", REMOVAL_DISABLED


def _control_plane(node: Node) -> tuple[str, str] | None:
    names = (key for key in CONTROL_PLANE_LABELS if key in node.labels)
    roles = (f"{key}={role}" for key, role in CONTROL_PLANE_ROLES if node.labels.get(key) == role)
    label = next(chain(names, roles), None)
    if label is not None:
        return f"the node belongs to the control plane (label {label})", label.partition("=")[0]
    taint = next((one.key for one in node.taints if one.key in CONTROL_PLANE_TAINTS), None)
    if taint is not None:
        return f"the node belongs to the control plane (taint {taint})", taint
    return None


Answer = str | tuple[str, str] | None
"""Message of a rule, alone or with the label or annotation that the fix names."""
NODE_RULES: Final[tuple[tuple[Reason, Callable[[Node], Answer]], ...]] = (
    (
        VIRTUAL_NODE,
        lambda node: "the node is virtual: no machine backs it" if node.virtual else None,
    ),
    (BEING_DELETED, why_leaving),
    (OPTED_OUT, _opted_out),
    (OPTED_OUT_LABEL, _opted_out_by_label),
    (
        CORDONED,
        lambda node: "the node is cordoned" if node.unschedulable else None,
    ),
    (NOT_READY, why_unready),
    (CONTROL_PLANE, _control_plane),
    (
        UNREADABLE,
        lambda node: f"the Node cannot be read: {node.unreadable}" if node.unreadable else None,
    ),
)
"""The rules. To add one, write a function of the node, and its entry here.

It must depend on the node alone: which nodes need no rule is derived from what the rules read."""
REASONS: Final = tuple(dict.fromkeys((BEING_DELETED, *(reason for reason, _ in NODE_RULES))))
"""Reasons in the order of their output."""


_ORDINARY_NODE: Final = OrdinaryNode(rule for _, rule in NODE_RULES)


def node_blockers(node: Node) -> list[Blocker]:
    """Return every reason against the node's removal that follows from the Node object alone.

    Empty if there is none.
    """
    if _ORDINARY_NODE.matches(node):
        return []
    answers = ((reason, rule(node)) for reason, rule in NODE_RULES)
    return [
        Blocker(reason, answer)
        if isinstance(answer, str)
        else Blocker(reason, answer[0], None, answer[1])
        for reason, answer in answers
        if answer is not None
    ]
