"""Decode selectors of nodes and pods into core.model.constraints, in canonical order."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from core.model.constraints import PodSelector, Requirement, SelectorTerm
from core.model.label_syntax import is_label_key, is_label_value, number_in
from kube.decode.objects import Expression, LabelSelector, NodeSelector, NodeTerm

Entry_ = TypeVar("Entry_")
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
"""Operators of label selectors; Gt and Lt are only for nodes."""
_NODE_OPERATORS: Final = _OPERATORS | {"Gt", "Lt"}
_FIELD_OPERATORS: Final = frozenset({"In", "NotIn"})


def node_terms(selector: NodeSelector) -> tuple[SelectorTerm, ...]:
    """Convert the terms of a node selector, without terms that kube-scheduler cannot parse.

    A node must match one of the terms; an empty result matches no node. Source: nodeaffinity of
    k8s.io/component-helpers and NewRequirement of k8s.io/apimachinery.
    """
    # A term that cannot be parsed matches no node, even if only one of its expressions is at
    # fault; the other terms still count. API servers refuse new pods with such terms, but pods
    # from before remain.
    terms = selector.node_selector_terms or ()
    return ordered(_term(term) for term in terms if _parses(term))


def _parses(term: NodeTerm) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    return all(
        expression.operator in _NODE_OPERATORS and _is_requirement(expression)
        for expression in expressions
    ) and all(
        expression.operator in _FIELD_OPERATORS and len(expression.values or ()) == 1
        for expression in fields
    )


def _is_requirement(expression: Expression) -> bool:
    values = expression.values or ()
    match expression.operator:
        case "In" | "NotIn":
            complete = bool(values)
        case "Gt" | "Lt":
            # A negative number is no label value, so it is refused as well.
            complete = len(values) == 1 and number_in(values[0]) is not None
        case _:
            complete = not values
    return complete and is_label_key(expression.key) and all(map(is_label_value, values))


def pods_of(
    selector: LabelSelector | None,
    namespaces: tuple[str, ...] | None,
    also: Mapping[str, str] = MappingProxyType({}),
) -> PodSelector:
    """Convert a label selector: an empty selector selects all pods, a missing one selects none.

    *namespaces*: where it selects pods; None: in all namespaces. *also*: labels that the pods must
    have in addition.
    """
    if selector is None:
        return PodSelector((), ())
    texts = [*(selector.match_labels or {}).items(), *also.items()]
    requirements = [Requirement(key, "In", (value,)) for key, value in texts]
    requirements += map(_requirement, selector.match_expressions or ())
    return PodSelector(namespaces, ordered(requirements))


def is_parsable(selector: LabelSelector | None) -> bool:
    """Return whether kube-scheduler can parse a label selector; True for a missing selector.

    If it cannot, it places the pod with this selector on no node.
    """
    expressions = (selector and selector.match_expressions) or ()
    labels = (selector and selector.match_labels) or {}
    return all(
        expression.operator in _OPERATORS and _is_requirement(expression)
        for expression in expressions
    ) and all(is_label_key(key) and is_label_value(value) for key, value in labels.items())


def _term(term: NodeTerm) -> SelectorTerm:
    return SelectorTerm(
        ordered(map(_requirement, term.match_expressions or ())),
        ordered(map(_requirement, term.match_fields or ())),
    )


def _requirement(expression: Expression) -> Requirement:
    values = tuple(sorted(set(expression.values or ())))
    return Requirement(expression.key, expression.operator, values)


def ordered(values: Iterable[Entry_]) -> tuple[Entry_, ...]:
    """Return *values* sorted and without duplicates; their order has no meaning in the API."""
    return tuple(sorted(set(values), key=repr))
