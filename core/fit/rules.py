"""May this pod run on that node: an ordered tuple of named rules, as kube-scheduler filters.

Resources are compared in core.packing, where they change; here stands what depends on the pod's
template and the node alone, so that it is asked once for each pair of kinds. What the rules here
cannot evaluate stands in Pod.unsupported and makes the pod not movable.
Source: kube-scheduler plugins NodeUnschedulable, TaintToleration, NodeAffinity, VolumeBinding (for
bound claims), VolumeZone and NodeDeclaredFeatures (from 1.36 on; who asks for such a feature of an
older scheduler may be refused here and not there).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from core.model.constraints import Placing, PodSelector, Requirement, SelectorTerm, Toleration
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod

Target_ = TypeVar("Target_")

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", Effect.NO_SCHEDULE)
_DIGITS: Final = re.compile(r"(?a)[+-]?\d{1,64}")
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


def repels(taint: Taint) -> bool:
    """Say whether the taint keeps away pods that do not tolerate it."""
    return taint.effect in _REPELLING


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
        if repels(taint)
    )


def node_selected(node: Node, placing: Placing) -> bool:
    """Ask every label of the pod's nodeSelector, and of its system, of the node."""
    return all(node.labels.get(key) == value for key, value in placing.labels)


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
    have, *limits = (number_in(text) for text in (value or "", *requirement.values))
    if have is None or len(limits) != 1 or limits[0] is None:
        return False  # as the scheduler: not a number, no match
    return have > limits[0] if requirement.operator == "Gt" else have < limits[0]


def number_in(text: str) -> int | None:
    """Read a number as the scheduler does (Go's ParseInt): `1_0` is a label, and no number."""
    found = int(text) if _DIGITS.fullmatch(text) else None
    return None if found is None or not -(2**63) <= found < 2**63 else found


def features_declared(node: Node, placing: Placing) -> bool:
    """Ask every feature of the kubelet that the pod needs of the node's declared ones."""
    return all(feature in node.features for feature in placing.features)


def volumes_reached(node: Node, placing: Placing) -> bool:
    """Ask for one matching term of the node affinity of every volume that has any."""
    return all(
        reach.affinity is None or any(_term_met(node, term) for term in reach.affinity)
        for reach in placing.volumes
    )


def volume_zones_met(node: Node, placing: Placing) -> bool:
    """Ask for the volumes' own zone labels, unless the node is in no zone and no region."""
    labels = node.labels
    if not placing.volumes or not any(key in labels for key in ZONE_LABELS):
        return True
    return all(
        labels.get(key, labels.get(ZONE_LABELS[key])) in values
        for reach in placing.volumes
        for key, values in reach.zones
    )


ZONE_LABELS: Final[Mapping[str, str]] = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes that bind them to a zone; on a node the newer one stands in for the older."""

Feature = tuple[str, str]
"""Something of a node that a rule looks at: a label by its key, or a field by its name."""
LABEL: Final = "label"
NAME: Final[Feature] = ("name", "")
TAINTS: Final[Feature] = ("taints", "")
CORDON: Final[Feature] = ("unschedulable", "")
DECLARED: Final[Feature] = ("features", "")


class Rule(NamedTuple):
    """A rule of fit, and what of a node it looks at for a template: nothing else may matter."""

    name: str
    admits: Callable[[Node, Placing], bool]
    reads: Callable[[Placing], Iterable[Feature]]


def _selected_labels(placing: Placing) -> Iterable[Feature]:
    return ((LABEL, key) for key, _ in placing.labels)


def _terms_read(terms: Iterable[SelectorTerm]) -> Iterable[Feature]:
    for term in terms:
        yield from ((LABEL, requirement.key) for requirement in term.labels)
        if term.fields:
            yield NAME


def _volumes_read(placing: Placing) -> Iterable[Feature]:
    for volume in placing.volumes:
        yield from _terms_read(volume.affinity or ())


def _zones_read(placing: Placing) -> Iterable[Feature]:
    return ((LABEL, key) for key in ZONE_LABELS) if placing.volumes else ()


Rules = tuple[Rule, ...]
TAINT_RULE: Final = Rule("taint", taints_tolerated, lambda _: (TAINTS,))
LABEL_RULES: Final[Rules] = (
    Rule("node-selector", node_selected, _selected_labels),
    Rule("node-affinity", affinity_met, lambda placing: _terms_read(placing.affinity or ())),
)
FEATURE_RULE: Final = Rule(
    "declared-features",
    features_declared,
    lambda placing: (DECLARED,) if placing.features else (),
)
VOLUME_RULES: Final[Rules] = (
    Rule("volume-node-affinity", volumes_reached, _volumes_read),
    Rule("volume-zone", volume_zones_met, _zones_read),
)
RULES: Final[Rules] = (
    Rule("cordoned", not_cordoned, lambda _: (CORDON,)),
    TAINT_RULE,
    *LABEL_RULES,
    *VOLUME_RULES,
    FEATURE_RULE,
)
"""In the order in which kube-scheduler's default profile asks."""


def refusal(node: Node, placing: Placing, rules: Rules = RULES) -> str | None:
    """Return the name of the first rule that refuses the pair, or None."""
    return next((rule.name for rule in rules if not rule.admits(node, placing)), None)


def selects(selector: PodSelector, pod: Pod) -> bool:
    """Say whether the selector is about this pod."""
    if selector.namespaces is not None and pod.namespace not in selector.namespaces:
        return False
    return all(meets(requirement, pod.labels) for requirement in selector.requirements)


class Finder(Generic[Target_]):
    """Things by the pods that they are about, found without asking every selector."""

    def __init__(self) -> None:
        self._at: dict[object, list[tuple[tuple[PodSelector, ...], Target_]]] = {}
        """By label (and namespace, if it is one), namespace, or None for the rest."""

    def add(self, selectors: tuple[PodSelector, ...], target: Target_) -> None:
        """Add what is about the pods that all the selectors select.

        One label that such a pod must have is where it is looked for, else its namespace.
        """
        wanted = (
            requirement
            for selector in selectors
            for requirement in selector.requirements
            if requirement.operator == "In"
        )
        fewest = min(wanted, key=lambda requirement: len(requirement.values), default=None)
        namespaces = selectors[0].namespaces if selectors else None
        places: Iterable[object] = (None,) if namespaces is None else namespaces
        if fewest is not None:
            where = namespaces if namespaces is not None and len(namespaces) == 1 else ()
            places = [(*where, fewest.key, value) for value in fewest.values]
        for place in places:
            self._at.setdefault(place, []).append((selectors, target))

    def matching(self, pod: Pod) -> list[Target_]:
        """Return all that is about the pod, in an order that the pod's labels decide."""
        labels = sorted(pod.labels.items())
        own = [(pod.namespace, *label) for label in labels]
        return [
            target
            for place in (*own, *labels, pod.namespace, None)
            for selectors, target in self._at.get(place, ())
            if all(selects(selector, pod) for selector in selectors)
        ]
