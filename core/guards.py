"""Who may not go: an ordered tuple of named rules for nodes, another for pods.

Each rule answers None or why not. The names are codes: they stand in plans, metrics and Events;
add, never rename.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from core.fit import selects
from core.marks import going, opted_out
from core.model import Node, Pod, PodSelector

CONTROL_PLANE_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)


class Blocker(NamedTuple):
    """One reason why a node stays."""

    code: str
    message: str
    pod: str | None = None
    """namespace/name of the pod that it is about, if it is about one."""


def _being_deleted(node: Node) -> str | None:
    return "an autoscaler is already deleting it" if going(node) else None


def _kept(node: Node) -> str | None:
    key = opted_out(node)
    return f"annotation {key}: {node.annotations[key]!r} keeps it" if key else None


def _cordoned(node: Node) -> str | None:
    return "it is cordoned: somebody is working on it" if node.unschedulable else None


def _not_ready(node: Node) -> str | None:
    return None if node.ready else "it is not Ready"


def _control_plane(node: Node) -> str | None:
    label = next((key for key in CONTROL_PLANE_LABELS if key in node.labels), None)
    return f"it belongs to the control plane (label {label})" if label else None


NODE_RULES: Final[tuple[tuple[str, Callable[[Node], str | None]], ...]] = (
    ("being-deleted", _being_deleted),
    ("opted-out", _kept),
    ("cordoned", _cordoned),
    ("not-ready", _not_ready),
    ("control-plane", _control_plane),
)


def node_blockers(node: Node) -> list[Blocker]:
    """Return every reason that the node itself gives for staying."""
    verdicts = ((code, rule(node)) for code, rule in NODE_RULES)
    return [Blocker(code, message) for code, message in verdicts if message is not None]


class PodRules:
    """What makes a pod not movable, given the whole cluster's pods."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        """Collect the anti-affinity terms that stand anywhere: they may concern any pod."""
        self.repelling: Sequence[PodSelector] = sorted(
            {selector for pod in pods for selector in pod.repels}, key=repr
        )

    def blocker(self, pod: Pod) -> Blocker | None:
        """Return why the pod cannot be placed by the engine, or None.

        The engine never guesses: a constraint that it cannot evaluate blocks.
        """
        if pod.unsupported:
            fields = ", ".join(pod.unsupported)
            return Blocker("pod-unsupported", f"asks what Ebb cannot evaluate: {fields}", pod.key)
        if any(selects(selector, pod) for selector in self.repelling):
            message = "another pod's required anti-affinity may refuse it"
            return Blocker("pod-repelled", message, pod.key)
        return None
