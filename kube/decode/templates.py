"""Decode the constraints that all pods of a pod template share; equal JSON is decoded once.

The keys of the caches (kube.decode.byte_lru) are the JSON as sent. Values are in canonical
order, so that constraints that differ only in the order of entries are equal.
"""

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Final, NamedTuple

from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD,
    NO_POD_CONSTRAINTS,
    HostPort,
    NamespaceChoice,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    SpreadConstraint,
    Toleration,
)
from kube.decode import pod_limits
from kube.decode.byte_lru import ByteBoundedCache, bytes_in
from kube.decode.field_decoding import NULL_BYTES
from kube.decode.objects import (
    AFFINITY,
    SPREADS,
    TEXTS,
    TOLERATIONS,
    Affinity,
    LabelSelector,
    PodTerm,
    Spread,
)
from kube.decode.objects import Toleration as WireToleration
from kube.decode.selectors import is_parsable, node_terms, ordered, pods_of


class Template(NamedTuple):
    """Node constraints of a pod, and whether it has required pod affinity or anti-affinity."""

    node_constraints: NodeConstraints
    constrains_pods: bool
    """The pod has required pod affinity or anti-affinity; see `pod_constraints`."""
    crosses_namespaces: bool = False
    """A term of pod affinity or anti-affinity, required or preferred, names namespaces."""
    too_much: str = ""
    """The limit that the constraints exceed; they are not decoded then."""


class Constraints(NamedTuple):
    """Constraints of a pod on other pods, such as pod affinity, topology spread and host ports."""

    pod_constraints: PodConstraints
    unsupported: tuple[str, ...]
    """Field paths of constraints that cannot be evaluated."""
    too_much: str = ""
    """The limit that the constraints exceed; only host ports are decoded then."""
    soft_spread: tuple[SpreadConstraint, ...] = ()
    """Topology spread constraints with ScheduleAnyway, without those that cannot be evaluated."""


NO_CONSTRAINTS: Final = Constraints(NO_POD_CONSTRAINTS, ())
NO_AFFINITY: Final = Affinity()
TOO_MANY_LABELS: Final[Mapping[str, str]] = {}
"""Value for labels that exceed the limits."""
NO_LABELS: Final = LabelSelector()
_HONOR: Final[Mapping[str | None, bool]] = {"Honor": True, "Ignore": False}
_WHEN_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")


_TEMPLATES: Final = ByteBoundedCache[tuple[bytes, bytes, bytes], Template]()
_POD_CONSTRAINTS: Final = ByteBoundedCache[
    tuple[bytes, bytes, tuple[HostPort, ...], str, bytes], Constraints
]()
_LABELS: Final = ByteBoundedCache[bytes, Mapping[str, str]]()
_SAME_NODE_CONSTRAINTS: Final = ByteBoundedCache[NodeConstraints, NodeConstraints]()
_SAME_POD_CONSTRAINTS: Final = ByteBoundedCache[PodConstraints, PodConstraints]()


def template(selector: bytes, affinity: bytes, tolerations: bytes) -> Template:
    """Decode the node constraints of a pod: JSON of its nodeSelector, affinity and tolerations.

    If they exceed a limit, the result has no constraints, and `too_much` names the limit. Raises:
    InvalidInputError with the invalid field.
    """
    key = selector, affinity, tolerations
    return _TEMPLATES[key] or _TEMPLATES.compute(key, lambda: _template(*key))


def _template(selector: bytes, affinity: bytes, tolerations: bytes) -> Template:
    too_much = pod_limits.too_large(
        nodeSelector=selector, affinity=affinity, tolerations=tolerations
    )
    if too_much:
        return Template(NO_NODE_CONSTRAINTS, constrains_pods=False, too_much=too_much)
    parsed_affinity = _affinity(affinity)
    texts = TEXTS.decode(selector, "spec.nodeSelector") or {}
    tolerated = TOLERATIONS.decode(tolerations, "spec.tolerations") or ()
    too_much = (
        pod_limits.too_many_terms(parsed_affinity)
        or pod_limits.why_too_many("entries of nodeSelector", len(texts), pod_limits.SELECTORS_MAX)
        or pod_limits.why_too_many("tolerations", len(tolerated), pod_limits.TOLERATIONS_MAX)
    )
    if too_much:
        return Template(NO_NODE_CONSTRAINTS, constrains_pods=False, too_much=too_much)
    node_constraints = NodeConstraints(
        node_selector=tuple(sorted(texts.items())),
        affinity=None if parsed_affinity.nodes is None else node_terms(parsed_affinity.nodes),
        tolerations=ordered(map(_toleration, tolerated)),
    )
    size = len(selector) + len(affinity) + len(tolerations)
    return Template(
        _SAME_NODE_CONSTRAINTS.same(node_constraints, size),
        constrains_pods=bool(parsed_affinity.near or parsed_affinity.apart),
        crosses_namespaces=parsed_affinity.names_namespaces,
    )


