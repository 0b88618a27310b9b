"""Answers as JSON; docs/support-policy.md says when a field may change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from core.config.settings import API_VERSION
from runtime.messages import printable

if TYPE_CHECKING:  # slow to import
    from cli.answers import ClusterPart

DIGITS: Final = 6
"""Decimal places of fractions."""


def list_document(parts: "Sequence[ClusterPart[Any]]") -> dict[str, Any]:
    """Return the answers for several clusters as one JSON document.

    Each item has the context, and the answer or the error because of which there is none.
    """
    items = [
        {"context": each.context, "error": printable(each.error) or None, "answer": each.part}
        for each in parts
    ]
    return {"apiVersion": API_VERSION, "kind": "ClusterList", "items": items}
