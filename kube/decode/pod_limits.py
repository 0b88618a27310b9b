"""Define limits on the constraints of a pod; Ebb never moves a pod that exceeds them."""

# Each constraint costs time in every reconciliation, for every node, and any user who may create
# pods can add constraints. Real pods are far below these limits.

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from core.model.errors import InvalidInputError
from kube.decode.objects import BLOCK_BYTES_MAX, Affinity, Expression

LABELS_MAX: Final = 128
SELECTORS_MAX: Final = 64
"""Maximum number of entries of a nodeSelector."""
NODE_TERMS_MAX: Final = 64
POD_TERMS_MAX: Final = 64
"""Maximum number of required terms of pod affinity and anti-affinity together."""
VALUES_MAX: Final = 1000
"""Maximum number of values and namespaces in all terms of an affinity."""
SPREADS_MAX: Final = 16
TOLERATIONS_MAX: Final = 128
HOST_PORTS_MAX: Final = 64
VOLUMES_MAX: Final = 256
CONTAINERS_MAX: Final = 1024
"""Maximum number of containers or of init containers; a pod with more is unreadable.

Each container takes some microseconds. With its status, a pod with so many containers would hardly
fit into etcd."""
RESOURCES_MAX: Final = 64
"""Maximum number of resources besides CPU, memory and ephemeral storage.

A pod with more is unreadable, as the resources that it uses are unknown then. Resources with an
amount of 0 count, because sums are kept by name."""
NODE_RESOURCES_MAX: Final = 256
"""Maximum number of resources of a Node; a Node with more is unreadable."""
OWNER_CHARS_MAX: Final = 253
"""Maximum length of an owner's kind and name.

No object has a longer name, but the API server does not check owner references. Ebb stores these
texts as long as it stores facts about the workload."""
OWNER_CHARS_SHOWN: Final = 80
"""Length to which a longer text is cut before its digest is appended."""


def short_owner(text: str) -> str:
    """Return the kind or name of an owner, shortened if it is too long.

    The short text ends with a digest, so different texts stay different.
    """
    if len(text) <= OWNER_CHARS_MAX:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:OWNER_CHARS_SHOWN]}...{digest}"


def why_too_many(items: str, count: int, count_max: int) -> str:
    """Return a message if *count* exceeds *count_max*, else an empty text.

    *items*: plural noun for the message.
    """
    return f"{count:,} {items}, the limit is {count_max:,}" if count > count_max else ""


def check_count(items: str, count: int, count_max: int, field: str) -> None:
    """Check that *count* does not exceed *count_max*; *items*: plural noun for the message.

    Raises: InvalidInputError with *field*.
    """
    if problem := why_too_many(items, count, count_max):
        raise InvalidInputError(field, problem)


def too_large(**blocks: bytes) -> str:
    """Return a message about the first field with too much JSON to decode, else an empty text.

    *blocks*: JSON by name of the field.
    """
    problems = (
        why_too_many(f"bytes of {field}", len(raw), BLOCK_BYTES_MAX)
        for field, raw in blocks.items()
    )
    return next(filter(None, problems), "")


def too_many_terms(affinity: Affinity) -> str:
    """Return a message about the first limit that an affinity exceeds, else an empty text."""
    node_terms = (affinity.nodes and affinity.nodes.node_selector_terms) or ()
    pod_terms = (*affinity.near, *affinity.apart)
    values = sum(
        _values(term.match_expressions or ()) + _values(term.match_fields or ())
        for term in node_terms
    )
    for pod_term in pod_terms:
        values += len(pod_term.namespaces or ())
        for selector in (pod_term.label_selector, pod_term.namespace_selector):
            if selector is not None:
                values += len(selector.match_labels or ())
                values += _values(selector.match_expressions or ())
    return (
        why_too_many("node affinity terms", len(node_terms), NODE_TERMS_MAX)
        or why_too_many("pod affinity terms", len(pod_terms), POD_TERMS_MAX)
        or why_too_many("values in affinity terms", values, VALUES_MAX)
    )


def _values(expressions: Iterable[Expression]) -> int:
    return sum(max(1, len(expression.values or ())) for expression in expressions)