def pod_constraints(
    affinity: bytes, spreads: bytes, ports: tuple[HostPort, ...], namespace: str, labels: bytes
) -> Constraints:
    """Decode the constraints of a pod on other pods.

    *affinity*, *spreads* (topology spread constraints) and *labels*: JSON as sent. *ports*: the
    pod's host ports. *namespace*: of the pod. Raises: InvalidInputError with the invalid field.
    """
    if spreads == NULL_BYTES or b"matchLabelKeys" not in spreads:
        labels = NULL_BYTES  # pods that differ only in their labels share the entry
    key = affinity, spreads, ports, namespace, labels
    return _POD_CONSTRAINTS[key] or _POD_CONSTRAINTS.compute(key, lambda: _pod_constraints(*key))


def _pod_constraints(
    affinity: bytes, spreads: bytes, ports: tuple[HostPort, ...], namespace: str, own: bytes
) -> Constraints:
    too_much = pod_limits.too_large(topologySpreadConstraints=spreads)
    if too_much:
        return ports_only(ports, too_much)
    parsed_affinity, unsupported = _affinity(affinity), set[str]()
    where = "spec.topologySpreadConstraints"
    constraints = SPREADS.decode(spreads, where) or ()
    too_much = pod_limits.why_too_many(
        "topology spread constraints", len(constraints), pod_limits.SPREADS_MAX
    )
    if too_much:
        return ports_only(ports, too_much)
    result = PodConstraints(
        near=_pod_terms(parsed_affinity.near, namespace, "podAffinity", unsupported),
        apart=_pod_terms(parsed_affinity.apart, namespace, "podAntiAffinity", unsupported),
        spread=ordered(
            _spread_constraint(spread, namespace, labels(own), unsupported)
            for spread in constraints
            if spread.when_unsatisfiable != "ScheduleAnyway"
        ),
        host_ports=ordered(ports),
    )
    size = len(affinity) + len(spreads) + bytes_in(ports)
    return Constraints(
        _same_pod_constraints(result, size),
        tuple(sorted(unsupported)),
        soft_spread=_soft_spread(constraints, namespace, labels(own)),
    )


