"""May this pod run on that node: an ordered tuple of named rules, as kube-scheduler filters.

Resources are compared in core.packing, where they change; here stands what depends on the pod's
template and the node alone, so that it is asked once for each pair of kinds. What the rules here
cannot evaluate stands in Pod.unsupported and makes the pod not movable.
Source: kube-scheduler plugins NodeUnschedulable, TaintToleration, NodeAffinity.
"""

from collections.abc import Callable, Mapping
from typing import Final

from core.model import (
    Effect,
    Node,
    Placing,
    Pod,
    PodSelector,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", Effect.NO_SCHEDULE)
_REPELLING: Final = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Say whether one toleration covers one taint (k8s.io/api core/v1, ToleratesTaint)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator not in ("", "Equal") or not toleration.key:
        return False
    return toleration.value == taint.value


def not_cordoned(node: Node, placing: Placing) -> bool:
    """Refuse cordoned nodes, unless the pod tolerates the taint that stands for the cordon."""
    return not node.unschedulable or any(
        tolerates(toleration, UNSCHEDULABLE_TAINT) for toleration in placing.tolerations
    )


def taints_tolerated(node: Node, placing: Placing) -> bool:
    """Refuse nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""
    return all(
        any(tolerates(toleration, taint) for toleration in placing.tolerations)
        for taint in node.taints
        if taint.effect in _REPELLING
    )


def node_selected(node: Node, placing: Placing) -> bool:
    """Ask every label of the pod's nodeSelector of the node."""
    return all(node.labels.get(key) == value for key, value in placing.node_selector)


def affinity_met(node: Node, placing: Placing) -> bool:
    """Ask for one matching term of the required node affinity, if there is any affinity."""
    return placing.affinity is None or any(_term_met(node, term) for term in placing.affinity)


def _term_met(node: Node, term: SelectorTerm) -> bool:
    if not term.labels and not term.fields:
        return False  # the API: an empty term matches no object
    return all(meets(requirement, node.labels) for requirement in term.labels) and all(
        meets(requirement, {"metadata.name": node.name}) for requirement in term.fields
    )


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Evaluate one expression on a set of labels; an unknown operator matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    try:
        (bound,) = requirement.values
        have, limit = int(value or ""), int(bound)
    except ValueError:
        return False  # as the scheduler: not a number, no match
    return have > limit if requirement.operator == "Gt" else have < limit


Rule = Callable[[Node, Placing], bool]
RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("cordoned", not_cordoned),
    ("taint", taints_tolerated),
    ("node-selector", node_selected),
    ("node-affinity", affinity_met),
)
"""In the order in which kube-scheduler's default profile asks."""


def refusal(node: Node, placing: Placing) -> str | None:
    """Return the name of the first rule that refuses the pair, or None."""
    return next((name for name, rule in RULES if not rule(node, placing)), None)


def selects(selector: PodSelector, pod: Pod) -> bool:
    """Say whether an anti-affinity term may be about this pod."""
    if selector.namespaces is not None and pod.namespace not in selector.namespaces:
        return False
    return all(meets(requirement, pod.labels) for requirement in selector.requirements)
