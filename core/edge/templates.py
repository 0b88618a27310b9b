"""What all pods of a template share: decoded once for equal bytes, then one object for all.

Keys of the caches are the bytes as they were sent; their values are put into canonical order, so
that templates which differ in the order of their entries alone are equal too.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from core.edge.fields import read_field
from core.edge.objects import NULL, TEXTS_DECODER
from core.edge.terms import (
    AFFINITY_DECODER,
    LABELS_DECODER,
    SPREADS_DECODER,
    TOLERATIONS_DECODER,
    Affinity,
    Expression,
    LabelSelector,
    NodeSelector,
    NodeTerm,
    PodTerm,
    Spread,
)
from core.edge.terms import (
    Toleration as WireToleration,
)
from core.model import (
    ALONE,
    Company,
    HostPort,
    Placing,
    PodAffinityTerm,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
)
from core.wants import NO_POD

TEMPLATES_MAX: Final = 16_384
"""Entries of each cache, about 1 kB each; what is more is decoded again."""

Entry_ = TypeVar("Entry_")


class Template(NamedTuple):
    """What a pod asks of its node, and whether it asks something of other pods."""

    placing: Placing
    social: bool
    """Required pod affinity or anti-affinity: see `company`."""


class Asked(NamedTuple):
    """What a pod asks of other pods."""

    company: Company
    unsupported: tuple[str, ...]
    """Field paths of what cannot be evaluated."""


NOTHING_ASKED: Final = Asked(ALONE, ())
NO_AFFINITY: Final = Affinity()
_NULL: Final = bytes(NULL)
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
"""Of label selectors; Gt and Lt are for nodes."""
NO_LABELS: Final = LabelSelector()
_HONOR: Final[Mapping[str | None, bool]] = {"Honor": True, "Ignore": False}


@lru_cache(maxsize=TEMPLATES_MAX)
def template(selector: bytes, affinity: bytes, tolerations: bytes) -> Template:
    """Decode nodeSelector, affinity and tolerations. Raises: InvalidInputError with the field."""
    asked = _affinity(affinity)
    nodes = asked.node_affinity.required if asked.node_affinity else None
    texts = read_field(TEXTS_DECODER.decode, selector, "spec.nodeSelector") or {}
    tolerated = read_field(TOLERATIONS_DECODER.decode, tolerations, "spec.tolerations") or ()
    placing = Placing(
        node_selector=tuple(sorted(texts.items())),
        affinity=None if nodes is None else node_terms(nodes),
        tolerations=_ordered(map(_toleration, tolerated)),
    )
    return Template(_same(placing), social=bool(_attracted(asked) or _repelled(asked)))


def company(
    affinity: bytes, spreads: bytes, ports: tuple[HostPort, ...], namespace: str, labels: bytes
) -> Asked:
    """Decode what the pod asks of other pods. Raises: InvalidInputError with the field."""
    if spreads == _NULL or b"matchLabelKeys" not in spreads:
        labels = _NULL  # so that pods which differ in their labels alone share the answer
    return _company(affinity, spreads, ports, namespace, labels)


@lru_cache(maxsize=TEMPLATES_MAX)
def _company(
    affinity: bytes, spreads: bytes, ports: tuple[HostPort, ...], namespace: str, own: bytes
) -> Asked:
    asked, unsupported = _affinity(affinity), set[str]()
    where = "spec.topologySpreadConstraints"
    constraints = read_field(SPREADS_DECODER.decode, spreads, where) or ()
    found = Company(
        near=_pod_terms(_attracted(asked), namespace, "podAffinity", unsupported),
        apart=_pod_terms(_repelled(asked), namespace, "podAntiAffinity", unsupported),
        spread=_ordered(
            _constraint(one, namespace, labels(own), unsupported)
            for one in constraints
            if one.when_unsatisfiable != "ScheduleAnyway"
        ),
        host_ports=_ordered(ports),
    )
    return Asked(_same_company(found), tuple(sorted(unsupported)))


def company_of_resident(affinity: bytes, ports: tuple[HostPort, ...], namespace: str) -> Company:
    """Return what others feel of a pod that lives and goes with its node.

    Nothing places such a pod, and a DaemonSet's affinity names the node: as many templates as
    pods, so only what comes out of them is kept.
    """
    apart = _pod_terms(_repelled(_affinity(affinity)), namespace, "podAntiAffinity", set())
    return _same_company(Company(apart=apart, host_ports=_ordered(ports)))


def budget_selector(raw: bytes, namespace: str) -> PodSelector:
    """Decode what a budget is about. Raises: InvalidInputError with the field."""
    found = read_field(LABELS_DECODER.decode, raw, "spec.selector")
    return _pods(found, (namespace,))


def node_terms(selector: NodeSelector) -> tuple[SelectorTerm, ...]:
    """Return node selector terms in canonical order."""
    return _ordered(map(_term, selector.node_selector_terms or ()))


@lru_cache(maxsize=TEMPLATES_MAX)
def labels(raw: bytes) -> Mapping[str, str]:
    """Decode a pod's labels; one mapping, never written to, for all pods that have the same."""
    found = read_field(TEXTS_DECODER.decode, raw, "metadata.labels") or {}
    return {intern(key): intern(value) for key, value in found.items()}


