"""Decode selectors of nodes and pods into the model, in canonical order."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from core.edge.decode.objects import Expression, LabelSelector, NodeSelector, NodeTerm
from core.model.constraints import PodSelector, Requirement, SelectorTerm

Entry_ = TypeVar("Entry_")
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
"""Operators of label selectors; Gt and Lt are only for nodes."""


def node_terms(selector: NodeSelector) -> tuple[SelectorTerm, ...]:
    """Return node selector terms in canonical order."""
    return ordered(map(_term, selector.node_selector_terms or ()))


def pods_of(
    selector: LabelSelector | None,
    namespaces: tuple[str, ...] | None,
    also: Mapping[str, str] = MappingProxyType({}),
) -> PodSelector:
    """Return the pods of a label selector: an empty selector selects all, a missing one none."""
    if selector is None:
        return PodSelector((), ())
    texts = [*(selector.match_labels or {}).items(), *also.items()]
    requirements = [Requirement(key, "In", (value,)) for key, value in texts]
    requirements += map(_requirement, selector.match_expressions or ())
    return PodSelector(namespaces, ordered(requirements))


def known(selector: LabelSelector | None) -> bool:
    """Return whether all operators are valid in label selectors."""
    expressions = (selector and selector.match_expressions) or ()
    return all(expression.operator in _OPERATORS for expression in expressions)


def _term(term: NodeTerm) -> SelectorTerm:
    return SelectorTerm(
        ordered(map(_requirement, term.match_expressions or ())),
        ordered(map(_requirement, term.match_fields or ())),
    )


def _requirement(expression: Expression) -> Requirement:
    values = tuple(sorted(set(expression.values or ())))
    return Requirement(expression.key, expression.operator, values)


def ordered(values: Iterable[Entry_]) -> tuple[Entry_, ...]:
    """Sort and remove duplicates; the order of entries has no meaning."""
    return tuple(sorted(set(values), key=repr))
