"""Answers as YAML, with the same fields as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.formats.json import document, list_document
from runtime.yaml_text import as_yaml

if TYPE_CHECKING:  # slow to import
    from cli.answers import Answer, ClusterPart

part = document


def text(answer: "Answer") -> str:
    """Return an answer as YAML."""
    return as_yaml(document(answer))


def several(parts: "Sequence[ClusterPart]") -> str:
    """Return the answers for several clusters as YAML."""
    return as_yaml(list_document(parts))