def _affinity(raw: bytes) -> Affinity:
    return read_field(AFFINITY_DECODER.decode, raw, "spec.affinity") or NO_AFFINITY


def _attracted(asked: Affinity) -> Sequence[PodTerm]:
    return (asked.pod_affinity and asked.pod_affinity.required) or ()


def _repelled(asked: Affinity) -> Sequence[PodTerm]:
    return (asked.pod_anti_affinity and asked.pod_anti_affinity.required) or ()


def _pod_terms(
    terms: Iterable[PodTerm], namespace: str, kind: str, unsupported: set[str]
) -> tuple[PodAffinityTerm, ...]:
    """Return the terms, and note the fields that cannot be evaluated.

    A term that is noted says at least what it says: it selects too many pods, never too few, so
    that as another pod's anti-affinity it can be asked all the same. (The API server puts the
    label keys into the selector itself.)
    """
    found = []
    for term in terms:
        namespaces: tuple[str, ...] | None = tuple(sorted(set(term.namespaces or (namespace,))))
        chosen = term.namespace_selector
        if chosen is not None:
            if chosen.match_labels or chosen.match_expressions:
                unsupported.add(f"spec.affinity.{kind}.namespaceSelector")
            namespaces = None
        if term.match_label_keys:
            unsupported.add(f"spec.affinity.{kind}.matchLabelKeys")
        if term.mismatch_label_keys:
            unsupported.add(f"spec.affinity.{kind}.mismatchLabelKeys")
        if not _known(term.label_selector):
            unsupported.add(f"spec.affinity.{kind}.labelSelector")
        selector = _pods(term.label_selector, namespaces)
        found.append(PodAffinityTerm(selector, term.topology_key))
    return _ordered(found)


def _constraint(
    found: Spread, namespace: str, own: Mapping[str, str], unsupported: set[str]
) -> SpreadConstraint:
    """Return the constraint, and note the fields that cannot be evaluated."""
    selector = found.label_selector
    keys = [key for key in found.match_label_keys or () if key in own]
    if keys and selector is None:
        selector = NO_LABELS
    affinity = _HONOR.get(found.node_affinity_policy or "Honor")
    taints = _HONOR.get(found.node_taints_policy or "Ignore")
    faults = {
        "whenUnsatisfiable": found.when_unsatisfiable != "DoNotSchedule",
        "maxSkew": found.max_skew is None or found.max_skew < 1,
        "minDomains": found.min_domains is not None and found.min_domains < 1,
        "nodeAffinityPolicy": affinity is None,
        "nodeTaintsPolicy": taints is None,
        "labelSelector": not _known(selector),
    }
    where = "spec.topologySpreadConstraints"
    unsupported.update(f"{where}.{field}" for field, wrong in faults.items() if wrong)
    counted = _pods(selector, (namespace,), {key: own[key] for key in keys})
    return SpreadConstraint(
        # Unlike in pod affinity, the scheduler counts no pod at all for an empty selector.
        selector=counted if counted.requirements else NO_POD,
        topology_key=found.topology_key,
        max_skew=found.max_skew or 1,
        min_domains=found.min_domains or 1,
        honor_affinity=affinity is not False,
        honor_taints=taints is True,
    )


def _pods(
    selector: LabelSelector | None,
    namespaces: tuple[str, ...] | None,
    also: Mapping[str, str] = MappingProxyType({}),
) -> PodSelector:
    """Return what a label selector selects: an empty one every pod, a missing one none."""
    if selector is None:
        return PodSelector((), ())
    texts = [*(selector.match_labels or {}).items(), *also.items()]
    requirements = [Requirement(key, "In", (value,)) for key, value in texts]
    requirements += map(_requirement, selector.match_expressions or ())
    return PodSelector(namespaces, _ordered(requirements))


def _known(selector: LabelSelector | None) -> bool:
    expressions = (selector and selector.match_expressions) or ()
    return all(expression.operator in _OPERATORS for expression in expressions)


def _term(term: NodeTerm) -> SelectorTerm:
    return SelectorTerm(
        _ordered(map(_requirement, term.match_expressions or ())),
        _ordered(map(_requirement, term.match_fields or ())),
    )


def _requirement(expression: Expression) -> Requirement:
    values = tuple(sorted(set(expression.values or ())))
    return Requirement(expression.key, expression.operator, values)


def _toleration(found: WireToleration) -> Toleration:
    return Toleration(
        found.key or "", found.operator or "Equal", found.value or "", found.effect or ""
    )


def _ordered(values: Iterable[Entry_]) -> tuple[Entry_, ...]:
    """Sort without doubles: whether any or all of them must hold, their order says nothing."""
    return tuple(sorted(set(values), key=repr))


@lru_cache(maxsize=TEMPLATES_MAX)
def _same(placing: Placing) -> Placing:
    """Return one object for equal placings."""
    return placing


@lru_cache(maxsize=TEMPLATES_MAX)
def _same_company(found: Company) -> Company:
    """Return one object for equal companies, ALONE for those that ask nothing."""
    return ALONE if found == ALONE else found
