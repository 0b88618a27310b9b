"""Answers as YAML, with the same fields as JSON."""

from collections.abc import Sequence

from cli.answers import Answer, ClusterPart
from cli.forms.json import document, list_document
from core.edge import files

part = document


def text(answer: Answer) -> str:
    """Return an answer as YAML."""
    return files.as_yaml(document(answer))


def several(parts: Sequence[ClusterPart]) -> str:
    """Return the answers for several clusters as YAML."""
    return files.as_yaml(list_document(parts))
