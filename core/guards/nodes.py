"""Who may not go: an ordered tuple of named rules for nodes, another for pods.

Each rule answers None or why not. The names are codes: they stand in plans, metrics and Events;
add, never rename.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final

from core.marks.optouts import opted_out
from core.model.leaving import why_leaving
from core.model.node import Node
from core.reason import Blocker

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


def _unreadable(node: Node) -> str | None:
    return f"it could not be read: {node.unreadable}" if node.unreadable else None


def _virtual(node: Node) -> str | None:
    return "it is a virtual node: it stands for no machine" if node.virtual else None


def _kept(node: Node) -> str | None:
    key = opted_out(node)
    return f"annotation {key}: {node.annotations[key]!r} keeps it" if key else None


def _cordoned(node: Node) -> str | None:
    return "it is cordoned: somebody is working on it" if node.unschedulable else None


def _not_ready(node: Node) -> str | None:
    return None if node.ready else "it is not Ready"


def _control_plane(node: Node) -> str | None:
    plain = (key for key in CONTROL_PLANE_LABELS if key in node.labels)
    roles = (f"{key}={role}" for key, role in CONTROL_PLANE_ROLES if node.labels.get(key) == role)
    label = next(chain(plain, roles), None)
    return f"it belongs to the control plane (label {label})" if label else None


NODE_RULES: Final[tuple[tuple[str, Callable[[Node], str | None]], ...]] = (
    ("virtual-node", _virtual),
    ("being-deleted", why_leaving),
    ("opted-out", _kept),
    ("cordoned", _cordoned),
    ("not-ready", _not_ready),
    ("control-plane", _control_plane),
    ("unreadable", _unreadable),
)


def node_blockers(node: Node) -> list[Blocker]:
    """Return every reason that the node itself gives for staying."""
    verdicts = ((code, rule(node)) for code, rule in NODE_RULES)
    return [Blocker(code, message) for code, message in verdicts if message is not None]
