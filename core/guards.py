"""Who may not go: an ordered tuple of named rules for nodes, another for pods.

Each rule answers None or why not. The names are codes: they stand in plans, metrics and Events;
add, never rename.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple

from core.leaving import why_leaving
from core.marks import opted_out
from core.model import Node, Pod
from core.volumes import CLAIMS_FIELD as VOLUME_CLAIMS_FIELD

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


class Blocker(NamedTuple):
    """One reason why a node stays."""

    code: str
    message: str
    pod: str | None = None
    """namespace/name of the pod that it is about, if it is about one."""


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


CLAIMS_FIELD: Final = "spec.resourceClaims"


def pod_blockers(pod: Pod) -> list[Blocker]:
    """Return every reason why the pod cannot be placed by the engine.

    The engine never guesses: a constraint that it cannot evaluate blocks.
    """
    found = []
    if pod.unreadable:
        message = f"could not be read: {pod.unreadable}"
        found.append(Blocker("pod-unreadable", message, pod.key))
    if pod.too_much:
        found.append(Blocker("asks-too-much", f"asks for {pod.too_much}", pod.key))
    if CLAIMS_FIELD in pod.unsupported:
        message = "it holds devices by resource claims (DRA), which Ebb cannot place"
        found.append(Blocker("pod-resource-claims", message, pod.key))
    if VOLUME_CLAIMS_FIELD in pod.unsupported:
        faults = pod.ties.faults or ("what stands behind its claims has not been looked up",)
        found += (Blocker("pod-volumes", fault, pod.key) for fault in faults)
    others = (CLAIMS_FIELD, VOLUME_CLAIMS_FIELD)
    if fields := [field for field in pod.unsupported if field not in others]:
        message = f"asks what Ebb cannot evaluate: {', '.join(fields)}"
        found.append(Blocker("pod-unsupported", message, pod.key))
    return found
