"""What all pods of a template share: decoded once for equal bytes, then one object for all.

Keys of the caches are the bytes as they were sent; their values are put into canonical order, so
that templates which differ in the order of their entries alone are equal too.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple, TypeVar

from core.edge.fields import read_field
from core.edge.objects import (
    AFFINITY_DECODER,
    TEXTS_DECODER,
    TOLERATIONS_DECODER,
    Affinity,
    Expression,
    NodeTerm,
    PodTerm,
)
from core.edge.objects import (
    Toleration as WireToleration,
)
from core.model import ANYWHERE, Placing, PodSelector, Requirement, SelectorTerm, Toleration

TEMPLATES_MAX: Final = 16_384
"""Entries of each cache, about 1 kB each; what is more is decoded again."""

Entry_ = TypeVar("Entry_")


class Template(NamedTuple):
    """What a pod asks of its surroundings."""

    placing: Placing
    attracts: bool
    """Required pod affinity."""
    repels: tuple[PodTerm, ...]
    """Required pod anti-affinity."""


ANY_TEMPLATE: Final = Template(ANYWHERE, attracts=False, repels=())
NO_AFFINITY: Final = Affinity()


@lru_cache(maxsize=TEMPLATES_MAX)
def template(selector: bytes, affinity: bytes, tolerations: bytes) -> Template:
    """Decode nodeSelector, affinity and tolerations. Raises: InvalidInputError with the field."""
    asked = read_field(AFFINITY_DECODER.decode, affinity, "spec.affinity") or NO_AFFINITY
    nodes = asked.node_affinity.required if asked.node_affinity else None
    texts = read_field(TEXTS_DECODER.decode, selector, "spec.nodeSelector") or {}
    tolerated = read_field(TOLERATIONS_DECODER.decode, tolerations, "spec.tolerations") or ()
    placing = Placing(
        node_selector=tuple(sorted(texts.items())),
        affinity=None if nodes is None else _ordered(map(_term, nodes.node_selector_terms or ())),
        tolerations=_ordered(map(_toleration, tolerated)),
    )
    attracted, repelled = asked.pod_affinity, asked.pod_anti_affinity
    return Template(
        _same(placing),
        attracts=bool(attracted and attracted.required),
        repels=tuple((repelled and repelled.required) or ()),
    )


def template_of_resident(affinity: bytes) -> Template:
    """Return what matters of a pod that lives and goes with its node: whom it repels.

    Nothing places such a pod, and a DaemonSet's affinity names the node: as many templates as
    pods, so they are not kept.
    """
    asked = read_field(AFFINITY_DECODER.decode, affinity, "spec.affinity")
    repelled = asked.pod_anti_affinity if asked else None
    if repelled is None or not repelled.required:
        return ANY_TEMPLATE
    return ANY_TEMPLATE._replace(repels=tuple(repelled.required))


@lru_cache(maxsize=TEMPLATES_MAX)
def labels(raw: bytes) -> Mapping[str, str]:
    """Decode a pod's labels; one mapping, never written to, for all pods that have the same."""
    found = read_field(TEXTS_DECODER.decode, raw, "metadata.labels") or {}
    return {intern(key): intern(value) for key, value in found.items()}


def selectors(terms: Iterable[PodTerm], namespace: str) -> tuple[PodSelector, ...]:
    """Return what anti-affinity terms select; a term without a label selector selects no pod."""
    return tuple(_selector(term, namespace) for term in terms if term.label_selector is not None)


def _selector(term: PodTerm, namespace: str) -> PodSelector:
    selector = term.label_selector
    texts = (selector and selector.match_labels) or {}
    expressions = (selector and selector.match_expressions) or ()
    requirements = [Requirement(key, "In", (value,)) for key, value in texts.items()]
    requirements += map(_requirement, expressions)
    namespaces = tuple(sorted(term.namespaces)) if term.namespaces else (namespace,)
    anywhere = term.namespace_selector is not None
    return PodSelector(None if anywhere else namespaces, _ordered(requirements))


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