def _soft_spread(
    constraints: Iterable[Spread], namespace: str, own: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    soft = []
    for spread in constraints:
        if spread.when_unsatisfiable == "ScheduleAnyway":
            unsupported = set[str]()
            converted = _spread_constraint(spread, namespace, own, unsupported)
            if not unsupported:
                soft.append(converted)
    return ordered(soft)


def ports_only(ports: tuple[HostPort, ...], too_much: str) -> Constraints:
    """Return constraints with only the host ports, for a pod that exceeds a limit.

    *too_much*: message about the exceeded limit, which the result contains.
    """
    ports = ports[: pod_limits.HOST_PORTS_MAX]
    pod_constraints = _same_pod_constraints(
        PodConstraints(host_ports=ordered(ports)), bytes_in(ports)
    )
    return Constraints(pod_constraints, (), too_much)


def pod_constraints_of_resident(
    affinity: bytes, ports: tuple[HostPort, ...], namespace: str
) -> PodConstraints:
    """Return the constraints of a DaemonSet pod or static pod that affect other pods.

    These are anti-affinity and host ports. Ebb never places such a pod, so its other constraints
    do not matter. *affinity*: JSON as sent.
    """
    # The affinity of a DaemonSet pod names its node, so each pod has another affinity. Only the
    # result is cached.
    parsed_affinity = (
        NO_AFFINITY if pod_limits.too_large(affinity=affinity) else _affinity(affinity)
    )
    terms = () if pod_limits.too_many_terms(parsed_affinity) else parsed_affinity.apart
    apart = _pod_terms(terms, namespace, "podAntiAffinity", set())
    size = len(affinity) + bytes_in(ports)
    return _same_pod_constraints(PodConstraints(apart=apart, host_ports=ordered(ports)), size)


def labels(raw: bytes) -> Mapping[str, str]:
    """Decode the JSON of a pod's labels; TOO_MANY_LABELS if they exceed the limits.

    Never modify the result, which equal labels share.
    """
    cached = _LABELS[raw]
    return _LABELS.compute(raw, lambda: _labels(raw)) if cached is None else cached


def _labels(raw: bytes) -> Mapping[str, str]:
    if pod_limits.too_large(labels=raw):
        return TOO_MANY_LABELS
    texts = TEXTS.decode(raw, "metadata.labels") or {}
    if len(texts) > pod_limits.LABELS_MAX:
        return TOO_MANY_LABELS
    return {intern(key): intern(value) for key, value in texts.items()}


def _affinity(raw: bytes) -> Affinity:
    return AFFINITY.decode(raw, "spec.affinity") or NO_AFFINITY


def _pod_terms(
    terms: Iterable[PodTerm], namespace: str, kind: str, unsupported: set[str]
) -> tuple[PodAffinityTerm, ...]:
    """Convert the terms of pod affinity or anti-affinity.

    *namespace*: of the pod. *kind*: "podAffinity" or "podAntiAffinity". *unsupported*: a set to
    which the paths of fields are added that Ebb cannot evaluate.
    """
    # A term with such a field still applies. It selects too many pods, never too few, so Ebb never
    # places a pod that its anti-affinity would repel.
    converted = []
    for term in terms:
        namespaces: tuple[str, ...] | None = tuple(sorted(set(term.namespaces or (namespace,))))
        chosen, by_label = term.namespace_selector, None
        if chosen is not None:
            if chosen.match_labels or chosen.match_expressions:
                unsupported.add(f"spec.affinity.{kind}.namespaceSelector")
                names = tuple(sorted(set(term.namespaces or ())))
                by_label = NamespaceChoice(names, pods_of(chosen, None).requirements)
            namespaces = None
        if not is_parsable(term.label_selector):
            unsupported.add(f"spec.affinity.{kind}.labelSelector")
        # The API server adds matchLabelKeys and mismatchLabelKeys to the selector when the pod is
        # created (mutatePodAffinity of pkg/registry/core/pod); the scheduler reads only that.
        selector = pods_of(term.label_selector, namespaces)
        if selector.namespaces == ():
            by_label = None  # a missing label selector selects no pod in any namespace
        converted.append(PodAffinityTerm(selector, term.topology_key, by_label))
    return ordered(converted)


def _spread_constraint(
    spread: Spread, namespace: str, own: Mapping[str, str], unsupported: set[str]
) -> SpreadConstraint:
    """Convert a topology spread constraint.

    *namespace*, *own*: namespace and labels of the pod. *unsupported*: a set to which the paths of
    fields are added that Ebb cannot evaluate.
    """
    selector = spread.label_selector
    keys = [key for key in spread.match_label_keys or () if key in own]
    if keys and selector is None:
        selector = NO_LABELS
    affinity = _HONOR.get(spread.node_affinity_policy or "Honor")
    taints = _HONOR.get(spread.node_taints_policy or "Ignore")
    faults = {
        "whenUnsatisfiable": spread.when_unsatisfiable not in _WHEN_UNSATISFIABLE,
        "maxSkew": spread.max_skew is None or spread.max_skew < 1,
        "minDomains": spread.min_domains is not None and spread.min_domains < 1,
        "nodeAffinityPolicy": affinity is None,
        "nodeTaintsPolicy": taints is None,
        "labelSelector": not is_parsable(selector),
    }
    where = "spec.topologySpreadConstraints"
    unsupported.update(f"{where}.{field}" for field, wrong in faults.items() if wrong)
    counted = pods_of(selector, (namespace,), {key: own[key] for key in keys})
    return SpreadConstraint(
        # Unlike pod affinity, the scheduler counts no pods for an empty selector.
        selector=counted if counted.requirements else NO_POD,
        topology_key=spread.topology_key,
        max_skew=spread.max_skew or 1,
        min_domains=spread.min_domains or 1,
        honor_affinity=affinity is not False,
        honor_taints=taints is True,
    )


def _toleration(toleration: WireToleration) -> Toleration:
    return Toleration(
        toleration.key or "",
        toleration.operator or "Equal",
        toleration.value or "",
        toleration.effect or "",
    )


def _same_pod_constraints(constraints: PodConstraints, size: int) -> PodConstraints:
    return (
        NO_POD_CONSTRAINTS
        if constraints == NO_POD_CONSTRAINTS
        else _SAME_POD_CONSTRAINTS.same(constraints, size)
    )
