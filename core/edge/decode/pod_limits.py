"""How much one pod may ask for and still be evaluated; a pod that asks for more does not move.

What is evaluated costs time in every pass, for every node and for every pod that is asked about,
and anybody who may create a pod writes it. Real pods stay far below.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from core.edge.decode.objects import Affinity, Expression, LabelSelector, NodeTerm, PodTerm
from core.model.errors import InvalidInputError

BLOCK_BYTES_MAX: Final = 16 * 1024
"""Of labels, nodeSelector, affinity, tolerations and topologySpreadConstraints, each, as JSON."""
LABELS_MAX: Final = 128
SELECTORS_MAX: Final = 64
"""Entries of a nodeSelector."""
NODE_TERMS_MAX: Final = 64
POD_TERMS_MAX: Final = 64
"""Required terms of pod affinity and anti-affinity together."""
VALUES_MAX: Final = 1024
"""Values and namespaces in all terms of an affinity together."""
SPREADS_MAX: Final = 16
TOLERATIONS_MAX: Final = 128
HOST_PORTS_MAX: Final = 64
VOLUMES_MAX: Final = 256
RESOURCES_MAX: Final = 64
"""Different resources beside CPU, memory and ephemeral storage; who asks for more is unreadable:
what it takes of its node is not known then. One that it asks 0 of counts: sums go by its name."""
RESOURCE_BYTES_MAX: Final = 128 * 1024
"""Of all blocks of resources in spec and status together; a container has some hundred. Who has
more is unreadable likewise, before anything of that is decoded."""
NODE_RESOURCES_MAX: Final = 256
"""Different resources of a Node; one with more is unreadable."""
OWNER_CHARS_MAX: Final = 253
"""Of the kind and of the name of an owner, each: no object has a longer name, but an API server
asks of a reference only that there is one. It is kept as long as its workload is remembered."""
OWNER_CHARS_SHOWN: Final = 80
"""Of a longer one, before its digest."""


def of_owner(text: str) -> str:
    """Return the kind or name of an owner, cut where it is too long; equal ones stay equal."""
    if len(text) <= OWNER_CHARS_MAX:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:OWNER_CHARS_SHOWN]}...{digest}"


def over(what: str, count: int, most: int) -> str:
    """Say that there are too many; empty: there are not."""
    return f"{count:,} {what}, over {most:,}" if count > most else ""


def few(what: str, count: int, most: int, field: str) -> None:
    """Let so many pass. Raises: InvalidInputError with the field."""
    if told := over(what, count, most):
        raise InvalidInputError(field, told)


def too_large(**blocks: bytes) -> str:
    """Say which of the blocks, by field, is too large to be looked at; empty: none."""
    found = (over(f"bytes of {field}", len(raw), BLOCK_BYTES_MAX) for field, raw in blocks.items())
    return next(filter(None, found), "")


def too_many_terms(asked: Affinity) -> str:
    """Say what of an affinity is too much; empty: nothing."""
    node_terms = (asked.nodes and asked.nodes.node_selector_terms) or ()
    pod_terms = (*asked.near, *asked.apart)
    values = sum(map(_values_of_node_term, node_terms)) + sum(map(_values_of_pod_term, pod_terms))
    return (
        over("node affinity terms", len(node_terms), NODE_TERMS_MAX)
        or over("pod affinity terms", len(pod_terms), POD_TERMS_MAX)
        or over("values in affinity terms", values, VALUES_MAX)
    )


def _values_of_node_term(term: NodeTerm) -> int:
    return _values(term.match_expressions or ()) + _values(term.match_fields or ())


def _values_of_pod_term(term: PodTerm) -> int:
    return len(term.namespaces or ()) + _values_of_selector(term.label_selector)


def _values_of_selector(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels or ()) + _values(selector.match_expressions or ())


def _values(expressions: Iterable[Expression]) -> int:
    return sum(max(1, len(one.values or ())) for one in expressions)
